"""Bitext that is resampled during training by the loss of each corpus: hard ones more often (XY-LENT §6.6, Eq. 3).

    q <- the best response to the losses of all groups          group: one corpus in one language pair

At regular intervals the network in training computes its losses on examples of every group, equally many of each. The
training batches would give losses for free. But they rarely contain a rare group, so its running mean would be that of
an older, worse network, and rare groups would seem hard.

The losses and probabilities so far are the state. Checkpoints store it, and RUN/robust.jsonl logs it.
"""

# G groups, T terms

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import torch

from crossling.core.distributed import all_reduce_sum, is_main_process
from crossling.core.errors import BadInput
from crossling.core.files import atomic_file, check_format
from crossling.data.batches import Batches, StepWork
from crossling.objectives.objective import PretrainingObjective, combined_loss_weights
from crossling.objectives.training_network import Network
from crossling.sampling import DRO, GroupLosses, best_response
from crossling.train.checkpoint import list_checkpoints
from crossling.train.parallel import autocast
from crossling.train.step import move_to_device

RESAMPLING_FILE = "robust.jsonl"
FORMAT = 2  # of that file, in its first row
TOKENS = 2048  # per group, objective and evaluation
MIN_PAIRS = 20  # groups with fewer pairs keep their probability, because their loss would be too noisy
NEWEST_WEIGHT = 0.5  # of the newest losses in the running mean: every evaluation reads other examples
SEED = 2**32 + 1  # above the seeds of recipes, so no training example or mask is repeated


