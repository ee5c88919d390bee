"""From shards to the batches of a step: draw, corrupt (a function it is handed), pad.

Every random draw is a function of (seed, stream, step, position in the global batch), so nothing depends on how a
batch is split over ranks, micro-batches or workers, and the state of the data is one number: the step. Every example
of a corpus is seen before any is repeated.
"""
# G groups (a language of text, or one corpus in one language pair), N examples of a step

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import torch
from torch.utils.data import Dataset

from crossling.data.shards import Bitext, Sentences, Shards
from crossling.errors import BadInput
from crossling.sampling import Sampling, tempered
from crossling.vocabulary.vocabulary import BOS, EOS, PAD

MULTIPLE = 8  # padded lengths are multiples of this: what the GPU's attention kernels are built for
DRAW, ORDER, CORRUPT = 0, 1, 2  # what a random stream is for; part of its key


@dataclass(frozen=True)
class Example:
    """What a sampler hands out: a block of text, or a translation pair. No leading <s>; every sentence ends in </s>."""

    ids: np.ndarray
    other: np.ndarray | None = None  # the translation, for a pair
    row: int = -1  # equal for all translations of one row of a multi-way set; unique otherwise

    def alone(self) -> np.ndarray:
        """<s> ids"""
        return np.concatenate([[BOS], self.ids])

    def joined(self) -> np.ndarray:
        """<s> source </s> target </s>"""
        assert self.other is not None
        return np.concatenate([[BOS], self.ids, self.other])


Corrupted = dict[str, np.ndarray]  # named arrays of one example, one-dimensional or scalar
Batch = dict[str, torch.Tensor]


class Task(Protocol):
    """What an objective tells about the data it wants."""

    @property
    def stream(self) -> Literal["text", "pairs"]: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...  # the names of the sequences the network reads
    @property
    def length(self) -> int: ...  # tokens of a sequence at most
    @property
    def whole(self) -> bool: ...  # the batch must not be split into micro-batches
    def examples(self, expected_length: float) -> int: ...  # of one step, over all ranks
    def corrupt(self, example: Example, rng: np.random.Generator, mask: int) -> Corrupted: ...
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
        self, shards: Shards, tasks: Mapping[str, Task], sampling: Sampling, seed: int, micro_tokens: int
    ) -> None:
        self.tasks, self.micro_tokens, self.mask = tasks, micro_tokens, shards.vocabulary_size - 1
        self.streams = {
            # Keyed by its name and not by its place, so that turning one task off leaves the others' data as they are.
            name: _Stream(_groups(shards, task, sampling), task.examples, [seed, int.from_bytes(name.encode())])
            for name, task in tasks.items()
        }

    def __getitem__(self, step: int) -> Work:
        micro: list[tuple[str, Batch]] = []
        counts: dict[str, int] = {}
        tokens = 0
        for name, task in self.tasks.items():
            corrupted = self.streams[name].corrupted(step, task.corrupt, self.mask)
            lengths = [sum(len(example[name]) for name in task.inputs) for example in corrupted]
            tokens += sum(lengths)
            for chunk in [corrupted] if task.whole else _chunks(corrupted, task.inputs, self.micro_tokens):
                batch = collate(chunk)
                micro.append((name, batch))
                for term, count in task.counts(batch).items():
                    counts[term] = counts.get(term, 0) + count
        return Work(micro, counts, tokens)


def collate(examples: list[Corrupted]) -> Batch:
    """Each named array padded to the longest of the batch: ids with <pad>, marks with False, numbers with 0."""
    batch = {}
    for name, first in examples[0].items():
        arrays = [example[name] for example in examples]
        if first.ndim == 0:
            batch[name] = torch.from_numpy(np.stack(arrays))
            continue
        longest = _padded(max(map(len, arrays)))
        padded = np.full((len(arrays), longest), PAD if first.dtype == np.int64 else 0, dtype=first.dtype)
        for row, array in zip(padded, arrays, strict=True):
            row[: len(array)] = array
        batch[name] = torch.from_numpy(padded)
    return batch


def _chunks(examples: list[Corrupted], inputs: tuple[str, ...], budget: int) -> list[list[Corrupted]]:
    """Sorted by length and cut so that no chunk, padded, holds more than `budget` tokens (or is a single example)."""
    chunks: list[list[Corrupted]] = []
    widths: list[int] = []
    for example in sorted(examples, key=lambda example: sum(len(example[name]) for name in inputs)):
        lengths = [len(example[name]) for name in inputs]
        wider = list(map(max, widths, lengths)) if chunks else []
        if chunks and (len(chunks[-1]) + 1) * sum(map(_padded, wider)) <= budget:
            chunks[-1].append(example)
            widths = wider
        else:
            chunks.append([example])
            widths = lengths
    return chunks


