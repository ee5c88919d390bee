"""What of the corpora a vocabulary is made from: everything is read twice, line by line; a bounded part is kept.

The first reading surveys: how much there is of each language, which letters need a rule of their own, and an excerpt to
report on. The second takes the sample that pieces are learned from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from crossling.corpora.corpus import Corpora
from crossling.progress import Progress
from crossling.sampling import tempered
from crossling.vocabulary.normalise import odd_clusters

CHARACTERS = 40_000_000  # of the sample, all languages together
LONGEST = 4096  # characters of one line that count; SentencePiece's cost grows with the square of a long word
EXCERPT = 1000  # lines of each language to report on, up to twice as many


@dataclass(frozen=True)
class Survey:
    characters: dict[str, int]  # by language
    excerpts: dict[str, list[str]]  # by language, lines from all over its text
    odd: frozenset[str]  # clusters of letters and marks

    def shares(self, alpha: float) -> dict[str, float]:
        """The exponent-smoothed part of each language."""
        return tempered(self.characters, alpha)


def survey(corpora: Corpora) -> Survey:
    characters: dict[str, int] = {}
    excerpts: dict[str, list[str]] = {}
    odd: set[str] = set()
    with Progress("read", len(corpora.languages)) as progress:
        for done, language in enumerate(corpora.languages, start=1):
            kept = _Spread(EXCERPT)
            characters[language] = 0
            for line in corpora.lines(language):
                characters[language] += len(line)
                odd |= odd_clusters(line)
                kept.add(line[:LONGEST])
            excerpts[language] = kept.lines
            progress.update(done, language)
    return Survey(characters, excerpts, frozenset(odd))


def smoothed_sample(
    corpora: Corpora, characters: Mapping[str, int], alpha: float, budget: int = CHARACTERS, seed: int = 0
) -> dict[str, list[str]]:
    """About `budget` characters, by language, each with its exponent-smoothed share of them.

    `characters` is how many there are. Each line is kept with its language's rate; a language smaller than its share is
    kept whole.
    """
    shares = tempered(characters, alpha)
    sample = {}
    with Progress("sample", len(corpora.languages)) as progress:
        for index, language in enumerate(corpora.languages):
            rate = min(1.0, budget * shares[language] / max(1, characters[language]))
            draws = np.random.default_rng([seed, index])
            lines = corpora.lines(language)
            sample[language] = [line[:LONGEST] for line in lines if rate == 1.0 or draws.random() < rate]
            progress.update(index + 1, language)
    return sample


def joined(sample: Mapping[str, Iterable[str]]) -> list[str]:
    return [line for lines in sample.values() for line in lines]


class _Spread:
    """Lines at equal distances, all at first, then every second, every fourth: `count` or more, but not twice that."""

    def __init__(self, count: int) -> None:
        self.count, self.seen, self.stride = count, 0, 1
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        if self.seen % self.stride == 0:
            self.lines.append(line)
            if len(self.lines) == 2 * self.count:
                self.lines, self.stride = self.lines[::2], 2 * self.stride
        self.seen += 1
