"""From which language to which, and the tag that tells a model of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crossling.corpora.languages import canonical, canonical_pair
from crossling.errors import BadInput, nearest


@dataclass(frozen=True, order=True)
class Direction:
    source: str
    target: str

    @classmethod
    def parse(cls, text: str) -> Direction:
        return cls(*canonical_pair(text.strip()))

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def directions(pairs: str | Sequence[str]) -> tuple[Direction, ...]:
    """Those of `en-de,de-en`, each once."""
    listed = pairs.split(",") if isinstance(pairs, str) else pairs
    found = tuple(dict.fromkeys(Direction.parse(pair) for pair in listed if pair.strip()))
    if not found:
        raise BadInput("--pairs: no direction is named; give some, as in --pairs en-de,de-en")
    return found


def tag(language: str) -> str:
    """Written before a source that is to be translated into a language, where a model knows several."""
    return f"<2{language}>"


def targets(known: Iterable[Direction]) -> list[str]:
    return sorted({direction.target for direction in known})


def target(known: Sequence[Direction], asked: str | None, name: str) -> str:
    """The language to translate into: the only one a model knows, or the one that is asked for."""
    there = targets(known)
    if asked is None:
        if len(there) > 1:
            raise BadInput(f"{name} translates into {', '.join(there)}: say which with --to")
        return there[0]
    try:
        language = canonical(asked)
    except BadInput:
        language = asked
    if language not in there:
        raise BadInput(f"{name} does not translate into {asked!r}{nearest(language, there)}")
    return language
