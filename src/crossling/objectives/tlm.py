r"""Translation language modelling (Conneau and Lample 2019; XLM-E §3.1).

L_TLM(e, f) = L_MLM([e; f])                                         [e; f]: <s> e </s> f </s>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from crossling.data.batches import Corrupted, Example
from crossling.objectives.mlm import MLM, corrupted


@dataclass(frozen=True)
class TLM(MLM):
    stream: ClassVar[Literal["text", "pairs"]] = "pairs"
    term: ClassVar[str] = "tlm"

    def corrupt(self, example: Example, rng: np.random.Generator, mask: int) -> Corrupted:
        return corrupted(example.joined(), rng, mask, self.rate, self.keep, self.random)
