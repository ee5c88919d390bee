"""The Triton kernels beside plain torch, in value and gradient: by Triton's interpreter, which has to be asked for
before anything is imported and so gets a process of its own; on a GPU with `pytest --noconftest` and this file."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from crossling.model import attention, prediction, transformer
from crossling.model.attention import Bias, Seen, attend, see
from crossling.model.config import CrosslingConfig
from crossling.model.position import Gate, RelativePositionTable, windows

triton = pytest.importorskip("triton")
from crossling.model import attention_op, block_kernel, prediction_kernel  # noqa: E402

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
by_kernel = pytest.mark.skipif(not (ON_GPU or triton.knobs.runtime.interpret), reason="neither a GPU nor interpreted")
# Products of bfloat16 on the GPU; by the interpreter everything is float32.
DTYPE, CLOSE = (torch.bfloat16, 2e-2) if ON_GPU else (torch.float32, 1e-5)


@pytest.mark.skipif(ON_GPU or triton.knobs.runtime.interpret, reason="they run here")
def test_the_kernels_by_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "passed" in done.stdout


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def states(*shape: int) -> Tensor:
    """Of which the kernel and plain torch get the very same numbers."""
    return random(*shape).to(DTYPE).float()


def assert_near(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    difference, size = (found.float() - expected.float()).norm(), expected.float().norm()
    assert difference <= CLOSE * size, f"{difference / size:.2e}"


def segments(rows: int, length: int, sequences: int) -> Tensor:
    """Packed rows, whose last tokens are padding."""
    number = torch.sort(torch.randint(1, sequences + 1, (rows, length), device=DEVICE), 1).values
    number[:, length - 5 :] = 0
    return number


def bias_of(heads: int, length: int, max_distance: int = 128) -> tuple[RelativePositionTable, int]:
    table = RelativePositionTable(buckets=8, max_distance=max_distance, heads=heads).to(DEVICE)
    torch.nn.init.normal_(table.weight_NH)
    return table, length


def compared(
    packed_BL3HK: Tensor,
    table: RelativePositionTable | None,
    gate: Gate | Tensor | None,
    by_kernel: Seen | None,
    plain: Seen | None,
) -> None:
    """Values and all gradients, by the kernel and by plain torch; the kernel's twice, with the same bits."""
    length = packed_BL3HK.shape[1]
    upstream = states(*packed_BL3HK.shape[:2], *packed_BL3HK.shape[3:])

    def run(kernel: bool) -> list[Tensor]:
        packed = packed_BL3HK.clone().requires_grad_()
        made = gate.clone().requires_grad_() if isinstance(gate, Tensor) else gate
        learned = [packed, *([made] if isinstance(made, Tensor) else made.parameters() if made is not None else [])]
        learned += table.parameters() if table is not None else []
        bias = Bias.of(table(length), table.far, kernel) if table is not None else None
        if kernel:
            weights = made.weights() if isinstance(made, Gate) else made
            distances = (None, 0) if bias is None else bias
            tiles = None if by_kernel is None else by_kernel.tiles
            mixed = attention_op.attend(packed.to(DTYPE), None, None, weights, *distances, tiles, 0.0)
        else:
            mixed = attend(packed, None, None, bias, made, plain)
        return [mixed, *torch.autograd.grad((mixed.float() * upstream).sum(), learned)]

    found, again, expected = run(True), run(True), run(False)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
    if ON_GPU and len(found) > 2:
        # Sums over all queries cancel: of one small parameter bfloat16 leaves little, of all of them together enough.
        found, expected = ([*each[:2], torch.cat([one.flatten() for one in each[2:]])] for each in (found, expected))
    for one, true in zip(found, expected, strict=True):
        assert_near(one, true)


@by_kernel
@pytest.mark.parametrize("max_distance", [20, 1000])  # most tiles far from the diagonal, or none
def test_attention_with_a_gate_that_queries_make(max_distance: int) -> None:
    torch.manual_seed(0)
    gate = Gate(16, 2).to(DEVICE)
    torch.nn.init.normal_(gate.scale_H)
    compared(states(2, 256, 3, 2, 16), bias_of(2, 256, max_distance)[0], gate, None, None)


@by_kernel
@pytest.mark.parametrize("length", [128, 200])  # whole tiles, or not
def test_attention_in_packed_rows(length: int) -> None:
    torch.manual_seed(1)
    number = segments(2, length, 4)
    seen = [see(number.shape, number, number, None, torch.float32, kernel) for kernel in (True, False)]
    compared(states(2, length, 3, 1, 16), bias_of(1, length, 40)[0], Gate(16, 1).to(DEVICE), *seen)


