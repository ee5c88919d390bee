"""From shards to the batches of a step: draw, corrupt (as the task says), pack.

Every random draw is a function of (seed, stream, step, position in the global batch), so nothing depends on how a
batch is split over ranks, micro-batches or workers, and the state of the data is one number: the step. Every example
of a corpus is seen before any is repeated.

A step is cut into parts before anything is read. A part is one micro-batch: the parts of a process follow each other,
those of several processes stand side by side, and what is in a part knows nothing of either.
"""
# G groups (a language of text, or one corpus in one language pair), N examples of a step, U units of E examples

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import torch
from torch.utils.data import Dataset

from crossling.data.blocks import blocks
from crossling.data.draws import Draws
from crossling.data.noise import LONGEST, MOST_EXAMPLES, Noise
from crossling.data.packing import Batch, Sequences, fit, pack
from crossling.data.rates import group_name, rates
from crossling.data.shards import Bitext, Sentences, Shards
from crossling.errors import BadInput
from crossling.sampling import Sampling
from crossling.vocabulary.vocabulary import BOS, EOS

MULTIPLE = 8  # rows are multiples of this: what the GPU's attention kernels are built for
LOOKED_AT = 1000  # rows of a bitext whose length stands for all of it
DRAW, CORRUPT, DROPOUT = 0, 1, 2  # what a random stream is for; part of its key


@dataclass(frozen=True)
class Examples:
    """What a sampler hands out: blocks of text, or translation pairs. No leading <s>; every sentence ends in </s>."""

    ids: Sequence[np.ndarray]
    others: Sequence[np.ndarray] = ()  # the translations, for pairs
    row_N: np.ndarray | None = None  # equal for all translations of one row of a multi-way set; unique otherwise

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

    @property
    def tokens(self) -> int:
        return sum(int(sequences.lengths_N.sum()) for sequences in self.inputs.values())


class Task(Protocol):
    """What an objective tells about the data it wants."""

    @property
    def stream(self) -> Literal["text", "pairs"]: ...
    @property
    def order(self) -> str: ...  # in which examples come: tasks of one order read the same ones at the same steps
    @property
    def length(self) -> int: ...  # tokens of a sequence at most
    @property
    def whole(self) -> bool: ...  # a step is one part in each process: its examples are told from each other
    def examples(self, expected_length: float) -> int: ...  # of one step, over all processes
    def units(self, group_N: np.ndarray, noise: Noise) -> np.ndarray: ...  # [U, E]: which examples stay together
    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted: ...
    def counts(self, batch: Batch) -> dict[str, int]: ...


@dataclass(frozen=True)
class Work:
    """One step of one process: micro-batches by task, and what each loss term is to be divided by, once summed over
    all processes."""

    micro: list[tuple[str, Batch]]
    counts: dict[str, int]
    tokens: int  # real ones, padding not counted
    seeds: list[int] = field(default_factory=list)  # of the dropout of each micro-batch: the same in any process

    def pin_memory(self) -> Work:
        """As the loader asks for it: what is pinned is copied to the device while that computes."""
        micro = [(name, {key: values.pin_memory() for key, values in batch.items()}) for name, batch in self.micro]
        return replace(self, micro=micro)


