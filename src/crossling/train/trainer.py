"""The step and the loop.

Objectives return sums; each is divided by its own count over the whole step, so a weight means what the papers say
and splitting a batch changes nothing. Randomness is a function of the step, so a resumed run is the same run.
"""

from __future__ import annotations

import itertools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from crossling.data.batches import Batches, Work
from crossling.data.packing import Batch
from crossling.errors import Failed, Interrupted
from crossling.objectives.objective import Network, Objective
from crossling.progress import Progress
from crossling.train import checkpoint
from crossling.train.guard import Guard
from crossling.train.optimizer import Adam
from crossling.train.run import Run

Probe = Callable[[Network], dict[str, float]]  # a measurement of the network in training, handed in from outside


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


class Trainer:
    def __init__(
        self,
        net: Network,
        objectives: Mapping[str, Objective],
        batches: Batches,
        adam: Adam,
        schedule: Schedule,
        run: Run,
        device: torch.device,
        workers: int = 0,
        probe: Probe | None = None,
    ) -> None:
        self.net, self.objectives, self.batches = net.to(device), objectives, batches
        self.adam, self.schedule, self.run, self.device = adam, schedule, run, device
        self.workers, self.probe = workers, probe
        self.optimizer = adam.build(net)
        self.weights = {term: w for objective in objectives.values() for term, w in objective.weights.items()}
        self.learned = [parameter for parameter in net.parameters() if parameter.requires_grad]
        self.step = 0
        self.totals = {"tokens": 0, "seconds": 0.0}
        self.guard: Guard | None = None  # of a discriminator that goes on
        self.first: Sequence[nn.Parameter] = ()  # what learns alone for the first `freeze_steps`

    def fit(self) -> Network:
        """Trains to the end, from the newest checkpoint if there is one. A signal saves and raises Interrupted."""
        window = self._resume()
        if self.step == 0:
            self._begin()
        schedule = self.schedule
        title = self.run.path.name
        clock = time.perf_counter()
        note = ""  # the newest figures
        with closing(self.run), _signals() as stop, Progress(title, schedule.steps, self.step) as progress:
            if self.step == 0 and self.probe is not None:  # so that before and after can be compared
                self.run.log({"step": 0, **self._probed()})
            for work in self._work():
                self._train_step(work, window)
                self.step += 1
                self.totals["seconds"] += time.perf_counter() - clock  # with the wait for data, saving and probes
                clock = time.perf_counter()
                last = self.step == schedule.steps
                if self.step % schedule.log_every == 0 or last or self._probe_is_due():
                    note = self._log(window)
                    window = _Window()
                progress.update(self.step, note)
                in_doubt = self.guard is not None and self.guard.in_doubt
                due = self.step % schedule.checkpoint_every == 0 and not in_doubt
                if due or last or stop.is_set():
                    self._save(window)
                if stop.is_set() and not last:
                    raise Interrupted(
                        f"stopped at step {self.step} of {schedule.steps}, saved in {self.run.path};"
                        " the same command goes on from there"
                    )
        return self.net

    def _begin(self) -> None:
        """What the objectives need before the first step. The examples they see are those after the last one."""
        self.net.train()
        for name, objective in self.objectives.items():
            steps = itertools.count(self.schedule.steps)
            more = ([self._on_device(batch) for batch in self.batches.of(name, step)] for step in steps)
            with self._precision():
                objective.begin(self.net, more)

    def _train_step(self, work: Work, window: _Window) -> None:
        torch.manual_seed(self.schedule.seed * 1_000_003 + self.step)  # dropout: a function of the step
        self.net.train()
        self._freeze()
        factors = self._factors(work.counts)
        for name, batch in work.micro:
            with self._precision():
                sums = self.objectives[name].loss(self.net, self._on_device(batch))
            loss = sum(factors[term] * value for term, value in sums.items() if term in factors)
            if isinstance(loss, Tensor) and loss.requires_grad:  # frozen, an objective may have nothing to learn
                loss.backward()
            window.add(sums)
        norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.adam.clip)
        rate = self.adam.rate(self.step, self.schedule.steps, self.schedule.lr)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["times"]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for objective in self.objectives.values():
            objective.after_step(self.net)
        window.close(work, norm)
        self.totals["tokens"] += work.tokens

    def _factors(self, counts: Mapping[str, int]) -> dict[str, float]:
        """What the sum of each term is multiplied by: a mean of its own, or a share of one mean over everything."""
        present = {term: counts[term] for term in self.weights if term in counts}
        everything = sum(present.values())
        divisors = present if self.schedule.reduction == "mean" else dict.fromkeys(present, everything)
        return {term: self.weights[term] / max(1, divisors[term]) for term in present}

    def _freeze(self) -> None:
        """Which parameters learn at this step."""
        if self.schedule.freeze_steps:
            first = set(self.first)
            for parameter in self.learned:
                parameter.requires_grad_(self.step >= self.schedule.freeze_steps or parameter in first)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda")

    def _on_device(self, batch: Batch) -> Batch:
        return {name: value.to(self.device, non_blocking=True) for name, value in batch.items()}

    def _work(self) -> Iterator[Work]:
        loader = DataLoader(
            self.batches,
            sampler=range(self.step, self.schedule.steps),
            batch_size=None,
            num_workers=self.workers,
            prefetch_factor=4 if self.workers else None,
            worker_init_fn=_ignore_signals,
        )
        return iter(loader)

    def _probe_is_due(self) -> bool:
        every = self.schedule.probe_every
        asked = self.step == self.schedule.steps or (every > 0 and self.step % every == 0)
        return self.probe is not None and asked

    def _probed(self) -> dict[str, float]:
        assert self.probe is not None
        return {f"probe/{name}": value for name, value in self.probe(self.net).items()}

    def _measured(self, window: _Window) -> dict[str, Any]:
        """The means since the last row. A run that has left the numbers ends here, before it is logged or saved."""
        row: dict[str, Any] = {"step": self.step, **window.means()}
        if "tlm_bound" in row and "mlm_bound" in row:  # I(f; x | e), InfoXLM Eq. 3: an estimate, from different text
            row["translation_bound"] = row["tlm_bound"] - row["mlm_bound"]
        row["loss"] = sum(self.weights[term] * row[term] for term in self.weights if term in row)
        for what, value in (("loss", row["loss"]), ("norm of the gradient", row["gradient_norm"])):
            if not math.isfinite(value):
                saved = checkpoint.all_steps(self.run.checkpoints)
                raise Failed(
                    f"the {what} became {value} by step {self.step};"
                    f" {'the last good state is ' + str(saved[-1]) if saved else 'no state was saved before'};"
                    " try a lower lr or a longer optimizer.warmup"
                )
        return row

    def _log(self, window: _Window) -> str:
        """Writes one row of metrics and returns the line a person reads."""
        row = self._measured(window)
        speed = window.tokens / window.seconds()
        row |= {"lr": self.optimizer.param_groups[0]["lr"], **self.totals, "tokens_per_second": speed}
        if self._probe_is_due():
            row |= self._probed()
        self.run.log(row)
        if self.guard is not None:
            self.guard.watch(row)
        return f"{self._shown(row)}  {row['tokens_per_second']:,.0f} tokens/s"

    def _shown(self, row: Mapping[str, float]) -> str:
        """The terms of each objective; of one that has many, their mean."""
        shown = []
        for name, objective in self.objectives.items():
            terms = {term: row[term] for term in objective.weights if term in row}
            if len(terms) > 2:
                terms = {name: sum(terms.values()) / len(terms)}
            shown += [f"{term} {value:.3f}" for term, value in terms.items()]
        return " ".join(shown)

    def _save(self, window: _Window) -> None:
        if window.norms:  # a step that broke the weights must not replace a good state
            self._measured(window)
        state = {**self.totals, "window": window.dump(), "guard": self.guard.dump() if self.guard else {}}
        checkpoint.save(self.run.checkpoints, self.step, self.net, self.optimizer, state)

    def _resume(self) -> _Window:
        window = _Window()
        saved = checkpoint.all_steps(self.run.checkpoints)
        if saved:
            state = checkpoint.load(saved[-1], self.net, self.optimizer)
            self.step = state.pop("step")
            window = _Window.load(state.pop("window", None), self.device)
            watched = state.pop("guard", {})
            if self.guard is not None:
                self.guard.load(watched)
            self.totals = state
        self.run.rewind(self.step if saved else -1)  # begun anew, the row before the first step is made again too
        return window


