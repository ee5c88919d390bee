"""VoCap: as many pieces for each language as it gains from them (Zheng et al., 2021).

    ALP_l(s) = 1/S sum over its S sentences of sum over their pieces of log relative frequency

is how well language l is written with its own s pieces. Every language starts with its characters. Then the pieces that
raise some language's ALP most, weighted by (share of the language)^beta, are taken in turn until the union of all
vocabularies, pieces in common counted once, has the size asked for.

A language's curve is measured at sizes that double, as far as they are needed, and between them runs straight over the
logarithm of the size; a size between two takes the best pieces of the larger. Measurements stay on disk, in a folder
named after what was measured, so that another size, another beta or another try finds them there.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import sentencepiece
import xxhash

from crossling import tasks
from crossling.disk import new_file, write_json
from crossling.errors import BadInput
from crossling.vocabulary import unigram
from crossling.vocabulary.normalise import nfkc, plain_map
from crossling.vocabulary.sample import joined
from crossling.vocabulary.unigram import Scores
from crossling.vocabulary.vocabulary import SPECIAL, UNK, Vocabulary

FIRST = (250, 500, 1000)  # sizes measured for every language
BETWEEN = 8  # sizes considered from one size to its double
PASSES = 3  # over the sample, to estimate the probabilities of the united pieces
UNSEEN = 0.5  # occurrences granted to each piece, so that one that was not needed can be when it is
FORMAT = f"1 {sentencepiece.__version__} {unigram.COVERAGE}"

Point = tuple[int, float]  # pieces, ALP


@dataclass(frozen=True)
class Allocation:
    scores: Scores  # of the union
    sizes: dict[str, int]  # pieces given to each language
    alp: dict[str, float]  # of each language with its own pieces, by its curve


@dataclass(frozen=True)
class Language:
    """What was measured of a language: at every size its ALP, and its pieces from the most to the least needed."""

    points: tuple[Point, ...]  # by size; the first are its characters alone
    ranked: dict[int, Scores]  # by size
    ended: bool  # its text yields no more pieces

    def pieces(self, size: int) -> list[str]:
        """`size` pieces: the characters and the best others of the next vocabulary that is large enough."""
        large = min(measured for measured in self.ranked if measured >= size)
        return list(self.ranked[large])[:size]


@dataclass(frozen=True)
class Step:
    """An increase of one language's vocabulary."""

    language: str
    size: int  # after it
    gain: float  # weighted, per piece


def vocap(
    sample: Mapping[str, Sequence[str]],
    shares: Mapping[str, float],
    size: int,
    cache: Path,
    beta: float = 0.7,
    workers: int = 1,
) -> Allocation:
    """`size` pieces beside the special ones for the languages of `sample`, whose parts of the whole are `shares`."""
    places = {language: _place(cache, language, lines) for language, lines in sample.items()}
    weights = {language: shares[language] ** beta for language in sample}
    asked: dict[str, tuple[int, ...]] = dict.fromkeys(sample, FIRST)
    while True:
        wanted = [(places[language], n) for language, sizes in asked.items() for n in sizes]
        missing = [(place, n) for place, n in wanted if not _result(place, n).is_file()]
        if missing:
            tasks.run("vocap", [tasks.Task(f"{p.name} {n:,}", partial(_measure, p, n)) for p, n in missing], workers)
        known = {language: _read(places[language], sizes) for language, sizes in asked.items()}
        measured = {language: found for language, found in known.items() if found.points}
        curves = {language: concave(between(found.points)) for language, found in measured.items()}
        order = ranked_steps(curves, weights)
        sizes = allocate(order, {language: curve[0][0] for language, curve in curves.items()}, size, measured)
        # A language that has all that was measured of it may deserve more. (One that does not get larger any more,
        # or not better, has its end before.)
        growing = [
            language
            for language, found in known.items()
            if not found.ended and (not found.points or sizes[language] == found.points[-1][0])
        ]
        if not growing:
            break
        asked |= {language: (*asked[language], 2 * asked[language][-1]) for language in growing}
    chosen = filled(order, sizes, size, measured)
    alp = {language: round(dict(curves[language])[n], 3) for language, n in sizes.items()}
    scores = estimated(set(chain.from_iterable(chosen.values())), joined(sample))
    return Allocation(scores, {language: len(pieces) for language, pieces in chosen.items()}, alp)


# ---- allocation ----------------------------------------------------------------------------------------------


def between(points: Sequence[Point]) -> list[Point]:
    """The points and more between each two, on a straight line over the logarithm of the size."""
    grid = [points[0]]
    for (small, low), (large, high) in pairwise(points):
        steps = max(1, round(BETWEEN * np.log2(large / small)))
        for position in np.linspace(0, 1, steps + 1)[1:]:
            size = large if position == 1 else round(small * (large / small) ** position)
            if size > grid[-1][0]:
                part = np.log(size / small) / np.log(large / small)
                grid.append((size, float(low + part * (high - low))))
    return grid


def concave(points: Sequence[Point]) -> list[Point]:
    """The points on the concave line over all of them, as far as it rises: an increase never gains more than the one
    before it. (The same as to pool adjacent increases until that holds.)"""
    line: list[Point] = []
    for point in points:
        while len(line) > 1 and _slope(line[-1], point) >= _slope(line[-2], line[-1]):
            line.pop()
        line.append(point)
    while len(line) > 1 and line[-1][1] <= line[-2][1]:
        line.pop()
    return line


