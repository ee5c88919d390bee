"""The head in chunks beside all logits at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from crossling.model import prediction
from crossling.model.prediction import predict, sample

POSITIONS, WIDTH, PIECES = 23, 8, 60


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    learned = [torch.randn(*shape).requires_grad_() for shape in ((POSITIONS, WIDTH), (PIECES, WIDTH), (PIECES,))]
    return *learned, torch.randint(PIECES, (POSITIONS,)), torch.rand(POSITIONS)


@pytest.mark.parametrize("rows", [1, 5, 100])
def test_loss_gradients_hits_and_draws_are_those_of_all_logits(inputs, rows: int, monkeypatch) -> None:
    monkeypatch.setattr(prediction, "CHUNK", rows * PIECES * 4)
    hidden, table, bias, targets, noise = inputs
    found = predict(*inputs)
    logits = hidden @ table.T + bias
    loss = F.cross_entropy(logits, targets, reduction="sum")
    assert_close(found.loss, loss)
    assert found.right == (logits.argmax(-1) == targets).sum()
    assert torch.equal(found.drawn_M, sample(logits, noise))
    learned = (hidden, table, bias)
    for one, true in zip(
        torch.autograd.grad(0.3 * found.loss, learned), torch.autograd.grad(0.3 * loss, learned), strict=True
    ):
        assert_close(one, true)


def test_no_more_logits_than_a_chunk_exist(inputs, monkeypatch) -> None:
    monkeypatch.setattr(prediction, "CHUNK", 4 * PIECES * 4)
    sizes, plain = [], prediction._rows

    def watched(logits: Tensor, *rest: object) -> object:
        sizes.append(len(logits))
        return plain(logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(prediction, "_rows", watched)
    predict(*inputs)
    assert sum(sizes) == POSITIONS
    assert max(sizes) <= 4
    assert max(sizes) - min(sizes) <= 1


def test_nothing_masked_is_nothing_lost(inputs) -> None:
    hidden, table, bias, targets, noise = inputs
    found = predict(hidden[:0], table, bias, targets[:0], noise[:0])
    assert found.loss == found.right == len(found.drawn_M) == 0
    assert not torch.autograd.grad(found.loss, table)[0].any()


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_without_gradients_none_are_made(inputs, without, monkeypatch) -> None:
    made, plain = [], prediction._rows

    def watched(*given: object) -> object:
        made.append(given[-1])
        return plain(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(prediction, "_rows", watched)
    with without():
        found = predict(*inputs[:4])
    assert made == [False]
    assert not found.loss.requires_grad
    assert len(found.drawn_M) == 0


def test_sums_over_chunks_stay_float32_under_bfloat16(inputs, monkeypatch) -> None:
    """One position a chunk: added up in bfloat16, the gradient of the table would lose most of its digits."""
    monkeypatch.setattr(prediction, "CHUNK", 1)
    hidden, table, bias, targets, _ = inputs
    rounded = [each.detach().bfloat16().float().requires_grad_() for each in (hidden, table, bias)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = predict(*rounded, targets)
    (gradient,) = torch.autograd.grad(found.loss, rounded[1])
    loss = F.cross_entropy(rounded[0] @ rounded[1].T + rounded[2], targets, reduction="sum")
    (true,) = torch.autograd.grad(loss, rounded[1])
    assert gradient.dtype == torch.float32
    assert (gradient - true).norm() < 0.01 * true.norm()


def test_draws_follow_the_distribution_in_the_order_of_lanes(monkeypatch) -> None:
    monkeypatch.setattr(prediction, "LANES", 4)
    logits = torch.log(torch.tensor([0.1, 0.2, 0.05, 0.05, 0.25, 0.05, 0.3]))
    # Lane 0 has pieces 0 and 4, lane 1 has 1 and 5, lane 2 has 2 and 6, lane 3 has 3.
    noise = torch.tensor([0.05, 0.2, 0.36, 0.56, 0.61, 0.7, 0.96])
    assert sample(logits.expand(7, -1), noise).tolist() == [0, 4, 1, 5, 2, 6, 3]
    many = sample(logits.expand(20_000, -1), torch.rand(20_000, generator=torch.Generator().manual_seed(0)))
    assert_close(torch.bincount(many, minlength=7) / 20_000, logits.exp(), atol=0.01, rtol=0)
