"""Stateless weighted sampling without replacement: the n-th sample is a function of n.

Sample n is the point x_n = u + n A (mod 1) of a circle, where A is a square root. Each group owns an arc as long as its
probability. Such points are evenly spread, so every run of samples contains each group in its proportion. The number
of samples of a group before n is a sum of floors, which Euclid's algorithm computes in about forty steps for any n. A
keyed permutation of that number is the index of the example. So every example of a group is sampled once before any is
sampled twice, in a new order every epoch, and resuming at step 1,000,000 takes no time. When the probabilities change,
the points continue, and so do the counts.

With shuffle windows, the permutation stays inside a few long runs of consecutive examples for many steps. That suits
file systems on which random reads are slow.
"""
# G groups, N samples, M = 2^64 points of the circle

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np

from crossling.core.errors import BadInput, suggestion
from crossling.corpora.languages import small_languages
from crossling.data.keyed_random import mix_bits
from crossling.data.shards import Shards, TokenizedBitext
from crossling.data.teacher_vectors import TeacherVectors
from crossling.sampling import MOST_PAIRED, Pair, Sampling


def sampling_probabilities(shards: Shards, stream: str, sampling: Sampling) -> dict[str, float]:
    """Return the probability of each language (`sw`), or of each corpus in a language pair (`opus en-sw`)."""
    if stream == "sentences":
        return sampling.text_probabilities(sampling.select(TeacherVectors.open(shards).counts))
    check_languages(shards, sampling)
    if stream == "text":
        return sampling.text_probabilities(text_counts(shards, sampling))
    counts = pair_counts(shards, sampling)
    probabilities = sampling.pair_probabilities(counts)
    # The corpora of a language pair are sampled in proportion to their size.
    return {
        group_name(b): probabilities[pair] * b.pairs / counts[pair]
        for b in shards.bitexts
        if counts.get(pair := unordered_pair(b.languages))
    }


def group_name(bitext: TokenizedBitext) -> str:
    """Return the name of one corpus in one language pair: `opus en-sw`."""
    return f"{bitext.corpus} {'-'.join(bitext.languages)}"


def text_counts(shards: Shards, sampling: Sampling) -> dict[str, int]:
    """Return the number of tokens of each language that is used."""
    return sampling.select({language: entry["tokens"] for language, entry in shards.manifest["text"].items()})


def pair_counts(shards: Shards, sampling: Sampling) -> dict[Pair, int]:
    """Return the number of translation pairs of each language pair that is used."""
    small = skipped_languages(shards, sampling)
    return {pair: n for pair, n in _selected_pairs(shards, sampling).items() if small.isdisjoint(pair)}


def skipped_languages(shards: Shards, sampling: Sampling) -> set[str]:
    """Return the languages whose pairs are not used, because they have fewer than `sampling.min_pairs`."""
    if sampling.min_pairs is None:
        return set()
    counts = {pair: n for pair, n in _selected_pairs(shards, sampling).items() if n}
    return {*small_languages(counts, sampling.min_pairs)}


def _selected_pairs(shards: Shards, sampling: Sampling) -> dict[Pair, int]:
    """Return the number of translation pairs of each language pair that the settings of languages allow."""
    all_counts: Counter[Pair] = Counter()
    for bitext in shards.bitexts:
        all_counts[unordered_pair(bitext.languages)] += bitext.pairs
    counts, pivot = sampling.select(all_counts), sampling.pivot
    if pivot == MOST_PAIRED and counts:
        pivot = most_paired_language(counts)
    return {pair: n for pair, n in counts.items() if pivot is None or pivot in pair}


def most_paired_language(counts: Mapping[Pair, int]) -> str:
    """Return the language with the most translation pairs. Ties are broken by name."""
    pairs: Counter[str] = Counter()
    for pair, n in counts.items():
        pairs.update(dict.fromkeys(pair, n))
    return min(pairs, key=lambda language: (-pairs[language], language))


def check_languages(shards: Shards, sampling: Sampling) -> None:
    """Raise BadInput if the shards have neither text nor pairs of a language that the settings name."""
    present = {language for language, entry in shards.manifest["text"].items() if entry["tokens"]}
    present |= {language for bitext in shards.bitexts if bitext.pairs for language in bitext.languages}
    for key, languages in (("languages", sampling.language_subset), ("focus", sampling.focus_languages)):
        for language in sorted(languages - present):
            raise BadInput(
                f"{shards.path}: sampling.{key}={language} is not in these shards{suggestion(language, present)}"
            )