def ranked_steps(curves: Mapping[str, Sequence[Point]], weights: Mapping[str, float]) -> list[Step]:
    """Every increase of every language, best first; those of one language come in their order."""
    steps = [
        Step(language, after[0], weights[language] * _slope(before, after))
        for language, curve in curves.items()
        for before, after in pairwise(curve)
    ]
    return sorted(steps, key=lambda step: (-step.gain, step.language, step.size))


def allocate(
    order: Sequence[Step], smallest: Mapping[str, int], size: int, languages: Mapping[str, Language]
) -> dict[str, int]:
    """Pieces for each language: as many of the best steps as fit, found by bisection of the gain that is required."""

    def sizes(count: int) -> dict[str, int]:
        return {**smallest, **{step.language: step.size for step in order[:count]}}

    def union(count: int) -> int:
        return len(set(_united(sizes(count), languages)))

    needed = union(0)
    if needed > size:
        raise BadInput(
            f"--size {size + len(SPECIAL)} is too small for these {len(smallest)} languages, whose characters alone"
            f" need {needed + len(SPECIAL)}: give that or more"
        )
    too_many = bisect_left(range(1, len(order) + 1), True, key=lambda count: union(count) > size) + 1
    return sizes(too_many - 1)


def filled(
    order: Sequence[Step], sizes: Mapping[str, int], size: int, languages: Mapping[str, Language]
) -> dict[str, dict[str, None]]:
    """The pieces of each language, with the room that is left given one by one to those of the next best steps."""
    chosen = {language: dict.fromkeys(languages[language].pieces(n)) for language, n in sizes.items()}
    union = set(chain.from_iterable(chosen.values()))
    for step in order:
        if step.size > sizes[step.language]:
            for piece in languages[step.language].pieces(step.size):
                if len(union) == size:
                    return chosen
                chosen[step.language][piece] = None
                union.add(piece)
    if len(union) < size:
        raise BadInput(
            f"the text yields {len(union) + len(SPECIAL)} pieces at most: give a smaller --size or more text"
        )
    return chosen


def _united(sizes: Mapping[str, int], languages: Mapping[str, Language]) -> Iterator[str]:
    for language, size in sizes.items():
        yield from languages[language].pieces(size)


def _slope(a: Point, b: Point) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


# ---- probabilities of the union ------------------------------------------------------------------------------


def estimated(pieces: Iterable[str], lines: Sequence[str]) -> Scores:
    """Log probabilities from how often each piece is used when the lines are cut by those of the pass before.

    All alike at first, which cuts into as few pieces as there can be. (Starting from a mixture of the languages' own
    probabilities ends with more pieces for every language, and no better ALP.)
    """
    scores = dict.fromkeys(sorted(pieces), -10.0)
    for _ in range(PASSES):
        counts = Vocabulary.of(scores, plain_map()).counts(lines)[UNK + 1 : -1] + UNSEEN
        logs = np.log(counts / counts.sum()).tolist()
        best_first = sorted(zip(scores, logs, strict=True), key=lambda item: (-item[1], item[0]))
        scores = {piece: unigram.exact(log) for piece, log in best_first}
    return scores


# ---- measuring one language ----------------------------------------------------------------------------------


def likelihood(counts: Iterable[int], sentences: int) -> float:
    """ALP from how often each piece occurs in them."""
    found = np.asarray([count for count in counts if count], dtype=np.float64)
    return float((found * np.log(found / found.sum())).sum() / sentences) if sentences else 0.0


def _place(cache: Path, language: str, lines: Sequence[str]) -> Path:
    """The folder for what is measured on these lines, with the lines in it."""
    text = "\n".join(lines).encode()
    place = cache / f"{language}-{xxhash.xxh3_64_hexdigest(FORMAT.encode() + text)}"
    if not (place / "sample.txt").is_file():
        with new_file(place / "sample.txt") as new:
            new.write_bytes(text)
    return place


def _result(place: Path, size: int) -> Path:
    return place / f"{size}.json"


def _measure(place: Path, size: int) -> None:
    """Trains one vocabulary and leaves its pieces and its ALP; nothing in it where there is none of this size."""
    lines = (place / "sample.txt").read_text(encoding="utf-8").split("\n")
    try:
        scores = unigram.train(map(nfkc, lines), size, at_most=True)
    except unigram.DoesNotFit:
        write_json(_result(place, size), {"ended": size > sum(map(len, lines))})  # more pieces than characters: never
        return
    counts = Vocabulary.of(scores, plain_map()).counts(lines)
    # Written in characters alone, the same lines have the characters of these pieces.
    characters: Counter[str] = Counter({"<unk>": int(counts[UNK])})
    for piece, count in zip(scores, counts[UNK + 1 : -1].tolist(), strict=True):
        for character in piece:
            characters[character] += count
    ranked = sorted(scores, key=lambda piece: (len(piece) > 1, -scores[piece], piece))
    found = {
        "alp": likelihood(counts.tolist(), len(lines)),
        "alp_of_characters": likelihood(characters.values(), len(lines)),
        "scores": {piece: scores[piece] for piece in ranked},
        "ended": len(scores) < size,
    }
    write_json(_result(place, size), found)


def _read(place: Path, sizes: Iterable[int]) -> Language:
    points: dict[int, float] = {}
    ranked: dict[int, Scores] = {}
    ended = False
    for size in sizes:
        found = json.loads(_result(place, size).read_text(encoding="utf-8"))
        ended = found["ended"]
        if "scores" not in found:
            continue
        if not points:
            points[sum(len(piece) == 1 for piece in found["scores"])] = found["alp_of_characters"]
        points[len(found["scores"])] = found["alp"]
        ranked[len(found["scores"])] = found["scores"]
    return Language(tuple(sorted(points.items())), ranked, ended)
