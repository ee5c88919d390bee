"""The sampling part of a recipe: which rule turns counts into probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from crossling.sampling.exponent import tempered
from crossling.sampling.m2m import m2m
from crossling.sampling.marginals import Pair
from crossling.sampling.xy_lent import xy_lent

Rule = Literal["alpha", "m2m", "xy_lent"]
RULES: tuple[Rule, ...] = get_args(Rule)


@dataclass(frozen=True)
class Sampling:
    """Counts are tokens for text and pairs for bitext."""

    text_alpha: float = 0.7
    pair_rule: Rule = "alpha"
    pair_alpha: float = 0.7  # the exponent of a pair; of a language, 1 / T, for m2m and xy_lent
    pivot: str | None = None  # use only the pairs that contain this language ("en": EN-X); none: every X-Y pair
    relax: bool = False  # m2m and xy_lent: where their shares cannot be had, take the closest that can

    def of_text(self, tokens: Mapping[str, int]) -> dict[str, float]:
        """The probability of each language."""
        return tempered(tokens, self.text_alpha)

    def of_pairs(self, counts: Mapping[Pair, int]) -> dict[Pair, float]:
        """The probability of each language pair, both directions together."""
        if self.pair_rule == "alpha":
            return tempered(counts, self.pair_alpha)
        temperature = 1 / self.pair_alpha if self.pair_alpha else float("inf")
        return {"m2m": m2m, "xy_lent": xy_lent}[self.pair_rule](counts, temperature, self.relax)
