"""From shards to the batches of a step: draw, corrupt (as the task says), pack.

Every random draw is a function of (seed, stream, step, position in the global batch), so nothing depends on how a
batch is split over ranks, micro-batches or workers, and the state of the data is one number: the step. Every example
of a corpus is seen before any is repeated.
"""
# G groups (a language of text, or one corpus in one language pair), N examples of a step

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import torch
from torch.utils.data import Dataset

from crossling.data.blocks import blocks
from crossling.data.draws import Draws
from crossling.data.noise import LONGEST, MOST_EXAMPLES, Noise
from crossling.data.packing import Batch, Sequences, fit, pack
from crossling.data.rates import rates
from crossling.data.shards import Bitext, Sentences, Shards
from crossling.errors import BadInput
from crossling.sampling import Sampling
from crossling.vocabulary.vocabulary import BOS, EOS

MULTIPLE = 8  # rows are multiples of this: what the GPU's attention kernels are built for
LOOKED_AT = 1000  # rows of a bitext whose length stands for all of it
DRAW, CORRUPT = 0, 1  # what a random stream is for; part of its key


@dataclass(frozen=True)
class Examples:
    """What a sampler hands out: blocks of text, or translation pairs. No leading <s>; every sentence ends in </s>."""

    ids: Sequence[np.ndarray]
    others: Sequence[np.ndarray] = ()  # the translations, for pairs
    row_N: np.ndarray | None = None  # equal for all translations of one row of a multi-way set; unique otherwise
    corpus_N: np.ndarray | None = None  # which corpus each pair is from

    def alone(self) -> Sequences:
        """<s> ids"""
        return opened(self.ids)

    def translations(self) -> Sequences:
        """<s> others"""
        return opened(self.others)

    def joined(self) -> Sequences:
        """<s> source </s> target </s>"""
        return opened(self.ids, self.others)


def opened(*parts: Sequence[np.ndarray]) -> Sequences:
    """<s> and the parts of each sequence, in turn."""
    columns = [[_BOS] * len(parts[0]), *parts]
    flat = np.concatenate([part for sequence in zip(*columns, strict=True) for part in sequence]).astype(np.int64)
    lengths_N = sum(np.fromiter(map(len, column), dtype=np.int64, count=len(column)) for column in columns)
    return Sequences(np.asarray(lengths_N), {"ids": flat})


_BOS = np.asarray([BOS], dtype=np.uint16)


@dataclass(frozen=True)
class Corrupted:
    """What an objective makes of examples: sequences by the name of the input, and what belongs to each example."""

    inputs: dict[str, Sequences]
    each: dict[str, np.ndarray] = field(default_factory=dict)  # arrays [N, ...]
    paired: bool = False  # row k of every input is to hold the same examples

    def between(self, start: int, stop: int) -> Corrupted:
        inputs = {name: sequences.between(start, stop) for name, sequences in self.inputs.items()}
        return Corrupted(inputs, {name: values[start:stop] for name, values in self.each.items()}, self.paired)


# How the work of a step may be split into micro-batches: between rows, between examples, or not at all.
Split = Literal["rows", "examples", "never"]


class Task(Protocol):
    """What an objective tells about the data it wants."""

    @property
    def stream(self) -> Literal["text", "pairs"]: ...
    @property
    def length(self) -> int: ...  # tokens of a sequence at most
    @property
    def split(self) -> Split: ...
    def examples(self, expected_length: float) -> int: ...  # of one step, over all ranks
    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted: ...
    def counts(self, batch: Batch) -> dict[str, int]: ...


@dataclass(frozen=True)
class Work:
    """One step of one rank: micro-batches by task, and what each loss term is to be divided by."""

    micro: list[tuple[str, Batch]]
    counts: dict[str, int]
    tokens: int  # real ones, padding not counted


