"""Groups of numbered examples: the text of a language in blocks, or the pairs of one corpus in one language pair.

A block contains as many sentences of one document as fit. It ends with a sentence if that leaves at most a tenth of it
empty, else inside one. No block crosses the end of a document, and no token is dropped.

Full blocks (`sampling.full_blocks`) cut the text of a language into equal lengths, across documents. Nothing but the
</s> of its last sentence separates a document from the next one, and attention crosses it, as in one sequence.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file
from crossling.data.example_sampler import group_name, sampling_probabilities
from crossling.data.shards import ArrayWriter, Shards, TokenizedBitext, TokenizedSentences, map_array
from crossling.sampling import Sampling
from crossling.vocabulary.special_tokens import EOS

LENGTH_SAMPLE = 1000  # rows of a bitext from which its mean length is estimated
CHUNK_SIZE = 1 << 16  # documents, and blocks, in memory at a time
MIN_FILL = 0.9  # fraction of a block at which it may end with a sentence
READ_ONLY_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def block_starts(sentences: TokenizedSentences, capacity: int) -> np.ndarray:
    """Return the start of each block and the end of the last one.

    The array is cached beside the tokens and memory-mapped, because its size grows with the corpus.
    """
    starts = _starts(sentences, capacity)
    if sentences.folder is None:
        return np.concatenate([*starts])
    file = sentences.folder / f"blocks-{capacity}.npy"
    if not file.exists():
        try:
            with atomic_file(file) as new, ArrayWriter(new, np.int64) as column:
                for chunk in starts:
                    column.add(chunk)
        except OSError as error:
            if error.errno not in READ_ONLY_ERRORS:
                raise
            return np.concatenate([*_starts(sentences, capacity)])  # read-only shards
    return map_array(file)


def _starts(sentences: TokenizedSentences, capacity: int) -> Iterator[np.ndarray]:
    offsets = sentences.offsets
    documents = np.asarray([0, len(sentences)]) if sentences.documents is None else sentences.documents
    start, starts = 0, [0]
    for first in range(1, len(documents), CHUNK_SIZE):
        for end in offsets[documents[first : first + CHUNK_SIZE]].tolist():
            while start < end:
                limit = start + capacity
                if limit >= end:
                    start = end
                else:
                    fits = int(offsets[np.searchsorted(offsets, limit, side="right") - 1])
                    start = fits if fits - start >= MIN_FILL * capacity else limit
                starts.append(start)
            if len(starts) >= CHUNK_SIZE:
                yield np.asarray(starts, dtype=np.int64)
                starts = []
    yield np.asarray(starts, dtype=np.int64)


_NO_IDS = np.empty(0, dtype=np.int64)


Example = tuple[np.ndarray, np.ndarray, int]  # ids, translation ids, corpus row


@dataclass(frozen=True)
class TextGroup:
    """Text of one language in blocks."""

    name: str
    sentences: TokenizedSentences
    probability: float  # at the first step
    length: int

    @cached_property
    def starts(self) -> np.ndarray:
        return block_starts(self.sentences, self.length - 1)

    @property
    def mean_length(self) -> float:
        return 1 + len(self.sentences.tokens) / len(self)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def example(self, index: int) -> Example:
        return self.sentences.tokens[self.starts[index] : self.starts[index + 1]], _NO_IDS, -1

    def lengths(self, index_N: np.ndarray) -> np.ndarray:
        """Return the tokens of some examples with <s>. Reads no tokens."""
        return 1 + np.asarray(self.starts[index_N + 1] - self.starts[index_N])


class FullTextGroup(TextGroup):
    """Text of one language in full blocks. Only the last block may be shorter. Nothing is computed in advance."""

    def __len__(self) -> int:
        return -(-len(self.sentences.tokens) // (self.length - 1))

    def example(self, index: int) -> Example:
        start = index * (self.length - 1)
        return self.sentences.tokens[start : start + self.length - 1], _NO_IDS, -1

    def lengths(self, index_N: np.ndarray) -> np.ndarray:
        capacity = self.length - 1
        return 1 + np.asarray(np.minimum(capacity, len(self.sentences.tokens) - index_N * capacity))


@dataclass(frozen=True)
class PairGroup:
    """One corpus in one language pair."""

    name: str
    bitext: TokenizedBitext
    probability: float  # at the first step
    length: int
    eos: int = EOS

    @cached_property
    def mean_length(self) -> float:
        rows = np.arange(0, len(self.bitext.sides[0]), -(-len(self.bitext.sides[0]) // LENGTH_SAMPLE))
        lengths = np.stack([side.lengths(rows) for side in self.bitext.sides])
        lengths = lengths[:, (lengths > 0).all(0)]
        if not lengths.size:  # pairs so rare that the sample has none
            return 1.0 + sum(map(len, self._sides(self.bitext.row(0))))
        return 1 + float(np.minimum(lengths, self._side_limit).sum(0).mean())

    def __len__(self) -> int:
        return self.bitext.pairs

    def example(self, index: int) -> Example:
        row = self.bitext.row(index)
        source, target = self._sides(row)
        return source, target, (self.bitext.corpus_id << 40) + row

    def lengths(self, index_N: np.ndarray) -> np.ndarray:
        """Return the tokens of some examples with <s>, both sides together. Reads no tokens."""
        row_N = self.bitext.rows(index_N)
        source_N, target_N = (np.minimum(side.lengths(row_N), self._side_limit) for side in self.bitext.sides)
        return 1 + np.asarray(source_N + target_N)

    @property
    def _side_limit(self) -> int:
        return (self.length - 1) // 2

    def _sides(self, row: int) -> list[np.ndarray]:
        return [_truncate(side[row], self._side_limit, self.eos) for side in self.bitext.sides]


ExampleGroup = TextGroup | PairGroup


def example_lengths(groups: Sequence[ExampleGroup], group_N: np.ndarray, index_N: np.ndarray) -> np.ndarray:
    """Return the tokens of examples of several groups with <s>. Reads no tokens."""
    length_N = np.empty(len(group_N), dtype=np.int64)
    order_N = np.argsort(group_N, kind="stable")
    starts = np.flatnonzero(np.diff(group_N[order_N], prepend=-1))
    for start, end in pairwise([*starts.tolist(), len(order_N)]):
        example_N = order_N[start:end]
        length_N[example_N] = groups[group_N[example_N[0]]].lengths(index_N[example_N])
    return length_N


def _truncate(ids: np.ndarray, length: int, eos: int) -> np.ndarray:
    return ids if len(ids) <= length else np.concatenate([ids[: length - 1], [eos]])


def make_groups(
    shards: Shards,
    stream: str,
    length: int,
    sampling: Sampling,
    later: Sequence[Sampling] = (),
    is_replay: bool = False,
) -> Sequence[ExampleGroup]:
    """Return the groups of a stream that have a sampling probability, with sequences of at most `length` tokens.

    Those that only a later phase samples come last and have probability 0 at first. With `is_replay`, only languages
    outside of the focus have one.
    """
    if is_replay:
        sampling = replace(sampling, replay=1.0)
    phases = [_positive_probabilities(shards, stream, each) for each in (sampling, *later)]
    names = dict.fromkeys(name for probabilities in phases for name in probabilities)
    first = {name: phases[0].get(name, 0.0) for name in names}
    if stream == "text":
        text_group = FullTextGroup if sampling.full_blocks else TextGroup
        return [text_group(name, shards.text[name], p, length) for name, p in first.items()]
    bitexts = {group_name(bitext): bitext for bitext in shards.bitexts}
    return [PairGroup(name, bitexts[name], p, length, eos=shards.special.eos) for name, p in first.items()]


def _positive_probabilities(shards: Shards, stream: str, sampling: Sampling) -> dict[str, float]:
    """Return the groups that are sampled. Raise BadInput if there are none."""
    probabilities = {name: p for name, p in sampling_probabilities(shards, stream, sampling).items() if p}
    if not probabilities:
        expected = sampling.text_description if stream == "text" else sampling.pair_description
        fix = "Tokenize some first"
        if stream == "pairs" and sampling.min_pairs:
            fix += ", or set sampling.min_pairs=none"
        raise BadInput(f"{shards.path}: no {expected} in these shards, which the recipe needs. {fix}.")
    return probabilities
