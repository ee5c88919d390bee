"""Bitext that is drawn anew as a run goes on: what is hard more often, what is easy less (XY-LENT §6.6, Eq. 3).

    q <- the best response to the losses of all groups          a group: one corpus in one language pair

Losses are those of training, measured: every so often the network in training reads some examples of every group, as
many of each, and tells its losses. The batches of training would tell them for nothing, but a rare group is seldom in
them, and its running mean would be that of an older, worse network: what is rare would look hard.

What was measured and drawn until now is the state of it: a checkpoint has it, and RUN/robust.jsonl shows it.
"""

# G groups, T terms

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import torch

from crossling.data.batches import Batches, Work
from crossling.disk import new_file
from crossling.distributed import speaks, summed
from crossling.errors import BadInput
from crossling.objectives.objective import Network, Objective
from crossling.sampling import DRO, GroupLosses, best_response
from crossling.train.checkpoint import all_steps
from crossling.train.parallel import precision
from crossling.train.step import on_device

FILE = "robust.jsonl"
TOKENS = 2048  # of a group, for each objective, each time
LEAST = 20  # pairs: what has fewer keeps its rate, as they would tell little
WEIGHT = 0.5  # of the newest losses: other examples are read each time, so that a mean of several is steadier
SEED = 2**32 + 1  # one that no recipe has: never the examples and masks of a step


class Resampling:
    """Of one run, in each of its processes."""

    def __init__(self, dro: DRO, batches: Batches, objectives: Mapping[str, Objective], steps: int, run: Path) -> None:
        self.dro, self.batches, self.steps, self.file = dro, batches, steps, Path(run) / FILE
        pairs = {name: task for name, task in objectives.items() if task.stream == "pairs"}
        self.tasks = {name: task.small(TOKENS) for name, task in pairs.items()}
        self.weights = {term: weight for task in self.tasks.values() for term, weight in task.weights.items()}
        self.due = frozenset(round(steps * time / dro.times) for time in range(1, dro.times + 1))
        groups = batches.groups[next(iter(self.tasks))]
        self.first = {group.name: group.rate for group in groups}
        self.measured = {group.name: number for number, group in enumerate(groups) if len(group) >= LEAST}
        # One that goes on has it from its checkpoint: the other run may be gone by now, or have gone on too.
        goes_on = bool(all_steps(Path(run) / "checkpoints"))
        self.baseline = last_losses(dro.baseline) if dro.baseline and not goes_on else None
        if self.baseline and not self.baseline.keys() & self.measured.keys():
            raise BadInput(f"dro.baseline={dro.baseline}: that run read none of these corpora; give one that did")
        self.losses = GroupLosses(WEIGHT, least=1)
        sizes = {group.name: len(group) for group in groups}
        begun = {"baseline": self.baseline} if self.baseline else {}
        self.rows: list[dict[str, Any]] = [{"step": 0, "rates": self.first, "pairs": sizes, **begun}]

    def until(self, step: int) -> int:
        """The end of the stretch after a step in which rates stay as they are."""
        return min((due for due in self.due if due > step), default=self.steps)

    def act(self, step: int, net: Network) -> None:
        """Measures every group, and draws them anew from this step on."""
        terms = self._measure(net)
        losses = {
            group: sum(weight * terms[term][group] for term, weight in self.weights.items()) for group in self.measured
        }
        self.losses = self.losses.after(losses)
        rates = best_response(self.first, self.losses.means, self.dro.rho, self.dro.floor, self.baseline)
        self.rows.append({"step": step, "losses": losses, "terms": terms, "means": self.losses.means, "rates": rates})
        self.batches.resample(rates, step)
        self._show()

    def _measure(self, net: Network) -> dict[str, dict[str, float]]:
        """The mean of each term, by group. Each process reads a part of every group, as in a step."""
        device = next(net.parameters()).device
        sums_GT = torch.zeros(len(self.measured), len(self.weights), dtype=torch.float64, device=device)
        counts_GT = torch.zeros_like(sums_GT, device="cpu")
        place = {term: number for number, term in enumerate(self.weights)}
        with _reading(net), precision(device):
            for row, number in enumerate(self.measured.values()):
                for name, task in self.tasks.items():
                    work, counted = self._read(name, number)
                    for _, batch in work.micro:
                        told = task.loss(net, on_device(batch, device))
                        for term in task.weights if counted else ():
                            sums_GT[row, place[term]] += told[term]
                    for term in task.weights if counted else ():
                        counts_GT[row, place[term]] = work.counts[term]
        means_TG = (summed(sums_GT.cpu()) / summed(counts_GT).clamp(min=1)).T.tolist()
        return {
            term: dict(zip(self.measured, means, strict=True))
            for term, means in zip(self.weights, means_TG, strict=True)
        }

    def _read(self, name: str, number: int) -> tuple[Work, bool]:
        """This process's part of the examples of a group, and whether it counts. Which they are does not depend on the
        processes: where there are more of these, some read what another one counts, as all are needed to gather what
        lies in shards. (Of contrast, which has 64 pairs, negatives come twice then.)"""
        task, group = self.tasks[name], self.batches.groups[name][number]
        readers = copy(self.batches)
        readers.processes = min(readers.processes, task.examples(group.mean_length))
        readers.rank %= readers.processes
        counted = readers.rank == self.batches.rank
        return readers.alone(number, {name: task}, SEED)[len(self.rows) - 1], counted

    def _show(self) -> None:
        if speaks():
            with new_file(self.file) as new:
                new.write_text("".join(f"{json.dumps(row)}\n" for row in self.rows), encoding="utf-8")

    def dump(self) -> list[dict[str, Any]]:
        """For a checkpoint."""
        return self.rows

    def load(self, rows: Sequence[dict[str, Any]]) -> None:
        """Goes on from what a checkpoint has."""
        self.rows = [*rows]
        self.baseline = self.rows[0].get("baseline")
        for row in self.rows[1:]:
            self.losses = self.losses.after(row["losses"])
            self.batches.resample(row["rates"], row["step"])
        self._show()


@contextmanager
def _reading(net: Network) -> Iterator[None]:
    """No dropout, no gradient."""
    net.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        net.train()


def read(run: Path) -> list[dict[str, Any]]:
    """What a run measured and drew, from its first rates on; nothing if it never measured its groups."""
    file = Path(run) / FILE
    if not file.is_file():
        return []
    try:
        rows: list[dict[str, Any]] = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        whole = {"rates", "pairs"} <= rows[0].keys() and all({"rates", "means"} <= row.keys() for row in rows[1:])
    except (ValueError, IndexError, AttributeError):
        whole = False
    if not whole:
        raise BadInput(f"{file}: damaged; the command that trained the run writes it again")
    return rows


def last_losses(run: str) -> dict[str, float]:
    """What a baseline says of each group."""
    rows = read(Path(run))
    if len(rows) < 2:
        raise BadInput(
            f"dro.baseline={run}: expected a run that measured its corpora, in {FILE}; train it with --set dro.rho=0"
        )
    losses: dict[str, float] = rows[-1]["means"]
    return losses
