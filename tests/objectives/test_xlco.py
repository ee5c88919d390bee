"""Contrast against a slow loop written from InfoXLM's equation 6, and who may be a negative."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from crossling.objectives import Network, XLCo

from .conftest import network, pair_batch, unpacked

PAPER = XLCo(layer=2, temperature=1.0)


def slow_xlco(objective: XLCo, net: Network, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """- log f(c1, c2) / sum over c' of f(c1, c'), f = exp(g . g / tau); rows of one set are no negatives."""

    def g(ids: torch.Tensor) -> torch.Tensor:
        states = net.encoder(ids[None], output_hidden_states=True).hidden_states[objective.layer][0]
        pooled = states[0] if objective.pooling == "cls" else states.mean(0)
        vector = net.parts["projection"](pooled).double()  # exp without a subtracted maximum needs the room
        return F.normalize(vector, dim=-1) if objective.normalise else vector

    queries, keys = ([g(sequence[side]) for sequence in unpacked(batch, side)] for side in ("query", "key"))

    def one_way(left: list[torch.Tensor], right: list[torch.Tensor]) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.double)
        for i, query in enumerate(left):
            allowed = [j for j in range(len(right)) if j == i or batch["row"][j] != batch["row"][i]]
            f = {j: torch.exp(query @ right[j] / objective.temperature) for j in allowed}
            total = total - torch.log(f[i] / sum(f.values()))
        return total

    forth = one_way(queries, keys)
    return (forth + one_way(keys, queries)) / 2 if objective.symmetric else forth


@pytest.mark.parametrize(
    "objective",
    [
        PAPER,
        replace(PAPER, temperature=0.25),
        XLCo(layer=3, temperature=0.1, normalise=True, symmetric=True, pooling="mean"),
    ],
    ids=["equation 6", "the authors' temperature", "cosine, symmetric, mean"],
)
@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4, 5], [0, 1, 0, 2, 0, 1]], ids=["all different", "multi-way"])
def test_the_loss_is_the_equation_in_value_and_gradient(objective: XLCo, rows: list[int]) -> None:
    net, batch = network(objective), pair_batch(objective, rows=rows)
    fast = objective.loss(net, batch)["xlco"]
    fast.backward()
    gradients = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    net.zero_grad()
    slow = slow_xlco(objective, net, batch)
    slow.backward()
    assert_close(fast.double(), slow, rtol=1e-4, atol=1e-4)
    for name, parameter in net.named_parameters():
        if parameter.grad is not None:
            assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-3)


def test_layers_above_the_universal_one_get_no_gradient() -> None:
    net = network(PAPER)
    PAPER.loss(net, pair_batch(PAPER))["xlco"].backward()
    assert all(p.grad is None for p in net.encoder.blocks[2].parameters())
    assert all(p.grad is not None for p in net.encoder.blocks[1].parameters())


def test_own_translations_are_no_negatives() -> None:
    """Were all pairs of one row, nothing would be left to tell apart: the loss is zero."""
    net = network(PAPER)
    assert PAPER.loss(net, pair_batch(PAPER, rows=[4] * 6))["xlco"].item() == pytest.approx(0.0, abs=1e-6)
    assert PAPER.loss(net, pair_batch(PAPER))["xlco"].item() > 0.1


@pytest.mark.parametrize("rate", [0.0, 0.15, 0.5])
def test_both_sides_are_masked_at_the_rate(rate: float) -> None:
    batch = pair_batch(replace(PAPER, rate=rate), pairs=99)
    for side in ("query", "key"):
        words = (batch[side] > 3).sum()
        assert ((batch[side] == 39).sum() / words).item() == pytest.approx(rate, abs=0.05)


def test_the_projection_is_one_matrix_and_nothing_else() -> None:
    [(name, weight)] = network(PAPER).parts["projection"].named_parameters()
    assert (name, tuple(weight.shape)) == ("weight", (16, 16))


def test_without_a_layer_the_models_universal_one_is_taken() -> None:
    net, batch = network(PAPER), pair_batch(PAPER)  # 3 layers: 2 is two thirds up
    assert torch.equal(replace(PAPER, layer=None).loss(net, batch)["xlco"], PAPER.loss(net, batch)["xlco"])


def test_scores_keep_their_digits_under_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cosines of two vectors, divided by 0.05: bfloat16 would leave a few dozen values."""
    objective = XLCo(layer=2, temperature=0.05, normalise=True)
    net, batch = network(objective), pair_batch(objective, pairs=40)
    query, key = torch.randn(40, 16), torch.randn(40, 16)
    vectors = {"query": F.normalize(query, dim=-1), "key": F.normalize(key, dim=-1)}
    monkeypatch.setattr(XLCo, "represent", lambda *given: vectors[given[-1]])
    exact = objective.loss(net, batch)["xlco"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(objective.loss(net, batch)["xlco"], exact)


def test_the_count_is_pairs() -> None:
    assert PAPER.counts(pair_batch(PAPER))["xlco"] == 6
    assert replace(PAPER, pairs=77).examples(123.4) == 77
