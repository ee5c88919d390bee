"""XLCo equals a slow loop written from InfoXLM §3.3 over whole steps, and excludes related negatives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from crossling.data.packing import Batch
from crossling.objectives import Network, XLCo

from . import slow
from .conftest import corrupted, end_step, network, packed, pair_batch, pairs_of, split, unpacked

EQUATION_6 = XLCo(layer=2, queue=0, momentum=0.0, mixup=False, temperature=1.0, rate=0.0)
QUEUE = replace(EQUATION_6, queue=8, momentum=0.7, temperature=0.5)
ROWS = [[0, 1, 2, 3, 4, 5, 6, 7], [1, 9, 9, 2, 8, 1, 5, 6], [6, 6, 3, 2, 1, 0, 9, 8]]  # of pairs, step by step


class SlowXLCo:
    """InfoXLM §3.3, one query and one candidate at a time, with its own keys, queue and key encoder."""

    def __init__(self, objective: XLCo, net: Network) -> None:
        self.objective = objective
        self.key_encoder = deepcopy(net.encoder)  # the same parameters at first
        self.key_projection = deepcopy(net.parts["projection"])
        self.queue: list[tuple[Tensor, set[int]]] = []

    def g(self, encoder: Any, projection: Any, ids: Tensor) -> Tensor:
        states = slow.states(encoder, ids)[self.objective.layer]
        pooled = states[0] if self.objective.pooling == "cls" else states.sum(0) / len(ids)
        prefixes = []
        for width in self.widths(len(pooled)):
            is_linear = self.objective.projection != "identity"
            vector = projection.weight.double()[:width, :width] @ pooled[:width] if is_linear else pooled.double()
            prefixes.append(vector / vector.pow(2).sum().sqrt() if self.objective.normalize else vector)
        return torch.cat(prefixes)

    def widths(self, full: int) -> list[int]:
        return [*(int(each) for each in (self.objective.matryoshka or "").split(",") if each), full]

    def query(self, net: Network, ids: Tensor) -> Tensor:
        return self.g(net.encoder, net.parts["projection"], ids)

    def key(self, net: Network, ids: Tensor) -> Tensor:
        if self.objective.momentum:
            return self.g(self.key_encoder, self.key_projection, ids).detach()
        vector = self.query(net, ids)  # the key encoder is the query encoder
        return vector.detach() if self.objective.queue else vector

    def sums(self, net: Network, batch: Batch) -> dict[str, Tensor]:
        """- log f(c1, c2) / sum over c' in N of f(c1, c'), what is right, and log |N| - L."""
        sides = {side: [each[side] for each in unpacked(batch, side)] for side in ("query", "key")}
        rows = [set(pair) for pair in batch["rows"].tolist()]
        ways = [("query", "key"), ("key", "query")] if self.objective.symmetric else [("query", "key")]
        sums = {name: torch.zeros((), dtype=torch.double) for name in ("xlco", "xlco_accuracy", "xlco_bound")}
        for query_side, key_side in ways:
            keys = [self.key(net, ids) for ids in sides[key_side]]
            for i, ids in enumerate(sides[query_side]):
                others = [(keys[j], rows[j]) for j in range(len(keys)) if j != i]
                negatives = [key for key, its in (self.queue if self.objective.queue else others) if not its & rows[i]]
                query = self.query(net, ids)
                widths = self.widths(net.encoder.config.hidden_size)
                for start, width in zip(np.cumsum([0, *widths]), widths, strict=False):
                    prefix = slice(start, start + width)
                    scores = [query[prefix] @ key[prefix] for key in [keys[i], *negatives]]
                    f = [torch.exp(score / self.objective.temperature) for score in scores]
                    loss = -torch.log(f[0] / sum(f))
                    sums["xlco"] = sums["xlco"] + loss / len(ways) / len(widths)
                sums["xlco_accuracy"] += float(all(f[0] > other for other in f[1:])) / len(ways)
                sums["xlco_bound"] += (math.log(len(f)) - loss.detach()) / len(ways)
        return sums

    def keys_of(self, net: Network, batch: Batch) -> list[tuple[Tensor, set[int]]]:
        keys = [self.key(net, each["key"]).detach() for each in unpacked(batch, "key")]
        return list(zip(keys, map(set, batch["rows"].tolist()), strict=True))

    def enter(self, keys: list[tuple[Tensor, set[int]]]) -> None:
        self.queue = [*self.queue, *keys][-self.objective.queue :]

    @torch.no_grad()
    def follow(self, net: Network) -> None:
        m = self.objective.momentum
        for its, ours in ((self.key_encoder, net.encoder), (self.key_projection, net.parts["projection"])):
            for key, query in zip(its.parameters(), ours.parameters(), strict=True):
                key.copy_(m * key + (1 - m) * query)


def steps_of(objective: XLCo, seed: int = 7) -> Iterator[list[Batch]]:
    """The micro-batches of one step after the other; pairs of one row meet in a step and over steps."""
    for step in itertools.count():
        examples = corrupted(objective, pairs_of(8, ROWS[step % 3], seed + step), step)
        cuts = [1] if objective.mixup else [3, 5]
        yield split(examples, *cuts) if not objective.has_in_batch_negatives else [packed(examples)]


def added(sums: list[dict[str, Tensor]], name: str) -> Tensor:
    return torch.stack([each[name] for each in sums]).sum()


def assert_queues_are_equal(net: Network, expected: SlowXLCo) -> None:
    """Whatever order it keeps them in."""
    queue = net.parts["queue"]
    assert len(queue.keys_AD) == len(expected.queue) == expected.objective.queue
    found = sorted(zip(queue.keys_AD.tolist(), map(set, queue.rows_A2.tolist()), strict=True), key=lambda each: each[0])
    wanted = sorted(((key.tolist(), its) for key, its in expected.queue), key=lambda each: each[0])
    assert [its for _, its in found] == [its for _, its in wanted]
    assert_close(
        torch.tensor([key for key, _ in found]), torch.tensor([key for key, _ in wanted]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("objective", "norm"),
    [
        (EQUATION_6, "post"),
        (replace(EQUATION_6, symmetric=True, normalize=True, temperature=0.1, pooling="mean", layer=3), "post"),
        (replace(EQUATION_6, mixup=True, rate=0.3), "pre"),
        (replace(EQUATION_6, momentum=0.7), "post"),
        (replace(EQUATION_6, momentum=0.7, symmetric=True, pooling="mean", layer=0), "pre"),
        (replace(QUEUE, momentum=0.0), "post"),
        (replace(QUEUE, momentum=0.0, symmetric=True, normalize=True, temperature=0.1), "post"),
        (QUEUE, "post"),
        (replace(QUEUE, mixup=True, rate=0.3), "post"),
        (replace(QUEUE, queue=3, pooling="mean"), "pre"),
        (replace(QUEUE, queue=29, symmetric=True, layer=3), "pre"),
        (replace(EQUATION_6, matryoshka="4,8", symmetric=True, normalize=True, temperature=0.1), "post"),
        (replace(QUEUE, matryoshka="4", pooling="mean", normalize=True), "pre"),
        (replace(EQUATION_6, projection="identity", pooling="mean", normalize=True, symmetric=True), "pre"),
    ],
    ids=[
        "equation 6",
        "symmetric, cosine, mean, last layer",
        "mixup in the batch",
        "momentum in the batch",
        "momentum in the batch, symmetric, layer 0",
        "queue without momentum",
        "queue without momentum, symmetric, cosine",
        "queue",
        "queue and mixup",
        "queue shorter than a step, pre-norm below the last layer",
        "queue of several steps, symmetric, pre-norm last layer",
        "matryoshka in the batch",
        "matryoshka with queue and momentum",
        "without a projection",
    ],
)
def test_whole_steps_equal_the_equations_in_value_and_gradient(objective: XLCo, norm: str) -> None:
    """Three steps, each of several micro-batches where it may be split, with a step of the optimizer after each."""
    net = network(objective, norm=norm)
    expected = SlowXLCo(objective, net)
    before, again = steps_of(objective, seed=70), steps_of(objective, seed=70)
    objective.prepare(net, before)
    while objective.queue and len(expected.queue) < objective.queue:
        expected.enter([key for batch in next(again) for key in expected.keys_of(net, batch)])
    assert torch.equal(next(before)[0]["query"], next(again)[0]["query"])  # as many steps as that takes
    if objective.queue:
        assert_queues_are_equal(net, expected)
    for micro in itertools.islice(steps_of(objective), 3):
        found = [objective.loss(net, batch) for batch in micro]
        wanted = [expected.sums(net, batch) for batch in micro]
        for name in wanted[0]:
            assert_close(added(found, name).double(), added(wanted, name), rtol=1e-4, atol=1e-4)
        slow.agree(net, added(found, "xlco"), added(wanted, "xlco"))
        keys = [key for batch in micro for key in expected.keys_of(net, batch)]
        with torch.no_grad():
            for parameter in net.parameters():
                if parameter.requires_grad:
                    parameter += 0.05 * torch.randn(parameter.shape)
        end_step(objective, net, found)
        if objective.queue:
            expected.enter(keys)
            assert_queues_are_equal(net, expected)
        expected.follow(net)


def candidates(sums: dict[str, Tensor], queries: int) -> float:
    """|N|, the same for every query, from what the bound has over the loss: log |N|."""
    return math.exp((sums["xlco_bound"] + sums["xlco"]).item() / queries)


def rowed(batch: Batch, rows: list[list[int]]) -> Batch:
    return {**batch, "rows": torch.tensor(rows)}


@pytest.mark.parametrize("symmetric", [False, True])
def test_pairs_of_one_row_are_no_negatives_in_the_batch(symmetric: bool) -> None:
    objective = replace(EQUATION_6, symmetric=symmetric)
    net, batch = network(objective), pair_batch(objective)
    for rows, number in {(0, 1, 2, 3, 4, 5): 6, (0, 0, 1, 1, 2, 2): 5, (0, 0, 0, 1, 1, 1): 4, (4,) * 6: 1}.items():
        sums = objective.loss(net, rowed(batch, [[row, row] for row in rows]))
        assert candidates(sums, 6) == pytest.approx(number, rel=1e-4)
    # Without negatives the loss is zero.
    assert sums["xlco"].item() == pytest.approx(0.0, abs=1e-6)
    assert sums["xlco_bound"].item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("rows", "number"),
    [
        ([[1, 2], [3, 4], [5, 6]], 3),
        ([[1, 2], [1, 3], [5, 6]], 7 / 3),  # two of the three have one candidate less
        ([[1, 2], [3, 2], [5, 6]], 7 / 3),
        ([[1, 2], [2, 3], [5, 6]], 7 / 3),
        ([[1, 2], [3, 1], [5, 6]], 7 / 3),
        ([[1, 2], [2, 3], [3, 1]], 1),
    ],
)
def test_translations_joined_by_mixup_are_no_negatives(rows: list[list[int]], number: float) -> None:
    net, batch = network(EQUATION_6), pair_batch(EQUATION_6, pairs=3)
    sums = EQUATION_6.loss(net, rowed(batch, rows))
    expected = math.exp((math.log(3) + 2 * math.log(2)) / 3) if number == 7 / 3 else number
    assert candidates(sums, 3) == pytest.approx(expected, rel=1e-4)


def test_translations_in_the_queue_are_no_negatives() -> None:
    net, batch = network(QUEUE), pair_batch(QUEUE, pairs=1)
    queue = net.parts["queue"]
    queue.rows_A2.copy_(torch.tensor([[1, 1], [1, 2], [2, 1], [3, 3], [4, 4], [7, 4], [4, 7], [8, 9]]))
    for rows, number in {
        (1, 1): 6,
        (2, 2): 7,
        (1, 2): 6,
        (3, 3): 8,
        (4, 7): 6,
        (3, 7): 6,
        (9, 8): 8,
        (5, 6): 9,
    }.items():
        assert candidates(QUEUE.loss(net, rowed(batch, [list(rows)])), 1) == pytest.approx(number, rel=1e-4)


def test_the_key_of_a_pair_is_a_candidate_even_if_its_row_is_in_the_queue() -> None:
    net, batch = network(QUEUE), pair_batch(QUEUE, pairs=1)
    net.parts["queue"].rows_A2.fill_(5)
    assert QUEUE.loss(net, rowed(batch, [[5, 5]]))["xlco"].item() == pytest.approx(0.0, abs=1e-6)


def test_keys_enter_the_queue_after_the_step() -> None:
    net, [first, *rest] = network(QUEUE), next(steps_of(QUEUE))
    QUEUE.prepare(net, steps_of(QUEUE, seed=70))
    before = net.parts["queue"].keys_AD.clone()
    results = [QUEUE.loss(net, batch) for batch in (first, *rest, first)]
    assert results[0]["xlco"].item() == results[-1]["xlco"].item()  # what came before in the step is no negative
    assert torch.equal(net.parts["queue"].keys_AD, before)
    end_step(QUEUE, net, results)
    assert not torch.equal(net.parts["queue"].keys_AD, before)


def test_micro_batches_change_neither_loss_nor_gradient_nor_queue() -> None:
    objective = replace(QUEUE, mixup=True, symmetric=True)
    assert not objective.has_in_batch_negatives
    one = network(objective)
    objective.prepare(one, steps_of(objective, seed=70))
    other = deepcopy(one)
    step = corrupted(objective, pairs_of(8, ROWS[1]), 1)
    whole = objective.loss(one, packed(step))
    parts = [objective.loss(other, batch) for batch in split(step, 1, 2)]
    for name, value in whole.items():
        if value.dim() == 0:
            assert_close(added(parts, name), value)
    slow.same_gradients(slow.gradients(other, added(parts, "xlco")), slow.gradients(one, whole["xlco"]))
    end_step(objective, one, [whole])
    end_step(objective, other, parts)
    for name, values in one.state_dict().items():
        assert_close(other.state_dict()[name], values, msg=name)


def test_a_batch_with_in_batch_negatives_is_never_split() -> None:
    assert EQUATION_6.has_in_batch_negatives
    assert replace(EQUATION_6, momentum=0.9).has_in_batch_negatives


def test_layers_above_the_universal_layer_get_no_gradient() -> None:
    net = network(EQUATION_6)
    EQUATION_6.loss(net, pair_batch(EQUATION_6))["xlco"].backward()
    assert all(p.grad is None for p in net.encoder.blocks[2].parameters())
    assert all(p.grad is not None for p in net.encoder.blocks[1].parameters())


def test_the_projection_is_one_matrix() -> None:
    [(name, weight)] = network(EQUATION_6).parts["projection"].named_parameters()
    assert (name, tuple(weight.shape)) == ("weight", (16, 16))


def test_the_default_layer_is_the_universal_layer() -> None:
    """Also by the key encoder, which ends there."""
    for objective in (EQUATION_6, QUEUE):
        net, batch = network(objective), pair_batch(objective)  # 3 layers: 2 is two thirds up
        unsaid = replace(objective, layer=None)
        assert torch.equal(unsaid.loss(net, batch)["xlco"], objective.loss(net, batch)["xlco"])
        assert network(unsaid).state_dict().keys() == net.state_dict().keys()


def test_scores_are_computed_in_float32_under_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cosines of two vectors, divided by 0.05: bfloat16 would leave a few dozen values."""
    objective = replace(EQUATION_6, temperature=0.05, normalize=True)
    net, batch = network(objective), pair_batch(objective, pairs=40)
    query, key = torch.randn(40, 16), torch.randn(40, 16)
    vectors = {"query": F.normalize(query, dim=-1), "key": F.normalize(key, dim=-1)}
    monkeypatch.setattr(XLCo, "represent", lambda *given: vectors[given[-1]])
    exact = objective.loss(net, batch)["xlco"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(objective.loss(net, batch)["xlco"], exact)


@pytest.mark.parametrize("mixup", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.15, 0.5])
def test_both_sides_are_masked_independently_at_the_rate(rate: float, mixup: bool) -> None:
    objective = replace(EQUATION_6, rate=rate, keep=0.0, random=0.0, mixup=mixup)
    sentence = np.append(np.full(20, 7), 2)
    pairs = replace(pairs_of(200), ids=[sentence] * 200, translation_ids=[sentence] * 200)
    examples = corrupted(objective, pairs).inputs
    query, key = (examples[side].tokens[side] for side in ("query", "key"))
    hidden = [(side == 39) for side in (query, key)]
    assert [each.sum() / (200 * 20) for each in hidden] == pytest.approx([rate] * 2, abs=0.01)
    assert (hidden[0] & hidden[1]).sum() / (200 * 20) == pytest.approx(rate**2, abs=0.02)


def test_counts_are_pairs() -> None:
    batch = pair_batch(EQUATION_6)
    assert EQUATION_6.counts(batch) == dict.fromkeys(EQUATION_6.loss(network(EQUATION_6), batch), 6)
    assert replace(EQUATION_6, pairs=77).examples_per_step(123.4) == 77
    assert replace(EQUATION_6, pairs=77, mixup=True).examples_per_step(123.4) == 154
    assert EQUATION_6.loss_weights == {"xlco": 1.0}


def test_sized_like_keeps_the_proportions_of_the_paper() -> None:
    """2,048 sequences of 512 tokens and 131,072 keys."""
    assert XLCo.sized_like(2048 * 512, 512) == XLCo()
    assert (XLCo.sized_like(64, 512).pairs, XLCo.sized_like(64, 512).queue) == (2, 128)
