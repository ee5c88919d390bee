"""VoCap: allocation of vocabulary capacity to languages by average log probability (Zheng et al., 2021).

    ALP_l(s) = 1/S sum over the S sentences of language l of sum over their subwords of log relative frequency

is the average log probability of a language with its own vocabulary of s subwords. Every language starts with its
characters. The subwords that raise the ALP of some language most, weighted by (proportion of the language)^beta, follow
until the union of all vocabularies has the requested size. A subword of several languages counts once.

The ALP curve of a language is computed at sizes that double, as far as needed. Between them it is linear in the
logarithm of the size, and the vocabulary consists of the best subwords of the next larger one. Curves are cached on
disk under a hash of their text, so that another size or another beta reuses them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import sentencepiece
import xxhash

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file, read_json, write_json
from crossling.core.jobs import Job, run_jobs
from crossling.vocabulary import unigram
from crossling.vocabulary.text_normalization import default_charsmap, normalize_nfkc
from crossling.vocabulary.unigram import SubwordScores
from crossling.vocabulary.vocabulary import SPECIAL, UNK, Vocabulary

FIRST_SIZES = (250, 500, 1000)  # Computed for every language.
SIZES_PER_DOUBLING = 8  # Interpolated from one size to its double.
EM_PASSES = 3  # Over the sample, to estimate the probabilities of the union.
PSEUDO_COUNT = 0.5  # Added to the count of each subword, so that an unused one stays possible.
CACHE_FORMAT = f"2 {sentencepiece.__version__} {unigram.CHARACTER_COVERAGE}"

CurvePoint = tuple[int, float]  # vocabulary size, ALP


@dataclass(frozen=True)
class Allocation:
    """Vocabulary capacity of all languages."""

    scores: SubwordScores  # of the union
    sizes: dict[str, int]  # subwords of each language
    alp: dict[str, float]  # average log probability of each language with its own subwords, from its curve


@dataclass(frozen=True)
class LanguageCurve:
    """ALP of a language by vocabulary size, with its subwords from the most to the least important."""

    points: tuple[CurvePoint, ...]  # by size; the first is for characters alone
    rankings: dict[int, SubwordScores]  # by size
    is_exhausted: bool  # its text yields no more subwords

    def subwords(self, size: int) -> list[str]:
        """Return the characters and the best other subwords from the next computed size."""
        larger = min(computed for computed in self.rankings if computed >= size)
        return list(self.rankings[larger])[:size]


@dataclass(frozen=True)
class CapacityStep:
    """An increase of one language's vocabulary."""

    language: str
    size: int  # after the increase
    gain: float  # weighted gain of ALP per subword


def allocate_capacity(
    sample: Mapping[str, Sequence[str]],
    proportions: Mapping[str, float],
    size: int,
    *,
    cache: Path,
    beta: float = 0.7,
    workers: int = 1,
) -> Allocation:
    """Allocate vocabulary capacity to the languages of a sample.

    Args:
        sample: Lines by language.
        proportions: Proportion of each language in the training data.
        size: Number of subwords in the union, not counting special tokens.
        cache: Folder of cached curves.
        beta: Exponent of the proportions.
        workers: Processes that compute curves.

    Returns:
        The union with its probabilities, and the capacity and ALP of each language.
    """
    folders = {language: _cache_folder(cache, language, lines) for language, lines in sample.items()}
    weights = {language: proportions[language] ** beta for language in sample}
    requested: dict[str, tuple[int, ...]] = dict.fromkeys(sample, FIRST_SIZES)
    while True:
        points = [(folders[language], number) for language, sizes in requested.items() for number in sizes]
        missing = [(folder, number) for folder, number in points if not _point_file(folder, number).is_file()]
        if missing:
            run_jobs("vocap", [Job(f"{f.name} {n:,}", partial(_compute_point, f, n)) for f, n in missing], workers)
        everything = {language: _read_curve(folders[language], sizes) for language, sizes in requested.items()}
        curves = {language: curve for language, curve in everything.items() if curve.points}
        envelopes = {language: concave_envelope(interpolate_curve(curve.points)) for language, curve in curves.items()}
        steps = rank_steps(envelopes, weights)
        smallest = {language: envelope[0][0] for language, envelope in envelopes.items()}
        sizes = allocate_sizes(steps, smallest, size, curves)
        # A language at the end of its curve may deserve more. (The envelope of one that gains nothing more ends
        # before.)
        growing = [
            language
            for language, curve in everything.items()
            if not curve.is_exhausted and (not curve.points or sizes[language] == curve.points[-1][0])
        ]
        if not growing:
            break
        requested |= {language: (*requested[language], 2 * requested[language][-1]) for language in growing}
    chosen = fill_remaining(steps, sizes, size, curves)
    alp = {language: round(dict(envelopes[language])[number], 3) for language, number in sizes.items()}
    scores = estimate_scores(set(chain.from_iterable(chosen.values())), [*chain.from_iterable(sample.values())])
    return Allocation(scores, {language: len(subwords) for language, subwords in chosen.items()}, alp)