def unordered_pair(languages: tuple[str, str]) -> Pair:
    """Return two languages in alphabetical order."""
    first, second = sorted(languages)
    return first, second


BITS = 64
CIRCLE = 1 << BITS  # M
# A of several streams: square roots, whose multiples are evenly spread and independent of each other. Odd numbers, so
# every point occurs once in M samples.
STRIDES = tuple(math.isqrt(d << 2 * BITS) % CIRCLE | 1 for d in (2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17))
ROUNDS = 10  # of the permutation; with fewer, tiny sizes are visibly not random
WINDOWS_AT_ONCE = 16  # shuffle windows whose examples are shuffled together
REPLAYED = 1 << 20  # samples that are cheaper to repeat than to count by floors


class ExampleSampler:
    """Samples of one stream: sampler[step] is the group and the example of each sample of a step."""

    def __init__(
        self,
        probabilities: Sequence[float],
        sizes: Sequence[int],
        *,
        examples_per_step: int,
        key: Sequence[int],
        stream: int = 0,
        windows: Sequence[int] | None = None,
    ) -> None:
        """Create a sampler.

        Args:
            probabilities: Sampling probability of each group, up to a common factor.
            sizes: Number of examples of each group.
            examples_per_step: Samples of a step.
            key: Random key.
            stream: Number of the stream. Streams of different numbers are independent.
            windows: Examples of a shuffle window of each group [default: shuffle whole groups].
        """
        self.sizes_G = np.asarray(sizes, dtype=np.int64)
        self.windows_G = None if windows is None else np.asarray(windows, dtype=np.int64)
        self.examples_per_step = examples_per_step
        generator = np.random.default_rng([*key])
        self.first, self.order = generator.integers(CIRCLE - 1, dtype=np.uint64, endpoint=True, size=2).tolist()
        self.stride = STRIDES[stream % len(STRIDES)]
        self._set_probabilities(probabilities)
        self._set_start(0, np.zeros(len(self.sizes_G), dtype=np.int64))

    def reweight(self, probabilities: Sequence[float], step: int) -> ExampleSampler:
        """Return the same stream with other probabilities from a step on. No example is repeated early."""
        other = copy(self)
        other._set_probabilities(probabilities)
        other._set_start(step, self._counts_before(step))
        return other

    def _set_probabilities(self, probabilities: Sequence[float]) -> None:
        probability_G = np.asarray(probabilities, dtype=np.float64)
        cumulative_G = np.cumsum(probability_G / probability_G.sum())
        cumulative_G[np.flatnonzero(probability_G)[-1] :] = 1.0  # whatever the rounding, later groups have no arc
        # The end of each arc. The last one ends the circle.
        self.ends_G = [*(min(CIRCLE - 1, int(end * CIRCLE)) for end in cumulative_G[:-1].tolist()), CIRCLE]
        self._inner_ends = np.asarray(self.ends_G[:-1], dtype=np.uint64)

    def _set_start(self, step: int, before_G: np.ndarray) -> None:
        """Set the first step of these probabilities, and how often each group was sampled before it."""
        self._first_step, self._earlier_G = step, before_G
        self._step, self._before_G = step, before_G

    def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        group_N = self._groups(step)
        sample_N = self._counts_before(step)[group_N] + _rank(group_N)
        epoch_N, position_N = np.divmod(sample_N, self.sizes_G[group_N])
        key_N = mix_bits(mix_bits(np.uint64(self.order) + group_N.astype(np.uint64)) + epoch_N.astype(np.uint64))
        if self.windows_G is None:
            return group_N, permute(position_N, self.sizes_G[group_N], key_N)
        return group_N, permute_in_windows(position_N, self.sizes_G[group_N], self.windows_G[group_N], key_N)

    def _groups(self, step: int) -> np.ndarray:
        first = np.uint64(step * self.examples_per_step % CIRCLE)
        sample_N = np.arange(self.examples_per_step, dtype=np.uint64) + first
        point_N = np.uint64(self.first) + sample_N * np.uint64(self.stride)  # uint64 wraps at 2^64
        return np.searchsorted(self._inner_ends, point_N, side="right")

    def _counts_before(self, step: int) -> np.ndarray:
        """Return how often each group was sampled before a step."""
        if not 0 <= (step - self._step) * self.examples_per_step <= REPLAYED:
            assert step >= self._first_step, "these probabilities start at a later step"
            counts = [self._count_below(step, end) - self._count_below(self._first_step, end) for end in self.ends_G]
            self._step, self._before_G = step, self._earlier_G + np.diff(counts, prepend=0)
        while self._step < step:
            self._before_G = self._before_G + np.bincount(self._groups(self._step), minlength=len(self.sizes_G))
            self._step += 1
        return self._before_G

    def _count_below(self, step: int, end: int) -> int:
        """Count the samples before a step whose point is below `end`."""
        return count_below(step * self.examples_per_step, self.stride, self.first, CIRCLE, end)


