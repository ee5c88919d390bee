"""Which sequences are read together, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Rows of similar length, longest first, as many as a budget of tokens holds with padding (one at least)."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        count = max(1, tokens // lengths[order[start]])
        yield order[start : start + count]
        start += count