def _padded(length: int) -> int:
    return -(-length // MULTIPLE) * MULTIPLE


class _Group(Protocol):
    """One thing that is drawn from as a whole; its examples are numbered."""

    @property
    def rate(self) -> float: ...
    @property
    def mean_length(self) -> float: ...
    def __len__(self) -> int: ...
    def example(self, index: int, rng: np.random.Generator) -> Example: ...


@dataclass(frozen=True)
class _TextGroup:
    sentences: Sentences
    rate: float
    length: int

    @cached_property
    def starts(self) -> np.ndarray:
        return blocks(np.asarray(self.sentences.offsets), self.length - 1)

    @cached_property
    def mean_length(self) -> float:
        return 1 + float(np.mean(np.diff(self.starts)))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def example(self, index: int, rng: np.random.Generator) -> Example:  # noqa: ARG002 (pairs need it)
        return Example(self.sentences.tokens[self.starts[index] : self.starts[index + 1]].astype(np.int64))


@dataclass(frozen=True)
class _PairGroup:
    bitext: Bitext
    rate: float
    length: int

    @cached_property
    def mean_length(self) -> float:
        most = (self.length - 1) // 2
        sides = self.bitext.sides
        return 1 + sum(float(np.minimum(side.lengths[side.filled], most).mean()) for side in sides)

    def __len__(self) -> int:
        return self.bitext.pairs

    def example(self, index: int, rng: np.random.Generator) -> Example:
        row = int(self.bitext.rows[index])
        most = (self.length - 1) // 2
        source, target = (_cut(side[row], most) for side in self.bitext.sides)
        if rng.random() < 0.5:  # either order, so that no language always comes first
            source, target = target, source
        return Example(source, target, (self.bitext.number << 40) + row)


def _cut(ids: np.ndarray, most: int) -> np.ndarray:
    return ids if len(ids) <= most else np.concatenate([ids[: most - 1], [EOS]])


def blocks(offsets: np.ndarray, capacity: int) -> np.ndarray:
    """Where blocks of at most `capacity` tokens start, plus the end: as many whole sentences as fit, in order.

    A sentence longer than a block is cut; nothing is dropped.
    """
    starts = [0]
    while starts[-1] < offsets[-1]:
        fits = offsets[np.searchsorted(offsets, starts[-1] + capacity, side="right") - 1]
        starts.append(int(fits) if fits > starts[-1] else min(starts[-1] + capacity, int(offsets[-1])))
    return np.asarray(starts, dtype=np.int64)


def rates(shards: Shards, stream: str, sampling: Sampling) -> dict[str, float]:
    """The probability of each language (`sw`) or of each corpus in a language pair (`opus en-sw`)."""
    if stream == "text":
        return tempered({lang: entry["tokens"] for lang, entry in shards.manifest["text"].items()}, sampling.text_alpha)
    bitexts = [b for b in shards.bitexts if sampling.pivot is None or sampling.pivot in b.languages]
    by_pair: dict[tuple[str, ...], int] = {}
    for bitext in bitexts:
        pair = tuple(sorted(bitext.languages))
        by_pair[pair] = by_pair.get(pair, 0) + bitext.pairs
    shares = tempered(by_pair, sampling.pair_alpha)
    # Inside a language pair the corpora are drawn by their size.
    return {
        f"{b.corpus} {'-'.join(b.languages)}": shares[pair] * b.pairs / by_pair[pair]
        for b in bitexts
        if by_pair[pair := tuple(sorted(b.languages))]
    }


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


class _Stream:
    """The examples of one task, in an order that is a function of the step alone."""

    def __init__(self, groups: list[_Group], examples: Callable[[float], int], key: list[int]) -> None:
        self.groups, self.key = groups, key
        rate_G = np.array([group.rate for group in groups])
        self.cumulative_G = np.cumsum(rate_G / rate_G.sum())
        self.examples = examples(float(rate_G @ [group.mean_length for group in groups] / rate_G.sum()))
        self._step, self._drawn_G = 0, np.zeros(len(groups), dtype=np.int64)
        self._order: dict[int, tuple[int, np.ndarray]] = {}

    def corrupted(
        self, step: int, corrupt: Callable[[Example, np.random.Generator, int], Corrupted], mask: int
    ) -> list[Corrupted]:
        result = []
        for position, (group, index) in enumerate(self._draw(step)):
            rng = np.random.default_rng([*self.key, CORRUPT, step, position])
            result.append(corrupt(self.groups[group].example(index, rng), rng, mask))
        return result

    def _draw(self, step: int) -> list[tuple[int, int]]:
        """(group, index) of each example of the step. How often a group was drawn before is replayed, not stored."""
        if step < self._step:
            self._step, self._drawn_G = 0, np.zeros_like(self._drawn_G)
        while True:
            draws_N = np.random.default_rng([*self.key, DRAW, self._step]).random(self.examples)
            group_N = np.minimum(np.searchsorted(self.cumulative_G, draws_N, side="right"), len(self.groups) - 1)
            before_G = self._drawn_G
            self._drawn_G = before_G + np.bincount(group_N, minlength=len(self.groups))
            self._step += 1
            if self._step > step:
                break
        seen = before_G.copy()
        drawn = []
        for group in group_N.tolist():
            drawn.append((group, self._permuted(group, int(seen[group]))))
            seen[group] += 1
        return drawn

    def _permuted(self, group: int, draw: int) -> int:
        """The index of a group's draw-th example: a new order every epoch."""
        epoch, place = divmod(draw, len(self.groups[group]))
        if group not in self._order or self._order[group][0] != epoch:
            rng = np.random.default_rng([*self.key, ORDER, group, epoch])
            self._order[group] = epoch, rng.permutation(len(self.groups[group]))
        return int(self._order[group][1][place])