class Batches(Dataset[Work]):
    """batches[step] is the work of that step in one of `processes`."""

    def __init__(
        self,
        shards: Shards,
        tasks: Mapping[str, Task],
        sampling: Sampling,
        seed: int,
        micro_tokens: int,
        alternate: bool = False,  # text on even steps, pairs on odd ones
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.tasks, self.micro_tokens, self.mask = tasks, micro_tokens, shards.vocabulary_size - 1
        self.rank, self.processes = rank, processes
        # With one stream alone there is nothing to alternate with.
        self.alternate = alternate and len({task.stream for task in tasks.values()}) == 2
        self.keys = _keys(tasks, seed)
        self.groups = {name: _groups(shards, task, sampling) for name, task in tasks.items()}
        self.draws: dict[str, Draws] = {}
        self.lengths: dict[str, float] = {}  # tokens of an example of each task, on average
        self.parts: dict[str, int] = {}  # of a step, over all processes
        for name in tasks:
            self._plan(name)

    def _plan(self, name: str) -> None:
        groups, task = self.groups[name], self.tasks[name]
        rate_G, length_G = (np.array([getattr(group, what) for group in groups]) for what in ("rate", "mean_length"))
        if task.stream == "text":
            rate_G = rate_G / (length_G - 1)  # rates of text are of tokens, and a draw takes a block of them
        rate_G = rate_G / rate_G.sum()
        length = float(rate_G @ length_G)
        number = task.examples(length)
        if number > MOST_EXAMPLES or task.length > LONGEST:
            raise BadInput(
                f"{name} asks for {number:,} sequences of up to {task.length:,} tokens a step; at most"
                f" {MOST_EXAMPLES:,} of {LONGEST:,} can be drawn: set {name}.tokens or {name}.length lower"
            )
        seed, _ = self.keys[name]
        key = [seed, int.from_bytes(task.order.encode()), DRAW]
        sizes = [len(group) for group in groups]
        self.draws[name] = Draws(rate_G.tolist(), sizes, number, key, sum(task.order.encode()))
        self._part(name, length)

    def _part(self, name: str, length: float) -> None:
        """Into how many parts a step is cut, by the mean length of its examples."""
        task, number = self.tasks[name], self.draws[name].number
        units = len(task.units(np.zeros(number, dtype=np.int64), self._noise(name, 0)))
        if units < self.processes:
            raise BadInput(
                f"{name} has {units} examples a step, fewer than the {self.processes} processes that are to share them;"
                " give it a larger batch, or start fewer processes"
            )
        self.lengths[name] = length
        self.parts[name] = parts(number * length, self.micro_tokens, units, self.processes, task.whole)

    def resample(self, rates: Mapping[str, float], step: int) -> None:
        """From a step on bitext is drawn at other rates, by the name of each group; as many pairs a step as before."""
        for name, task in self.tasks.items():
            if task.stream == "pairs":
                rate_G = np.array([rates[group.name] for group in self.groups[name]])
                length_G = np.array([group.mean_length for group in self.groups[name]])
                turn = step // 2 if self.alternate else step  # its first one from there on
                self.draws[name] = self.draws[name].changed(rate_G.tolist(), turn)
                self._part(name, float(rate_G @ length_G / rate_G.sum()))

    def alone(self, number: int, tasks: Mapping[str, Task], seed: int) -> Batches:
        """Nothing but the examples of one group, for other tasks of the same names, in as many processes."""
        one = copy(self)
        one.tasks, one.alternate = tasks, False
        one.keys, one.groups = _keys(tasks, seed), {name: [self.groups[name][number]] for name in tasks}
        one.draws, one.lengths, one.parts = {}, {}, {}
        for name in tasks:
            one._plan(name)
        return one

    def __getitem__(self, step: int) -> Work:
        work = Work([], {}, 0)
        tokens = 0
        for name, task in self.tasks.items():
            turn = step
            if self.alternate:
                if (task.stream == "pairs") != (step % 2 == 1):
                    continue
                turn = step // 2  # so that a stream leaves out nothing
            for part, corrupted in self._corrupted(name, turn):
                batch = _packed(corrupted, task.length)
                work.micro.append((name, batch))
                work.seeds.append(self._seed(name, turn, part))
                tokens += corrupted.tokens
                for term, count in task.counts(batch).items():
                    work.counts[term] = work.counts.get(term, 0) + count
        return replace(work, tokens=tokens)

    def of(self, name: str, step: int) -> Iterator[Batch]:
        """The micro-batches of one task."""
        return (_packed(corrupted, self.tasks[name].length) for _, corrupted in self._corrupted(name, step))

    def _corrupted(self, name: str, step: int) -> Iterator[tuple[int, Corrupted]]:
        """The parts of this process, each with its number. Nothing of the others is read."""
        task, noise = self.tasks[name], self._noise(name, step)
        group_N, index_N = self.draws[name][step]
        units = np.array_split(task.units(group_N, noise), self.parts[name])
        for part in range(self.rank, len(units), self.processes):
            chosen = units[part].ravel()
            of_chosen = noise.of(chosen)
            yield (
                part,
                task.corrupt(self._read(name, group_N[chosen], index_N[chosen], of_chosen), of_chosen, self.mask),
            )

    def _read(self, name: str, group_N: np.ndarray, index_N: np.ndarray, noise: Noise) -> Examples:
        groups = self.groups[name]
        drawn = [groups[group].example(index) for group, index in zip(group_N.tolist(), index_N.tolist(), strict=True)]
        if self.tasks[name].stream == "text":
            return Examples([ids for ids, _, _ in drawn])
        # Either order, so that no language always comes first.
        turned = [(b, a) if turn else (a, b) for (a, b, _), turn in zip(drawn, noise.each("order") < 0.5, strict=True)]
        rows = np.asarray([row for _, _, row in drawn])
        return Examples([a for a, _ in turned], [b for _, b in turned], rows)

    def _noise(self, name: str, step: int) -> Noise:
        return Noise([*self.keys[name], CORRUPT], step, self.draws[name].number)

    def _seed(self, name: str, step: int, part: int) -> int:
        return int(np.random.SeedSequence([*self.keys[name], DROPOUT, step, part]).generate_state(1, np.uint64)[0])


def _keys(tasks: Mapping[str, Task], seed: int) -> dict[str, list[int]]:
    """By its name and not by its place, so that turning one task off leaves the others' data as they are."""
    return {name: [seed, int.from_bytes(name.encode())] for name in tasks}


def parts(tokens: float, micro_tokens: int, units: int, processes: int, whole: bool = False) -> int:
    """Into how many parts a step is cut: as many for each process, none larger than need be, none empty."""
    each = 1 if whole else math.ceil(tokens / (micro_tokens * processes))
    return processes * min(each, units // processes)


def _packed(corrupted: Corrupted, length: int) -> Batch:
    """Rows of the task's length."""
    width = -(-length // MULTIPLE) * MULTIPLE
    batch: Batch = {name: torch.from_numpy(values) for name, values in corrupted.each.items()}
    shared = None
    if corrupted.paired:
        longest_N = np.maximum.reduce([sequences.lengths_N for sequences in corrupted.inputs.values()])
        shared = fit(longest_N.tolist(), width)
    for name, sequences in corrupted.inputs.items():
        batch |= pack(sequences, width, name, shared)
    return batch


_NOTHING = np.empty(0, dtype=np.int64)


class _Group(Protocol):
    """One thing that is drawn from as a whole; its examples are numbered."""

    @property
    def name(self) -> str: ...
    @property
    def rate(self) -> float: ...  # at first
    @property
    def mean_length(self) -> float: ...
    def __len__(self) -> int: ...
    def example(self, index: int) -> tuple[np.ndarray, np.ndarray, int]: ...  # a sequence, its translation, their row


@dataclass(frozen=True)
class _TextGroup:
    name: str
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
    name: str
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
        groups = [_TextGroup(lang, shards.text[lang], rate, task.length) for lang, rate in drawn.items() if rate]
    else:
        bitexts = {group_name(bitext): bitext for bitext in shards.bitexts}
        groups = [_PairGroup(name, bitexts[name], rate, task.length) for name, rate in drawn.items() if rate]
    if not groups:
        wanted = "text" if task.stream == "text" else sampling.wanted_pairs
        raise BadInput(f"{shards.path}: the recipe needs {wanted} and these shards have none")
    return groups