def count_below(n: int, a: int, b: int, m: int, c: int) -> int:
    """Count the j < n with (a j + b) mod m < c, for 0 <= c <= m."""
    return n + floor_sum(n, m, a, b) - floor_sum(n, m, a, b - c + m)


def floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Return the sum over j < n of floor((a j + b) / m), for a, b >= 0, by Euclid's algorithm."""
    total = 0
    while n > 0:
        total += (n - 1) * n // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        top = a * n + b
        if top < m:
            break
        n, b, m, a = top // m, top % m, a, m
    return total


def permute(position_N: np.ndarray, size_N: np.ndarray, key_N: np.ndarray) -> np.ndarray:
    """Return the entry at each position of a random permutation of 0 ... size - 1, without storing the permutation.

    A Feistel network permutes the next power of two. A result outside `size` is permuted again until it is inside.
    """
    size_N = size_N.astype(np.uint64)
    bits_N = np.maximum(2, np.frexp((size_N - _1).astype(np.float64))[1]).astype(np.uint64)
    low_N = bits_N >> _1
    masks_N = (_1 << (bits_N - low_N)) - _1, (_1 << low_N) - _1  # of the two halves, which are swapped every round
    result_N = position_N.astype(np.uint64)
    outside = np.arange(len(result_N))
    while len(outside):
        key, value, masks = key_N[outside], result_N[outside], [mask[outside] for mask in masks_N]
        left, right = value >> low_N[outside], value & masks[1]
        for number, salt in enumerate(_SALTS):
            left, right = right, left ^ (mix_bits(right + (key ^ salt)) & masks[number % 2])
        value = (left << low_N[outside]) | right
        result_N[outside] = value
        outside = outside[value >= size_N[outside]]
    return result_N.astype(np.int64)


def permute_in_windows(
    position_N: np.ndarray, size_N: np.ndarray, window_N: np.ndarray, key_N: np.ndarray
) -> np.ndarray:
    """Return the entry at each position of a permutation of 0 ... size - 1 that is random in shuffle windows.

    A window is a run of consecutive entries. Windows come in random order. The entries of WINDOWS_AT_ONCE windows are
    shuffled together, before those of the next ones. The first window starts at a random entry, so the windows of two
    epochs differ. Entries that fill no window come last.
    """
    window_N = np.minimum(window_N, size_N)
    shuffled_N = WINDOWS_AT_ONCE * window_N
    start_N = position_N - position_N % shuffled_N
    key_of_start_N = mix_bits(key_N + start_N.astype(np.uint64))
    place_N = start_N + permute(position_N - start_N, np.minimum(shuffled_N, size_N - start_N), key_of_start_N)
    number_N, offset_N = np.divmod(place_N, window_N)
    windows_N = size_N // window_N
    is_whole_N = number_N < windows_N
    number_N[is_whole_N] = permute(number_N[is_whole_N], windows_N[is_whole_N], mix_bits(~key_N[is_whole_N]))
    first_N = (key_N % size_N.astype(np.uint64)).astype(np.int64)
    return np.asarray((first_N + number_N * window_N + offset_N) % size_N)


_1 = np.uint64(1)
_SALTS = mix_bits(np.arange(1, ROUNDS + 1, dtype=np.uint64))


def _rank(group_N: np.ndarray) -> np.ndarray:
    """Return how many earlier entries have the same group."""
    order = np.argsort(group_N, kind="stable")
    sorted_N = group_N[order]
    starts = np.flatnonzero(np.diff(sorted_N, prepend=-1))
    rank = np.empty(len(group_N), dtype=np.int64)
    rank[order] = np.arange(len(group_N)) - np.repeat(starts, np.diff(starts, append=len(group_N)))
    return rank
