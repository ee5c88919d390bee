"""One step: the gradient of its micro-batches, and what the optimizer makes of it.

Objectives return sums; each is divided by its own count over the whole step, so a weight means what the papers say
and splitting a batch changes nothing. Randomness is a function of the step, so a resumed run is the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from crossling.data.batches import Work
from crossling.data.packing import Batch
from crossling.objectives.objective import Network
from crossling.train.contract import Learned
from crossling.train.optimizer import Adam
from crossling.train.parallel import Engine
from crossling.train.steady import TIMES, Steady
from crossling.train.window import Taken

Reduction = Literal["mean", "token_sum"]


@dataclass(frozen=True)
class Schedule:
    steps: int
    lr: float
    seed: int
    log_every: int
    checkpoint_every: int
    probe_every: int = 0  # 0: only before the first step and at the end
    reduction: Reduction = "mean"
    freeze_steps: int = 0  # only what is new learns so long
    exploded: float = TIMES  # the usual norm of the gradient, so many times: the step is left out


class Learner:
    """The optimizer, and all that decides what it does in a step."""

    def __init__(
        self,
        engine: Engine,
        objectives: Mapping[str, Learned],
        adam: Adam,
        schedule: Schedule,
        first: Sequence[str] = (),  # names of the parameters that learn alone for the first `freeze_steps`
    ) -> None:
        self.engine, self.objectives, self.adam, self.schedule = engine, objectives, adam, schedule
        self.optimizer = adam.build(engine.net)
        self.steady = Steady(engine.device)
        self.weights = {term: w for objective in objectives.values() for term, w in objective.weights.items()}
        self.later = [parameter for name, parameter in engine.net.named_parameters() if name not in set(first)]

    def step(self, number: int, work: Work, counts: Mapping[str, int], tokens: int) -> Taken:
        """Step `number`, with what all processes together count of it."""
        net, totals = self.engine.net.train(), dict[str, Tensor]()
        factors = self._factors(counts)
        for index, ((name, batch), seed) in enumerate(zip(work.micro, work.seeds, strict=True), start=1):
            torch.manual_seed(seed)  # dropout
            loss = partial(_loss, self.objectives[name], on_device(batch, self.engine.device))
            for term, value in self.engine.learn(loss, factors, last=index == len(work.micro)).items():
                totals[term] = totals[term] + value.double() if term in totals else value.double()
        self._freeze(number)
        norm = self.engine.clip(self.adam.clip)
        skipped = self.steady.judge(norm, self.schedule.exploded)
        self._update(number, skipped)
        for objective in self.objectives.values():
            objective.after_step(net)
        return Taken(totals, counts, tokens, norm, skipped)

    def _update(self, number: int, skipped: Tensor) -> None:
        """The way a GradScaler tells a fused optimizer to leave everything as it is, its counters too."""
        rate = self.adam.rate(number, self.schedule.steps, self.schedule.lr)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["times"]
        self.optimizer.found_inf = skipped  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _factors(self, counts: Mapping[str, int]) -> dict[str, float]:
        """What the sum of each term is multiplied by: a mean of its own, or a share of one mean over everything."""
        present = {term: counts[term] for term in self.weights if term in counts}
        everything = sum(present.values())
        divisors = present if self.schedule.reduction == "mean" else dict.fromkeys(present, everything)
        return {term: self.weights[term] / max(1, divisors[term]) for term in present}

    def _freeze(self, number: int) -> None:
        """A parameter that does not learn yet has no gradient. It is thrown away, not left out: engines do not like
        networks that change."""
        if number < self.schedule.freeze_steps:
            for parameter in self.later:
                parameter.grad = None
        elif number == self.schedule.freeze_steps:
            self.steady.forget()


def _loss(objective: Learned, batch: Batch, net: Network) -> dict[str, Tensor]:
    return objective.loss(net, batch)


def on_device(batch: Batch, device: torch.device) -> Batch:
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
