"""The loop: from the newest checkpoint, or from nothing, to the last step."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from crossling.data.batches import Work
from crossling.data.packing import Batch
from crossling.distributed import speaks, summed
from crossling.errors import Interrupted
from crossling.objectives.objective import Network
from crossling.progress import Progress
from crossling.train.account import Account
from crossling.train.checkpoint import Checkpoints, all_steps
from crossling.train.collapse import Collapse, most_frequent
from crossling.train.contract import Feed, Learned
from crossling.train.guard import Guard
from crossling.train.optimizer import Adam
from crossling.train.pace import Kind, Pace
from crossling.train.parallel import Engine, Parallel, precision
from crossling.train.resampling import Resampling
from crossling.train.run import Run
from crossling.train.signals import ignore_signals, stop_signals
from crossling.train.step import Learner, Schedule, on_device
from crossling.train.window import Window

Probe = Callable[[Network], dict[str, float]]  # a measurement of the network in training, handed in from outside

SCORES = ("probe/retrieval",)  # by each the best checkpoint is kept; where one is measured, a state is saved
LOOK_EVERY = 100  # steps, whatever else is due: so late a run is ended that leaves out every step


class Trainer:
    """In every process of a run; the first one alone writes and shows."""

    def __init__(
        self,
        net: Network,
        objectives: Mapping[str, Learned],
        feed: Feed,
        adam: Adam,
        schedule: Schedule,
        run: Run,
        device: torch.device,
        account: Account,
        workers: int = 0,
        probe: Probe | None = None,
        guard: Guard | None = None,  # of a discriminator that goes on
        first: Sequence[str] = (),  # parameters that learn alone for the first `freeze_steps`
        parallel: Parallel = "auto",
        scores: Sequence[str] = SCORES,
        keep: int | None = None,  # checkpoints that were due, besides the best ones
        patience: int | None = None,  # so many measurements in a row without a better first score end it
        resampling: Resampling | None = None,
    ) -> None:
        self.net, self.objectives, self.feed, self.scores = net.to(device), objectives, feed, scores
        self.schedule, self.run, self.device, self.account = schedule, run, device, account
        self.workers, self.probe, self.guard, self.resampling = workers, probe, guard, resampling
        self.checkpoints = Checkpoints(run.checkpoints, keep)
        self.patience, self.best = patience, (float("-inf"), 0)  # the best first score, and at which step
        if not run.saved:
            self._begin()  # before it is in shards
        self.engine = Engine(net, device, parallel)
        self.learner = Learner(self.engine, objectives, adam, schedule, first)
        warmup = max(adam.warmup_steps(schedule.steps), schedule.freeze_steps)
        self.collapse = Collapse(self.learner.weights, warmup, self._most_frequent)
        rare: dict[Kind, int] = {"save": schedule.checkpoint_every}
        if probe is not None:
            rare["probe"] = schedule.probe_every
        if resampling is not None:
            rare["resample"] = resampling.until(0)
        self.pace = Pace(schedule.steps, rare)
        self.step = 0
        self.clock = 0.0  # when time was last added to the account

    def fit(self) -> Network:
        """Trains to the end, from the newest checkpoint if there is one. A signal saves and raises Interrupted."""
        window = self._resume()
        schedule, title = self.schedule, self.run.path.name
        if speaks() and self.step < schedule.steps:
            goes_on = f"; goes on from step {self.step}" if self.step else ""
            warnings.warn(f"{self.engine.path}{goes_on}", stacklevel=2)
        self.clock = time.perf_counter()
        self.pace.begin(self.step)
        note, owed = "", False  # the newest figures; whether there is something to save
        with (
            closing(self.run),
            closing(self.checkpoints),
            stop_signals() as stop,
            Progress(title, schedule.steps, self.step, speaks()) as progress,
        ):
            if self.step == 0 and self.probe is not None:  # so that before and after can be compared
                self._write({"step": 0, **self._probed()})
                window = Window()  # its time is no step's
            for work, waited in self._work():
                told = _tell(work, stop.is_set())
                window.add(self.learner.step(self.step, work, told.counts, told.tokens), waited)
                self.step += 1
                self.account.tokens += told.tokens
                self._add_time()
                last = self.step == schedule.steps
                if self.step % LOOK_EVERY == 0:
                    self._look()
                scores: dict[str, float] = {}
                if self.step % schedule.log_every == 0 or last or self._probe_is_due():
                    row = self._log(window)
                    window, note = Window(), self._shown(row)
                    scores = {name: row[name] for name in self.scores if name in row}
                    self._judge(scores)
                self._resample(window)
                last = last or self._over
                progress.update(self.step, note, self.pace.left(self.step))
                due = self.step % schedule.checkpoint_every == 0 or bool(scores)
                owed = owed or due
                if (owed and not self._in_doubt()) or last or told.stop:
                    self._save(window, scores, last or (due and not self._in_doubt()))
                    owed = False  # else as soon as there is no doubt
                if told.stop and not last:
                    self.checkpoints.wait()
                    raise Interrupted(
                        f"stopped at step {self.step} of {schedule.steps}, saved in {self.run.path};"
                        " the same command goes on from there"
                    )
                if last:
                    break
            self.checkpoints.wait()
        return self.net

    def _begin(self) -> None:
        """What the objectives need before the first step."""
        self.net.train()
        for name, objective in self.objectives.items():
            more = ([on_device(batch, self.device) for batch in batches] for batches in self._more(name))
            with precision(self.device):
                objective.begin(self.net, more)

    def _more(self, name: str) -> Iterator[Iterator[Batch]]:
        """Of an objective: what would come after the last step."""
        return (self.feed.of(name, step) for step in itertools.count(self.schedule.steps))

    def _work(self) -> Iterator[tuple[Work, float]]:
        """That of each step, and for how many seconds it was waited for."""
        end = self.step if self._over else self.schedule.steps
        while self.step < end:
            # Loaders work ahead: where the data are drawn anew, another one begins.
            until = self.resampling.until(self.step) if self.resampling else end
            loader: DataLoader[Work] = DataLoader(
                self.feed,  # type: ignore[arg-type]  # a Dataset by what it does
                sampler=range(self.step, until),
                batch_size=None,
                num_workers=self.workers,
                prefetch_factor=4 if self.workers else None,
                pin_memory=self.device.type == "cuda",
                worker_init_fn=ignore_signals,
            )
            asked = time.perf_counter()
            for work in loader:
                yield work, time.perf_counter() - asked
                asked = time.perf_counter()

    def _resample(self, window: Window) -> None:
        """Where it is due."""
        if self.resampling is None or self.step not in self.resampling.due:
            return
        started = time.perf_counter()
        with self.pace.on("resample"):
            self.engine.measure(partial(self.resampling.act, self.step))
        window.started += time.perf_counter() - started  # its time is no step's

    def _probe_is_due(self) -> bool:
        every = self.schedule.probe_every
        asked = self.step == self.schedule.steps or (every > 0 and self.step % every == 0)
        return self.probe is not None and asked

    def _probed(self) -> dict[str, float]:
        assert self.probe is not None
        with self.pace.on("probe"):
            return {f"probe/{name}": value for name, value in self.engine.measure(self.probe).items()}

    def _judge(self, scores: Mapping[str, float]) -> None:
        """Notes the best first score, to know since when there is none better."""
        value = scores.get(self.scores[0]) if self.scores else None
        if value is not None and value > self.best[0]:
            self.best = (value, self.step)

    @property
    def _over(self) -> bool:
        """Whether patience is at an end."""
        every = self.schedule.probe_every
        return self.patience is not None and every > 0 and self.step - self.best[1] >= self.patience * every

    def _in_doubt(self) -> bool:
        """Whether the network may be spoiled: then it must not take the place of a good state."""
        return (self.guard is not None and self.guard.in_doubt) or bool(self.learner.steady.in_a_row)

    def _look(self) -> None:
        """A run that gets nowhere ends here, before it is logged or saved."""
        saved = all_steps(self.run.checkpoints)
        kept = f"the last good state is {saved[-1]}" if saved else "no state was saved before"
        self.learner.steady.check(self.step, kept)

    def _log(self, window: Window) -> dict[str, Any]:
        """Writes one row of metrics, the means since the last one."""
        self._look()
        row: dict[str, Any] = {"step": self.step, **window.means()}
        self.pace.row(self.step)
        if "tlm_bound" in row and "mlm_bound" in row:  # I(f; x | e), InfoXLM Eq. 3: an estimate, from different text
            row["translation_bound"] = row["tlm_bound"] - row["mlm_bound"]
        terms = {term: weight for term, weight in self.learner.weights.items() if term in row}
        if terms:
            row["loss"] = sum(weight * row[term] for term, weight in terms.items())
        row |= {"lr": self.learner.optimizer.param_groups[0]["lr"], "skipped": int(self.learner.steady.skipped)}
        row |= {**self.account.row(window.tokens / window.seconds()), "loader_wait": window.wait()}
        if self._probe_is_due():
            row |= self._probed()
        self._write(row)
        self.collapse.watch(row)
        if self.guard is not None:
            self.guard.watch(row)
        return row

    def _shown(self, row: Mapping[str, float]) -> str:
        """What a person reads: the terms of each objective; of one that has many, their mean."""
        shown = []
        for name, objective in self.objectives.items():
            terms = {term: row[term] for term in objective.weights if term in row}
            if len(terms) > 2:
                terms = {name: sum(terms.values()) / len(terms)}
            shown += [f"{term} {value:.3f}" for term, value in terms.items()]
        speed = [f"{row['tokens_per_second']:,.0f} tokens/s"]
        speed += [f"MFU {row['mfu']:.2f}"] if "mfu" in row else []
        return "  ".join([" ".join(shown), *speed, f"{row['loader_wait']:.0%} loading"])

    def _add_time(self) -> None:
        """To the account: the wait for data, saving and probes too."""
        now = time.perf_counter()
        self.account.add(now - self.clock)
        self.clock = now

    def _most_frequent(self, term: str) -> float | None:
        [name] = [name for name, objective in self.objectives.items() if term in objective.weights]
        return most_frequent(itertools.chain.from_iterable(self._more(name)))

    def _write(self, row: dict[str, Any]) -> None:
        if speaks():
            self.run.log(row)

    def _save(self, window: Window, scores: Mapping[str, float], due: bool) -> None:
        self._look()
        self._add_time()
        state = {
            "due": due,  # here, wherever the run was stopped
            **self.account.dump(),
            "window": window.dump(),
            "steady": self.learner.steady.dump(),
            "collapse": self.collapse.dump(),
            "guard": self.guard.dump() if self.guard else {},
            "pace": self.pace.dump(),
            "resampling": self.resampling.dump() if self.resampling else None,
            "best": self.best if self.patience is not None else None,
        }
        with self.pace.on("save"):
            self.checkpoints.save(self.step, self.net, self.learner.optimizer, state, scores if due else {})

    def _resume(self) -> Window:
        window = Window()
        state = self.checkpoints.load(self.net, self.learner.optimizer)
        if state is not None:
            self.step = state["step"]
            window = Window.load(state["window"])
            self.account.load(state)
            self.learner.steady.load(state["steady"])
            self.collapse.load(state["collapse"])
            if self.guard is not None:
                self.guard.load(state["guard"])
            self.pace.load(state["pace"])
            if self.resampling is not None:
                self.resampling.load(state["resampling"])
            if state.get("best"):
                self.best = tuple(state["best"])
        if speaks():  # begun anew, the row before the first step is made again too
            self.run.rewind(self.step or -1)
        return window


@dataclass(frozen=True)
class _Told:
    """What all processes together know of a step before it begins."""

    counts: dict[str, int]
    tokens: int
    stop: bool  # a signal has come to one of them


def _tell(work: Work, stop: bool) -> _Told:
    """All processes have the same terms in the same order, as each has a part of every task."""
    *counts, tokens, stopped = summed(torch.tensor([*work.counts.values(), work.tokens, stop])).tolist()
    return _Told(dict(zip(work.counts, counts, strict=True)), tokens, stopped > 0)
