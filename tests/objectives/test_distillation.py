"""Distillation equals a slow loop over sentences, and a model that is its own teacher has no loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from crossling.data.batches import TokenizedExamples
from crossling.data.packing import Batch
from crossling.objectives import Distillation, Network
from crossling.objectives.distillation import PROJECTION

from . import slow
from .conftest import corrupted, network, packed, split, text_of, unpacked

MSE = Distillation(layer=2)


def with_vectors(width: int, number: int = 5) -> TokenizedExamples:
    """Sentences with vectors of a teacher."""
    vector_NE = np.random.default_rng(1).normal(size=(number, width)).astype(np.float16)
    return replace(text_of(number), vector_NE=vector_NE)


def slow_loss(objective: Distillation, net: Network, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the loss and the cosines, one sentence and one dimension at a time."""
    loss, cosines = torch.zeros((), dtype=torch.double), torch.zeros((), dtype=torch.double)
    for sentence, teacher in zip(unpacked(batch), batch["teacher"].double(), strict=True):
        states = slow.states(net.encoder, sentence["ids"])[2]
        student = states[0] if objective.pooling == "cls" else states.sum(0) / len(states)
        if objective.width is not None:
            layer = net.parts[PROJECTION]
            student = slow.linear(student, layer)
        error, product, squares = 0.0, 0.0, [0.0, 0.0]
        for u, t in zip(student, teacher, strict=True):
            error, product = error + (u - t) ** 2 / len(teacher), product + u * t
            squares = [squares[0] + u**2, squares[1] + t**2]
        cosine = product / (squares[0] * squares[1]) ** 0.5
        loss = loss + (error if objective.distance == "mse" else 1 - cosine)
        cosines = cosines + cosine
    return loss, cosines.detach()


@pytest.mark.parametrize(
    "objective",
    [
        MSE,
        replace(MSE, distance="cosine"),
        replace(MSE, width=6),
        replace(MSE, width=6, distance="cosine", pooling="cls"),
    ],
    ids=["mse", "cosine", "projected", "projected cosine of cls"],
)
def test_loss_is_that_of_the_equation(objective: Distillation) -> None:
    net = network(objective)
    batch = packed(corrupted(objective, with_vectors(objective.width or 16)))

    found, (expected, cosines) = objective.loss(net, batch), slow_loss(objective, net, batch)

    slow.agree(net, found["distillation"], expected)
    assert_close(found["distillation_cosine"].double(), cosines, rtol=1e-5, atol=1e-5)
    assert objective.counts(batch) == {"distillation": 5, "distillation_cosine": 5}


def test_micro_batches_add_up_to_the_step() -> None:
    net, step = network(MSE), corrupted(MSE, with_vectors(16))
    parts = [MSE.loss(net, batch)["distillation"] for batch in split(step, 2)]
    assert_close(torch.stack(parts).sum(), MSE.loss(net, packed(step))["distillation"])


def test_a_model_that_is_its_own_teacher_has_no_loss() -> None:
    objective, net, examples = replace(MSE, distance="cosine"), network(MSE), text_of(4)
    rows = [slow.states(net.encoder, torch.tensor([0, *ids.tolist()]))[2].mean(0) for ids in examples.ids]
    vector_NE = torch.stack(rows).detach().numpy()
    batch = packed(corrupted(objective, replace(examples, vector_NE=vector_NE)))
    for distance in ("mse", "cosine"):
        loss = replace(objective, distance=distance).loss(net, batch)["distillation"]
        assert float(loss) == pytest.approx(0.0, abs=1e-4)


def test_settings_of_the_batch() -> None:
    assert Distillation.sized_like(tokens=4096, length=64) == Distillation(sentences=128, length=64)
    assert MSE.stateless_copy(64).examples_per_step(20.0) == 2
