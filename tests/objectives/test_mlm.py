"""MLM and TLM against slow loops written from their equations, and the masker by its statistics."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from crossling.data.batches import Examples
from crossling.data.noise import Noise
from crossling.data.packing import Sequences
from crossling.objectives import MLM, TLM, Network, Objective
from crossling.objectives.mlm import masked

from .conftest import MASK, network, pair_batch, text_batch, unpacked


def slow_mlm(net: Network, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """- sum over i in M of log p(x_i | x without M), one sequence and one position at a time, without padding."""
    total = torch.zeros(())
    for sequence in unpacked(batch):
        targets = sequence["targets"]
        hidden = net.encoder(sequence["ids"][None]).last_hidden_state[0]
        for i in range(len(targets)):
            if sequence["masked"][i]:
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
    pairs = Examples([np.array([5, 6, 2]), np.array([5, 2])], [np.array([7, 8, 9, 2]), np.array([6, 2])])
    out = TLM().corrupt(pairs, Noise([0], 0, 2), MASK).inputs["ids"]
    assert out.lengths_N.tolist() == [8, 5]
    assert out.tokens["targets"].tolist() == [0, 5, 6, 2, 7, 8, 9, 2, 0, 5, 2, 6, 2]


def test_counts_are_the_masked_positions() -> None:
    objective = MLM(rate=0.3)
    batch = text_batch(objective)
    assert objective.counts(batch)["mlm"] == int(batch["masked"].sum()) > 0


def sequences(*ids: list[int]) -> Sequences:
    return Sequences(np.array(list(map(len, ids))), {"ids": np.array([i for one in ids for i in one])})


def test_four_fifths_are_masked_a_tenth_stays_a_tenth_is_random() -> None:
    ids = np.append(np.random.default_rng(0).integers(4, 1000, size=60_000), 2)
    out = masked(Sequences(np.array([60_001]), {"ids": ids}), Noise([1], 0, 1), 1000, rate=0.15, keep=0.1, random=0.1)
    chosen = out.tokens["masked"]
    assert chosen.sum() == pytest.approx(0.15 * 60_000, abs=1)
    hidden, original = out.tokens["ids"][chosen], ids[chosen]
    assert np.mean(hidden == 1000) == pytest.approx(0.8, abs=0.02)
    assert np.mean(hidden == original) == pytest.approx(0.1, abs=0.02)
    strangers = hidden[(hidden != 1000) & (hidden != original)]
    assert len(strangers) / len(hidden) == pytest.approx(0.1, abs=0.02)
    assert strangers.min() >= 4
    assert strangers.max() < 1000


def test_every_piece_can_be_the_random_one() -> None:
    ids = np.append(np.full(5000, 5), 2)
    out = masked(Sequences(np.array([5001]), {"ids": ids}), Noise([1], 0, 1), 9, rate=1.0, keep=0.0, random=1.0)
    assert set(out.tokens["ids"][:-1].tolist()) == {4, 5, 6, 7, 8}


@given(
    st.lists(st.lists(st.integers(3, 98), max_size=40), min_size=1, max_size=5),
    st.integers(0, 2**32),
    st.floats(0.01, 0.9),
)
def test_masking_never_touches_specials_and_says_what_stood_there(
    texts: list[list[int]], seed: int, rate: float
) -> None:
    given_ = sequences(*([0, *words, 2] for words in texts))
    out = masked(given_, Noise([seed], 0, len(texts)), 99, rate)
    ids, where = given_.tokens["ids"], out.tokens["masked"]
    assert not where[(ids == 0) | (ids == 2)].any()
    assert out.tokens["targets"].tolist() == ids.tolist()
    assert (out.tokens["ids"][where] == 99).all()
    assert (out.tokens["ids"][~where] == ids[~where]).all()
    for number, words in enumerate(texts):
        chosen = where[given_.numbers == number].sum()
        least = max(1, math.floor(rate * len(words)))
        assert (least <= chosen <= least + 1) if words else chosen == 0


def test_the_rate_holds_on_average_for_short_sentences() -> None:
    texts = [[0, *range(4, 14), 2]] * 2000
    out = masked(sequences(*texts), Noise([0], 0, 2000), 99, 0.25)
    assert out.tokens["masked"].sum() / 20_000 == pytest.approx(0.25, abs=0.01)


def test_every_position_is_chosen_as_often() -> None:
    out = masked(sequences(*[[0, *range(4, 14), 2]] * 5000), Noise([3], 0, 5000), 99, 0.2)
    by_place = out.tokens["masked"].reshape(5000, 12)[:, 1:-1].mean(0)
    assert by_place == pytest.approx([0.2] * 10, abs=0.025)


def test_what_becomes_of_a_sequence_does_not_depend_on_those_beside_it() -> None:
    """Only on its place in the global batch: so a batch can be split over ranks."""
    texts = [[0, *range(4, 4 + length), 2] for length in (7, 30, 3, 12)]
    together = masked(sequences(*texts), Noise([5], 9, 4), 99, 0.3, 0.1, 0.1).tokens["ids"]
    longer = masked(sequences(*texts, [0, 5, 6, 2]), Noise([5], 9, 5), 99, 0.3, 0.1, 0.1).tokens["ids"]
    assert longer[: len(together)].tolist() == together.tolist()
