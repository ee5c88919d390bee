"""The training loop, from the latest checkpoint or from scratch to the last step."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from crossling.core.distributed import all_reduce_sum, is_main_process
from crossling.core.errors import BadInput, Interrupted, suggestion
from crossling.core.progress import Progress
from crossling.data.batches import StepDataset, StepWork
from crossling.data.packing import Batch
from crossling.objectives.objective import Objective
from crossling.objectives.training_network import Network
from crossling.train.checkpoint import Checkpoints, Retention, list_checkpoints
from crossling.train.choices import Parallel
from crossling.train.health import CollapseMonitor, DiscriminatorGuard, most_frequent_token_share
from crossling.train.meters import EtaMeter, MetricsAccumulator, RareEvent, TrainingCost, report_first_step
from crossling.train.optimizer import OptimizerSettings
from crossling.train.parallel import ParallelNetwork, autocast
from crossling.train.resampling import Resampling
from crossling.train.run_folder import RunFolder
from crossling.train.step import Schedule, TrainStep, move_to_device
from crossling.train.stop_signals import ignore_signals, stop_signals

Probe = Callable[[Network], dict[str, float]]  # evaluates the network in training

SELECTION_METRICS = ("probe/retrieval",)
HEALTH_CHECK_EVERY = 100  # steps, at the latest


@dataclass(eq=False)
class Trainer:
    """Trains a network. Every process of a run has one. Only the main process logs and writes metrics.

    It moves the network to the device, and prepares its objectives if the run starts from scratch.

    Args:
        net: Network to train.
        objectives: Objectives by name.
        batches: Data of each step.
        optimizer: Optimizer settings.
        schedule: Length of the run, learning rate and intervals.
        run: Folder of the run.
        device: Device of this process.
        cost: Counts tokens, time and FLOPs.
        workers: Worker processes of the data loader.
        probe: Evaluation of the network during training.
        discriminator_guard: Ends a run whose discriminator collapses.
        unfrozen: Parameters that are trained in the first `schedule.freeze_steps`.
        parallel: Replicate or shard the network over several processes.
        selection_metrics: Metrics that select the best checkpoints. A checkpoint is saved where one is measured.
        retention: Checkpoints to keep.
        patience: Probes in a row without a better first selection metric that end the run.
        resampling: Changes the sampling probabilities of bitext during the run.
        started: `time.perf_counter()` at the start of the command, to report the time to its first step.
    """

    net: Network
    _: KW_ONLY
    objectives: Mapping[str, Objective]
    batches: StepDataset
    optimizer: OptimizerSettings
    schedule: Schedule
    run: RunFolder
    device: torch.device
    cost: TrainingCost
    workers: int = 0
    probe: Probe | None = None
    discriminator_guard: DiscriminatorGuard | None = None
    unfrozen: Sequence[str] = ()
    parallel: Parallel = "auto"
    selection_metrics: Sequence[str] = SELECTION_METRICS
    retention: Retention = Retention()  # noqa: RUF009 - frozen
    patience: int | None = None
    resampling: Resampling | None = None
    started: float | None = None

    def __post_init__(self) -> None:
        net, schedule, optimizer = self.net.to(self.device), self.schedule, self.optimizer
        self.checkpoints = Checkpoints(self.run.checkpoints, self.retention)
        if not self.run.has_checkpoint:
            self._prepare_objectives()  # before sharding
        self.network = ParallelNetwork(net, self.device, self.parallel)
        self.train_step = TrainStep(
            self.network,
            objectives=self.objectives,
            optimizer=optimizer,
            schedule=schedule,
            unfrozen=self.unfrozen,
            cuda_graphs=self.batches.has_bucketed_shapes,
        )
        warmup = max(optimizer.warmup_steps(schedule.steps), schedule.freeze_steps)
        self.collapse = CollapseMonitor(self.train_step.loss_weights, warmup, self._most_frequent_token_share)
        self.eta = EtaMeter(schedule.steps, self._event_intervals())
        self.metrics = MetricsAccumulator()
        self.step = 0
        self.best_score, self.best_step = float("-inf"), 0  # of the first selection metric
        self.has_pending_checkpoint = False  # delayed while the network is suspect
        self.status = ""  # latest metrics, in words
        self.clock = 0.0  # time up to which the cost is counted

    def fit(self) -> Network:
        """Train to the end, from the latest checkpoint if there is one.

        Returns:
            The trained network.

        Raises:
            Interrupted: After a signal, when a checkpoint was saved.
            Failed: If the run diverges.
        """
        self._resume()
        self._report_start()
        with (
            stop_signals() as stop,
            closing(self.run),
            closing(self.checkpoints),
            Progress(self.run.path.name, self.schedule.steps, done=self.step, enabled=is_main_process()) as progress,
        ):
            self._probe_initial_network()
            for work, waited in self._load_work():
                counts, tokens, stop_requested = sum_over_processes(work, stop.is_set())
                self._train(work, counts, tokens, waited)
                row = self._log_if_due()
                self._resample_if_due()
                progress.update(self.step, self.status, self.eta.seconds_left(self.step))
                self._save_if_due(row, stop_requested)
                if self._is_finished:
                    break
                if stop_requested:
                    self.checkpoints.wait()
                    raise Interrupted(
                        f"{self.run.path}: stopped at step {self.step} of {self.schedule.steps}. The checkpoint is"
                        " saved. Run the same command to resume."
                    )
            self.checkpoints.wait()
        return self.net

    # Start of a run

    def _prepare_objectives(self) -> None:
        self.net.train()
        for name, objective in self.objectives.items():
            batches = ([move_to_device(batch, self.device) for batch in step] for step in self._extra_batches(name))
            with autocast(self.device):
                objective.prepare(self.net, batches)

    def _extra_batches(self, name: str) -> Iterator[Iterator[Batch]]:
        """Yield the micro-batches of an objective for the steps after the last one."""
        return (self.batches.objective_batches(name, step) for step in itertools.count(self.schedule.steps))

    def _event_intervals(self) -> dict[RareEvent, int]:
        every: dict[RareEvent, int] = {"save": self.schedule.checkpoint_every}
        if self.probe is not None:
            every["probe"] = self.schedule.probe_every
        if self.resampling is not None:
            every["resample"] = self.resampling.next_step(0)
        return every

    def _report_start(self) -> None:
        if is_main_process() and self.step < self.schedule.steps:
            resumed = f"; resumed from step {self.step}" if self.step else ""
            warnings.warn(f"{self.network.description}{resumed}", stacklevel=3)
        self.clock = time.perf_counter()
        self.eta.start(self.step)

    def _probe_initial_network(self) -> None:
        """Log a row before the first step, to compare with later ones."""
        if self.step == 0 and self.probe is not None:
            self._write({"step": 0, **self._run_probe()})
            self.metrics = MetricsAccumulator()  # exclude probe time from throughput

    # One step

    def _load_work(self) -> Iterator[tuple[StepWork, float]]:
        """Yield the work of each step, and the seconds that were waited for it."""
        while not self._is_finished:
            # Loader workers read ahead. Where the sampling probabilities change, a new loader starts.
            end = self.resampling.next_step(self.step) if self.resampling else self.schedule.steps
            loader = DataLoader(
                self.batches,
                sampler=range(self.step, end),
                batch_size=None,
                num_workers=self.workers,
                prefetch_factor=4 if self.workers else None,
                pin_memory=self.device.type == "cuda",
                worker_init_fn=ignore_signals,
            )
            requested = time.perf_counter()
            for work in loader:
                yield work, time.perf_counter() - requested
                requested = time.perf_counter()

    def _train(self, work: StepWork, counts: Mapping[str, int], tokens: int, waited: float) -> None:
        begin = time.perf_counter()
        self.metrics.add(self.train_step.run(self.step, work, counts, tokens), waited)
        if self.started is not None:
            report_first_step(self.started, begin, waited, self.device)
            self.started = None
        self.step += 1
        self.cost.tokens += tokens
        self._add_seconds()
        if self.step % HEALTH_CHECK_EVERY == 0:
            self._check_gradients()

    @property
    def _is_finished(self) -> bool:
        since_best, every = self.step - self.best_step, self.schedule.probe_every
        is_out_of_patience = self.patience is not None and every > 0 and since_best >= self.patience * every
        return self.step >= self.schedule.steps or is_out_of_patience

    # Metrics

    def _log_if_due(self) -> dict[str, Any]:
        """Log a row of metrics and return it, if one is due or if it scores a checkpoint."""
        is_last = self.step == self.schedule.steps
        is_scored = self.retention.best is not None and self._is_checkpoint_due
        if not (self.step % self.schedule.log_every == 0 or is_last or self._is_probe_due or is_scored):
            return {}
        row = self._log()
        self.metrics, self.status = MetricsAccumulator(), self._describe(row)
        for name in self.selection_metrics[:1]:
            if row.get(name, float("-inf")) > self.best_score:
                self.best_score, self.best_step = row[name], self.step
        return row

    def _log(self) -> dict[str, Any]:
        """Write one row: means of the metrics of `loss` and `StepResult` since the last row, and run metrics."""
        self._check_gradients()
        row: dict[str, Any] = {"step": self.step, **self.metrics.means()}
        self.eta.add_row(self.step)
        if "tlm_bound" in row and "mlm_bound" in row:  # estimate of I(f; x | e), InfoXLM Eq. 3, from different text
            row["translation_bound"] = row["tlm_bound"] - row["mlm_bound"]
        weights = {term: weight for term, weight in self.train_step.loss_weights.items() if term in row}
        if weights:
            row["loss"] = sum(weight * row[term] for term, weight in weights.items())
        row["lr"] = self.train_step.lr
        row["skipped"] = int(self.train_step.gradient_guard.skipped)
        row |= self.cost.row(self.metrics.tokens / self.metrics.seconds())
        row["loader_wait"] = self.metrics.waiting_fraction()
        if self._is_probe_due:
            row |= self._run_probe()
        self._write(row)
        self.collapse.check(row, is_last=self.step == self.schedule.steps)
        if self.discriminator_guard is not None:
            self.discriminator_guard.check(row)
        return row

    @property
    def has_diverged(self) -> bool:
        """True if the last row of metrics shows a loss above chance, or none that is finite."""
        return self.collapse.has_diverged

    def _describe(self, row: Mapping[str, float]) -> str:
        """Return the status line: the loss terms of each objective, or their mean if it has more than two."""
        losses = []
        for name, objective in self.objectives.items():
            terms = {term: row[term] for term in objective.loss_weights if term in row}
            if len(terms) > 2:
                terms = {name: sum(terms.values()) / len(terms)}
            losses += [f"{term} {value:.3f}" for term, value in terms.items()]
        throughput = [f"{row['tokens_per_second']:,.0f} tokens/s"]
        throughput += [f"MFU {row['mfu']:.2f}"] if "mfu" in row else []
        return "  ".join([" ".join(losses), *throughput, f"{row['loader_wait']:.0%} loading"])

    def _write(self, row: dict[str, Any]) -> None:
        if is_main_process():
            self.run.log(row)

    @property
    def _is_probe_due(self) -> bool:
        every = self.schedule.probe_every or self.schedule.steps
        return self.probe is not None and (self.step == self.schedule.steps or self.step % every == 0)

    def _run_probe(self) -> dict[str, float]:
        assert self.probe is not None
        with self.eta.timed("probe"):
            values = {f"probe/{name}": value for name, value in self.network.evaluate(self.probe).items()}
        best = self.retention.best or ""
        if best.startswith("probe/") and best not in values:
            raise BadInput(f"keep_best={best}: no probe measures it{suggestion(best, values)}")
        return values

    def _resample_if_due(self) -> None:
        if self.resampling is None or self.step not in self.resampling.due_steps:
            return
        started = time.perf_counter()
        with self.eta.timed("resample"):
            self.network.evaluate(partial(self.resampling.resample, self.step))
        self.metrics.started += time.perf_counter() - started  # exclude this time from throughput

    def _add_seconds(self) -> None:
        """Add the time since the last call to the cost, including loading, saving and probes."""
        now = time.perf_counter()
        self.cost.add_seconds(now - self.clock)
        self.clock = now

    # Health and checkpoints

    def _check_gradients(self) -> None:
        """End a run that skips too many steps, before it is logged or saved."""
        saved = list_checkpoints(self.run.checkpoints)
        note = f"the last good checkpoint is {saved[-1]}" if saved else "no checkpoint was saved before"
        self.train_step.gradient_guard.check(self.step, note)

    def _is_suspect(self) -> bool:
        """Return True if the network may be damaged. Then it must not replace a good checkpoint."""
        guard = self.discriminator_guard
        return (guard is not None and guard.is_suspect) or bool(self.train_step.gradient_guard.consecutive)

    def _most_frequent_token_share(self, term: str) -> float | None:
        [name] = [name for name, objective in self.objectives.items() if term in objective.loss_weights]
        return most_frequent_token_share(itertools.chain.from_iterable(self._extra_batches(name)))

    @property
    def _is_checkpoint_due(self) -> bool:
        return self.step % self.schedule.checkpoint_every == 0 or self.retention.is_kept_forever(self.step)

    def _save_if_due(self, row: Mapping[str, Any], stop_requested: bool) -> None:
        """Save a checkpoint if one is due or pending, unless the network is suspect. Always save the last one.

        A checkpoint is due where a probe measured a metric that selects checkpoints. Its scores are from `row`.
        """
        metrics = [*self.selection_metrics, *filter(None, [self.retention.best])]
        scores = {name: row[name] for name in metrics if name in row}
        is_due = self._is_checkpoint_due or any(name.startswith("probe/") for name in scores)
        self.has_pending_checkpoint = self.has_pending_checkpoint or is_due
        if (self.has_pending_checkpoint and not self._is_suspect()) or self._is_finished or stop_requested:
            self._save(scores, is_scheduled=self._is_finished or (is_due and not self._is_suspect()))
            self.has_pending_checkpoint = False

    def _save(self, scores: Mapping[str, float], is_scheduled: bool) -> None:
        self._check_gradients()
        self._add_seconds()
        state = {
            "is_scheduled": is_scheduled,
            **self.cost.state_dict(),
            "flops": self.cost.flops,
            **{"discriminator_guard": {}, "resampling": None},  # in a run without them
            **{name: part.state_dict() for name, part in self._stateful_parts.items()},
            "best": [self.best_score, self.best_step] if self.patience is not None else None,
        }
        with self.eta.timed("save"):
            self.checkpoints.save(self.step, self.net, self.train_step.optimizer, state, scores if is_scheduled else {})

    @property
    def _stateful_parts(self) -> dict[str, Any]:
        """Parts whose state is stored in checkpoints, by name."""
        parts = {"metrics": self.metrics, "gradient_guard": self.train_step.gradient_guard, "collapse": self.collapse}
        parts |= {"eta": self.eta, "discriminator_guard": self.discriminator_guard, "resampling": self.resampling}
        return {name: part for name, part in parts.items() if part is not None}

    def _resume(self) -> None:
        """Restore the latest checkpoint, if there is one."""
        state = self.checkpoints.load(self.net, self.train_step.optimizer)
        if state is not None:
            self.step = state["step"]
            self.cost.load_state_dict(state)
            for name, part in self._stateful_parts.items():
                part.load_state_dict(state[name])
            if state["best"]:
                self.best_score, self.best_step = state["best"]
        if is_main_process():
            self.run.truncate_metrics(self.step or -1)  # from scratch, the row before the first step is written again


def sum_over_processes(work: StepWork, stop_requested: bool) -> tuple[dict[str, int], int, bool]:
    """Return the counts and tokens of a step over all processes, and True if one of them has received a signal.

    All processes have the same terms in the same order.
    """
    local = torch.tensor([*work.counts.values(), work.tokens, stop_requested])
    *counts, tokens, stops = all_reduce_sum(local).tolist()
    return dict(zip(work.counts, counts, strict=True)), tokens, stops > 0
