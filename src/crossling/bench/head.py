"""The head over the whole vocabulary at the masked positions: loss, gradients, and a draw of each, in one pass of ours
beside all logits at once (linear, cross-entropy, softmax, multinomial)."""
# M masked positions, D width, V vocabulary

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from crossling.bench.clock import Timing
from crossling.bench.row import Row
from crossling.bench.setting import Setting
from crossling.model.prediction import predict
from crossling.vocabulary.vocabulary import UNK

BATCH, RATE = 64, 0.15  # whose masked positions they are


@dataclass(frozen=True)
class Inputs:
    hidden_MD: Tensor
    table_VD: Tensor
    bias_V: Tensor
    targets_M: Tensor
    noise_M: Tensor  # uniform: what each draw is made of

    @classmethod
    def random(cls, at: Setting) -> Inputs:
        positions, width = round(RATE * (BATCH if at.on_gpu else at.batches[0]) * at.length), at.shape.width
        return cls(
            torch.randn(positions, width, device=at.device, dtype=at.dtype).requires_grad_(),
            torch.randn(at.vocabulary, width, device=at.device).mul_(0.02).requires_grad_(),
            torch.zeros(at.vocabulary, device=at.device).requires_grad_(),
            torch.randint(UNK + 1, at.vocabulary - 1, (positions,), device=at.device),
            torch.rand(positions, device=at.device),
        )


Head = Callable[[Inputs], tuple[Tensor, Tensor]]  # the sum of the losses, and what was drawn


def rows(at: Setting) -> Iterator[Row]:
    timing = at.tried("our head", partial(both_ways, at, ours))
    if timing is None:
        return
    positions, width = Inputs.random(at).hidden_MD.shape
    operations = 3 * 2 * positions * width * at.vocabulary
    yield at.ms(
        f"head, {positions:,} x {width} x {at.vocabulary:,}: loss, gradients, draws",
        timing,
        at.tried("all logits at once", partial(both_ways, at, all_logits)),
        "all logits at once",
        mfu=operations / timing.seconds / at.matmul,
    )


def both_ways(at: Setting, head: Head) -> Timing:
    inputs = Inputs.random(at)

    def work() -> None:
        with torch.autocast(at.device.type, dtype=torch.bfloat16, enabled=at.on_gpu):
            loss, _ = head(inputs)
        torch.autograd.grad(loss, [inputs.hidden_MD, inputs.table_VD, inputs.bias_V])

    return at.timed(work)


def ours(inputs: Inputs) -> tuple[Tensor, Tensor]:
    found = predict(inputs.hidden_MD, inputs.table_VD, inputs.bias_V, inputs.targets_M, inputs.noise_M)
    return found.loss, found.drawn_M


def all_logits(inputs: Inputs) -> tuple[Tensor, Tensor]:
    logits_MV = F.linear(inputs.hidden_MD, inputs.table_VD, inputs.bias_V).float()
    loss = F.cross_entropy(logits_MV, inputs.targets_M, reduction="sum")
    return loss, torch.multinomial(torch.softmax(logits_MV.detach(), -1), 1)
