r"""Muon (Jordan et al., 2024): the momentum of a matrix, made orthogonal, is its update; all else is AdamW's.

    m <- mu m + (1 - mu) g,    u = mu m + (1 - mu) g,    w <- (1 - lr decay) w - lr 0.2 sqrt(max(A, B)) orthogonal(u)

All directions of the matrix are moved alike, the rare ones too. The factor gives an update of [A, B] the size that Adam
would give it (Liu et al., 2025), so that one rate serves all. What torch.optim.Muon does one after the other is done
here for all matrices of a shape at once, and a step that is to be left out is left out on the device.
"""
# N matrices of a shape, A x B

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
COEFFICIENTS, ITERATIONS = (3.4445, -4.7750, 2.0315), 5  # of Newton and Schulz, as they are published
SMALLEST = 1e-7
STACKED_BYTES = 24  # of each element that is moved, meanwhile: gradient, momentum, update, weight; two before and after


class Muon(torch.optim.AdamW):
    """Groups with a number of `parts` above 0 hold matrices, each of so many maps, one below the other."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group, weights in self.stacks():
            learned = [weight for weight in weights if weight.grad is not None]
            if learned:
                self._move(learned, group["lr"], group["weight_decay"], group["parts"])
        return super().step(closure)

    def stacks(self) -> Iterator[tuple[dict[str, Any], list[Tensor]]]:
        """The matrices that are moved at once, and the group they are from."""
        for group in self.param_groups:
            if group["parts"]:
                by_shape: dict[torch.Size, list[Tensor]] = {}
                for weight in group["params"]:
                    by_shape.setdefault(weight.shape, []).append(weight)
                for weights in by_shape.values():
                    yield group, weights

    def _move(self, weights: list[Tensor], lr: float, decay: float, parts: int) -> None:
        skipped = getattr(self, "found_inf", None)
        gradient_NAB = torch.stack([weight.grad for weight in weights if weight.grad is not None])
        before = [self.state[weight].setdefault("momentum", torch.zeros_like(weight)) for weight in weights]
        momentum_NAB = torch.stack(before).lerp_(gradient_NAB, 1 - MOMENTUM)
        update_NAB = gradient_NAB.lerp_(momentum_NAB, MOMENTUM)
        maps = orthogonal(update_NAB.unflatten(1, (parts, -1)).flatten(0, 1))
        size = 0.2 * max(maps.shape[1:]) ** 0.5
        moved_NAB = (torch.stack(weights) * (1 - lr * decay)).sub_(maps.view_as(update_NAB), alpha=lr * size)
        if skipped is not None:
            keep = skipped > 0
            momentum_NAB = torch.where(keep, torch.stack(before), momentum_NAB)
            moved_NAB = torch.where(keep, torch.stack(weights), moved_NAB)
        torch._foreach_copy_(before, [*momentum_NAB])
        torch._foreach_copy_(weights, [*moved_NAB])
        for weight in weights:
            weight.grad = None  # it has learned: AdamW passes it over


def orthogonal(matrices_NAB: Tensor) -> Tensor:
    """The nearest matrices whose singular values are all about 1 (between 0.7 and 1.2), in float32."""
    x = matrices_NAB.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).float()
