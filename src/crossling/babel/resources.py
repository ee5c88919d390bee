"""Resources: how much text and bitext each language has. They are unequal, so that sampling matters."""

from __future__ import annotations

from dataclasses import dataclass

FALL = 0.7  # the language of rank r has r^-FALL of what the first one has
FEWEST = 20  # rows of the smallest file
ALL_PAIRS = 8  # up to so many languages every pair has bitext

Pair = tuple[str, str]


@dataclass(frozen=True)
class Resources:
    """Sentences of text by language, rows by pair, rows of the multi-way corpus and each language's share of them."""

    text: dict[str, int]
    pairs: dict[Pair, int]
    multi: int
    coverage: dict[str, float]

    @classmethod
    def plan(cls, codes: list[str], sentences: int) -> Resources:
        share = {code: rank**-FALL for rank, code in enumerate(codes, start=1)}
        return cls(
            text={code: max(FEWEST, round(sentences * share[code])) for code in codes},
            pairs={(a, b): max(FEWEST, round(sentences / 2 * share[a] * share[b])) for a, b in chosen_pairs(codes)},
            multi=max(FEWEST, sentences // 5),
            coverage={code: round(share[code], 4) for code in codes},
        )


def chosen_pairs(codes: list[str]) -> list[Pair]:
    """Every pair of a few languages; of many, each with the first and with its next two in rank."""
    pairs = [(a, b) for number, a in enumerate(codes) for b in codes[number + 1 :]]
    if len(codes) <= ALL_PAIRS:
        return pairs
    rank = {code: number for number, code in enumerate(codes)}
    return [(a, b) for a, b in pairs if a == codes[0] or rank[b] - rank[a] <= 2]