class Batches(Dataset[Work]):
    """batches[step] is the work of that step."""

    def __init__(
        self,
        shards: Shards,
        tasks: Mapping[str, Task],
        sampling: Sampling,
        seed: int,
        micro_tokens: int,
        alternate: bool = False,  # text on even steps, pairs on odd ones
    ) -> None:
        self.tasks, self.micro_tokens, self.mask = tasks, micro_tokens, shards.vocabulary_size - 1
        # With one stream alone there is nothing to alternate with.
        self.alternate = alternate and len({task.stream for task in tasks.values()}) == 2
        # Keyed by its name and not by its place, so that turning one task off leaves the others' data as they are.
        self.keys = {name: [seed, int.from_bytes(name.encode())] for name in tasks}
        self.groups = {name: _groups(shards, task, sampling) for name, task in tasks.items()}
        self.draws = {name: self._draws(name) for name in tasks}

    def _draws(self, name: str) -> Draws:
        groups, task = self.groups[name], self.tasks[name]
        rate_G, length_G = (np.array([getattr(group, what) for group in groups]) for what in ("rate", "mean_length"))
        if task.stream == "text":
            rate_G = rate_G / (length_G - 1)  # rates of text are of tokens, and a draw takes a block of them
        rate_G = rate_G / rate_G.sum()
        number = task.examples(float(rate_G @ length_G))
        if number > MOST_EXAMPLES or task.length > LONGEST:
            raise BadInput(
                f"{name} asks for {number:,} sequences of up to {task.length:,} tokens a step; at most"
                f" {MOST_EXAMPLES:,} of {LONGEST:,} can be drawn: set {name}.tokens or {name}.length lower"
            )
        return Draws(
            rate_G.tolist(), [len(group) for group in groups], number, [*self.keys[name], DRAW], sum(name.encode())
        )

    def __getitem__(self, step: int) -> Work:
        micro: list[tuple[str, Batch]] = []
        counts: dict[str, int] = {}
        tokens = 0
        for name, task in self.tasks.items():
            turn = step
            if self.alternate:
                if (task.stream == "pairs") != (step % 2 == 1):
                    continue
                turn = step // 2  # so that a stream leaves out nothing
            corrupted = self._corrupted(name, turn)
            tokens += sum(int(sequences.lengths_N.sum()) for sequences in corrupted.inputs.values())
            for batch in _packed(corrupted, task, self.micro_tokens):
                micro.append((name, batch))
                for term, count in task.counts(batch).items():
                    counts[term] = counts.get(term, 0) + count
        return Work(micro, counts, tokens)

    def of(self, name: str, step: int) -> Iterator[Batch]:
        """The micro-batches of one task."""
        return _packed(self._corrupted(name, step), self.tasks[name], self.micro_tokens)

    def _corrupted(self, name: str, step: int) -> Corrupted:
        task, groups = self.tasks[name], self.groups[name]
        group_N, index_N = self.draws[name][step]
        noise = Noise([*self.keys[name], CORRUPT], step, len(group_N))
        drawn = [groups[group].example(index) for group, index in zip(group_N.tolist(), index_N.tolist(), strict=True)]
        if task.stream == "text":
            return task.corrupt(Examples([ids for ids, _, _ in drawn]), noise, self.mask)
        # Either order, so that no language always comes first.
        turned = [(b, a) if turn else (a, b) for (a, b, _), turn in zip(drawn, noise.each("order") < 0.5, strict=True)]
        rows = np.asarray([row for _, _, row in drawn])
        return task.corrupt(Examples([a for a, _ in turned], [b for _, b in turned], rows, group_N), noise, self.mask)