@by_kernel
def test_attention_over_a_batch_of_uneven_shares() -> None:
    """The gradient of the distances walks over the batch; a wider head."""
    torch.manual_seed(7)
    assert 5 % attention_op.SHARES
    compared(states(5, 64, 3, 1, 32), bias_of(1, 64, 20)[0], Gate(32, 1).to(DEVICE), None, None)


@by_kernel
def test_attention_of_a_row_shorter_than_far() -> None:
    torch.manual_seed(8)
    table = RelativePositionTable(buckets=32, max_distance=1024, heads=1).to(DEVICE)
    torch.nn.init.normal_(table.weight_NH)
    assert table.far > 8 * 64
    compared(states(1, 64, 3, 1, 16), table, Gate(16, 1).to(DEVICE), None, None)


@by_kernel
def test_attention_with_a_gate_that_is_given_or_none() -> None:
    torch.manual_seed(2)
    for gate in (1 + torch.rand(2, 128, 2, device=DEVICE).transpose(1, 2), None):  # one that lies across memory
        compared(states(2, 128, 3, 2, 16), bias_of(2, 128)[0], gate, None, None)


@by_kernel
def test_attention_without_bias_sees_no_padding() -> None:
    torch.manual_seed(3)
    present = torch.ones(2, 100, device=DEVICE, dtype=torch.long)
    present[0, 70:] = 0
    present[1, 10:12] = 0  # a hole
    seen = [see(present.shape, None, None, present, torch.float32, kernel) for kernel in (True, False)]
    compared(states(2, 100, 3, 1, 16), None, None, *seen)


@by_kernel
def test_attention_to_a_paired_sequence_of_another_length() -> None:
    torch.manual_seed(4)
    queries, keys = segments(2, 96, 3), segments(2, 72, 3)
    keys[:, :3] = torch.arange(1, 4, device=DEVICE)  # each has a pair
    keys[:, : 72 - 5] = keys[:, : 72 - 5].sort(1).values
    inputs = [states(2, length, 1, 16) for length in (96, 72, 72)]
    upstream = states(2, 96, 1, 16)
    upstream[:, 96 - 5 :] = 0  # padding sees nothing and says nothing that counts

    def run(kernel: bool) -> list[Tensor]:
        learned = [each.clone().requires_grad_() for each in inputs]
        seen = see(queries.shape, queries, keys, None, torch.float32, kernel)
        assert seen is not None
        if kernel:
            given = [each.to(DTYPE) for each in learned]
            mixed = attention_op.attend(*given, None, None, 0, seen.tiles, 0.0)
        else:
            mixed = attend(*learned, None, None, seen)
        return [mixed[:, : 96 - 5], *torch.autograd.grad((mixed.float() * upstream).sum(), learned)]

    for one, true in zip(run(True), run(False), strict=True):
        assert_near(one, true)


@by_kernel
def test_a_query_that_sees_nothing_gets_nothing() -> None:
    seen = see((1, 64), torch.full((1, 64), 1, device=DEVICE), torch.full((1, 64), 2, device=DEVICE), None, DTYPE, True)
    assert seen is not None
    packed = states(1, 64, 3, 1, 16).to(DTYPE).requires_grad_()
    mixed = attention_op.attend(packed, None, None, None, None, 0, seen.tiles, 0.0)
    (gradient,) = torch.autograd.grad(mixed.sum(), packed)
    assert not mixed.any()
    assert gradient.isfinite().all()


def kept(seed: int, heads: int, length: int, rate: float) -> Tensor:
    """The kernel's hash, on whole numbers without end: [B H, L, L]."""
    bits = (1 << 32) - 1
    i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
    found = []
    for head in range(heads):
        x = ((i * 0x9E3779B1 + seed) & bits) ^ ((j * 0x85EBCA77 + head * 0xC2B2AE3D) & bits)
        x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & bits
        x = ((x ^ (x >> 12)) * 0x297A2D39) & bits
        found.append((x >> 8) >= round(rate * (1 << 24)))
    return torch.stack(found)


@by_kernel
def test_dropout_leaves_the_same_scores_forwards_and_backwards() -> None:
    torch.manual_seed(5)
    table, length = bias_of(2, 128, 30)
    packed, upstream, gate = states(2, length, 3, 2, 16), states(2, length, 2, 16), Gate(16, 2).to(DEVICE)
    learned = [packed.requires_grad_(), *gate.parameters(), table.weight_NH]
    seed = torch.tensor([123456789], device=DEVICE)
    weights = gate.weights()
    given = (packed.to(DTYPE), None, None, None, *weights, table(length), table.far, *[None] * 5, seed, 0.3)
    mixed = attention_op.attention(*given)[0]
    found = [mixed, *torch.autograd.grad((mixed.float() * upstream).sum(), learned)]
    query, key, value = packed.unbind(2)
    scores = torch.einsum("blhk,bthk->bhlt", query, key) / 4 + gate(query)[..., None] * windows(table(length))
    left = scores.softmax(-1) * kept(123456789, 4, length, 0.3).to(DEVICE).unflatten(0, (2, 2)) / 0.7
    plain = torch.einsum("bhlt,bthk->blhk", left, value)
    expected = [plain, *torch.autograd.grad((plain * upstream).sum(), learned)]
    for one, true in zip(found, expected, strict=True):
        assert_near(one, true)


