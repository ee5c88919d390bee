"""Speed and memory of the parts, each beside its peer, in one run on one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from crossling.bench import attention, data, growth, head, sentences, step
from crossling.bench.row import Row
from crossling.bench.setting import Setting
from crossling.errors import BadInput, Failed, nearest

BENCHES: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "step": step.rows,
    "recipes": step.other_rows,
    "attention": attention.rows,
    "head": head.rows,
    "data": data.rows,
    "encode": sentences.encode_rows,
    "evaluate": sentences.evaluate_rows,
    "growth": growth.rows,
}


def bench(names: Sequence[str] = (), corpora: Path | None = None, size: str | None = None) -> Iterator[Row]:
    """The rows of the named benches (all if none is), as they are measured: on these corpora, or on embedded ones.

    What cannot be measured is told in a warning, and the rest goes on; in the end all that failed is named by Failed.
    """
    for name in names:
        if name not in BENCHES:
            raise BadInput(f"{name}: there is no such bench{nearest(name, BENCHES)}")
    return _rows(names or [*BENCHES], Setting.of(size, corpora))


def _rows(names: Sequence[str], at: Setting) -> Iterator[Row]:
    for name in names:
        for row in _tried(name, at):
            yield replace(row, bench=name)
    if at.failed:
        raise Failed(f"could not be measured: {', '.join(at.failed)}; everything else was")


def _tried(name: str, at: Setting) -> Iterator[Row]:
    """The rows of a bench up to where it fails, if it does."""
    found = BENCHES[name](at)
    while (row := at.caught(f"bench {name}", partial(next, found, None))) is not None:
        yield row


__all__ = ["BENCHES", "Row", "bench"]
