"""One training step: the gradient of its micro-batches, clipping, and the optimizer.

Objectives return sums. Each sum is divided by its own count over the whole step, so loss weights mean what the papers
define, and splitting a batch changes nothing. Dropout is seeded per micro-batch, so a resumed run is the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from crossling.data.batches import StepWork
from crossling.data.packing import Batch
from crossling.objectives.objective import Objective, combined_loss_weights
from crossling.train.choices import Reduction
from crossling.train.compilation import CompilationLock, cache_lock
from crossling.train.graphs import CudaGraphs, GradientBuffer, Tensors
from crossling.train.health import MAX_NORM_RATIO, GradientNormGuard
from crossling.train.meters import StepResult
from crossling.train.optimizer import OptimizerSettings
from crossling.train.parallel import ParallelNetwork, autocast

FACTORS, SUMS = "loss factors", "sums"  # keys of an input and an output of a micro-batch


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
    """Runs training steps: computes gradients and updates the network.

    Where the network is not sharded, micro-batches and the update can run as CUDA graphs.
    """

    def __init__(
        self,
        network: ParallelNetwork,
        *,
        objectives: Mapping[str, Objective],
        optimizer: OptimizerSettings,
        schedule: Schedule,
        unfrozen: Sequence[str] = (),
        cuda_graphs: bool = False,
    ) -> None:
        """Create the optimizer.

        Args:
            network: Network to train.
            objectives: Objectives by name.
            optimizer: Optimizer settings.
            schedule: Length of the run and learning rate.
            unfrozen: Names of the parameters that are trained in the first `schedule.freeze_steps`.
            cuda_graphs: Capture CUDA graphs on a GPU. Worthwhile if the micro-batches have few shapes.
        """
        self.network, self.objectives, self.schedule = network, objectives, schedule
        self.settings, self.optimizer = optimizer, optimizer.build(network.net)
        self.gradient_guard = GradientNormGuard(network.device)
        self.loss_weights = combined_loss_weights(objectives.values())
        names = set(unfrozen)
        self.frozen = [parameter for name, parameter in network.net.named_parameters() if name not in names]
        self.lr = 0.0  # of the last step
        self.graphs: CudaGraphs | None = None
        self.compilation: CompilationLock | None = None
        if network.is_compiled and not network.is_sharded:
            self.compilation = cache_lock(network.net, network.device)
        if cuda_graphs and network.device.type == "cuda" and not network.is_sharded:
            self.graphs, self.gradients = CudaGraphs(network.device), GradientBuffer(network.net.parameters())
        self._progress = torch.zeros((), device=network.device)
        self._sum_names: dict[str, list[str]] = {}  # by objective
        # By objective, and True for the first micro-batch of a step: which parameters have a gradient.
        self._with_gradient: dict[tuple[str, bool], frozenset[int]] = {}

    def run(self, step: int, work: StepWork, counts: Mapping[str, int], tokens: int) -> StepResult:
        """Train one step.

        Args:
            step: Index of the step, from 0 on.
            work: Micro-batches of this process.
            counts: Denominator of each sum, over all processes.
            tokens: Tokens of the step, over all processes.
        """
        self.network.net.train()
        factors = self._loss_factors(counts)
        parts: list[tuple[str, bool]] = []  # objective of each micro-batch, and True for the first one of the step
        sums: dict[str, Tensor] = {}
        outputs: Tensors = {}  # for `after_step`, by micro-batch and name
        for (name, batch), seed in zip(work.micro_batches, work.seeds, strict=True):
            torch.manual_seed(seed)  # dropout
            factors_T = torch.tensor([factors[term] for term in self.objectives[name].loss_weights])
            parts.append((name, not parts))
            result = self._run(parts[-1], self._add_gradient, {**batch, FACTORS: factors_T}, [name])
            sums_S = result.pop(SUMS)
            sums[name] = sums[name] + sums_S if name in sums else sums_S
            outputs |= {(len(parts), key): value for key, value in result.items()}
        self._set_schedule(step)
        self.network.all_reduce(self._step_gradients())
        result = self._run((step < self.schedule.freeze_steps, *parts), self._update, outputs, [*self.objectives])
        named = {term: value for name in sums for term, value in zip(self._sum_names[name], sums[name], strict=True)}
        metrics = {"gradient_norm": result["norm"]}
        return StepResult(sums=named, counts=counts, tokens=tokens, metrics=metrics, skipped=result["skipped"])

    def _run(
        self, key: tuple[Any, ...], function: Callable[[Any, Tensors], Tensors], inputs: Tensors, names: Iterable[str]
    ) -> Tensors:
        """Return function(key, inputs), from a CUDA graph if the objectives allow it."""
        if self.graphs is None or self._exchanges_tensors(names):
            return function(key, move_to_device(inputs, self.network.device))
        return self.graphs.run(key, partial(function, key), inputs)

    def _exchanges_tensors(self, names: Iterable[str]) -> bool:
        return self.network.world_size > 1 and any(self.objectives[name].exchanges_tensors for name in names)

    def _first_call(self, name: str, batch: Tensors) -> AbstractContextManager[None]:
        """Return a context in which no other process compiles the same code. It must not wait for other processes."""
        if self.compilation is None or self._exchanges_tensors([name]):
            return nullcontext()
        shapes = {str(key): [*value.shape] for key, value in batch.items()}
        return self.compilation.first_call(repr(self.objectives[name]), shapes)

    def _add_gradient(self, part: tuple[str, bool], inputs: Tensors) -> Tensors:
        """Add the gradient of one micro-batch to that of the step. Return what its objective returns."""
        name, is_first = part
        batch = {key: values for key, values in inputs.items() if key != FACTORS}
        with self._first_call(name, batch):
            with autocast(self.network.device):
                results = self.network.forward(lambda net: self.objectives[name].loss(net, batch))
            factors_T = self.network.gradient_scale * inputs[FACTORS]
            terms = zip(self.objectives[name].loss_weights, factors_T, strict=True)
            loss = sum(factor * results[term] for term, factor in terms)
            loss.backward()
        if self.graphs is not None:
            self._with_gradient[part] = self.gradients.collect(is_first)
        sums = {term: value.detach().double() for term, value in results.items() if not value.dim()}
        self._sum_names[name] = [*sums]
        return {SUMS: torch.stack([*sums.values()]), **{key: value for key, value in results.items() if value.dim()}}

    def _update(self, key: tuple[Any, ...], outputs: Tensors) -> Tensors:
        """Update the weights with the gradient of the step. Return its norm, and 1 if the step is skipped, else 0."""
        is_frozen, *parts = key
        if self.graphs is not None:
            self.gradients.assign(frozenset().union(*(self._with_gradient[part] for part in parts)))
        for parameter in self.frozen if is_frozen else []:
            parameter.grad = None
        norm = self.network.clip_gradients(self.settings.clip)
        skipped = self.gradient_guard.update(norm, self.schedule.max_norm_ratio)
        # `found_inf` makes a fused optimizer skip the step on the device, as with GradScaler.
        self.optimizer.found_inf = skipped  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for name, objective in self.objectives.items():
            own = [_outputs_of(index, outputs) for index, (each, _) in enumerate(parts, start=1) if each == name]
            objective.after_step(self.network.net, self._progress, [each for each in own if each])
        return {"norm": norm, "skipped": skipped}

    def _step_gradients(self) -> list[Tensor]:
        """Return the gradients of this process."""
        if self.graphs is not None:
            return [self.gradients.flat]
        return [parameter.grad for parameter in self.network.net.parameters() if parameter.grad is not None]

    def _loss_factors(self, counts: Mapping[str, int]) -> dict[str, float]:
        """Return the factor of each sum: weight / own count, or weight / all counts with `token_sum`."""
        present = {term: counts[term] for term in self.loss_weights if term in counts}
        total = sum(present.values())
        divisors = present if self.schedule.reduction == "mean" else dict.fromkeys(present, total)
        return {term: self.loss_weights[term] / max(1, divisors[term]) for term in present}

    def _set_schedule(self, step: int) -> None:
        """Set the learning rate and the progress on the device, where graphs read them."""
        self.lr = self.settings.learning_rate(step, self.schedule.steps, self.schedule.lr)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(self.lr * group["lr_factor"])
        self._progress.fill_((step + 1) / self.schedule.steps)
        if step == self.schedule.freeze_steps:
            self.gradient_guard.reset_mean()


def _outputs_of(number: int, outputs: Tensors) -> Tensors:
    """Return the outputs of one micro-batch."""
    return {name: value for (each, name), value in outputs.items() if each == number}


def move_to_device(batch: Batch, device: torch.device) -> Batch:
    """Return a batch on a device."""
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
