"""The features of a training set as the work of each step.

Every epoch has an order of its own, a function of the seed and its number; a step takes the next features of these
orders one after the other. So the state of the data is the step. Within a step features are sorted by length and cut
into parts of similar ones: neither changes what is learned, but for dropout.
"""
# N features of the training set

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from torch.utils.data import Dataset

from crossling.data.batches import Work, parts
from crossling.data.packing import Batch
from crossling.errors import BadInput
from crossling.transfer.family import Family, Feature

ORDER, DROPOUT = 0, 1  # what a random stream is for; part of its key


class FeatureFeed(Dataset[Work]):
    """feed[step] is the work of that step in one of `processes`."""

    def __init__(
        self,
        family: Family,
        features: Sequence[Feature],
        batch: int,
        seed: int,
        micro_tokens: int,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        if batch < processes:
            raise BadInput(
                f"a batch of {batch} is too small for {processes} processes; set a larger one, or start fewer"
            )
        self.family, self.features, self.batch, self.seed = family, features, batch, seed
        self.micro_tokens, self.rank, self.processes = micro_tokens, rank, processes
        self._order = lru_cache(maxsize=2)(self._ordered)

    def __getitem__(self, step: int) -> Work:
        term = self.family.term
        cut = self._parts(step)
        own = [(part, cut[part]) for part in range(self.rank, len(cut), self.processes)]
        micro = [(term, self.family.batch(chosen, targets=True)) for _, chosen in own]
        count = sum(self.family.count(chosen) for _, chosen in own)
        tokens = sum(len(each.ids) for _, chosen in own for feature in chosen for each in feature.sequences)
        return Work(micro, dict.fromkeys(sums(term), count), tokens, [self._seed(step, part) for part, _ in own])

    def of(self, name: str, step: int) -> Iterator[Batch]:  # noqa: ARG002 - there is one objective
        return (batch for _, batch in self[step].micro)

    def _parts(self, step: int) -> list[list[Feature]]:
        """The features of a step, the longest first, cut where a part is to end."""
        place = np.arange(step * self.batch, (step + 1) * self.batch)
        epoch, row = np.divmod(place, len(self.features))
        chosen = [self.features[self._order(int(e))[r]] for e, r in zip(epoch, row, strict=True)]
        chosen.sort(key=lambda feature: -feature.length)
        tokens = self.batch * chosen[0].positions
        number = parts(tokens, self.micro_tokens, self.batch, self.processes)
        bounds = np.linspace(0, self.batch, number + 1).round().astype(int)
        return [chosen[begin:end] for begin, end in pairwise(bounds)]

    def _ordered(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, ORDER, epoch]).permutation(len(self.features))

    def _seed(self, step: int, part: int) -> int:
        return int(np.random.SeedSequence([self.seed, DROPOUT, step, part]).generate_state(1, np.uint64)[0])


def sums(term: str) -> tuple[str, str]:
    """What is summed of a task: its loss, and how many decisions are right."""
    return term, f"{term}_accuracy"
