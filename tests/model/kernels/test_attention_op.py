"""Fused attention against plain torch, in value and gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from crossling.model.attention import AttentionMask, PositionBias, compute_attention, make_attention_mask
from crossling.model.position import BiasGate, RelativePositionTable, toeplitz_bias

from .kernel_comparison import DEVICE, DTYPE, ON_GPU, assert_near, needs_kernels, random_states, soak

attention_op = pytest.importorskip("crossling.model.kernels.attention_op")
attention_backward_op = pytest.importorskip("crossling.model.kernels.attention_backward_op")


def make_segments(rows: int, length: int, sequences: int) -> Tensor:
    """Return the sequence numbers of packed rows that end in padding."""
    number = torch.sort(torch.randint(1, sequences + 1, (rows, length), device=DEVICE), 1).values
    number[:, length - 5 :] = 0
    return number


def make_table(heads: int, max_distance: int = 128) -> RelativePositionTable:
    table = RelativePositionTable(buckets=8, max_distance=max_distance, heads=heads).to(DEVICE)
    torch.nn.init.normal_(table.weight_NH)
    return table


def compare(
    packed_BL3HK: Tensor,
    table: RelativePositionTable | None,
    gate: BiasGate | Tensor | None,
    kernel_mask: AttentionMask | None = None,
    plain_mask: AttentionMask | None = None,
) -> None:
    """Compare values and all gradients of the kernel and plain torch. Two runs of the kernel give the same bits."""
    length = packed_BL3HK.shape[1]
    upstream = random_states(*packed_BL3HK.shape[:2], *packed_BL3HK.shape[3:])

    def run(uses_kernel: bool) -> list[Tensor]:
        packed = packed_BL3HK.clone().requires_grad_()
        own_gate = gate.clone().requires_grad_() if isinstance(gate, Tensor) else gate
        gate_inputs = (
            [own_gate] if isinstance(own_gate, Tensor) else own_gate.parameters() if own_gate is not None else []
        )
        inputs = [packed, *gate_inputs]
        inputs += table.parameters() if table is not None else []
        bias = PositionBias.create(table(length), table.saturation_distance, uses_kernel) if table is not None else None
        if uses_kernel:
            weights = own_gate.weights() if isinstance(own_gate, BiasGate) else own_gate
            distances = (None, 0) if bias is None else bias
            tiles = None if kernel_mask is None else kernel_mask.tiles
            output = attention_op.fused_attention(
                packed.to(DTYPE), None, None, gate=weights, by_distance_HW=distances[0], far=distances[1], tiles=tiles
            )
        else:
            output = compute_attention(packed, None, None, bias=bias, gate=own_gate, mask=plain_mask)
        return [output, *torch.autograd.grad((output.float() * upstream).sum(), inputs)]

    found, expected = run(True), run(False)
    if ON_GPU:  # the interpreter has one order of all sums
        assert all(torch.equal(one, other) for one, other in zip(found, run(True), strict=True))
    if ON_GPU and len(found) > 2:
        # Sums over all queries cancel: in bfloat16 only the gradients of all small parameters together are precise.
        found, expected = ([*values[:2], torch.cat([x.flatten() for x in values[2:]])] for values in (found, expected))
    for value, reference in zip(found, expected, strict=True):
        assert_near(value, reference)


@needs_kernels
@pytest.mark.parametrize("max_distance", [20, 1000])  # some tiles are far from the diagonal, or none
@pytest.mark.parametrize(("rows", "length"), [(1, 192), pytest.param(2, 256, marks=soak)])
def test_attention_with_a_gate_computed_from_the_queries(rows: int, length: int, max_distance: int) -> None:
    torch.manual_seed(0)
    gate = BiasGate(16, 2).to(DEVICE)
    torch.nn.init.normal_(gate.scale_H)
    compare(random_states(rows, length, 3, 2, 16), make_table(2, max_distance), gate)


@needs_kernels
@pytest.mark.parametrize("length", [128, 100, pytest.param(200, marks=soak)])  # a multiple of the tile, or not
def test_attention_in_packed_rows(length: int) -> None:
    torch.manual_seed(1)
    number = make_segments(2, length, 4)
    masks = [
        make_attention_mask(number.shape, number, number, None, dtype=torch.float32, for_kernel=for_kernel)
        for for_kernel in (True, False)
    ]
    compare(random_states(2, length, 3, 1, 16), make_table(1, 40), BiasGate(16, 1).to(DEVICE), *masks)


@needs_kernels
def test_attention_over_a_batch_that_cannot_be_split_evenly() -> None:
    """The gradient of the bias is computed over parts of the batch."""
    torch.manual_seed(7)
    assert 5 % attention_backward_op.BATCH_SPLITS
    compare(random_states(5, 64, 3, 1, 32), make_table(1, 20), BiasGate(32, 1).to(DEVICE))


@needs_kernels
def test_backward_pass_over_chunks_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored gradients of the scores have a bound, and the last chunk is smaller than the others."""
    torch.manual_seed(9)
    monkeypatch.setattr(attention_backward_op, "SCORE_BYTES", 2 * 64 * 64 * torch.zeros(0, dtype=DTYPE).element_size())
    number = make_segments(3, 64, 2)
    masks = [
        make_attention_mask(number.shape, number, number, None, dtype=torch.float32, for_kernel=for_kernel)
        for for_kernel in (True, False)
    ]
    compare(random_states(3, 64, 3, 1, 16), make_table(1, 20), BiasGate(16, 1).to(DEVICE), *masks)


