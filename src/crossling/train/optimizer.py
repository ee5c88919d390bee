r"""Optimizers: AdamW, or Muon for the weight matrices of the blocks, with parameter groups and learning rate schedule.

Muon (Jordan et al., 2024) orthogonalizes the momentum of a weight matrix. Everything else is trained with AdamW.

    m <- mu m + (1 - mu) g,    u = mu m + (1 - mu) g,    w <- (1 - lr decay) w - lr 0.2 sqrt(max(A, B)) orthogonal(u)

It moves all directions of the matrix alike, the rare ones too. The factor gives an update of [A, B] the size of Adam's
(Liu et al., 2025), so one learning rate serves both. torch.optim.Muon updates one matrix after the other. Here all
matrices of one shape are updated at once, and a step is skipped on the device.
"""
# N matrices of a shape, A x B

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from crossling.core.errors import BadInput
from crossling.core.settings import AT_LEAST_0, FRACTION, POSITIVE
from crossling.model.attention import CrossAttention, SelfAttention
from crossling.model.encoder import FeedForward
from crossling.model.position import BiasGate, RelativePositionTable

NO_DECAY = (nn.LayerNorm, BiasGate, RelativePositionTable)

MOMENTUM = 0.95
COEFFICIENTS, ITERATIONS = (3.4445, -4.7750, 2.0315), 5  # of Newton-Schulz, as published
MIN_MATRIX_NORM = 1e-7
STACKED_BYTES = 24  # per element during an update: gradient, momentum, update and weight, two of them before and after


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """Optimizer settings of a recipe. The peak learning rate and the number of steps belong to the recipe.

    Args:
        warmup: Warm-up steps. Below 1, a fraction of all steps.
        beta1: First moment decay of AdamW.
        beta2: Second moment decay of AdamW.
        epsilon: Epsilon of AdamW.
        decay: Weight decay of weight matrices and embeddings.
        clip: Maximum gradient norm.
        generator_lr_factor: Learning rate of the generator's own weights, relative to `lr`.
        matrices: Optimizer of the weight matrices of the blocks. Everything else is trained with AdamW.

    Example:
        >>> settings = crossling.OptimizerSettings(beta2=0.98, warmup=0.1)
    """

    warmup: Annotated[float, AT_LEAST_0] = 10_000
    beta1: Annotated[float, FRACTION] = 0.9
    beta2: Annotated[float, FRACTION] = 0.98
    epsilon: Annotated[float, POSITIVE] = 1e-6
    decay: Annotated[float, AT_LEAST_0] = 0.01
    clip: Annotated[float, POSITIVE] = 2.0
    generator_lr_factor: Annotated[float, POSITIVE] = 1.0
    matrices: Literal["adam", "muon"] = "adam"

    def build(self, net: nn.Module) -> torch.optim.AdamW:
        """Return the optimizer of a network. Biases, norms, gates and the position table have no weight decay.

        Raises:
            BadInput: If FSDP shards the matrices that Muon needs whole.
        """
        no_decay = {p for m in net.modules() if isinstance(m, NO_DECAY) for p in m.parameters()}
        parts = dict(net.named_children()).get("parts", nn.ModuleDict())
        generator = {p for name, part in parts.named_children() if "generator" in name for p in part.parameters()}
        shared = {p for name, p in net.named_parameters() if name == "encoder.embeddings.tokens.weight"}
        matrices = _count_stacked_matrices(net) if self.matrices == "muon" else {}
        if any(isinstance(parameter, DTensor) for parameter in matrices):
            raise BadInput("optimizer.matrices=muon: needs whole matrices, but FSDP shards them. Set parallel=ddp.")
        groups: dict[tuple[float, float, int], list[nn.Parameter]] = {}
        for parameter in net.parameters():
            if parameter.requires_grad:
                decay = self.decay if parameter.ndim > 1 and parameter not in no_decay else 0.0
                lr_factor = self.generator_lr_factor if parameter in generator - shared else 1.0
                groups.setdefault((decay, lr_factor, matrices.get(parameter, 0)), []).append(parameter)
        parameter_groups = [
            {"params": parameters, "weight_decay": decay, "lr_factor": lr_factor, "matrices": count}
            for (decay, lr_factor, count), parameters in groups.items()
        ]
        device = next(net.parameters()).device
        dtype = torch.float32 if device.type == "cuda" else torch.float64
        for group in parameter_groups:  # set at every step, on the device: CUDA graphs read it there
            group["lr"] = torch.zeros((), device=device, dtype=dtype)
        return (Muon if matrices else torch.optim.AdamW)(
            parameter_groups,
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            fused=True,
            capturable=device.type == "cuda",
        )

    def learning_rate(self, step: int, steps: int, peak: float) -> float:
        """Return the learning rate of a step: linear warm-up to the peak, then linear decay to 0 at the end."""
        warmup = self.warmup_steps(steps)
        if step < warmup:
            return peak * (step + 1) / warmup
        return peak * (steps - step) / max(1, steps - warmup)

    def warmup_steps(self, steps: int) -> int:
        """Return the number of warm-up steps of a run of `steps` steps."""
        return round(self.warmup * steps) if self.warmup < 1 else round(self.warmup)


def _count_stacked_matrices(net: nn.Module) -> dict[nn.Parameter, int]:
    """Return the weights of all blocks, and the number of matrices stacked in each: q, k and v are one weight."""
    counts: dict[nn.Module, int] = {}
    for module in net.modules():
        if isinstance(module, SelfAttention):
            counts |= {module.qkv: 3, module.out: 1}
        elif isinstance(module, CrossAttention):
            counts |= {module.query: 1, module.key_value: 2, module.out: 1}
        elif isinstance(module, FeedForward):
            counts |= {module[0]: 1, module[2]: 1}
    return {weight: count for linear, count in counts.items() for weight in linear.parameters() if weight.ndim == 2}


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
