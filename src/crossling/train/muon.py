r"""Muon (Jordan et al., 2024): orthogonalize the momentum of a weight matrix.

    m <- mu m + (1 - mu) g,    u = mu m + (1 - mu) g,    w <- (1 - lr decay) w - lr 0.2 sqrt(max(A, B)) orthogonal(u)

It moves all directions of the matrix alike, the rare ones too. The factor gives an update of [A, B] the size of Adam's
(Liu et al., 2025), so one learning rate serves both. torch.optim.Muon updates one matrix after the other. Here all
matrices of one shape are updated at once, and a step is skipped on the device.
"""
# N matrices of a shape, A x B

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from crossling.model.attention import CrossAttention, SelfAttention
from crossling.model.encoder import FeedForward, GatedFeedForward
from crossling.model.native_encoder import NativeEncoder

MOMENTUM = 0.95
COEFFICIENTS, ITERATIONS = (3.4445, -4.7750, 2.0315), 5  # of Newton-Schulz, as published
MIN_MATRIX_NORM = 1e-7
STACKED_BYTES = 24  # per element during an update: gradient, momentum, update and weight, two of them before and after


def count_stacked_matrices(net: nn.Module) -> dict[nn.Parameter, int]:
    """Return the weights of all blocks, and the number of matrices stacked in each: q, k and v are one weight."""
    counts: dict[nn.Module, int] = {}
    for module in net.modules():
        if isinstance(module, SelfAttention):
            counts |= {module.qkv: 3, module.out: 1}
        elif isinstance(module, CrossAttention):
            counts |= {module.query: 1, module.key_value: 2, module.out: 1}
        elif isinstance(module, FeedForward):
            counts |= {module[0]: 1, module[2]: 1}
        elif isinstance(module, GatedFeedForward):
            counts |= {module.into: 2, module.out: 1}
        elif isinstance(module, NativeEncoder):
            counts |= {
                each: _stacked(name) for name, each in module.blocks.named_modules() if isinstance(each, nn.Linear)
            }
    return {weight: count for linear, count in counts.items() for weight in linear.parameters() if weight.ndim == 2}


def _stacked(name: str) -> int:
    """Return the number of matrices in a linear layer of a Hugging Face model, by its name."""
    return 3 if "qkv" in name.lower() else 1


class Muon(torch.optim.AdamW):
    """Muon for the groups with `matrices` above 0, whose weights stack so many matrices. AdamW for the others."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group, weights in self.stacks():
            with_gradient = [weight for weight in weights if weight.grad is not None]
            if with_gradient:
                self._update(with_gradient, group["lr"], group["weight_decay"], group["matrices"])
        return super().step(closure)

    def stacks(self) -> Iterator[tuple[dict[str, Any], list[Tensor]]]:
        """Yield the weights that are updated at once, with their parameter group."""
        for group in self.param_groups:
            if group["matrices"]:
                by_shape: dict[torch.Size, list[Tensor]] = {}
                for weight in group["params"]:
                    by_shape.setdefault(weight.shape, []).append(weight)
                for weights in by_shape.values():
                    yield group, weights

    def _update(self, weights: list[Tensor], lr: Tensor, decay: float, matrices: int) -> None:
        skipped = getattr(self, "found_inf", None)
        gradient_NAB = torch.stack([weight.grad for weight in weights if weight.grad is not None])
        momentum = [self.state[weight].setdefault("momentum", torch.zeros_like(weight)) for weight in weights]
        momentum_NAB = torch.stack(momentum).lerp_(gradient_NAB, 1 - MOMENTUM)
        update_NAB = gradient_NAB.lerp_(momentum_NAB, MOMENTUM)
        directions = orthogonalize(update_NAB.unflatten(1, (matrices, -1)).flatten(0, 1))
        size = 0.2 * max(directions.shape[1:]) ** 0.5
        new_NAB = torch.stack(weights) * (1 - lr * decay) - directions.view_as(update_NAB) * (lr * size)
        if skipped is not None:
            keep = skipped > 0
            momentum_NAB = torch.where(keep, torch.stack(momentum), momentum_NAB)
            new_NAB = torch.where(keep, torch.stack(weights), new_NAB)
        torch._foreach_copy_(momentum, [*momentum_NAB])
        torch._foreach_copy_(weights, [*new_NAB])
        for weight in weights:
            weight.grad = None  # so AdamW skips it


def orthogonalize(matrices_NAB: Tensor) -> Tensor:
    """Return the nearest matrices whose singular values are all about 1 (between 0.7 and 1.2), in float32."""
    x = matrices_NAB.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=MIN_MATRIX_NORM)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).float()
