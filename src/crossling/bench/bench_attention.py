"""Attention with the gated position bias, one layer, forward and backward, with gradients to all inputs.

The bias is c_i d_(j-i): one number per query, times a table by distance. Beside ours: torch's attention with the bias
materialized, the same with no bias at all (the floor), and FlexAttention, which is given the bias as a function.
"""
# B sequences, H heads, L positions, K width of a head, W = 2L - 1 distances
# M masked positions, D width, V vocabulary

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.bench.workload import BenchRow, BenchSetup, Measurement, compare
from crossling.model.attention import PositionBias, compute_attention, make_attention_mask, uses_attention_kernel
from crossling.model.kernels.prediction import predict
from crossling.model.position import BiasGate, RelativePositionTable, toeplitz_bias
from crossling.vocabulary.vocabulary import UNK

BATCH = 64
# FlexAttention's default tiles do not fit into the shared memory of an H200.
TILES = ("fwd_BLOCK_M", "fwd_BLOCK_N", "bwd_BLOCK_M1", "bwd_BLOCK_N1", "bwd_BLOCK_M2", "bwd_BLOCK_N2")
FLEX = dict.fromkeys(TILES, 64) | {"num_stages": 2}


@dataclass(frozen=True)
class AttentionInputs:
    """Random inputs of one attention layer."""

    query_BLHK: Tensor
    key_BLHK: Tensor
    value_BLHK: Tensor
    gate_BHL: Tensor  # c
    table_HW: Tensor  # d, from the key far left to the key far right
    far: int  # distance from which d is constant
    gradient_BLHK: Tensor  # of the output

    @classmethod
    def random(cls, at: BenchSetup) -> AttentionInputs:
        batch, heads, width = (BATCH if at.on_gpu else at.batches[0]), at.shape.heads, at.shape.width
        rows = torch.randn((4, batch, at.length, heads, width // heads), device=at.device, dtype=at.dtype)
        query, key, value = (part.requires_grad_() for part in rows[:3].unbind())
        gate_BHL = 1 + torch.rand(batch, heads, at.length, device=at.device)
        config = at.shape.to_config(at.vocabulary)
        table = RelativePositionTable(config.relative_buckets, config.relative_max_distance, heads).to(at.device)
        torch.nn.init.normal_(table.weight_NH)
        table_HW = table(at.length).detach().contiguous().requires_grad_()
        return cls(query, key, value, gate_BHL.requires_grad_(), table_HW, table.saturation_distance, rows[3])

    @property
    def learned(self) -> list[Tensor]:
        return [self.query_BLHK, self.key_BLHK, self.value_BLHK, self.gate_BHL, self.table_HW]

    @property
    def bias(self) -> PositionBias:
        """The bias as the model computes it, which is part of the work."""
        query = self.query_BLHK
        for_kernel = uses_attention_kernel(query.device, query.dtype, query.shape[3])
        return PositionBias.create(self.table_HW, self.far, for_kernel)

    @property
    def by_heads(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, H, L, K] in the order of torch."""
        query, key, value = (each.transpose(1, 2) for each in (self.query_BLHK, self.key_BLHK, self.value_BLHK))
        return query, key, value


Attention = Callable[[AttentionInputs], Tensor]


def attention_rows(at: BenchSetup) -> Iterator[BenchRow]:
    ours = at.try_measure("our attention", time_forward_backward, at, our_attention)
    trained = at.try_measure("our attention in training", time_forward_backward, at, our_training_attention(at))
    if ours is None or trained is None:
        return
    batch, length, heads, width = AttentionInputs.random(at).query_BLHK.shape
    peers: dict[str, Attention] = {
        "SDPA, bias materialized": sdpa_with_bias,
        "SDPA, no bias: the floor": sdpa_without_bias,
    }
    if at.on_gpu:  # on a CPU it has no backward
        peers |= {
            "FlexAttention, gradients to gate and table": torch.compile(flex(at, gate=True, table=True)),
            "FlexAttention, gradient to the gate": torch.compile(flex(at, gate=True, table=False)),
            "FlexAttention, no gradients of the bias": torch.compile(flex(at, gate=False, table=False)),
        }
    what = f"gated attention {batch}x{heads}x{length}x{width}, forward and backward"
    for name, attention in peers.items():
        peer = at.try_measure(name, time_forward_backward, at, attention)
        yield compare(what, ours, peer, name)
    what = f"{what}, packed rows, gate from the queries"
    yield compare(what, trained, ours, "ours, one sequence a row, gate as input")


def time_forward_backward(at: BenchSetup, attention: Attention) -> Measurement:
    inputs = AttentionInputs.random(at)
    batch, length, heads, width = inputs.query_BLHK.shape
    # Two matrix products forward and, with recomputed scores, five backward.
    operations = 7 * 2 * batch * heads * length**2 * width

    def work() -> None:
        torch.autograd.grad(attention(inputs), inputs.learned, inputs.gradient_BLHK, allow_unused=True)

    return at.milliseconds(at.time(work, times=5 * at.times, as_graph=True), operations)


def our_attention(inputs: AttentionInputs) -> Tensor:
    qkv = inputs.query_BLHK, inputs.key_BLHK, inputs.value_BLHK
    return compute_attention(*qkv, bias=inputs.bias, gate=inputs.gate_BHL)


def our_training_attention(at: BenchSetup) -> Attention:
    """Return attention as in a training step: padded rows, and a gate computed from the queries."""
    shape = AttentionInputs.random(at).query_BLHK.shape
    number = torch.ones(shape[:2], dtype=torch.long, device=at.device)
    number[:, at.length - at.length // 32 :] = 0
    for_kernel = uses_attention_kernel(at.device, at.dtype, shape[3])
    mask = make_attention_mask(shape[:2], number, number, None, dtype=at.dtype, for_kernel=for_kernel)
    gate = BiasGate(shape[3], shape[2]).to(at.device)

    def attention(inputs: AttentionInputs) -> Tensor:
        qkv = inputs.query_BLHK, inputs.key_BLHK, inputs.value_BLHK
        return compute_attention(*qkv, bias=inputs.bias, gate=gate, mask=mask)

    return attention


def sdpa_with_bias(inputs: AttentionInputs) -> Tensor:
    bias_BHLL = (inputs.gate_BHL[..., None] * toeplitz_bias(inputs.table_HW)).to(inputs.query_BLHK.dtype)
    return F.scaled_dot_product_attention(*inputs.by_heads, attn_mask=bias_BHLL).transpose(1, 2)


def sdpa_without_bias(inputs: AttentionInputs) -> Tensor:
    return F.scaled_dot_product_attention(*inputs.by_heads).transpose(1, 2)


def flex(at: BenchSetup, gate: bool, table: bool) -> Attention:
    """Return FlexAttention, to be compiled, with or without gradients to gate and table."""
    from torch.nn.attention.flex_attention import flex_attention

    def attention(inputs: AttentionInputs) -> Tensor:
        gate_BHL = inputs.gate_BHL if gate else inputs.gate_BHL.detach()
        table_HW = inputs.table_HW if table else inputs.table_HW.detach()

        def score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + gate_BHL[b, h, i] * table_HW[h, j - i + at.length - 1]

        mixed: Any = flex_attention(*inputs.by_heads, score_mod=score, kernel_options=FLEX)  # type: ignore[call-overload]
        return mixed.transpose(1, 2)

    return attention


# The vocabulary head at masked positions: loss, gradients and a sample of each, in one chunked pass.
#
# The peer computes all logits at once: linear, cross-entropy, softmax, multinomial.


MASK_PROBABILITY = 0.15


@dataclass(frozen=True)
class HeadInputs:
    """Random inputs of the head."""

    hidden_MD: Tensor
    table_VD: Tensor
    bias_V: Tensor
    targets_M: Tensor
    noise_M: Tensor  # uniform noise of each sample

    @classmethod
    def random(cls, at: BenchSetup) -> HeadInputs:
        positions = round(MASK_PROBABILITY * (BATCH if at.on_gpu else at.batches[0]) * at.length)
        width = at.shape.width
        return cls(
            torch.randn(positions, width, device=at.device, dtype=at.dtype).requires_grad_(),
            torch.randn(at.vocabulary, width, device=at.device).mul_(0.02).requires_grad_(),
            torch.zeros(at.vocabulary, device=at.device).requires_grad_(),
            torch.randint(UNK + 1, at.vocabulary - 1, (positions,), device=at.device),
            torch.rand(positions, device=at.device),
        )


Head = Callable[[HeadInputs], tuple[Tensor, Tensor]]  # summed loss, sampled ids


def head_rows(at: BenchSetup) -> Iterator[BenchRow]:
    ours = at.try_measure("our head", time_head, at, our_head)
    if ours is None:
        return
    positions, width = HeadInputs.random(at).hidden_MD.shape
    what, peer_name = (
        f"head, {positions:,} x {width} x {at.vocabulary:,}: loss, gradients, samples",
        "all logits at once",
    )
    yield compare(what, ours, at.try_measure(peer_name, time_head, at, all_logits), peer_name)


def time_head(at: BenchSetup, head: Head) -> Measurement:
    inputs = HeadInputs.random(at)
    operations = 3 * 2 * inputs.hidden_MD.numel() * at.vocabulary

    def work() -> None:
        with torch.autocast(at.device.type, dtype=torch.bfloat16, enabled=at.on_gpu):
            loss, _ = head(inputs)
        torch.autograd.grad(loss, [inputs.hidden_MD, inputs.table_VD, inputs.bias_V])

    return at.milliseconds(at.time(work), operations)


def our_head(inputs: HeadInputs) -> tuple[Tensor, Tensor]:
    prediction = predict(inputs.hidden_MD, inputs.table_VD, inputs.bias_V, inputs.targets_M, inputs.noise_M)
    return prediction.loss, prediction.sampled_M


def all_logits(inputs: HeadInputs) -> tuple[Tensor, Tensor]:
    logits_MV = F.linear(inputs.hidden_MD, inputs.table_VD, inputs.bias_V).float()
    loss = F.cross_entropy(logits_MV, inputs.targets_M, reduction="sum")
    return loss, torch.multinomial(torch.softmax(logits_MV.detach(), -1), 1)
