"""Prediction in chunks, and its kernel, against all logits at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from crossling.model.kernels import prediction
from crossling.model.kernels.prediction import predict, sample_tokens

from .kernel_comparison import DEVICE, DTYPE, assert_near, needs_kernels, random

prediction_kernel = pytest.importorskip("crossling.model.kernels.prediction_triton")

POSITIONS, WIDTH, VOCAB_SIZE = 23, 8, 60


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = (POSITIONS, WIDTH), (VOCAB_SIZE, WIDTH), (VOCAB_SIZE,)
    learned = [torch.randn(*shape).requires_grad_() for shape in shapes]
    return *learned, torch.randint(VOCAB_SIZE, (POSITIONS,)), torch.rand(POSITIONS)


@pytest.mark.parametrize("rows", [1, 5, 100])
def test_loss_gradients_accuracy_and_samples_equal_those_of_all_logits(inputs, rows: int, monkeypatch) -> None:
    monkeypatch.setattr(prediction, "CHUNK_BYTES", rows * VOCAB_SIZE * 4)
    hidden, table, bias, targets, noise = inputs
    found = predict(*inputs)
    logits = hidden @ table.T + bias
    loss = F.cross_entropy(logits, targets, reduction="sum")
    assert_close(found.loss, loss)
    assert found.correct == (logits.argmax(-1) == targets).sum()
    assert torch.equal(found.sampled_M, sample_tokens(logits, noise))
    learned = (hidden, table, bias)
    for value, reference in zip(
        torch.autograd.grad(0.3 * found.loss, learned), torch.autograd.grad(0.3 * loss, learned), strict=True
    ):
        assert_close(value, reference)


def test_logits_never_exceed_a_chunk(inputs, monkeypatch) -> None:
    monkeypatch.setattr(prediction, "CHUNK_BYTES", 4 * VOCAB_SIZE * 4)
    sizes, plain = [], prediction._process_rows

    def recorded(logits: Tensor, *rest: object) -> object:
        sizes.append(len(logits))
        return plain(logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(prediction, "_process_rows", recorded)
    predict(*inputs)
    assert sum(sizes) == POSITIONS
    assert max(sizes) <= 4
    assert max(sizes) - min(sizes) <= 1


def test_no_positions_give_zero_loss(inputs) -> None:
    hidden, table, bias, targets, noise = inputs
    found = predict(hidden[:0], table, bias, targets[:0], noise[:0])
    assert found.loss == found.correct == len(found.sampled_M) == 0
    assert not torch.autograd.grad(found.loss, table)[0].any()


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_no_gradients_are_computed_without_autograd(inputs, without, monkeypatch) -> None:
    flags, plain = [], prediction._process_rows

    def recorded(*given: object) -> object:
        flags.append(given[-1])
        return plain(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(prediction, "_process_rows", recorded)
    with without():
        found = predict(*inputs[:4])
    assert flags == [False]
    assert not found.loss.requires_grad
    assert len(found.sampled_M) == 0


def test_sums_over_chunks_stay_float32_under_bfloat16(inputs, monkeypatch) -> None:
    """With one position per chunk, sums in bfloat16 would lose most digits of the table's gradient."""
    monkeypatch.setattr(prediction, "CHUNK_BYTES", 1)
    hidden, table, bias, targets, _ = inputs
    rounded = [values.detach().bfloat16().float().requires_grad_() for values in (hidden, table, bias)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = predict(*rounded, targets)
    (gradient,) = torch.autograd.grad(found.loss, rounded[1])
    loss = F.cross_entropy(rounded[0] @ rounded[1].T + rounded[2], targets, reduction="sum")
    (expected,) = torch.autograd.grad(loss, rounded[1])
    assert gradient.dtype == torch.float32
    assert (gradient - expected).norm() < 0.01 * expected.norm()


def test_samples_follow_the_distribution_in_the_order_of_lanes(monkeypatch) -> None:
    monkeypatch.setattr(prediction, "LANES", 4)
    logits = torch.log(torch.tensor([0.1, 0.2, 0.05, 0.05, 0.25, 0.05, 0.3]))
    # Lane 0 has tokens 0 and 4, lane 1 has 1 and 5, lane 2 has 2 and 6, lane 3 has 3.
    noise = torch.tensor([0.05, 0.2, 0.36, 0.56, 0.61, 0.7, 0.96])
    assert sample_tokens(logits.expand(7, -1), noise).tolist() == [0, 4, 1, 5, 2, 6, 3]
    many = sample_tokens(logits.expand(20_000, -1), torch.rand(20_000, generator=torch.Generator().manual_seed(0)))
    assert_close(torch.bincount(many, minlength=7) / 20_000, logits.exp(), atol=0.01, rtol=0)


@needs_kernels
@pytest.mark.parametrize("needs_gradient", [True, False])
@pytest.mark.parametrize("samples", [True, False])
def test_kernel_equals_plain_torch(needs_gradient: bool, samples: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(6)
    monkeypatch.setattr(prediction, "LANES", 64)
    vocab_size, positions = 200, 17
    logits = (4 * random(positions, vocab_size)).to(DTYPE)
    padded = torch.nn.functional.pad(logits, (0, 56), value=50.0)  # large padding, which must be ignored
    targets = torch.randint(vocab_size, (positions,), device=DEVICE)
    noise = torch.rand(positions, device=DEVICE) if samples else None
    expected = prediction._process_rows(plain := logits.float(), vocab_size, targets, noise, needs_gradient)
    found = prediction_kernel.process_rows(padded, vocab_size, targets, noise, needs_gradient, lanes=64)
    assert_near(found[0], expected[0])
    assert torch.equal(found[1].bool(), expected[1].bool())
    if samples:
        assert torch.equal(found[2], expected[2])
    if needs_gradient:
        assert_near(padded[:, :vocab_size], plain)
        assert not padded[:, vocab_size:].any()
        assert_near(found[3][:vocab_size], expected[3])
        assert not found[3][vocab_size:].any()
