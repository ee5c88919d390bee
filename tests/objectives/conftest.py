"""A small network and small batches for the objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from crossling.data.batches import CorruptedExamples, TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Batch, Sequences
from crossling.model.encoder_model import CrosslingModel
from crossling.model.model_shape import ModelShape
from crossling.objectives import Network, PretrainingObjective, XLCo
from crossling.vocabulary.special_tokens import SpecialTokens

VOCABULARY = 40
MASK = VOCABULARY - 1
SPECIAL = SpecialTokens.standard(VOCABULARY)
WIDTH = 32  # of a row: several sequences share one
SHAPE = ModelShape(
    layers=3, width=16, heads=2, feed_forward=32, generator_layers=2, max_length=WIDTH, dropout=0.0, init=0.3
)


def network(*objectives: PretrainingObjective, **changes: Any) -> Network:
    """With weights as after some training: no norm is the identity, no bias zero, no copy equal to its original."""
    torch.manual_seed(0)
    shape = replace(SHAPE, **changes)
    encoder = CrosslingModel(shape.to_config(VOCABULARY))
    parts = {name: make() for o in objectives for name, make in o.modules(encoder, shape).items()}
    net = Network(encoder, parts)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    return net


def sentence(rng: np.random.Generator, words: int) -> np.ndarray:
    return np.append(rng.integers(4, MASK, size=words), 2)


def pairs_of(number: int, rows: Sequence[int] | None = None, seed: int = 7) -> TokenizedExamples:
    """Return translation pairs. By default every pair has its own corpus row."""
    rng = np.random.default_rng(seed)
    ids, others = ([sentence(rng, int(rng.integers(3, 9))) for _ in range(number)] for _ in range(2))
    return TokenizedExamples(ids, others, np.array((rows or range(number))[:number]))


def text_of(number: int) -> TokenizedExamples:
    """Blocks of one to three sentences."""
    rng = np.random.default_rng(8)
    sentences = [[sentence(rng, int(rng.integers(3, 9))) for _ in range(i % 3 + 1)] for i in range(number)]
    return TokenizedExamples([np.concatenate(block) for block in sentences])


def corrupted(objective: PretrainingObjective, examples: TokenizedExamples, step: int = 0) -> CorruptedExamples:
    """A whole step; pairs are of three corpora."""
    number = len(examples.ids)
    noise = KeyedRandom([1], step, number)
    order = objective.example_units(np.arange(number) % 3, noise).ravel()
    return objective.corrupt(chosen(examples, order), noise.select(order), SPECIAL)


def chosen(examples: TokenizedExamples, order: np.ndarray) -> TokenizedExamples:
    """Some of them, in this order."""
    ids, others = ([side[i] for i in order] if len(side) else [] for side in (examples.ids, examples.translation_ids))
    row_N, vector_NE = (None if each is None else each[order] for each in (examples.row_N, examples.vector_NE))
    return TokenizedExamples(ids, others, row_N, vector_NE=vector_NE)


def pair_batch(objective: PretrainingObjective, pairs: int = 6, rows: Sequence[int] | None = None) -> Batch:
    return packed(corrupted(objective, pairs_of(pairs, rows)))


def text_batch(objective: PretrainingObjective, blocks: int = 5) -> Batch:
    return packed(corrupted(objective, text_of(blocks)))


def packed(corrupted: CorruptedExamples, has_bucketed_shapes: bool = False) -> Batch:
    return corrupted.pack(WIDTH, has_bucketed_shapes)


def split(corrupted: CorruptedExamples, *cuts: int) -> list[Batch]:
    """The micro-batches of a step that is cut before these examples."""
    number = len(next(iter(corrupted.inputs.values())).lengths_N) // corrupted.sequences_per_example
    return [packed(between(corrupted, start, stop)) for start, stop in pairwise([0, *cuts, number])]


def between(corrupted: CorruptedExamples, start: int, stop: int) -> CorruptedExamples:
    """Some of the examples of a step."""
    inputs, sides = {}, corrupted.sequences_per_example
    for name, whole in corrupted.inputs.items():
        lengths = whole.lengths_N[sides * start : sides * stop]
        first = int(whole.lengths_N[: sides * start].sum())
        last = first + int(lengths.sum())
        inputs[name] = Sequences(lengths, {k: v[first:last] for k, v in whole.tokens.items()})
    per_example = {name: values[start:stop] for name, values in corrupted.per_example.items()}
    return replace(corrupted, inputs=inputs, per_example=per_example)


def unpacked(batch: Batch, name: str = "ids") -> list[Batch]:
    """Return the sequences of the rows, one batch each."""
    segments = batch[f"{name}_segments"]
    arrays = {key: value for key, value in batch.items() if value.shape == segments.shape}
    return [
        {key: value[segments == number] for key, value in arrays.items()}
        for number in range(1, int(segments.max()) + 1)
    ]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def end_step(objective: XLCo, net: Network, results: Sequence[dict[str, Tensor]] = ()) -> None:
    """End a step with the results of its micro-batches."""
    states = [{name: value for name, value in result.items() if value.dim()} for result in results]
    objective.after_step(net, torch.zeros(()), [state for state in states if state])
