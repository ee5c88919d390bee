"""MLM and TLM against slow loops written from their equations, and the masker by its statistics."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from crossling.data.batches import Example
from crossling.objectives import MLM, TLM, Network, Objective
from crossling.objectives.mlm import corrupted

from .conftest import MASK, network, pair_batch, text_batch


def slow_mlm(net: Network, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """- sum over i in M of log p(x_i | x without M), one sequence and one position at a time, without padding."""
    total = torch.zeros(())
    for ids, targets, masked in zip(batch["ids"], batch["targets"], batch["masked"], strict=True):
        length = int((targets != 1).sum())
        hidden = net.encoder(ids[None, :length]).last_hidden_state[0]
        for i in range(length):
            if masked[i]:
                logits = net.parts["lm_head"](hidden[i], net.encoder.embeddings.tokens.weight)
                total = total - torch.log(torch.exp(logits[targets[i]]) / torch.exp(logits).sum())
    return total


@pytest.mark.parametrize(("objective", "make"), [(MLM(rate=0.4), text_batch), (TLM(rate=0.4), pair_batch)])
def test_the_loss_is_the_equation_in_value_and_gradient(objective: Objective, make) -> None:  # type: ignore[no-untyped-def]
    net, batch = network(objective), make(objective)
    term = next(iter(objective.weights))
    fast = objective.loss(net, batch)[term]
    fast.backward()
    gradients = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    net.zero_grad()
    slow = slow_mlm(net, batch)
    slow.backward()
    assert_close(fast, slow, rtol=1e-4, atol=1e-4)
    for name, parameter in net.named_parameters():
        if parameter.grad is not None:
            assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-4)


def test_tlm_reads_the_pair_joined() -> None:
    pair = Example(np.array([5, 6, 2]), np.array([7, 8, 9, 2]))
    out = TLM().corrupt(pair, np.random.default_rng(0), MASK)
    assert out["targets"].tolist() == [0, 5, 6, 2, 7, 8, 9, 2]


def test_counts_are_the_masked_positions() -> None:
    objective = MLM(rate=0.3)
    batch = text_batch(objective)
    assert objective.counts(batch)["mlm"] == int(batch["masked"].sum()) > 0


def test_four_fifths_are_masked_a_tenth_stays_a_tenth_is_random() -> None:
    ids = np.append(np.random.default_rng(0).integers(4, 1000, size=60_000), 2)
    out = corrupted(ids, np.random.default_rng(1), 1000, rate=0.15, keep=0.1, random=0.1)
    chosen = out["masked"]
    assert chosen.sum() == pytest.approx(0.15 * 60_000, abs=1)
    hidden, original = out["ids"][chosen], ids[chosen]
    assert np.mean(hidden == 1000) == pytest.approx(0.8, abs=0.02)
    assert np.mean(hidden == original) == pytest.approx(0.1, abs=0.02)
    strangers = hidden[(hidden != 1000) & (hidden != original)]
    assert len(strangers) / len(hidden) == pytest.approx(0.1, abs=0.02)
    assert strangers.min() >= 4
    assert strangers.max() < 1000


@given(st.lists(st.integers(3, 98), min_size=1, max_size=40), st.integers(0, 2**32), st.floats(0.01, 0.9))
def test_masking_never_touches_specials_and_says_what_stood_there(words: list[int], seed: int, rate: float) -> None:
    ids = np.array([0, *words, 2])
    out = corrupted(ids, np.random.default_rng(seed), 99, rate)
    assert not out["masked"][[0, -1]].any()
    assert out["targets"].tolist() == ids.tolist()
    assert (out["ids"][out["masked"]] == 99).all()
    assert (out["ids"][~out["masked"]] == ids[~out["masked"]]).all()
    assert max(1, math.floor(rate * len(words))) <= out["masked"].sum() <= max(1, math.floor(rate * len(words)) + 1)


def test_the_rate_holds_on_average_for_short_sentences() -> None:
    ids = np.array([0, *range(4, 14), 2])
    share = np.mean([corrupted(ids, np.random.default_rng(i), 99, 0.25)["masked"].sum() for i in range(2000)]) / 10
    assert share == pytest.approx(0.25, abs=0.01)
