"""What a model cannot read whole: one note for each set, with its name and languages, not one for each time a part of
it is read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class Cuts:
    """Of one set."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.part = ""  # what is being read: a language
        self.counts: dict[str, list[tuple[str, int, int]]] = {}

    def add(self, cut: int, of: int, what: str) -> None:
        self.counts.setdefault(what, []).append((self.part, cut, of))

    def tell(self) -> None:
        for what, found in self.counts.items():
            parts = ", ".join(dict.fromkeys(part for part, *_ in found if part))
            where = f"{self.name} ({parts})" if parts else self.name
            cut, of = sum(cut for _, cut, _ in found), sum(of for _, _, of in found)
            warnings.warn(f"{where}: {_told(cut, of, what)}", stacklevel=4)


_gathering: list[Cuts] = []  # the innermost set is the last


@contextmanager
def gathered(name: str) -> Iterator[Cuts]:
    """Until the end of the block notes are gathered; then there is one, under this name."""
    cuts = Cuts(name)
    _gathering.append(cuts)
    try:
        yield cuts
    finally:
        _gathering.remove(cuts)
        cuts.tell()


def note(cut: int, of: int, what: str) -> None:
    """`what`: "inputs are longer than 128 tokens; the end of the longer text was left out"."""
    if not cut:
        return
    if _gathering:
        _gathering[-1].add(cut, of, what)
    else:
        warnings.warn(_told(cut, of, what), stacklevel=4)


def _told(cut: int, of: int, what: str) -> str:
    return f"{cut:,} of {of:,} {what}"