@needs_kernels
def test_attention_of_a_sequence_shorter_than_the_saturation_distance() -> None:
    torch.manual_seed(8)
    table = RelativePositionTable(buckets=32, max_distance=1024, heads=1).to(DEVICE)
    torch.nn.init.normal_(table.weight_NH)
    assert table.saturation_distance > 8 * 64
    compare(random_states(1, 64, 3, 1, 16), table, BiasGate(16, 1, is_plain=True).to(DEVICE))


@needs_kernels
@pytest.mark.parametrize("rows", [1, pytest.param(2, marks=soak)])
def test_attention_with_given_gates_or_none(rows: int) -> None:
    torch.manual_seed(2)
    for gate in (1 + torch.rand(rows, 128, 2, device=DEVICE).transpose(1, 2), None):  # not contiguous
        compare(random_states(rows, 128, 3, 2, 16), make_table(2), gate)


@needs_kernels
def test_attention_without_bias_ignores_padding() -> None:
    torch.manual_seed(3)
    mask_BT = torch.ones(2, 100, device=DEVICE, dtype=torch.long)
    mask_BT[0, 70:] = 0
    mask_BT[1, 10:12] = 0  # a gap
    masks = [
        make_attention_mask(mask_BT.shape, None, None, mask_BT, dtype=torch.float32, for_kernel=for_kernel)
        for for_kernel in (True, False)
    ]
    compare(random_states(2, 100, 3, 1, 16), None, None, *masks)


@needs_kernels
def test_attention_to_a_paired_sequence_of_another_length() -> None:
    torch.manual_seed(4)
    queries, keys = make_segments(2, 96, 3), make_segments(2, 72, 3)
    keys[:, :3] = torch.arange(1, 4, device=DEVICE)  # each sequence has a pair
    keys[:, : 72 - 5] = keys[:, : 72 - 5].sort(1).values
    keys[1, : 72 - 5] = keys[1, : 72 - 5].flip(0)  # pairs are in any order
    inputs = [random_states(2, length, 1, 16) for length in (96, 72, 72)]
    upstream = random_states(2, 96, 1, 16)
    upstream[:, 96 - 5 :] = 0  # padding queries have no gradient

    def run(uses_kernel: bool) -> list[Tensor]:
        learned = [values.clone().requires_grad_() for values in inputs]
        mask = make_attention_mask(queries.shape, queries, keys, None, dtype=torch.float32, for_kernel=uses_kernel)
        assert mask is not None
        if uses_kernel:
            given = [values.to(DTYPE) for values in learned]
            output = attention_op.fused_attention(*given, tiles=mask.tiles)
        else:
            output = compute_attention(*learned, mask=mask)
        return [output[:, : 96 - 5], *torch.autograd.grad((output.float() * upstream).sum(), learned)]

    for value, reference in zip(run(True), run(False), strict=True):
        assert_near(value, reference)


@needs_kernels
def test_query_without_keys_gets_zeros() -> None:
    mask = make_attention_mask(
        (1, 64),
        torch.full((1, 64), 1, device=DEVICE),
        torch.full((1, 64), 2, device=DEVICE),
        None,
        dtype=DTYPE,
        for_kernel=True,
    )
    assert mask is not None
    packed = random_states(1, 64, 3, 1, 16).to(DTYPE).requires_grad_()
    output = attention_op.fused_attention(packed, None, None, tiles=mask.tiles)
    (gradient,) = torch.autograd.grad(output.sum(), packed)
    assert not output.any()
    assert gradient.isfinite().all()


