"""The key encoder is a moving average without gradients, and its keys are in a queue of constant length."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from crossling.objectives import MRTD, XLCo
from crossling.objectives.momentum import KeyQueue, build_key_encoder, update_moving_average
from crossling.train.optimizer import OptimizerSettings

from .conftest import corrupted, end_step, network, pair_batch, pairs_of, split

IN_BATCH = XLCo(layer=2, queue=0, momentum=0.7, mixup=False)
QUEUE = replace(IN_BATCH, queue=8)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("layers", [0, 2, 3])
def test_the_key_encoder_is_the_first_layers_of_the_encoder(norm: str, layers: int) -> None:
    encoder = network(norm=norm, cross_attention=True).encoder
    keys = build_key_encoder(encoder, layers)
    ids = torch.randint(4, 39, (2, 9))
    expected = encoder(ids, output_hidden_states=True).hidden_states[layers]
    assert_close(keys(ids, layers=layers).last_hidden_state, expected)
    assert len(keys.blocks) == layers
    assert not any("cross" in name for name, _ in keys.named_parameters())


def test_moving_average_equals_its_definition() -> None:
    leader = network().encoder
    follower = build_key_encoder(leader, 2)
    with torch.no_grad():
        for parameter in leader.parameters():
            parameter += torch.randn(parameter.shape)
    old = {name: p.clone() for name, p in follower.named_parameters()}
    update_moving_average(follower, leader, 0.9)
    new = dict(leader.named_parameters())
    for name, parameter in follower.named_parameters():
        assert_close(parameter, 0.9 * old[name] + 0.1 * new[name])
    update_moving_average(follower, leader, 0.0)
    assert all(torch.equal(parameter, new[name]) for name, parameter in follower.named_parameters())


def test_a_table_that_is_a_sum_is_averaged_as_one() -> None:
    objective = replace(QUEUE, layer=2)
    net = network(MRTD(), objective, token_table="gdes")
    objective.prepare(net, (split(corrupted(objective, pairs_of(8))) for _ in range(9)))
    tokens, its = net.encoder.embeddings.tokens, net.parts["key_encoder"].embeddings.tokens
    assert_close(its.weight, tokens.base.weight + tokens.delta_VD)
    with torch.no_grad():
        tokens.delta_VD += 1.0
    end_step(objective, net)
    assert_close(its.weight, tokens.base.weight + tokens.delta_VD - 0.7)


@pytest.mark.parametrize("objective", [IN_BATCH, QUEUE], ids=["batch", "queue"])
def test_the_key_encoder_is_updated_once_per_step(objective: XLCo) -> None:
    net = network(objective)
    objective.prepare(net, (split(corrupted(objective, pairs_of(8), step)) for step in range(9)))
    pairs = [("encoder", "key_encoder"), ("projection", "key_projection")]
    old = {its: {n: p.clone() for n, p in net.parts[its].named_parameters()} for _, its in pairs}
    results = [objective.loss(net, batch) for batch in split(corrupted(objective, pairs_of(6)), 2, 4)]
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.requires_grad:
                parameter += torch.randn(parameter.shape)
    for its in old:  # not before the step is over
        assert all(torch.equal(p, old[its][n]) for n, p in net.parts[its].named_parameters())
    end_step(objective, net, results)
    for ours, its in pairs:
        leader = dict((net.encoder if ours == "encoder" else net.parts[ours]).named_parameters())
        for name, parameter in net.parts[its].named_parameters():
            assert_close(parameter, 0.7 * old[its][name] + 0.3 * leader[name])


@pytest.mark.parametrize("objective", [IN_BATCH, QUEUE], ids=["batch", "queue"])
def test_the_key_encoder_starts_as_the_query_encoder(objective: XLCo) -> None:
    """Also where the query encoder was read from a file after both were made."""
    net = network(objective)
    assert not torch.equal(net.parts["key_projection"].weight, net.parts["projection"].weight)
    objective.prepare(net, (split(corrupted(objective, pairs_of(8), step)) for step in range(9)))
    assert torch.equal(net.parts["key_projection"].weight, net.parts["projection"].weight)
    ours = dict(net.encoder.named_parameters())
    assert all(torch.equal(p, ours[name]) for name, p in net.parts["key_encoder"].named_parameters())


@pytest.mark.parametrize("objective", [IN_BATCH, QUEUE], ids=["batch", "queue"])
def test_the_key_encoder_has_no_gradient_and_no_optimizer_state(objective: XLCo) -> None:
    net = network(objective)
    objective.loss(net, pair_batch(objective))["xlco"].backward()
    keys = {name: p for name, p in net.named_parameters() if name.startswith("parts.key_")}
    assert len(keys) > 10
    assert all(p.grad is None and not p.requires_grad for p in keys.values())
    learned = {id(p) for group in OptimizerSettings().build(net).param_groups for p in group["params"]}
    assert learned == {id(p) for name, p in net.named_parameters() if name not in keys}


def test_the_key_encoder_has_no_dropout() -> None:
    net, batch = network(QUEUE, dropout=0.3).train(), pair_batch(QUEUE, pairs=8)
    keys = []
    for _ in range(2):
        keys.append(QUEUE.loss(net, batch)["keys"])
    assert torch.equal(*keys)
    assert not torch.equal(QUEUE.represent(net, batch, "key"), QUEUE.represent(net, batch, "key"))


@pytest.mark.parametrize("queue", [0, 8])
def test_without_momentum_there_is_no_key_encoder(queue: int) -> None:
    objective = replace(IN_BATCH, queue=queue, momentum=0.0)
    assert set(network(objective).parts) == ({"projection", "queue"} if queue else {"projection"})


def entries(added: int, positions: list[int]) -> dict[str, Tensor]:
    position_N = torch.tensor(positions)
    keys = added + 1 + position_N
    rows_N2 = torch.stack([10 * keys, 20 * keys], 1)
    return {"keys": torch.stack([keys, -keys], 1).float(), "rows": rows_N2, "batch_positions": position_N}


@given(
    st.integers(1, 12),
    st.lists(st.integers(1, 20), max_size=8),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_the_queue_contains_the_latest_keys(length: int, steps: list[int], micro_batches: int, random: Random) -> None:
    """Steps smaller and larger than the queue, split at random. Every key is its position in the run."""
    queue, added = KeyQueue(length, 2), 0
    for number in steps:
        positions = random.sample(range(number), number)
        queue.add([entries(added, positions[first::micro_batches]) for first in range(min(micro_batches, number))])
        added += number
        newest = set(range(max(1, added - length + 1), added + 1))
        held = [int(key) for key in queue.keys_AD[:, 0] if key]
        assert sorted(held) == sorted(newest)
        assert queue.filled == len(newest)
        assert tuple(queue.keys_AD.shape) == (length, 2)
        filled = queue.keys_AD[:, 0] > 0
        assert torch.equal(queue.keys_AD[filled, 1], -queue.keys_AD[filled, 0])
        expected = queue.keys_AD[filled, :1].long() * torch.tensor([10, 20])
        assert torch.equal(queue.rows_A2[filled], expected)  # a key keeps its rows


def test_an_empty_slot_has_no_row() -> None:
    assert (KeyQueue(5, 2).rows_A2 == -1).all()


def test_the_queue_is_in_the_state_dict() -> None:
    names = set(network(QUEUE).state_dict())
    assert {"parts.queue.keys_AD", "parts.queue.rows_A2", "parts.queue.seen"} <= names
    assert not any(name.startswith("parts.queue") for name, _ in network(QUEUE).named_parameters())


def test_prepare_fills_the_queue() -> None:
    net = network(QUEUE)
    steps = iter([split(corrupted(QUEUE, pairs_of(3), step), 1) for step in range(9)])
    QUEUE.prepare(net, steps)
    assert net.parts["queue"].filled == 8
    assert (net.parts["queue"].rows_A2 >= 0).all()
    assert len(list(steps)) == 6
