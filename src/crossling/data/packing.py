"""Sequence packing: several sequences in one row, hardly any padding, one shape for every batch.

The sequences of a row do not attend to each other: `segments` numbers them, and attention and positions follow it.
"""
# N sequences, P tokens of all sequences, R rows, W width of a row, M marked tokens

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from crossling.data.keyed_random import positions_within
from crossling.vocabulary.special_tokens import PAD

if TYPE_CHECKING:
    from torch import Tensor

Batch = dict[str, "Tensor"]


@dataclass(frozen=True)
class Sequences:
    """Concatenated sequences with the values of each token."""

    lengths_N: np.ndarray
    tokens: dict[str, np.ndarray]  # flat arrays [P], by name

    @cached_property
    def sequence_ids(self) -> np.ndarray:
        """Index of the sequence of each token."""
        return np.repeat(np.arange(len(self.lengths_N)), self.lengths_N)

    @cached_property
    def positions(self) -> np.ndarray:
        """Position of each token in its sequence."""
        return positions_within(self.lengths_N)


def best_fit_rows(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Assign sequences to rows, longest first, each to the fullest row that can take it (best-fit decreasing)."""
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (free tokens, row), sorted
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        length = lengths[index]
        if length > width:
            raise ValueError(f"a sequence of {length} tokens does not fit into rows of {width}")
        place = bisect_left(free, (length, -1))
        if place < len(free):
            space, row = free.pop(place)
            rows[row].append(index)
        else:
            space, row = width, len(rows)
            rows.append([index])
        if space > length:
            insort(free, (space - length, row))
    return rows


def bucket_size(number: int) -> int:
    """Round a number of rows or positions up to one of few sizes, by at most a sixteenth."""
    step = 1 << max(0, number.bit_length() - 5)
    return -(-number // step) * step


def pack(
    sequences: Sequences,
    width: int,
    name: str,
    *,
    space_N: np.ndarray | None = None,
    per_example: int = 1,
    has_bucketed_shapes: bool = False,
    pad: int = PAD,
) -> Batch:
    """Pack every array of `sequences.tokens` into rows [R, W].

    Ids are padded with <pad>, boolean marks with False, other numbers with 0. The batch also contains
    NAME_segments [R, W], the number of each token's sequence from 1 on, with 0 for padding. NAME_starts [N] is the
    first position of each sequence in the flattened rows. MARKS_at [M] are the positions of each array of marks:
    finding them on the device would cost a synchronization.

    Args:
        sequences: Sequences to pack.
        width: Tokens of a row.
        name: Prefix of the added arrays.
        space_N: Tokens of a row that each sequence takes when sequences are assigned to rows [default: its length].
        per_example: Consecutive sequences of one example. They are in one row.
        has_bucketed_shapes: Pad R and M to `bucket_size`, so that batches have few shapes. Positions that pad
            MARKS_at are R x W, one past the end.
        pad: Id of <pad>.
    """
    import torch

    lengths = sequences.lengths_N.tolist()
    space_N = sequences.lengths_N if space_N is None else space_N
    examples = best_fit_rows(space_N.reshape(-1, per_example).sum(1).tolist(), width)
    rows = [[per_example * example + part for example in row for part in range(per_example)] for row in examples]
    height = bucket_size(len(rows)) if has_bucketed_shapes else len(rows)
    starts_N = np.empty(len(lengths), dtype=np.int64)
    for number, row in enumerate(rows):
        starts_N[row] = number * width + np.cumsum([0, *(lengths[index] for index in row[:-1])])
    position_P = starts_N[sequences.sequence_ids] + sequences.positions

    def fill(values_P: np.ndarray, padding: int) -> Tensor:
        packed = np.full(height * width, padding, dtype=values_P.dtype)
        packed[position_P] = values_P
        return torch.from_numpy(packed.reshape(height, width))

    def find(marked_P: np.ndarray) -> Tensor:
        position_M = np.sort(position_P[marked_P])
        missing = bucket_size(len(position_M)) - len(position_M) if has_bucketed_shapes else 0
        return torch.from_numpy(np.pad(position_M, (0, missing), constant_values=height * width))

    batch = {key: fill(values, pad if values.dtype == np.int64 else 0) for key, values in sequences.tokens.items()}
    marks = {key: values for key, values in sequences.tokens.items() if values.dtype == np.bool_}
    batch |= {f"{key}_at": find(values) for key, values in marks.items()}
    batch[f"{name}_segments"] = fill(sequences.sequence_ids + 1, 0)
    batch[f"{name}_starts"] = torch.from_numpy(starts_N)
    return batch


def batch_by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield the indices of batches of similar length, longest first, each within a budget of padded tokens."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        count = max(1, tokens // lengths[order[start]])
        yield order[start : start + count]
        start += count
