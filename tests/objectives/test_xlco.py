"""Contrast against a slow loop written from InfoXLM's §3.3, over whole steps, and who may be a negative."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from crossling.data.packing import Batch
from crossling.objectives import Network, XLCo

from . import slow
from .conftest import corrupted, network, packed, pairs_of, split, unpacked

EQUATION_6 = XLCo(layer=2, queue=0, momentum=0.0, mixup=False, temperature=1.0, rate=0.0)
QUEUE = replace(EQUATION_6, queue=8, momentum=0.7, temperature=0.5)
ROWS = [[0, 1, 2, 3, 4, 5, 6, 7], [1, 9, 9, 2, 8, 1, 5, 6], [6, 6, 3, 2, 1, 0, 9, 8]]  # of pairs, step by step


class SlowContrast:
    """What §3.3 says, one query and one candidate at a time: keys, queue and key encoder are its own."""

    def __init__(self, objective: XLCo, net: Network) -> None:
        self.objective = objective
        self.key_encoder = deepcopy(net.encoder)  # the same parameters at first
        self.key_projection = deepcopy(net.parts["projection"])
        self.queue: list[tuple[Tensor, set[int]]] = []

    def g(self, encoder: Any, projection: Any, ids: Tensor) -> Tensor:
        states = slow.states(encoder, ids)[self.objective.layer]
        pooled = states[0] if self.objective.pooling == "cls" else states.sum(0) / len(ids)
        vector = slow.linear(pooled, projection)
        return vector / vector.pow(2).sum().sqrt() if self.objective.normalise else vector

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
        for asking, answering in ways:
            keys = [self.key(net, ids) for ids in sides[answering]]
            for i, ids in enumerate(sides[asking]):
                others = [(keys[j], rows[j]) for j in range(len(keys)) if j != i]
                negatives = [key for key, its in (self.queue if self.objective.queue else others) if not its & rows[i]]
                asked = self.query(net, ids)
                f = [torch.exp(asked @ key / self.objective.temperature) for key in [keys[i], *negatives]]
                loss = -torch.log(f[0] / sum(f))
                sums["xlco"] = sums["xlco"] + loss / len(ways)
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
        drawn = corrupted(objective, pairs_of(8, ROWS[step % 3], seed + step), step)
        cuts = [1] if objective.mixup else [3, 5]
        yield split(drawn, *cuts) if objective.split == "examples" else [packed(drawn)]


def assert_queues_are_equal(net: Network, expected: SlowContrast) -> None:
    """Whatever order it keeps them in."""
    queue = net.parts["queue"]
    assert len(queue.keys_AD) == len(expected.queue) == expected.objective.queue
    found = sorted(zip(queue.keys_AD.tolist(), map(set, queue.rows_A2.tolist()), strict=True), key=lambda each: each[0])
    wanted = sorted(((key.tolist(), its) for key, its in expected.queue), key=lambda each: each[0])
    assert [its for _, its in found] == [its for _, its in wanted]
    assert_close(torch.tensor([key for key, _ in found]), torch.tensor([key for key, _ in wanted]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("objective", "norm"),
    [
        (EQUATION_6, "post"),
        (replace(EQUATION_6, symmetric=True, normalise=True, temperature=0.1, pooling="mean", layer=3), "post"),
        (replace(EQUATION_6, mixup=True, rate=0.3), "pre"),
        (replace(EQUATION_6, momentum=0.7), "post"),
        (replace(EQUATION_6, momentum=0.7, symmetric=True, pooling="mean", layer=0), "pre"),
        (replace(QUEUE, momentum=0.0), "post"),
        (replace(QUEUE, momentum=0.0, symmetric=True, normalise=True, temperature=0.1), "post"),
        (QUEUE, "post"),
        (replace(QUEUE, mixup=True, rate=0.3), "post"),
        (replace(QUEUE, queue=3, pooling="mean"), "pre"),
        (replace(QUEUE, queue=29, symmetric=True, layer=3), "pre"),
    ],
    ids=[
        "equation 6",
        "both ways, cosine, mean, last layer",
        "mixup in the batch",
        "momentum in the batch",
        "momentum in the batch, both ways, layer 0",
        "queue without momentum",
        "queue without momentum, both ways, cosine",
        "queue",
        "queue and mixup",
        "queue shorter than a step, pre-norm below the last layer",
        "queue of several steps, both ways, pre-norm last layer",
    ],
)
def test_whole_steps_are_the_equations_in_value_and_gradient(objective: XLCo, norm: str) -> None:
    """Three steps, each of several micro-batches where it may be split, with a step of the optimizer after each."""
    net = network(objective, norm=norm)
    expected = SlowContrast(objective, net)
    before, again = steps_of(objective, seed=70), steps_of(objective, seed=70)
    objective.begin(net, before)
    while objective.queue and len(expected.queue) < objective.queue:
        expected.enter([key for batch in next(again) for key in expected.keys_of(net, batch)])
    assert torch.equal(next(before)[0]["query"], next(again)[0]["query"])  # as many steps as that takes
    if objective.queue:
        assert_queues_are_equal(net, expected)
    for micro in itertools.islice(steps_of(objective), 3):
        found = [objective.loss(net, batch) for batch in micro]
        wanted = [expected.sums(net, batch) for batch in micro]
        for name in found[0]:
            assert_close(sum(each[name] for each in found).double(), sum(each[name] for each in wanted), rtol=1e-4, atol=1e-4)  # type: ignore[union-attr]  # fmt: skip
        slow.agree(net, lambda: sum(each["xlco"] for each in found), lambda: sum(each["xlco"] for each in wanted))  # type: ignore[arg-type,return-value]  # noqa: B023
        keys = [key for batch in micro for key in expected.keys_of(net, batch)]
        with torch.no_grad():
            for parameter in net.parameters():
                if parameter.requires_grad:
                    parameter += 0.05 * torch.randn(parameter.shape)
        objective.after_step(net)
        if objective.queue:
            expected.enter(keys)
            assert_queues_are_equal(net, expected)
        expected.follow(net)
