"""Speed and memory of the parts, each beside its peer, in one run on one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from crossling.bench import data
from crossling.bench.row import Row
from crossling.errors import BadInput, nearest

BENCHES: dict[str, Callable[[Path | None], Iterator[Row]]] = {"data": data.rows}


def bench(names: Sequence[str] = (), corpora: Path | None = None) -> Iterator[Row]:
    """The rows of the named benches (all if none is), as they are measured: on these corpora, or on embedded ones."""
    for name in names:
        if name not in BENCHES:
            raise BadInput(f"{name}: there is no such bench{nearest(name, BENCHES)}")
    for name in names or BENCHES:
        yield from BENCHES[name](corpora)


__all__ = ["BENCHES", "Row", "bench"]