class _Window:
    """Sums between two rows of metrics. They stay on the device until asked for, so that no step waits for them."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.norms: list[Tensor] = []
        self.tokens = 0

    def add(self, sums: Mapping[str, Tensor]) -> None:
        for name, value in sums.items():
            value = value.detach().double()
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def close(self, work: Work, norm: Tensor) -> None:
        for name, count in work.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.norms.append(norm.detach())
        self.tokens += work.tokens

    def means(self) -> dict[str, float]:
        means = {name: float(value) / max(1, self.counts[name]) for name, value in self.sums.items()}
        return {**means, "gradient_norm": float(torch.stack(self.norms).mean())}

    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def dump(self) -> dict[str, Any]:
        """For a checkpoint between two rows: the row after it then says the same as without a stop."""
        return {
            "sums": {name: float(value) for name, value in self.sums.items()},
            "counts": self.counts,
            "norms": [float(norm) for norm in self.norms],
            "tokens": self.tokens,
            "seconds": self.seconds(),
        }

    @classmethod
    def load(cls, dumped: dict[str, Any] | None, device: torch.device) -> _Window:
        window = cls()
        if dumped is not None:
            window.sums = {
                name: torch.tensor(value, dtype=torch.float64, device=device) for name, value in dumped["sums"].items()
            }
            window.counts, window.tokens = dumped["counts"], dumped["tokens"]
            window.norms = [torch.tensor(norm, dtype=torch.float32, device=device) for norm in dumped["norms"]]
            window.started -= dumped["seconds"]
        return window


def _ignore_signals(_: int) -> None:
    """Ctrl-C reaches every process of a terminal, and a scheduler's SIGTERM every process of a job; the loader's must
    live until the step in hand is saved. They end with the process that started them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM set the event instead of killing, so that the step in hand can be finished and saved.
    A second Ctrl-C does not wait."""
    stop = threading.Event()

    def handle(kind: int, _: object) -> None:
        if stop.is_set() and kind == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    earlier = {kind: signal.signal(kind, handle) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for kind, handler in earlier.items():
            signal.signal(kind, handler)