def _packed(corrupted: Corrupted, task: Task, micro_tokens: int) -> Iterator[Batch]:
    """Rows of the task's length, as many at once as `micro_tokens` allows."""
    width = -(-task.length // MULTIPLE) * MULTIPLE
    if task.split == "examples":
        for part in _parts(corrupted, micro_tokens):
            yield _rows(part, width)
        return
    batch = _rows(corrupted, width)
    if task.split == "never":
        yield batch
        return
    # Of a step that is split between rows only these are handed on: an example is known by its segment.
    rows = {name: values for name, values in batch.items() if values.ndim == 2}
    at_once = max(1, micro_tokens // width)
    for start in range(0, len(next(iter(rows.values()))), at_once):
        yield {name: values[start : start + at_once] for name, values in rows.items()}


def _rows(corrupted: Corrupted, width: int) -> Batch:
    batch: Batch = {name: torch.from_numpy(values) for name, values in corrupted.each.items()}
    shared = None
    if corrupted.paired:
        longest_N = np.maximum.reduce([sequences.lengths_N for sequences in corrupted.inputs.values()])
        shared = fit(longest_N.tolist(), width)
    for name, sequences in corrupted.inputs.items():
        batch |= pack(sequences, width, name, shared)
    return batch


def _parts(corrupted: Corrupted, micro_tokens: int) -> Iterator[Corrupted]:
    """Examples in their order, about `micro_tokens` at once."""
    tokens_N = np.sum([sequences.lengths_N for sequences in corrupted.inputs.values()], axis=0)
    part_N = np.cumsum(tokens_N) // micro_tokens
    starts = np.flatnonzero(np.diff(part_N, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(tokens_N)], strict=True):
        yield corrupted.between(int(start), int(stop))


_NOTHING = np.empty(0, dtype=np.int64)


class _Group(Protocol):
    """One thing that is drawn from as a whole; its examples are numbered."""

    @property
    def rate(self) -> float: ...
    @property
    def mean_length(self) -> float: ...
    def __len__(self) -> int: ...
    def example(self, index: int) -> tuple[np.ndarray, np.ndarray, int]: ...  # a sequence, its translation, their row


@dataclass(frozen=True)
class _TextGroup:
    sentences: Sentences
    rate: float
    length: int

    @cached_property
    def starts(self) -> np.ndarray:
        return blocks(self.sentences, self.length - 1)

    @property
    def mean_length(self) -> float:
        return 1 + len(self.sentences.tokens) / len(self)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def example(self, index: int) -> tuple[np.ndarray, np.ndarray, int]:
        return self.sentences.tokens[self.starts[index] : self.starts[index + 1]], _NOTHING, -1


@dataclass(frozen=True)
class _PairGroup:
    bitext: Bitext
    rate: float
    length: int

    @cached_property
    def mean_length(self) -> float:
        most = (self.length - 1) // 2
        rows = np.arange(0, len(self.bitext.sides[0]), -(-len(self.bitext.sides[0]) // LOOKED_AT))
        lengths = np.stack([side.offsets[rows + 1] - side.offsets[rows] for side in self.bitext.sides])
        lengths = lengths[:, (lengths > 0).all(0)]
        if not lengths.size:  # rows so rare that none was looked at
            return 1.0 + sum(map(len, self._sides(self.bitext.row(0))))
        return 1 + float(np.minimum(lengths, most).sum(0).mean())

    def __len__(self) -> int:
        return self.bitext.pairs

    def example(self, index: int) -> tuple[np.ndarray, np.ndarray, int]:
        row = self.bitext.row(index)
        source, target = self._sides(row)
        return source, target, (self.bitext.number << 40) + row

    def _sides(self, row: int) -> list[np.ndarray]:
        most = (self.length - 1) // 2
        return [_cut(side[row], most) for side in self.bitext.sides]


def _cut(ids: np.ndarray, most: int) -> np.ndarray:
    return ids if len(ids) <= most else np.concatenate([ids[: most - 1], [EOS]])


def _groups(shards: Shards, task: Task, sampling: Sampling) -> list[_Group]:
    drawn = rates(shards, task.stream, sampling)
    groups: list[_Group]
    if task.stream == "text":
        groups = [_TextGroup(shards.text[lang], rate, task.length) for lang, rate in drawn.items() if rate]
    else:
        bitexts = {f"{b.corpus} {'-'.join(b.languages)}": b for b in shards.bitexts}
        groups = [_PairGroup(bitexts[name], rate, task.length) for name, rate in drawn.items() if rate]
    if not groups:
        wanted = "text" if task.stream == "text" else "translation pairs"
        pivot = f" with {sampling.pivot}" if sampling.pivot and task.stream == "pairs" else ""
        raise BadInput(f"{shards.path}: the recipe needs {wanted}{pivot} and these shards have none")
    return groups
