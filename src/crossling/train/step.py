"""One training step: the gradient of its micro-batches, clipping, and the optimizer.

Objectives return sums. Each sum is divided by its own count over the whole step, so loss weights mean what the papers
define, and splitting a batch changes nothing. Dropout is seeded per micro-batch, so a resumed run is the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from crossling.data.batches import StepWork
from crossling.data.packing import Batch
from crossling.objectives.objective import Objective, combined_loss_weights
from crossling.train.health import MAX_NORM_RATIO, GradientNormGuard
from crossling.train.meters import StepResult
from crossling.train.optimizer import OptimizerSettings
from crossling.train.parallel import ParallelNetwork, autocast

Reduction = Literal["mean", "token_sum"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Length of a run, learning rate, and the intervals of logging, probes and checkpoints in steps."""

    steps: int
    lr: float  # peak learning rate
    log_every: int
    checkpoint_every: int
    probe_every: int = 0  # 0: only before the first step and after the last
    reduction: Reduction = "mean"
    freeze_steps: int = 0  # first steps, in which only the `unfrozen` parameters are trained
    max_norm_ratio: float = MAX_NORM_RATIO  # skip a step whose gradient norm is so many times its running mean


class TrainStep:
    """Runs training steps: computes gradients and updates the network."""

    def __init__(
        self,
        network: ParallelNetwork,
        *,
        objectives: Mapping[str, Objective],
        optimizer: OptimizerSettings,
        schedule: Schedule,
        unfrozen: Sequence[str] = (),
    ) -> None:
        """Create the optimizer.

        Args:
            network: Network to train.
            objectives: Objectives by name.
            optimizer: Optimizer settings.
            schedule: Length of the run and learning rate.
            unfrozen: Names of the parameters that are trained in the first `schedule.freeze_steps`.
        """
        self.network, self.objectives, self.schedule = network, objectives, schedule
        self.settings, self.optimizer = optimizer, optimizer.build(network.net)
        self.gradient_guard = GradientNormGuard(network.device)
        self.loss_weights = combined_loss_weights(objectives.values())
        names = set(unfrozen)
        self.frozen = [parameter for name, parameter in network.net.named_parameters() if name not in names]

    def run(self, step: int, work: StepWork, counts: Mapping[str, int], tokens: int) -> StepResult:
        """Train one step.

        Args:
            step: Index of the step, from 0 on.
            work: Micro-batches of this process.
            counts: Denominator of each sum, over all processes.
            tokens: Tokens of the step, over all processes.
        """
        net, sums = self.network.net.train(), dict[str, Tensor]()
        factors = self._loss_factors(counts)
        for index, ((name, batch), seed) in enumerate(zip(work.micro_batches, work.seeds, strict=True), start=1):
            torch.manual_seed(seed)  # dropout
            batch = move_to_device(batch, self.network.device)
            is_last = index == len(work.micro_batches)
            for term, value in self._add_gradient(self.objectives[name], batch, factors, is_last).items():
                sums[term] = sums[term] + value.double() if term in sums else value.double()
        self._drop_frozen_gradients(step)
        norm = self.network.clip_gradients(self.settings.clip)
        skipped = self.gradient_guard.update(norm, self.schedule.max_norm_ratio)
        self._update_weights(step, skipped)
        for objective in self.objectives.values():
            objective.after_step(net, progress=(step + 1) / self.schedule.steps)
        return StepResult(sums=sums, counts=counts, tokens=tokens, metrics={"gradient_norm": norm}, skipped=skipped)

    def _add_gradient(
        self, objective: Objective, batch: Batch, factors: Mapping[str, float], is_last: bool
    ) -> dict[str, Tensor]:
        """Add the gradient of one micro-batch to that of the step. Return the sums of the objective."""
        with self.network.gradient_sync(is_last):
            with autocast(self.network.device):
                sums = self.network.forward(lambda net: objective.loss(net, batch))
            # DDP and FSDP average gradients over processes, but the gradient of a step is their sum.
            world_size = self.network.world_size
            loss = sum(world_size * factors[term] * value for term, value in sums.items() if term in factors)
            loss.backward()  # type: ignore[union-attr]  # every objective has a loss term
        return {term: value.detach() for term, value in sums.items()}

    def _loss_factors(self, counts: Mapping[str, int]) -> dict[str, float]:
        """Return the factor of each sum: weight / own count, or weight / all counts with `token_sum`."""
        present = {term: counts[term] for term in self.loss_weights if term in counts}
        total = sum(present.values())
        divisors = present if self.schedule.reduction == "mean" else dict.fromkeys(present, total)
        return {term: self.loss_weights[term] / max(1, divisors[term]) for term in present}

    def _drop_frozen_gradients(self, step: int) -> None:
        """Remove the gradients of frozen parameters. DDP does not allow switching `requires_grad` during a run."""
        if step < self.schedule.freeze_steps:
            for parameter in self.frozen:
                parameter.grad = None
        elif step == self.schedule.freeze_steps:
            self.gradient_guard.reset_mean()

    def _update_weights(self, step: int, skipped: Tensor) -> None:
        """Run the optimizer. `found_inf` makes a fused optimizer skip the step on the device, as with GradScaler."""
        lr = self.settings.learning_rate(step, self.schedule.steps, self.schedule.lr)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["lr_factor"]
        self.optimizer.found_inf = skipped  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def move_to_device(batch: Batch, device: torch.device) -> Batch:
    """Return a batch on a device."""
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
