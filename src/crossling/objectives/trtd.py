r"""Translation replaced token detection (XLM-E §3.1, Eq. 4 and 5): MRTD on a joined translation pair.

    L_TRTD(e, f) = L_MRTD([e; f])                                       [e; f]: <s> e </s> f </s>

Its generator loss is the TLM loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise
from crossling.objectives.mrtd import MRTD


@dataclass(frozen=True)
class TRTD(MRTD):
    stream: ClassVar[Literal["text", "pairs"]] = "pairs"
    generator_term: ClassVar[str] = "tlm"
    term: ClassVar[str] = "trtd"

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        return Corrupted({"ids": self.masked(examples.joined(), noise, mask)})
