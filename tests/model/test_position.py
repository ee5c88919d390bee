"""Gated relative position bias against its equation, element by element."""

import pytest
import torch
from torch.testing import assert_close

from crossling.model.position import (
    BiasGate,
    RelativePositionTable,
    relative_position_bucket,
    saturation_distance,
    toeplitz_bias,
)


@pytest.mark.parametrize(
    ("distance", "expected"),
    [(-1, 1), (0, 0), (1, 17), (7, 23), (8, 24), (16, 26), (64, 30), (127, 31), (-64, 14), (-128, 15), (5000, 31)],
)
def test_buckets_equal_t5(distance: int, expected: int) -> None:
    assert relative_position_bucket(torch.tensor([distance]), 32, 128).item() == expected


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 16), (4, 100)])
def test_saturation_distance_is_the_first_of_the_last_bucket(buckets: int, max_distance: int) -> None:
    first = saturation_distance(buckets, max_distance)
    numbers = relative_position_bucket(torch.arange(-500, 501), buckets, max_distance)
    assert numbers[500 + first :].unique().numel() == numbers[: 501 - first].unique().numel() == 1
    assert numbers[500 + first - 1] != numbers[-1]
    assert numbers[501 - first] != numbers[0]


def test_table_returns_the_bias_of_each_bucket() -> None:
    torch.manual_seed(0)
    table = RelativePositionTable(buckets=32, max_distance=128, heads=3)
    torch.nn.init.normal_(table.weight_NH)
    bias_HLL = toeplitz_bias(table(40))
    for query in range(40):
        for key in range(40):
            expected = table.weight_NH[relative_position_bucket(torch.tensor(key - query), 32, 128)]
            assert_close(bias_HLL[:, query, key], expected)


def test_gradient_of_the_table_sums_over_all_queries_and_keys_of_a_bucket() -> None:
    torch.manual_seed(0)
    table = RelativePositionTable(buckets=8, max_distance=16, heads=2)
    torch.nn.init.zeros_(table.weight_NH)
    upstream = torch.randn(2, 12, 12)
    toeplitz_bias(table(12)).backward(upstream)
    slow = torch.zeros(8, 2)
    for query in range(12):
        for key in range(12):
            slow[relative_position_bucket(torch.tensor(key - query), 8, 16)] += upstream[:, query, key]
    assert_close(table.weight_NH.grad, slow)


def test_bias_stays_float32_under_bfloat16_autocast() -> None:
    table = RelativePositionTable(buckets=8, max_distance=16, heads=2)
    torch.nn.init.normal_(table.weight_NH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert table(12).dtype == torch.float32


@pytest.mark.parametrize("is_plain", [False, True])
def test_gate_equals_its_equation(is_plain: bool) -> None:
    """g_u, g_r = sigmoid(q.u), sigmoid(q.v); r = d + g_u d + (1 - g_u) w g_r d."""
    torch.manual_seed(0)
    gate = BiasGate(5, 3, is_plain)
    torch.nn.init.normal_(gate.scale_H)
    query_BHLK = torch.randn(2, 3, 4, 5)
    d = 0.7
    if is_plain:  # u, v and w are all that it has
        assert sum(parameter.numel() for parameter in gate.parameters()) == 2 * 5 + 3
        (u, v), bias_u, bias_v = gate.map.weight, torch.zeros(()), torch.zeros(())
    else:
        u, v = gate.map.weight.unflatten(0, (2, 4)).sum(1)
        bias_u, bias_v = gate.map.bias.unflatten(0, (2, 4)).sum(1)
    factor = gate(query_BHLK.transpose(1, 2))
    for b in range(2):
        for h in range(3):
            for i in range(4):
                q = query_BHLK[b, h, i]
                g_u, g_r = torch.sigmoid(q @ u + bias_u), torch.sigmoid(q @ v + bias_v)
                expected = d + g_u * d + (1 - g_u) * gate.scale_H[h] * g_r * d
                assert_close(factor[b, h, i] * d, expected)


def test_gate_equals_wavlm_with_the_update_gate_flipped() -> None:
    """transformers' WavLM computes a (b w - 1) + 2 with a = 1 - g_u: the same number from the negated first gate."""
    from transformers.models.wavlm.modeling_wavlm import WavLMAttention

    torch.manual_seed(0)
    theirs = WavLMAttention(embed_dim=12, num_heads=3, num_buckets=8, max_distance=16)
    ours = BiasGate(head_width=4, heads=3)
    hidden = torch.randn(2, 6, 12)
    with torch.no_grad():
        theirs.gru_rel_pos_const.copy_(torch.randn(1, 3, 1, 1))
        ours.map.weight.copy_(theirs.gru_rel_pos_linear.weight)
        ours.map.bias.copy_(theirs.gru_rel_pos_linear.bias)
        ours.map.weight[:4] *= -1
        ours.map.bias[:4] *= -1
        ours.scale_H.copy_(theirs.gru_rel_pos_const.flatten())
    heads = hidden.unflatten(-1, (3, 4)).transpose(1, 2)
    a, b = torch.sigmoid(theirs.gru_rel_pos_linear(heads).unflatten(-1, (2, 4)).sum(-1)).unbind(-1)
    wavlm = a * (b * theirs.gru_rel_pos_const[..., 0] - 1.0) + 2.0
    assert_close(ours(heads.transpose(1, 2)), wavlm)
