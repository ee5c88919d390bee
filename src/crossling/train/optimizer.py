"""Optimizer settings: AdamW, or Muon for the weight matrices of the blocks, parameter groups and learning rates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from crossling.core.errors import BadInput
from crossling.core.settings import AT_LEAST_0, FRACTION, POSITIVE

if TYPE_CHECKING:
    import torch
    from torch import nn

COOLDOWN = 0.1  # of the steps, if not set


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """Optimizer settings of a recipe. The peak learning rate and the number of steps belong to the recipe.

    Args:
        warmup: Warm-up steps. Below 1, a fraction of all steps.
        beta1: First moment decay of AdamW.
        beta2: Second moment decay of AdamW.
        epsilon: Epsilon of AdamW.
        decay: Weight decay of weight matrices and embeddings.
        decay_all: Apply the weight decay also to biases, norms, gates and the position table [default: false].
        clip: Maximum gradient norm.
        generator_lr_factor: Learning rate of the generator's own weights, relative to `lr`.
        matrices: Optimizer of the weight matrices of the blocks. Everything else is trained with AdamW.
        schedule: Learning rate after the warm-up: `linear` or `cosine` decay to 0, or `wsd` (warm-up, stable, decay),
            which is constant until the cooldown [default: linear].
        cooldown: Last steps of `wsd`, in which the learning rate falls to 0 as 1 - sqrt. Below 1, a fraction of all
            steps [default: 0.1].

    Example:
        >>> settings = crossling.OptimizerSettings(beta2=0.98, warmup=0.1)
    """

    warmup: Annotated[float, AT_LEAST_0] = 10_000
    beta1: Annotated[float, FRACTION] = 0.9
    beta2: Annotated[float, FRACTION] = 0.98
    epsilon: Annotated[float, POSITIVE] = 1e-6
    decay: Annotated[float, AT_LEAST_0] = 0.01
    decay_all: bool | None = None
    clip: Annotated[float, POSITIVE] = 2.0
    generator_lr_factor: Annotated[float, POSITIVE] = 1.0
    matrices: Literal["adam", "muon"] = "adam"
    schedule: Literal["linear", "cosine", "wsd"] | None = None
    cooldown: Annotated[float | None, AT_LEAST_0] = None

    def build(self, net: nn.Module) -> torch.optim.AdamW:
        """Return the optimizer of a network.

        Biases, norms, gates and the position table have no weight decay, unless `decay_all` is set.

        Raises:
            BadInput: If FSDP shards the matrices that Muon needs whole.
        """
        import torch
        from torch import nn
        from torch.distributed.tensor import DTensor

        from crossling.model.position import BiasGate, RelativePositionTable
        from crossling.train.muon import Muon, count_stacked_matrices

        without_decay = (nn.LayerNorm, BiasGate, RelativePositionTable)
        no_decay = {p for m in net.modules() if isinstance(m, without_decay) for p in m.parameters()}
        parts = dict(net.named_children()).get("parts", nn.ModuleDict())
        generator = {p for name, part in parts.named_children() if "generator" in name for p in part.parameters()}
        shared = _token_table(net)
        matrices = count_stacked_matrices(net) if self.matrices == "muon" else {}
        if any(isinstance(parameter, DTensor) for parameter in matrices):
            raise BadInput("optimizer.matrices=muon: needs whole matrices, but FSDP shards them. Set parallel=ddp.")
        groups: dict[tuple[float, float, int], list[nn.Parameter]] = {}
        for parameter in net.parameters():
            if parameter.requires_grad:
                is_decayed = self.decay_all or (parameter.ndim > 1 and parameter not in no_decay)
                decay = self.decay if is_decayed else 0.0
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
        """Return the learning rate of a step: linear warm-up to the peak, then the schedule, to 0 at the end."""
        warmup = self.warmup_steps(steps)
        if step < warmup:
            return peak * (step + 1) / warmup
        if self.schedule == "wsd":
            cooldown = self.cooldown_steps(steps)
            return peak * (1 - math.sqrt(max(0, step - steps + cooldown) / max(1, cooldown)))
        if self.schedule == "cosine":
            return peak * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))) / 2
        return peak * (steps - step) / max(1, steps - warmup)

    def warmup_steps(self, steps: int) -> int:
        """Return the number of warm-up steps of a run of `steps` steps."""
        return round(self.warmup * steps) if self.warmup < 1 else round(self.warmup)

    def cooldown_steps(self, steps: int) -> int:
        """Return the number of steps at the end of a run of `steps` steps in which `wsd` lowers the learning rate."""
        cooldown = COOLDOWN if self.cooldown is None else self.cooldown
        return round(cooldown * steps) if cooldown < 1 else round(cooldown)

    def problems(self, steps: int) -> Iterator[str]:
        """Yield contradictions with the number of steps of a run, each as a message."""
        warmup = self.warmup_steps(steps)
        if warmup >= steps > 1:
            yield (
                f"optimizer.warmup is {self.warmup:g} and steps only {steps}, so the learning rate would"
                " never reach its peak. Set optimizer.warmup, for instance 0.1 for a tenth of the steps."
            )
        if self.schedule == "wsd" and warmup + self.cooldown_steps(steps) > steps:
            yield (
                f"optimizer.cooldown has {self.cooldown_steps(steps)} steps and the warm-up {warmup}, of {steps} in"
                " all. Set a lower optimizer.cooldown."
            )
        if self.cooldown is not None and self.schedule != "wsd":
            yield f"optimizer.cooldown is {self.cooldown:g} without effect. Set optimizer.schedule=wsd."


def _token_table(net: nn.Module) -> set[nn.Parameter]:
    """Return the token table of the encoder, if it is one parameter."""
    tokens = getattr(getattr(getattr(net, "encoder", None), "embeddings", None), "tokens", None)
    return set() if tokens is None else {*net.parameters()} & {*tokens.parameters(recurse=False)}