class Resampling:
    """Distributionally robust sampling of one run. Every process has one."""

    def __init__(
        self, dro: DRO, batches: Batches, objectives: Mapping[str, PretrainingObjective], *, steps: int, run: Path
    ) -> None:
        """Plan the evaluations.

        Args:
            dro: Settings.
            batches: Batches of the run, whose sampling probabilities change.
            objectives: Objectives of the recipe. Those that read pairs are evaluated.
            steps: Steps of the run.
            run: Folder of the run.

        Raises:
            BadInput: If the baseline run has no losses of these corpora.
        """
        self.dro, self.batches, self.steps, self.file = dro, batches, steps, Path(run) / RESAMPLING_FILE
        reading_pairs = {name: objective for name, objective in objectives.items() if objective.stream == "pairs"}
        self.objectives = {name: objective.stateless_copy(TOKENS) for name, objective in reading_pairs.items()}
        self.loss_weights = combined_loss_weights(self.objectives.values())
        # The last one, at the end of the run, only logs the losses.
        self.due_steps = frozenset(round(steps * time / (dro.times + 1)) for time in range(1, dro.times + 2))
        groups = batches.groups[next(iter(self.objectives))]
        self.initial = {group.name: group.probability for group in groups}
        self.evaluated = {group.name: index for index, group in enumerate(groups) if len(group) >= MIN_PAIRS}
        # A resumed run has the baseline in its checkpoint: the other run may have changed or be gone.
        is_resumed = bool(list_checkpoints(Path(run) / "checkpoints"))
        self.baseline = read_baseline(dro.baseline) if dro.baseline and not is_resumed else None
        if self.baseline and not self.baseline.keys() & self.evaluated.keys():
            raise BadInput(f"dro.baseline={dro.baseline}: that run has none of these corpora. Give one that has.")
        self.losses = GroupLosses(NEWEST_WEIGHT, min_losses=1)
        sizes = {group.name: len(group) for group in groups}
        baseline = {"baseline": self.baseline} if self.baseline else {}
        self.rows: list[dict[str, Any]] = [{"step": 0, "probabilities": self.initial, "pairs": sizes, **baseline}]

    def next_step(self, step: int) -> int:
        """Return the next step at which the probabilities change, or the end of the run."""
        return min((due for due in self.due_steps if due > step), default=self.steps)

    def resample(self, step: int, net: Network) -> None:
        """Evaluate every group, and change the probabilities from this step on."""
        terms = self._evaluate(net)
        weights = self.loss_weights.items()
        losses = {group: sum(weight * terms[term][group] for term, weight in weights) for group in self.evaluated}
        self.losses = self.losses.update(losses)
        means = self.losses.means
        probabilities = best_response(self.initial, means, self.dro.rho, floor=self.dro.floor, baseline=self.baseline)
        row = {"step": step, "losses": losses, "terms": terms, "means": means, "probabilities": probabilities}
        self.rows.append(row)
        self.batches.resample(probabilities, step)
        self._write_log()

    @torch.no_grad()
    def _evaluate(self, net: Network) -> dict[str, dict[str, float]]:
        """Return the mean of each term, by group. Each process reads a part of every group, as in a step."""
        device = next(net.parameters()).device
        sums_GT = torch.zeros(len(self.evaluated), len(self.loss_weights), dtype=torch.float64, device=device)
        counts_GT = torch.zeros_like(sums_GT, device="cpu")
        column = {term: index for index, term in enumerate(self.loss_weights)}
        net.eval()
        with autocast(device):
            for row, group in enumerate(self.evaluated.values()):
                for name, objective in self.objectives.items():
                    work, is_counted = self._read(name, group)
                    terms = objective.loss_weights if is_counted else ()
                    for _, batch in work.micro_batches:
                        sums = objective.loss(net, move_to_device(batch, device))
                        for term in terms:
                            sums_GT[row, column[term]] += sums[term]
                    for term in terms:
                        counts_GT[row, column[term]] = work.counts[term]
        net.train()
        means_TG = (all_reduce_sum(sums_GT.cpu()) / all_reduce_sum(counts_GT).clamp(min=1)).T.tolist()
        by_group = (dict(zip(self.evaluated, means_G, strict=True)) for means_G in means_TG)
        return dict(zip(self.loss_weights, by_group, strict=True))

    def _read(self, name: str, group: int) -> tuple[StepWork, bool]:
        """Return this process's part of the examples of a group, and whether it is counted.

        The examples do not depend on the world size. If there are more processes than examples, some repeat a part that
        another process counts, because all processes are needed to gather sharded weights. The contrastive loss, with
        64 pairs, then has some negatives twice.
        """
        objective, example_group = self.objectives[name], self.batches.groups[name][group]
        readers = copy(self.batches)
        readers.world_size = min(readers.world_size, objective.examples_per_step(example_group.mean_length))
        readers.rank %= readers.world_size
        is_counted = readers.rank == self.batches.rank
        return readers.single_group(group, {name: objective}, SEED)[len(self.rows) - 1], is_counted

    def _write_log(self) -> None:
        if is_main_process():
            rows = [{"format": FORMAT, **self.rows[0]}, *self.rows[1:]]
            with atomic_file(self.file) as new:
                new.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the state for a checkpoint."""
        return self.rows

    def load_state_dict(self, rows: Sequence[dict[str, Any]]) -> None:
        """Restore the state of a checkpoint."""
        self.rows = [*rows]
        self.baseline = self.rows[0].get("baseline")
        for row in self.rows[1:]:
            self.losses = self.losses.update(row["losses"])
            self.batches.resample(row["probabilities"], row["step"])
        self._write_log()


def read_resampling_log(run: Path) -> list[dict[str, Any]]:
    """Return the losses and probabilities of a run, from the initial ones on. Empty if it was never resampled."""
    file = Path(run) / RESAMPLING_FILE
    if not file.is_file():
        return []
    fix = "Train the run again with crossling pretrain."
    with suppress(JSONDecodeError, UnicodeDecodeError, IndexError, AttributeError, TypeError):
        rows: list[dict[str, Any]] = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        check_format(file, rows[0].pop("format", 1), FORMAT, fix)
        is_complete = all({"probabilities", "means"} <= row.keys() for row in rows[1:])
        if is_complete and {"probabilities", "pairs"} <= rows[0].keys():
            return rows
    raise BadInput(f"{file}: damaged. {fix}")


def read_baseline(run: str) -> dict[str, float]:
    """Return the final loss of each group of a baseline run."""
    rows = read_resampling_log(Path(run))
    if len(rows) < 2:
        raise BadInput(
            f"dro.baseline={run}: expected a run with the losses of its corpora in {RESAMPLING_FILE}."
            " Train it with dro.rho=0."
        )
    losses: dict[str, float] = rows[-1]["means"]
    return losses
