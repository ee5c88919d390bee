"""The sampling part of a recipe: which rule turns counts into probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from crossling.corpora.languages import canonical
from crossling.errors import BadInput
from crossling.sampling.exponent import tempered
from crossling.sampling.m2m import m2m
from crossling.sampling.marginals import Pair
from crossling.sampling.xy_lent import xy_lent

Rule = Literal["alpha", "m2m", "xy_lent"]
RULES: tuple[Rule, ...] = get_args(Rule)

MOST = "most"  # as a pivot: the language that has the most pairs

NOTHING = 1e-12  # what has a probability below this is never drawn

Key = TypeVar("Key", str, Pair)


@dataclass(frozen=True)
class Sampling:
    """Counts are tokens for text and pairs for bitext."""

    text_alpha: float = 0.7
    pair_rule: Rule = "alpha"
    pair_alpha: float = 0.7  # the exponent of a pair; of a language, 1 / T, for m2m and xy_lent
    pivot: str | None = None  # use only pairs with this language ("en": EN-X; "most": with the one of most pairs)
    relax: bool = False  # m2m and xy_lent: where their shares cannot be had, take the closest that can
    focus: str | None = None  # the languages a model is being adapted to, codes by comma; their pairs count as theirs
    replay: float = 0.5  # with a focus: the share of draws that all others get, so that they are not forgotten

    @property
    def wanted_pairs(self) -> str:
        """Which pairs are used, in words."""
        if self.pivot is None:
            return "translation pairs"
        return f"translation pairs with {'the language of most pairs' if self.pivot == MOST else self.pivot}"

    @property
    def focused(self) -> frozenset[str]:
        """The languages in focus, by their canonical codes."""
        if self.focus is None:
            return frozenset()
        try:
            return frozenset(map(canonical, self.focus.split(",")))
        except BadInput as fault:
            raise BadInput(f"sampling.focus={self.focus}: {fault}") from None

    def of_text(self, tokens: Mapping[str, int]) -> dict[str, float]:
        """The probability of each language."""
        return self._with_replay(tempered(tokens, self.text_alpha), tokens)

    def of_pairs(self, counts: Mapping[Pair, int]) -> dict[Pair, float]:
        """The probability of each language pair, both directions together."""
        if self.pair_rule == "alpha":
            rates = tempered(counts, self.pair_alpha)
        else:
            temperature = 1 / self.pair_alpha if self.pair_alpha else float("inf")
            rates = {"m2m": m2m, "xy_lent": xy_lent}[self.pair_rule](counts, temperature, self.relax)
        return self._with_replay(rates, counts)

    def _with_replay(self, rates: dict[Key, float], counts: Mapping[Key, int]) -> dict[Key, float]:
        """The focus gets 1 - replay and all others replay, each in the proportions they had inside.

        If only one of the two is there, it gets everything.
        """
        focus = self.focused
        if not focus:
            return rates
        ours = {key: not focus.isdisjoint([key] if isinstance(key, str) else key) for key in rates}
        mass = {side: sum(rate for key, rate in rates.items() if ours[key] is side) for side in (True, False)}
        if min(mass.values()) < NOTHING:
            # A sparse rule may draw nothing of a side that is there, and then there are no proportions to keep.
            if any(n and mass[ours[key]] < NOTHING for key, n in counts.items()):
                side = "with" if mass[True] < NOTHING else "without"
                warnings.warn(
                    f"sampling: {self.pair_rule} draws no pair {side} a language in focus, so sampling.replay has no"
                    " effect; another sampling.pair_rule would draw some",
                    stacklevel=3,
                )
            return rates
        share = {True: 1 - self.replay, False: self.replay}
        return {key: rate * share[ours[key]] / mass[ours[key]] for key, rate in rates.items()}
