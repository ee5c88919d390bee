"""Shards in memory, and an objective that returns its examples unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from crossling.data.batches import Batches, CorruptedExamples, DataObjective, StepWork, Stream, TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Batch, Sequences
from crossling.data.shards import TokenizedBitext, TokenizedSentences
from crossling.sampling import Sampling
from crossling.vocabulary.special_tokens import SpecialTokens
from crossling.vocabulary.vocabulary import EOS, PAD

DEFAULT = Sampling()


@dataclass(frozen=True)
class Reader(DataObjective):
    """An objective that returns its examples unchanged, with the random numbers it gets."""

    stream: Stream = "text"  # type: ignore[misc]
    length: int = 16
    number: int = 8
    has_in_batch_negatives: bool = False  # type: ignore[assignment]
    pairs: bool = False  # example i and example i + N / 2 are one unit
    inputs: tuple[str, ...] = ("ids",)
    example_order: str = "read"  # type: ignore[assignment]
    expected: list[float] = field(default_factory=list, compare=False)
    groups: list[np.ndarray] = field(default_factory=list, compare=False)

    def examples_per_step(self, mean_length: float) -> int:
        self.expected.append(mean_length)
        return self.number

    def example_units(self, group_N: np.ndarray, noise: KeyedRandom) -> np.ndarray:
        self.groups.append(group_N)
        assert len(noise.seed_N) == len(group_N)
        order = np.arange(len(group_N) // 2 * 2 if self.pairs else len(group_N))
        return order.reshape(2, -1).T if self.pairs else order[:, None]

    def corrupt(self, examples: TokenizedExamples, noise: KeyedRandom, special: SpecialTokens) -> CorruptedExamples:
        number = len(examples.ids)
        ids = examples.joined_sequences() if examples.translation_ids else examples.sequences()
        inputs = {
            "ids": Sequences(
                ids.lengths_N, ids.tokens | {"sand": noise.per_token("sand", ids.sequence_ids, ids.positions)}
            )
        }
        if "other" in self.inputs:
            inputs = {"ids": flat("ids", examples.ids), "other": flat("other", examples.translation_ids)}
        rows = np.full(number, -1) if examples.row_N is None else examples.row_N
        per_example = {
            **{"row": rows, "position": noise.position_N},
            **{"noise": noise.per_example("test"), "mask": np.full(number, special.mask)},
        }
        return CorruptedExamples(inputs, per_example)

    def counts(self, batch: Batch) -> dict[str, int]:
        segments = batch["ids_segments"]
        return {"examples": len(segments[segments > 0].unique()), "filled": int((batch["ids"] != PAD).sum())}


def flat(name: str, arrays: Sequence[np.ndarray]) -> Sequences:
    return Sequences(np.array(list(map(len, arrays))), {name: np.concatenate(arrays).astype(np.int64)})


Lengths = Sequence[int] | Sequence[Sequence[int]]  # of sentences, or of the sentences of each document


def side(lengths: Lengths, first: int) -> TokenizedSentences:
    """Return sentences of these lengths, including </s>. Every id is unique."""
    documents = [[item] if isinstance(item, int) else [*item] for item in lengths]
    ends = None if all(isinstance(item, int) for item in lengths) else np.cumsum([0, *map(len, documents)])
    flat = [length for document in documents for length in document]
    ids = count(first)
    tokens = [EOS if i == length - 1 else next(ids) for length in flat for i in range(length)]
    return TokenizedSentences(np.asarray(tokens, dtype=np.uint32), np.cumsum([0, *flat]), ends)


def shards_of(text: dict[str, Lengths] | None = None, bitexts: Sequence[TokenizedBitext] = ()) -> Any:
    sides = {language: side(lengths, 1_000_000 * i + 10) for i, (language, lengths) in enumerate((text or {}).items())}
    return fake(sides, bitexts)


def fake(text: dict[str, TokenizedSentences], bitexts: Sequence[TokenizedBitext]) -> Any:
    manifest = {"text": {language: {"tokens": len(these.tokens)} for language, these in text.items()}}
    return SimpleNamespace(
        path=Path("shards"),
        manifest=manifest,
        text=text,
        bitexts=list(bitexts),
        vocabulary_size=9_000_000,
        special=SpecialTokens.standard(9_000_000),
    )


def bitext(number: int, languages: str, *lengths: Sequence[int], name: str | None = None) -> TokenizedBitext:
    sides = side(lengths[0], 1_000_000 * (2 * number + 1)), side(lengths[1], 1_000_000 * (2 * number + 2))
    pairs = int((sides[0].presence() & sides[1].presence()).sum())
    first, second = languages.split("-")
    return TokenizedBitext(
        corpus=name or f"corpus{number}", languages=(first, second), sides=sides, pairs=pairs, corpus_id=number
    )


def batches_of(shards: Any, task: Reader, sampling: Sampling = DEFAULT, seed: int = 0, micro: int = 10**9) -> Batches:
    return Batches(shards, {"task": task}, sampling, seed=seed, micro_tokens=micro)


def sequences(work: StepWork, name: str = "ids", of: str = "") -> list[tuple[Any, ...]]:
    """Return the tokens of every example in order, or the values of another array at their positions."""
    found: dict[int, tuple[Any, ...]] = {}
    before = 0  # sequences are numbered from 1 in each micro-batch
    for _, batch in work.micro_batches:
        tokens, segments = batch[of or name].flatten(), batch[f"{name}_segments"].flatten()
        assert set(tokens[segments == 0].tolist()) <= {0 if of else PAD}
        numbers, lengths = segments.unique_consecutive(return_counts=True)
        ends = lengths.cumsum(0)
        for number, start, end in zip(numbers.tolist(), (ends - lengths).tolist(), ends.tolist(), strict=True):
            if number:
                assert before + number not in found  # contiguous
                assert start // batch[name].shape[1] == (end - 1) // batch[name].shape[1]
                assert f"{name}_starts" not in batch or batch[f"{name}_starts"][number - 1] == start
                found[before + number] = tuple(tokens[start:end].tolist())
        before += int(numbers.max())
    assert sorted(found) == [*range(1, len(found) + 1)]
    return [found[number] for number in sorted(found)]


def scalars(work: StepWork, name: str) -> list[Any]:
    """Return the values that each example has once, in order."""
    return [value for _, batch in work.micro_batches for value in batch[name].tolist()]


def is_same(one: StepWork, other: StepWork) -> bool:
    return (
        one.counts == other.counts
        and one.tokens == other.tokens
        and [name for name, _ in one.micro_batches] == [name for name, _ in other.micro_batches]
        and all(
            a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
            for (_, a), (_, b) in zip(one.micro_batches, other.micro_batches, strict=True)
        )
    )


def text_and_pairs() -> dict[str, DataObjective]:
    return {"text": Reader(number=20), "pairs": Reader("pairs", 24, number=9)}
