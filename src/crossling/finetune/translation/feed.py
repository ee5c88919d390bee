"""Pairs of sentences as the work of each step.

In every epoch the pairs are put in order of length, equal ones shuffled, and cut into steps of about as many tokens;
the steps are shuffled. All of it is a function of the seed and the number of the epoch, so the state of the data is the
step. Sentences of one step are of one length, so that little is padding.
"""
# N pairs of the training text, B pairs of a part, L positions, M target tokens of a part

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch.utils.data import Dataset

from crossling.data.batches import MULTIPLE, Work, parts
from crossling.data.packing import Batch
from crossling.errors import BadInput

TERM = "translation"
SUMS = (TERM, f"{TERM}_accuracy")
ORDER, DROPOUT = 0, 1  # what a random stream is for; part of its key


class BitextFeed(Dataset[Work]):
    """feed[step] is the work of that step in one of `processes`."""

    def __init__(
        self,
        sources: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        tokens: int,
        seed: int,
        micro_tokens: int,
        start: int,  # the token a target begins with, of which the decoder says the rest
        pad: int,
        longest: int,  # tokens the model can read
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        # The decoder reads a target without its end, behind the token it begins with.
        read = [np.append(np.int32(start), ids[:-1]) for ids in targets]
        self.sources, self.targets, self.read = (_Side.of(each) for each in (sources, targets, read))
        self.seed, self.micro_tokens, self.pad, self.longest = seed, micro_tokens, pad, longest
        self.rank, self.processes = rank, processes
        self.longer_N = np.maximum(self.sources.lengths_N, self.targets.lengths_N)
        self.steps_of_epoch = max(1, round(self.longer_N.sum() / tokens))
        if len(sources) < processes * self.steps_of_epoch:
            raise BadInput(
                f"steps of {tokens} tokens have fewer pairs of sentences than there are processes ({processes}); set"
                " more tokens, or start fewer processes"
            )
        self._epoch = lru_cache(maxsize=2)(self._cut)

    def __getitem__(self, step: int) -> Work:
        cut = self._parts(step)
        own = [(part, cut[part]) for part in range(self.rank, len(cut), self.processes)]
        micro = [(TERM, self.batch(rows)) for _, rows in own]
        count = sum(int(self.targets.lengths_N[rows].sum()) for _, rows in own)
        tokens = count + sum(int(self.sources.lengths_N[rows].sum()) for _, rows in own)
        return Work(micro, dict.fromkeys(SUMS, count), tokens, [self._seed(step, part) for part, _ in own])

    def of(self, name: str, step: int) -> Iterator[Batch]:  # noqa: ARG002 - there is one objective
        return (batch for _, batch in self[step].micro)

    def batch(self, rows_B: np.ndarray) -> Batch:
        """Rows of one length. `targets` [M] are the tokens to be said, and `targets_at` [M] where: a device would have
        to stop and count."""
        source_BL, present_BL = self.sources.rows(rows_B, self.pad, self.longest)
        read_BL, said_BL = self.read.rows(rows_B, self.pad, self.longest)
        target_BL, _ = self.targets.rows(rows_B, self.pad, self.longest)
        return {
            "input_ids": torch.from_numpy(source_BL),
            "attention_mask": torch.from_numpy(present_BL.astype(np.int64)),
            "decoder_input_ids": torch.from_numpy(read_BL),
            "targets": torch.from_numpy(target_BL[said_BL]),
            "targets_at": torch.from_numpy(said_BL.ravel().nonzero()[0]),
        }

    def _parts(self, step: int) -> list[np.ndarray]:
        """The rows of a step, cut where a part is to end."""
        epoch, place = divmod(step, self.steps_of_epoch)
        rows = self._epoch(epoch)[place]
        padded = len(rows) * (self.sources.lengths_N[rows].max() + self.targets.lengths_N[rows].max())
        number = parts(float(padded), self.micro_tokens, len(rows), self.processes)
        bounds = np.linspace(0, len(rows), number + 1).round().astype(int)
        return [rows[begin:end] for begin, end in pairwise(bounds)]

    def _cut(self, epoch: int) -> list[np.ndarray]:
        """The rows of each step of an epoch: each pair in just one, and none empty."""
        rng = np.random.default_rng([self.seed, ORDER, epoch])
        order_N = np.lexsort((rng.random(len(self.longer_N)), self.longer_N))
        ends_N = self.longer_N[order_N].cumsum()
        wanted = ends_N[-1] * np.arange(1, self.steps_of_epoch) / self.steps_of_epoch
        bounds = np.searchsorted(ends_N, wanted)
        # A sentence longer than a step would leave its neighbour nothing: every step has one for each process.
        least = self.processes * np.arange(1, self.steps_of_epoch)
        bounds = np.maximum.accumulate(np.maximum(bounds - least, 0)) + least
        bounds = np.minimum(bounds, len(order_N) - least[::-1])
        cut = np.split(order_N, bounds)
        return [cut[place] for place in rng.permutation(len(cut))]

    def _seed(self, step: int, part: int) -> int:
        return int(np.random.SeedSequence([self.seed, DROPOUT, step, part]).generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class _Side:
    """Sentences one after the other: a batch of them is made at once."""

    tokens: np.ndarray
    starts_N: np.ndarray
    lengths_N: np.ndarray

    @classmethod
    def of(cls, sentences: Sequence[np.ndarray]) -> _Side:
        lengths_N = np.array([len(ids) for ids in sentences])
        return cls(np.concatenate(sentences), lengths_N.cumsum() - lengths_N, lengths_N)

    def rows(self, rows_B: np.ndarray, padding: int, most: int) -> tuple[np.ndarray, np.ndarray]:
        """[B, L], a multiple of eight wide unless that is too long; and where they are filled."""
        lengths_B = self.lengths_N[rows_B]
        longest = int(lengths_B.max())
        width = max(longest, min(-(-longest // MULTIPLE) * MULTIPLE, most))
        filled_BL = np.arange(width) < lengths_B[:, None]
        rows_BL = np.full(filled_BL.shape, padding, dtype=np.int64)
        places_BL = self.starts_N[rows_B][:, None] + np.arange(width)
        rows_BL[filled_BL] = self.tokens[places_BL[filled_BL]]
        return rows_BL, filled_BL
