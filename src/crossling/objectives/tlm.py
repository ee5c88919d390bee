r"""Translation language modelling (Conneau and Lample 2019; XLM-E §3.1).

    L_TLM(e, f) = L_MLM([e; f])                                         [e; f]: <s> e </s> f </s>

By the chain rule (InfoXLM Eq. 3) I(e, f; x) = I(e; x) + I(f; x | e): what its bound has over that of MLM is what the
translation tells about a masked token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from crossling.data.batches import Corrupted, Examples
from crossling.data.noise import Noise
from crossling.objectives.mlm import MLM


@dataclass(frozen=True)
class TLM(MLM):
    stream: ClassVar[Literal["text", "pairs"]] = "pairs"
    term: ClassVar[str] = "tlm"

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        return Corrupted({"ids": self.masked(examples.joined(), noise, mask)})
