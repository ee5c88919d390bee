"""Several sequences in one row: rows of one length, next to no padding, one shape for every batch.

Sequences in a row know nothing of each other: `segments` tells them apart, attention and positions follow it.
"""
# N sequences, P tokens of them all, R rows, W width of a row

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from crossling.data.noise import places
from crossling.vocabulary.vocabulary import PAD

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Sequences:
    """Sequences one after the other, and what is known of each of their tokens."""

    lengths_N: np.ndarray
    tokens: dict[str, np.ndarray]  # flat arrays [P], by name

    @cached_property
    def numbers(self) -> np.ndarray:
        """Which sequence each token belongs to."""
        return np.repeat(np.arange(len(self.lengths_N)), self.lengths_N)

    @cached_property
    def places(self) -> np.ndarray:
        """Where each token stands in its sequence."""
        return places(self.lengths_N)


def fit(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Which sequences share a row: the longest first, each into the fullest row that still has room (best fit)."""
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (room, row), sorted
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        length = lengths[index]
        if length > width:
            raise ValueError(f"a sequence of {length} tokens does not fit into rows of {width}")
        place = bisect_left(free, (length, -1))
        if place < len(free):
            room, row = free.pop(place)
            rows[row].append(index)
        else:
            room, row = width, len(rows)
            rows.append([index])
        if room > length:
            insort(free, (room - length, row))
    return rows


def pack(sequences: Sequences, width: int, name: str, rows: list[list[int]] | None = None) -> Batch:
    """Every array of the tokens as rows [R, W]: ids padded with <pad>, marks with False, numbers with 0. Beside them
    NAME_segments [R, W], the number of the sequence a token belongs to (from 1 on; 0 is padding), NAME_starts [N],
    where each sequence begins in the flattened rows, and for each kind of marks MARKS_at [M], where they are: a device
    would have to stop and count. Which sequences share a row may be told.
    """
    lengths = sequences.lengths_N.tolist()
    rows = fit(lengths, width) if rows is None else rows
    starts_N = np.empty(len(lengths), dtype=np.int64)
    for number, row in enumerate(rows):
        starts_N[row] = number * width + np.cumsum([0, *(lengths[index] for index in row[:-1])])
    place_P = starts_N[sequences.numbers] + sequences.places

    def filled(values_P: np.ndarray, padding: int) -> torch.Tensor:
        packed = np.full(len(rows) * width, padding, dtype=values_P.dtype)
        packed[place_P] = values_P
        return torch.from_numpy(packed.reshape(len(rows), width))

    batch = {n: filled(values, PAD if values.dtype == np.int64 else 0) for n, values in sequences.tokens.items()}
    marks = {n: values for n, values in sequences.tokens.items() if values.dtype == np.bool_}
    batch |= {f"{n}_at": torch.from_numpy(np.sort(place_P[values])) for n, values in marks.items()}
    batch[f"{name}_segments"] = filled(sequences.numbers + 1, 0)
    batch[f"{name}_starts"] = torch.from_numpy(starts_N)
    return batch