def keep_mask(seed: int, heads: int, length: int, dropout: float) -> Tensor:
    """Return the kernel's dropout mask, computed with Python integers, [B H, L, L]."""
    bits = (1 << 32) - 1
    i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
    masks = []
    for head in range(heads):
        x = ((i * 0x9E3779B1 + seed) & bits) ^ ((j * 0x85EBCA77 + head * 0xC2B2AE3D) & bits)
        x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & bits
        x = ((x ^ (x >> 12)) * 0x297A2D39) & bits
        masks.append((x >> 8) >= round(dropout * (1 << 24)))
    return torch.stack(masks)


@needs_kernels
def test_dropout_is_the_same_forward_and_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    monkeypatch.setattr(attention_backward_op, "SCORE_BYTES", 1)  # each sequence by itself, with its own random numbers
    table, length = make_table(2, 30), 128
    packed, upstream, gate = (
        random_states(2, length, 3, 2, 16),
        random_states(2, length, 2, 16),
        BiasGate(16, 2).to(DEVICE),
    )
    learned = [packed.requires_grad_(), *gate.parameters(), table.weight_NH]
    seed = torch.tensor([123456789], device=DEVICE)
    weights = gate.weights()
    given = (
        packed.to(DTYPE),
        None,
        None,
        None,
        *weights,
        table(length),
        table.saturation_distance,
        *[None] * 5,
        seed,
        0.3,
    )
    output = attention_op.attention(*given)[0]
    found = [output, *torch.autograd.grad((output.float() * upstream).sum(), learned)]
    query, key, value = packed.unbind(2)
    scores = torch.einsum("blhk,bthk->bhlt", query, key) / 4 + gate(query)[..., None] * toeplitz_bias(table(length))
    dropped = scores.softmax(-1) * keep_mask(123456789, 4, length, 0.3).to(DEVICE).unflatten(0, (2, 2)) / 0.7
    plain = torch.einsum("bhlt,bthk->blhk", dropped, value)
    expected = [plain, *torch.autograd.grad((plain * upstream).sum(), learned)]
    for value, reference in zip(found, expected, strict=True):
        assert_near(value, reference)


def test_dropout_mask_has_its_probability() -> None:
    for dropout in (0.1, 0.5):
        choices = keep_mask(99, 3, 400, dropout).float()
        assert choices.mean().item() == pytest.approx(1 - dropout, abs=0.003)
        assert (choices[0] == choices[1]).float().mean().item() == pytest.approx(
            1 - 2 * dropout * (1 - dropout), abs=0.006
        )


@needs_kernels
def test_attention_far_from_the_diagonal_with_padding() -> None:
    torch.manual_seed(11)
    number = torch.ones(1, 200, device=DEVICE, dtype=torch.long)
    number[:, 190:] = 0
    masks = [
        make_attention_mask(number.shape, number, number, None, dtype=torch.float32, for_kernel=for_kernel)
        for for_kernel in (True, False)
    ]
    compare(random_states(1, 200, 3, 1, 16), make_table(1, 20), None, *masks)


@needs_kernels
def test_attention_with_bias_and_a_mask_with_gaps() -> None:
    torch.manual_seed(12)
    mask_BT = torch.ones(2, 100, device=DEVICE, dtype=torch.long)
    mask_BT[0, :7] = 0
    mask_BT[1, 10:40:3] = 0
    masks = [
        make_attention_mask(mask_BT.shape, None, None, mask_BT, dtype=torch.float32, for_kernel=for_kernel)
        for for_kernel in (True, False)
    ]
    compare(random_states(2, 100, 3, 1, 16), make_table(1, 20), None, *masks)


@needs_kernels
def test_query_without_keys_does_not_change_gradients() -> None:
    torch.manual_seed(13)
    queries, keys = (torch.ones(1, length, device=DEVICE, dtype=torch.long) for length in (100, 70))
    queries[:, 40:], keys[:, 30:] = 2, 3
    inputs, upstream = [random_states(1, length, 1, 16) for length in (100, 70, 70)], random_states(1, 100, 1, 16)

    def run(until: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        q, k, v = learned = [values.clone().requires_grad_() for values in inputs]
        mask = make_attention_mask((1, until), queries[:, :until], keys, None, dtype=torch.float32, for_kernel=True)
        assert mask is not None
        given = (q[:, :until].to(DTYPE), k.to(DTYPE), v.to(DTYPE))
        output = attention_op.fused_attention(*given, tiles=mask.tiles)
        return output, torch.autograd.grad((output.float() * upstream[:, :until]).sum(), learned)

    (output, found), (_, expected) = run(100), run(40)
    assert not output[:, 40:].any()
    for value, reference in zip(found, expected, strict=True):
        assert_near(value, reference)
