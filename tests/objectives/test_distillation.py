"""Self-distillation equals a slow loop over its equation, and its gradient reaches the student alone."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.objectives import SelfDistillation
from crossling.sampling import Sampling

from . import slow
from .conftest import network, pair_batch, unpacked

OBJECTIVE = SelfDistillation(layer=2)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_loss_is_the_equation(pooling: str, norm: str) -> None:
    objective = SelfDistillation(layer=2, pooling=pooling)
    net = network(objective, norm=norm)
    teacher = deepcopy(net.encoder)
    objective.prepare(net, iter(()))
    with torch.no_grad():
        for parameter in net.encoder.parameters():
            parameter += 0.2 * torch.randn(parameter.shape)
    batch = pair_batch(objective)
    expected = torch.zeros((), dtype=torch.double)
    sentences = [ids for side in ("source", "target") for each in unpacked(batch, side) for ids in [each[side]]]
    for ids in sentences:
        vectors = []
        for encoder in (net.encoder, teacher):
            states = slow.states(encoder, ids)[2]
            vectors.append(states.mean(0) if pooling == "mean" else states[0])
        expected += 1 - torch.dot(*vectors) / (vectors[0].norm() * vectors[1].norm())
    found = objective.loss(net, batch)["distill"]
    assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    assert objective.counts(batch) == {"distill": len(sentences)}
    assert expected > 0.01


def test_loss_is_zero_at_first_and_its_gradient_reaches_the_student_alone() -> None:
    net = network(OBJECTIVE)
    OBJECTIVE.prepare(net, iter(()))
    batch = pair_batch(OBJECTIVE)
    assert abs(float(OBJECTIVE.loss(net, batch)["distill"])) < 1e-4
    with torch.no_grad():
        net.encoder.embeddings.tokens.weight += torch.randn(net.encoder.embeddings.tokens.weight.shape)
    OBJECTIVE.loss(net, batch)["distill"].backward()
    assert net.encoder.embeddings.tokens.weight.grad is not None
    assert all(parameter.grad is None for parameter in net.parts["teacher"].parameters())


def test_it_reads_no_language_in_focus(shards: Shards) -> None:
    languages = sorted({code for bitext in shards.bitexts for code in bitext.languages})
    focus = languages[0]
    batches = Batches(shards, {"distill": OBJECTIVE}, Sampling(focus=focus, replay=0.0), seed=0, micro_tokens=512)
    names = [group.name for group in batches.groups["distill"]]
    assert names
    assert not [name for name in names if focus in name.split()[-1].split("-")]
    assert np.isclose(sum(group.probability for group in batches.groups["distill"]), 1)
