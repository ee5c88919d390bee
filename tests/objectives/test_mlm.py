"""MLM and TLM against slow loops written from their equations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from crossling.data.batches import TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Batch
from crossling.objectives import MLM, TLM, Network, PretrainingObjective

from . import slow
from .conftest import SPECIAL, VOCABULARY, network, pair_batch, text_batch, unpacked

BOTH = pytest.mark.parametrize(
    ("objective", "make"),
    [
        (MLM(rate=0.4, keep=0.2, random=0.2), text_batch),
        (MLM(rate=0.4, span=2.5), text_batch),
        (TLM(rate=0.4, keep=0.2, random=0.2), pair_batch),
    ],
    ids=["mlm", "spans", "tlm"],
)


def chances(net: Network, batch: Batch) -> list[tuple[Tensor, int]]:
    """p(. | x without M) at every masked position, and the original token."""
    found = []
    for sequence in unpacked(batch):
        hidden = slow.states(net.encoder, sequence["ids"])[-1]
        p = slow.language_model(net.parts["lm_head"], hidden, slow.table(net.encoder))
        found += [(p[i], int(sequence["targets"][i])) for i in range(len(p)) if sequence["masked"][i]]
    return found


def slow_mlm(net: Network, batch: Batch) -> Tensor:
    """- sum over i in M of log p(x_i | x without M)."""
    return sum((-torch.log(p[x]) for p, x in chances(net, batch)), torch.zeros((), dtype=torch.double))


@BOTH
def test_the_loss_equals_the_equation_in_value_and_gradient(
    objective: MLM, make: Callable[[PretrainingObjective], Batch]
) -> None:
    net, batch = network(objective), make(objective)
    assert batch["ids"].shape[0] < len(unpacked(batch))  # packed: several sequences in a row
    slow.agree(net, objective.loss(net, batch)[objective.term], slow_mlm(net, batch))


@BOTH
def test_logged_metrics(objective: MLM, make: Callable[[PretrainingObjective], Batch]) -> None:
    """InfoXLM Eq. 1 and 2: I(c; x) >= E[log p(x | c)] + log |V|."""
    net, batch = network(objective), make(objective)
    with torch.no_grad():
        sums, found = objective.loss(net, batch), chances(net, batch)
        bound = sum(math.log(VOCABULARY) + torch.log(p[x]) for p, x in found)
    assert_close(sums[f"{objective.term}_bound"].double(), bound, rtol=1e-5, atol=1e-4)
    assert int(sums[f"{objective.term}_accuracy"]) == sum(int(p.argmax()) == x for p, x in found)
    assert not sums[f"{objective.term}_bound"].requires_grad
    counts = objective.counts(batch)
    assert counts == dict.fromkeys(sums, len(found))
    assert counts[objective.term] == int(batch["masked"].sum()) > 0
    assert objective.loss_weights == {objective.term: 1.0}


def test_a_uniform_model_has_a_bound_of_zero() -> None:
    objective = MLM(rate=0.4)
    net, batch = network(objective), text_batch(objective)
    with torch.no_grad():
        net.encoder.embeddings.tokens.weight.zero_()
        net.parts["lm_head"].bias_V.zero_()
    assert objective.loss(net, batch)["mlm_bound"].item() == pytest.approx(0, abs=1e-3)


def test_tlm_reads_joined_pairs() -> None:
    pairs = TokenizedExamples([np.array([5, 6, 2]), np.array([5, 2])], [np.array([7, 8, 9, 2]), np.array([6, 2])])
    out = TLM().corrupt(pairs, KeyedRandom([0], 0, 2), SPECIAL).inputs["ids"]
    assert out.lengths_N.tolist() == [8, 5]
    assert out.tokens["targets"].tolist() == [0, 5, 6, 2, 7, 8, 9, 2, 0, 5, 2, 6, 2]


def test_examples_per_step_from_tokens_or_sequences() -> None:
    assert MLM(tokens=1000).examples_per_step(24.9) == 40
    assert MLM(tokens=10).examples_per_step(24.9) == 1
    assert replace(MLM(tokens=1000), sequences=7).examples_per_step(24.9) == 7
