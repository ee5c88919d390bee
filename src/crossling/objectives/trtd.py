r"""Translation replaced token detection (XLM-E §3.1, Eq. 4 and 5): MRTD on a joined translation pair.

    L_TRTD(e, f) = L_MRTD([e; f])                                       [e; f]: <s> e </s> f </s>

Its generator loss is the TLM loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from crossling.data.batches import Corrupted, Example
from crossling.objectives.mlm import corrupted
from crossling.objectives.mrtd import MRTD, with_noise


@dataclass(frozen=True)
class TRTD(MRTD):
    stream: ClassVar[Literal["text", "pairs"]] = "pairs"
    generator_term: ClassVar[str] = "tlm"
    term: ClassVar[str] = "trtd"

    def corrupt(self, example: Example, rng: np.random.Generator, mask: int) -> Corrupted:
        return with_noise(corrupted(example.joined(), rng, mask, self.rate), rng)