def test_dropout_keeps_its_rate() -> None:
    for rate in (0.1, 0.5):
        choices = kept(99, 3, 400, rate).float()
        assert choices.mean().item() == pytest.approx(1 - rate, abs=0.003)
        assert (choices[0] == choices[1]).float().mean().item() == pytest.approx(1 - 2 * rate * (1 - rate), abs=0.006)


# ---- the head -----------------------------------------------------------------------------------------------------


@by_kernel
@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize("draw", [True, False])
def test_rows_of_logits(learn: bool, draw: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(6)
    monkeypatch.setattr(prediction, "LANES", 64)
    pieces, positions = 200, 17
    logits = (4 * random(positions, pieces)).to(DTYPE)
    padded = torch.nn.functional.pad(logits, (0, 56), value=50.0)  # padding that would win if it were read
    targets = torch.randint(pieces, (positions,), device=DEVICE)
    noise = torch.rand(positions, device=DEVICE) if draw else None
    expected = prediction._rows(plain := logits.float(), pieces, targets, noise, learn)
    found = prediction_kernel.rows(padded, pieces, targets, noise, learn, lanes=64)
    assert_near(found[0], expected[0])
    assert torch.equal(found[1].bool(), expected[1].bool())
    if draw:
        assert torch.equal(found[2], expected[2])
    if learn:
        assert_near(padded[:, :pieces], plain)
        assert not padded[:, pieces:].any()
        assert_near(found[3][:pieces], expected[3])
        assert not found[3][pieces:].any()


# ---- what stands between the maps of a block -----------------------------------------------------------------------


def kept_states(seed: int, rows: int, width: int, rate: float) -> Tensor:
    """The hash of the kernel in plain integers: 1 for what stays."""
    place = torch.arange(rows * width, dtype=torch.int64) ^ seed
    place = place * 0x9E3779B1 & 0xFFFFFFFF
    place = (place ^ (place >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
    place = (place ^ (place >> 12)) * 0x297A2D39 & 0xFFFFFFFF
    return ((place >> 8) >= round(rate * (1 << 24))).float().view(rows, width).to(DEVICE)


@by_kernel
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(2, 7, 40), (3, 50, 64), (1, 1, 8)])
def test_sum_and_norm(shape: tuple[int, int, int], rate: float) -> None:
    torch.manual_seed(7)
    width = shape[-1]
    given = [states(*shape), states(*shape), random(width), random(width)]
    upstream, seed = states(*shape), torch.tensor([12345], device=DEVICE)
    keep = kept_states(12345, shape[0] * shape[1], width, rate).view(shape) / (1 - rate)

    def run(kernel: bool) -> list[Tensor]:
        x, branch, weight, bias = learned = [each.clone().requires_grad_() for each in given]
        if kernel:
            args = (x.to(DTYPE), branch.to(DTYPE), weight, bias, 1e-5, seed if rate else None, rate)
            normed = block_kernel.residual(*args)[0]
        else:
            normed = torch.nn.functional.layer_norm(x + branch * keep, (width,), weight, bias, 1e-5)
        return [normed, *torch.autograd.grad((normed.float() * upstream).sum(), learned)]

    found, expected = run(kernel=True), run(kernel=False)
    for one, true in zip(found, expected, strict=True):
        assert_near(one, true)
    assert all(torch.equal(one, again) for one, again in zip(found, run(kernel=True), strict=True))


@by_kernel
@pytest.mark.parametrize("shape", [(2, 7, 40), (3, 50, 1100), (1, 1, 8)])
def test_gelu_with_a_bias(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(8)
    given, upstream = [3 * states(*shape), random(shape[-1])], states(*shape)

    def run(kernel: bool) -> list[Tensor]:
        x, bias = learned = [each.clone().requires_grad_() for each in given]
        y = block_kernel.gelu(x.to(DTYPE), bias) if kernel else torch.nn.functional.gelu(x + bias)
        return [y, *torch.autograd.grad((y.float() * upstream).sum(), learned)]

    found, expected = run(kernel=True), run(kernel=False)
    for one, true in zip(found, expected, strict=True):
        assert_near(one, true)
    assert all(torch.equal(one, again) for one, again in zip(found, run(kernel=True), strict=True))


@by_kernel
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_block_by_kernels_is_the_plain_block(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(9)
    config = CrosslingConfig(
        hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=1, vocab_size=20, norm=norm
    )
    block = transformer.Block(config).to(DEVICE, DTYPE).eval()
    hidden, upstream = states(2, 9, 32), states(2, 9, 32)

    def run(kernel: bool) -> list[Tensor]:
        monkeypatch.setattr(transformer, "by_kernel", lambda _: kernel)
        x = hidden.to(DTYPE).requires_grad_()
        y = block(x, None, None)
        return [y, *torch.autograd.grad((y.float() * upstream).sum(), [x, *block.parameters()], allow_unused=True)]

    pairs = zip(run(kernel=True), run(kernel=False), strict=True)
    for one, true in ((one, true) for one, true in pairs if true is not None):
        assert_near(one, true)


# ---- through the model ---------------------------------------------------------------------------------------------


@by_kernel
def test_tiles_far_from_the_diagonal_in_rows_with_padding() -> None:
    torch.manual_seed(11)
    number = torch.ones(1, 200, device=DEVICE, dtype=torch.long)
    number[:, 190:] = 0
    seen = [see(number.shape, number, number, None, torch.float32, kernel) for kernel in (True, False)]
    compared(states(1, 200, 3, 1, 16), bias_of(1, 200, 20)[0], None, *seen)


@by_kernel
def test_a_bias_and_a_mask_with_holes() -> None:
    torch.manual_seed(12)
    present = torch.ones(2, 100, device=DEVICE, dtype=torch.long)
    present[0, :7] = 0
    present[1, 10:40:3] = 0
    seen = [see(present.shape, None, None, present, torch.float32, kernel) for kernel in (True, False)]
    compared(states(2, 100, 3, 1, 16), bias_of(1, 100, 20)[0], None, *seen)


@by_kernel
def test_a_query_that_sees_nothing_says_nothing_and_nobody_hears_of_it() -> None:
    torch.manual_seed(13)
    queries, keys = (torch.ones(1, length, device=DEVICE, dtype=torch.long) for length in (100, 70))
    queries[:, 40:], keys[:, 30:] = 2, 3
    inputs, upstream = [states(1, length, 1, 16) for length in (100, 70, 70)], states(1, 100, 1, 16)

    def run(until: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        q, k, v = learned = [each.clone().requires_grad_() for each in inputs]
        seen = see((1, until), queries[:, :until], keys, None, torch.float32, True)
        assert seen is not None
        given = (q[:, :until].to(DTYPE), k.to(DTYPE), v.to(DTYPE))
        mixed = attention_op.attend(*given, None, None, 0, seen.tiles, 0.0)
        return mixed, torch.autograd.grad((mixed.float() * upstream[:, :until]).sum(), learned)

    (mixed, found), (_, expected) = run(100), run(40)
    assert not mixed[:, 40:].any()
    for one, true in zip(found, expected, strict=True):
        assert_near(one, true)


@by_kernel
def test_the_encoder_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As plain torch without dropout; with it, as the seed says, also where activations are computed again."""
    torch.manual_seed(14)
    config = CrosslingConfig(
        hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=1, vocab_size=20,
        dropout=0.3, attention_dropout=0.3, layer_norm_eps=1e-2,
    )  # fmt: skip
    net = transformer.CrosslingModel(config).to(DEVICE, DTYPE)
    net.embeddings.dropout.p = 0.0
    ids = torch.randint(20, (2, 70), device=DEVICE)
    number = torch.ones_like(ids)
    number[:, 40:] = 2

    def run(kernel: bool, train: bool, seed: int, recompute: bool = False) -> tuple[Tensor, Tensor]:
        for place in (attention, transformer):
            monkeypatch.setattr(place, "fused", lambda *_: kernel)
        monkeypatch.setattr(transformer, "by_kernel", lambda _: kernel)
        net.train(train)
        (net.gradient_checkpointing_enable if recompute else net.gradient_checkpointing_disable)()
        net.zero_grad()
        torch.manual_seed(seed)
        hidden = net(ids, segments=number).last_hidden_state
        hidden.float().cumsum(1).sin().sum().backward()
        return hidden.detach(), torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    for one, true in zip(run(True, False, 1), run(False, False, 1), strict=True):
        assert_near(one, true)
    for states_rate, scores_rate in ((0.3, 0.0), (0.0, 0.3)):
        for block in net.blocks:
            block.dropout.p, block.attention.dropout = states_rate, scores_rate
        first, same, other = run(True, True, 1), run(True, True, 1), run(True, True, 2)
        again = run(True, True, 1, recompute=True)
        assert not torch.equal(first[0], other[0])
        for one, two, three in zip(first, same, again, strict=True):
            assert torch.equal(one, two)
            assert torch.equal(one, three)
