"""Sampling settings of a recipe: the rule that turns counts into sampling probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar, get_args

from crossling.core.errors import prefix_errors
from crossling.core.settings import AT_LEAST_1, PROBABILITY
from crossling.corpora.languages import canonical_code
from crossling.sampling.marginals import Pair, temperature_sampling
from crossling.sampling.pair_rules import m2m, xy_lent

Rule = Literal["alpha", "m2m", "xy_lent"]
RULES: tuple[Rule, ...] = get_args(Rule)

MOST_PAIRED = "most"  # value of `pivot`: the language with the most pairs

MAX_LISTED = 6  # languages to list in a message
NEGLIGIBLE = 1e-12  # a smaller probability counts as never sampled

Key = TypeVar("Key", str, Pair)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings for sampling the languages of text and the language pairs of bitext.

    Counts are tokens for text and sentence pairs for bitext.

    Args:
        text_alpha: Exponent for text; 1 follows the data, 0 is uniform.
        pair_rule: Rule for pairs: temperature sampling by pair (`alpha`), M2M-100's or XY-LENT's rule by language.
        pair_alpha: Exponent of a pair; for m2m and xy_lent that of a language, 1 / T.
        languages: Use only these languages of the shards, as codes separated by commas, and only pairs of two of them
            [default: all].
        pivot: Use only pairs with this language: a code as `en`, or `most` for the language with the most pairs.
        relax: For m2m and xy_lent: use the closest feasible marginals if the pairs do not allow the exact ones.
        focus: Languages to adapt a model to, as codes separated by commas. Pairs with one of them belong to the focus.
        replay: With a focus, the probability of all other languages together, against forgetting.
        min_pairs: Use no pair of a language that has fewer sentence pairs in all. Its text is used [default: use all].
        full_blocks: Fill every block of text to its length, across the ends of sentences and documents [default: a
            block holds text of one document].
        shuffle_window: Read every corpus in runs of so many tokens, 16 of them at a time, in random order, with their
            examples shuffled. For file systems that are slow at random reads [default: shuffle whole corpora].

    Example:
        >>> sampling = crossling.Sampling(text_alpha=0.7, pair_rule="m2m")
    """

    text_alpha: Annotated[float, PROBABILITY] = 0.7
    pair_rule: Rule = "alpha"
    pair_alpha: Annotated[float, PROBABILITY] = 0.7
    languages: str | None = None
    pivot: str | None = None
    relax: bool = False
    focus: str | None = None
    replay: Annotated[float, PROBABILITY] = 0.5
    min_pairs: Annotated[int | None, AT_LEAST_1] = None
    full_blocks: bool | None = None
    shuffle_window: Annotated[int | None, AT_LEAST_1] = None

    @property
    def pair_description(self) -> str:
        """The pairs that are used, in words."""
        pivot = "the language with the most pairs" if self.pivot == MOST_PAIRED else self.pivot
        among = f" among {_listed(self.language_subset)}" if self.languages is not None else ""
        least = f" of languages with {self.min_pairs:,} or more" if self.min_pairs is not None else ""
        return f"translation pairs{f' with {pivot}' if pivot else ''}{among}{least}"

    @property
    def text_description(self) -> str:
        """The text that is used, in words."""
        return f"text in {_listed(self.language_subset)}" if self.languages is not None else "text"

    @property
    def language_subset(self) -> frozenset[str]:
        """Canonical codes of the only languages to use. Empty if all are used."""
        return _codes("languages", self.languages)

    @property
    def focus_languages(self) -> frozenset[str]:
        """Canonical codes of the languages in focus."""
        return _codes("focus", self.focus)

    def problems(self) -> Iterator[str]:
        """Yield languages of other settings that are not among `languages`, each as a message."""
        pivot = {self.pivot} if self.pivot is not None and self.pivot != MOST_PAIRED else frozenset()
        for key, named in (("focus", self.focus_languages), ("pivot", pivot)):
            missing = sorted(named - self.language_subset)
            if self.languages is not None and missing:
                yield (
                    f"sampling.{key} has {', '.join(missing)}, which is not in sampling.languages={self.languages}."
                    f" Add it there, or set another sampling.{key}."
                )

    def select(self, counts: Mapping[Key, int]) -> dict[Key, int]:
        """Return the counts of the languages, or of the pairs, that `languages` allows."""
        subset = self.language_subset
        return {
            key: n
            for key, n in counts.items()
            if self.languages is None or subset.issuperset([key] if isinstance(key, str) else key)
        }

    def text_probabilities(self, tokens: Mapping[str, int]) -> dict[str, float]:
        """Return the sampling probability of each language."""
        return self._with_replay(temperature_sampling(tokens, self.text_alpha), tokens)

    def pair_probabilities(self, counts: Mapping[Pair, int]) -> dict[Pair, float]:
        """Return the sampling probability of each language pair, both directions together."""
        if self.pair_rule == "alpha":
            probabilities = temperature_sampling(counts, self.pair_alpha)
        else:
            temperature = 1 / self.pair_alpha if self.pair_alpha else float("inf")
            probabilities = {"m2m": m2m, "xy_lent": xy_lent}[self.pair_rule](counts, temperature, self.relax)
        return self._with_replay(probabilities, counts)

    def _with_replay(self, probabilities: dict[Key, float], counts: Mapping[Key, int]) -> dict[Key, float]:
        """Scale the focus to 1 - replay and the rest to replay, keeping the proportions inside each.

        If the data has only one of the two, it keeps everything.
        """
        focus = self.focus_languages
        if not focus:
            return probabilities
        in_focus = {key: not focus.isdisjoint([key] if isinstance(key, str) else key) for key in probabilities}
        mass = {side: sum(p for key, p in probabilities.items() if in_focus[key] is side) for side in (True, False)}
        if min(mass.values()) < NEGLIGIBLE:
            # A sparse rule may never sample one side although it has data: there are no proportions to keep.
            if any(n and mass[in_focus[key]] < NEGLIGIBLE for key, n in counts.items()):
                side = "with" if mass[True] < NEGLIGIBLE else "without"
                warnings.warn(
                    f"sampling: {self.pair_rule} samples no pair {side} a language in focus, so sampling.replay has no"
                    " effect. Use another sampling.pair_rule.",
                    stacklevel=3,
                )
            return probabilities
        share = {True: 1 - self.replay, False: self.replay}
        return {key: p * share[in_focus[key]] / mass[in_focus[key]] for key, p in probabilities.items()}


def _codes(key: str, codes: str | None) -> frozenset[str]:
    """Return the canonical codes in the value of a setting."""
    if codes is None:
        return frozenset()
    with prefix_errors(f"sampling.{key}={codes}"):
        return frozenset(map(canonical_code, codes.split(",")))


def _listed(languages: Iterable[str]) -> str:
    listed = sorted(languages)
    return ", ".join(listed[:MAX_LISTED]) + (
        f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
    )
