"""Attention with the gated position bias, one layer, forward and backward, with gradients to everything that learns.

The bias is c_i d_(j-i): one number per query, times a table by distance. Beside ours: torch's attention with the bias
materialised, the same with no bias at all (the floor), and FlexAttention, which is given the bias as a function.
"""
# B sequences, H heads, L positions, K width of a head, W = 2L - 1 distances

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.bench.clock import Timing
from crossling.bench.row import Row
from crossling.bench.setting import Setting
from crossling.model.attention import Bias, attend, fused, see
from crossling.model.position import Gate, RelativePositionTable, windows

BATCH = 64
# The tiles that FlexAttention chooses by itself do not fit into the shared memory of an H200.
TILES = ("fwd_BLOCK_M", "fwd_BLOCK_N", "bwd_BLOCK_M1", "bwd_BLOCK_N1", "bwd_BLOCK_M2", "bwd_BLOCK_N2")
FLEX = dict.fromkeys(TILES, 64) | {"num_stages": 2}


@dataclass(frozen=True)
class Inputs:
    query_BLHK: Tensor
    key_BLHK: Tensor
    value_BLHK: Tensor
    gate_BHL: Tensor  # c
    table_HW: Tensor  # d, from the key far left to the key far right
    far: int  # the distance from which on d stays the same
    gradient_BLHK: Tensor  # of the output

    @classmethod
    def random(cls, at: Setting) -> Inputs:
        batch, heads, width = (BATCH if at.on_gpu else at.batches[0]), at.shape.heads, at.shape.width
        rows = torch.randn((4, batch, at.length, heads, width // heads), device=at.device, dtype=at.dtype)
        query, key, value = (part.requires_grad_() for part in rows[:3].unbind())
        gate_BHL = 1 + torch.rand(batch, heads, at.length, device=at.device)
        config = at.shape.config(at.vocabulary)
        table = RelativePositionTable(config.relative_buckets, config.relative_max_distance, heads).to(at.device)
        torch.nn.init.normal_(table.weight_NH)
        table_HW = table(at.length).detach().contiguous()
        return cls(query, key, value, gate_BHL.requires_grad_(), table_HW.requires_grad_(), table.far, rows[3])

    @property
    def learned(self) -> list[Tensor]:
        return [self.query_BLHK, self.key_BLHK, self.value_BLHK, self.gate_BHL, self.table_HW]

    @property
    def bias(self) -> Bias:
        """As the model makes it, which is part of the work."""
        query = self.query_BLHK
        return Bias.of(self.table_HW, self.far, fused(query.device, query.dtype, query.shape[3]))

    @property
    def by_heads(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, H, L, K], as torch wants them."""
        query, key, value = (each.transpose(1, 2) for each in (self.query_BLHK, self.key_BLHK, self.value_BLHK))
        return query, key, value


Attention = Callable[[Inputs], Tensor]


def rows(at: Setting) -> Iterator[Row]:
    timing = at.tried("our attention", partial(both_ways, at, ours))
    trained = at.tried("our attention in training", partial(both_ways, at, in_training(at)))
    if timing is None or trained is None:
        return
    batch, length, heads, width = Inputs.random(at).query_BLHK.shape
    # Two products forwards and, with the scores computed once more, five backwards.
    operations = 7 * 2 * batch * heads * length**2 * width
    peers: dict[str, Attention] = {"SDPA, bias materialised": materialised, "SDPA, no bias: the floor": unbiased}
    if at.on_gpu:  # on a CPU it has no backward
        peers |= {
            "FlexAttention, gradients to gate and table": torch.compile(flex(at, gate=True, table=True)),
            "FlexAttention, gradient to the gate": torch.compile(flex(at, gate=True, table=False)),
            "FlexAttention, no gradients of the bias": torch.compile(flex(at, gate=False, table=False)),
        }
    what = f"gated attention {batch}x{heads}x{length}x{width}, both ways"
    for name, attention in peers.items():
        peer = at.tried(name, partial(both_ways, at, attention))
        yield at.ms(what, timing, peer, name, mfu=operations / timing.seconds / at.matmul)
    yield at.ms(
        f"{what}, rows with borders, gate made by the queries",
        trained,
        timing,
        "ours, one sequence a row, gate given",
        mfu=operations / trained.seconds / at.matmul,
    )


def both_ways(at: Setting, attention: Attention) -> Timing:
    inputs = Inputs.random(at)

    def work() -> None:
        torch.autograd.grad(attention(inputs), inputs.learned, inputs.gradient_BLHK, allow_unused=True)

    return at.timed(work, times=5 * at.times, recorded=True)


def ours(inputs: Inputs) -> Tensor:
    return attend(inputs.query_BLHK, inputs.key_BLHK, inputs.value_BLHK, inputs.bias, inputs.gate_BHL, None)


def in_training(at: Setting) -> Attention:
    """As a step has it: a sequence and some padding in each row, and a gate that the queries make."""
    shape = Inputs.random(at).query_BLHK.shape
    number = torch.ones(shape[:2], dtype=torch.long, device=at.device)
    number[:, at.length - at.length // 32 :] = 0
    seen = see(shape[:2], number, number, None, at.dtype, fused(at.device, at.dtype, shape[3]))
    gate = Gate(shape[3], shape[2]).to(at.device)

    def attention(inputs: Inputs) -> Tensor:
        return attend(inputs.query_BLHK, inputs.key_BLHK, inputs.value_BLHK, inputs.bias, gate, seen)

    return attention


def materialised(inputs: Inputs) -> Tensor:
    bias_BHLL = (inputs.gate_BHL[..., None] * windows(inputs.table_HW)).to(inputs.query_BLHK.dtype)
    return F.scaled_dot_product_attention(*inputs.by_heads, attn_mask=bias_BHLL).transpose(1, 2)


def unbiased(inputs: Inputs) -> Tensor:
    return F.scaled_dot_product_attention(*inputs.by_heads).transpose(1, 2)


def flex(at: Setting, gate: bool, table: bool) -> Attention:
    """FlexAttention, to be compiled; with gradients to the gate and to the table, or not."""
    from torch.nn.attention.flex_attention import flex_attention

    def attention(inputs: Inputs) -> Tensor:
        gate_BHL = inputs.gate_BHL if gate else inputs.gate_BHL.detach()
        table_HW = inputs.table_HW if table else inputs.table_HW.detach()

        def score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + gate_BHL[b, h, i] * table_HW[h, j - i + at.length - 1]

        mixed: Any = flex_attention(*inputs.by_heads, score_mod=score, kernel_options=FLEX)  # type: ignore[call-overload]
        return mixed.transpose(1, 2)

    return attention