# ---- allocation ----------------------------------------------------------------------------------------------


def interpolate_curve(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Add points between each two, linear in the logarithm of the size."""
    grid = [points[0]]
    for (small, low), (large, high) in pairwise(points):
        steps = max(1, round(SIZES_PER_DOUBLING * np.log2(large / small)))
        for position in np.linspace(0, 1, steps + 1)[1:]:
            size = large if position == 1 else round(small * (large / small) ** position)
            if size > grid[-1][0]:
                fraction = np.log(size / small) / np.log(large / small)
                grid.append((size, float(low + fraction * (high - low))))
    return grid


def concave_envelope(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the points on the upper concave envelope, as far as it rises.

    On it no increase gains more than the one before. (This equals pooling adjacent increases until that holds.)
    """
    envelope: list[CurvePoint] = []
    for point in points:
        while len(envelope) > 1 and _slope(envelope[-1], point) >= _slope(envelope[-2], envelope[-1]):
            envelope.pop()
        envelope.append(point)
    while len(envelope) > 1 and envelope[-1][1] <= envelope[-2][1]:
        envelope.pop()
    return envelope


def rank_steps(curves: Mapping[str, Sequence[CurvePoint]], weights: Mapping[str, float]) -> list[CapacityStep]:
    """Return the increases of all languages, largest gain first. Those of one language stay in order."""
    steps = [
        CapacityStep(language, after[0], weights[language] * _slope(before, after))
        for language, curve in curves.items()
        for before, after in pairwise(curve)
    ]
    return sorted(steps, key=lambda step: (-step.gain, step.language, step.size))


def allocate_sizes(
    steps: Sequence[CapacityStep], smallest: Mapping[str, int], size: int, curves: Mapping[str, LanguageCurve]
) -> dict[str, int]:
    """Return the vocabulary size of each language after as many of the best steps as fit, found by bisection."""

    def sizes_after(count: int) -> dict[str, int]:
        return {**smallest, **{step.language: step.size for step in steps[:count]}}

    def union_size(count: int) -> int:
        return len(set().union(*(curves[language].subwords(n) for language, n in sizes_after(count).items())))

    required = union_size(0)
    if required > size:
        raise BadInput(
            f"size {size + len(SPECIAL)} is too small: the characters of these {len(smallest)} languages alone need"
            f" {required + len(SPECIAL)} entries. Give that size or more."
        )
    too_many = bisect_left(range(1, len(steps) + 1), True, key=lambda count: union_size(count) > size) + 1
    return sizes_after(too_many - 1)


def fill_remaining(
    steps: Sequence[CapacityStep], sizes: Mapping[str, int], size: int, curves: Mapping[str, LanguageCurve]
) -> dict[str, dict[str, None]]:
    """Return the subwords of each language. Single subwords of the next best steps fill the remaining capacity."""
    chosen = {language: dict.fromkeys(curves[language].subwords(number)) for language, number in sizes.items()}
    union = set(chain.from_iterable(chosen.values()))
    for step in steps:
        if step.size > sizes[step.language]:
            for subword in curves[step.language].subwords(step.size):
                if len(union) == size:
                    return chosen
                chosen[step.language][subword] = None
                union.add(subword)
    if len(union) < size:
        limit = len(union) + len(SPECIAL)
        raise BadInput(f"the text yields at most {limit} entries. Give a smaller size or more text.")
    return chosen


def _slope(a: CurvePoint, b: CurvePoint) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


# ---- probabilities of the union ------------------------------------------------------------------------------


def estimate_scores(subwords: Iterable[str], lines: Sequence[str]) -> SubwordScores:
    """Estimate log probabilities by hard EM: segment the lines, then count the subwords.

    The first pass uses equal scores, which segments into as few subwords as possible. (Starting from a mixture of the
    languages' own probabilities needs more subwords in every language and gives no better ALP.)
    """
    scores = dict.fromkeys(sorted(subwords), -10.0)
    for _ in range(EM_PASSES):
        vocabulary = Vocabulary.from_scores(scores, default_charsmap())
        counts = vocabulary.count_tokens(lines)[UNK + 1 : -1] + PSEUDO_COUNT
        logs = np.log(counts / counts.sum()).tolist()
        ranked = sorted(zip(scores, logs, strict=True), key=lambda item: (-item[1], item[0]))
        scores = {subword: unigram.round_score(log) for subword, log in ranked}
    return scores


# ---- curve of one language -----------------------------------------------------------------------------------


def average_log_probability(counts: Iterable[int], sentences: int) -> float:
    """Return the ALP of sentences from the count of each subword in them."""
    present = np.asarray([count for count in counts if count], dtype=np.float64)
    return float((present * np.log(present / present.sum())).sum() / sentences) if sentences else 0.0


def _cache_folder(cache: Path, language: str, lines: Sequence[str]) -> Path:
    """Return the folder of the curve on these lines, and write the lines to it."""
    text = "\n".join(lines).encode()
    folder = cache / f"{language}-{xxhash.xxh3_64_hexdigest(CACHE_FORMAT.encode() + text)}"
    if not (folder / "sample.txt").is_file():
        with atomic_file(folder / "sample.txt") as temporary:
            temporary.write_bytes(text)
    return folder


def _point_file(folder: Path, size: int) -> Path:
    return folder / f"{size}.json"


def _compute_point(folder: Path, size: int) -> None:
    """Train a vocabulary and write its subwords and ALP; neither if the text yields none of this size."""
    lines = (folder / "sample.txt").read_text(encoding="utf-8").split("\n")
    try:
        scores = unigram.train(map(normalize_nfkc, lines), size, at_most=True)
    except unigram.UnattainableSize:
        # No text yields more subwords than it has characters.
        write_json(_point_file(folder, size), {"exhausted": size > sum(map(len, lines))})
        return
    counts = Vocabulary.from_scores(scores, default_charsmap()).count_tokens(lines)
    # The same lines in single characters consist of the characters of these subwords.
    characters: Counter[str] = Counter({"<unk>": int(counts[UNK])})
    for subword, count in zip(scores, counts[UNK + 1 : -1].tolist(), strict=True):
        for character in subword:
            characters[character] += count
    ranked = sorted(scores, key=lambda subword: (len(subword) > 1, -scores[subword], subword))
    point = {
        "alp": average_log_probability(counts.tolist(), len(lines)),
        "alp_of_characters": average_log_probability(characters.values(), len(lines)),
        "scores": {subword: scores[subword] for subword in ranked},
        "exhausted": len(scores) < size,
    }
    write_json(_point_file(folder, size), point)


def _read_curve(folder: Path, sizes: Iterable[int]) -> LanguageCurve:
    points: dict[int, float] = {}
    rankings: dict[int, SubwordScores] = {}
    is_exhausted = False
    for size in sizes:
        point = read_json(_point_file(folder, size))
        is_exhausted = point["exhausted"]
        if scores := point.get("scores"):
            if not points:
                points[sum(len(subword) == 1 for subword in scores)] = point["alp_of_characters"]
            points[len(scores)], rankings[len(scores)] = point["alp"], scores
    return LanguageCurve(tuple(sorted(points.items())), rankings, is_exhausted)
