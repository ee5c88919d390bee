"""Batches of a run in phases: from given steps on, other masking rates, sampling probabilities or languages.

A phase continues the samples of the one before, so no example is repeated early. Before its first step, a phase changes
nothing. The work of a step depends on the step alone, so a run resumes in any phase.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from crossling.data.batches import Batches, StepDataset, StepWork
from crossling.data.packing import Batch


class PhasedBatches(StepDataset):
    """Batches of several phases: each step is read from the phase it is in."""

    def __init__(self, phases: Sequence[tuple[int, Batches]]) -> None:
        """Join phases.

        Args:
            phases: First step and batches of each phase, in order. The first one starts at step 0.
        """
        self.starts = [start for start, _ in phases]
        self.phases = [batches for _, batches in phases]
        self.has_bucketed_shapes = self.phases[0].has_bucketed_shapes

    def __getitem__(self, step: int) -> StepWork:
        return self._phase(step)[step]

    def objective_batches(self, name: str, step: int) -> Iterator[Batch]:
        return self._phase(step).objective_batches(name, step)

    def _phase(self, step: int) -> Batches:
        return self.phases[bisect_right(self.starts, step) - 1]
