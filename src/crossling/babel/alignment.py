"""Gold word alignment: which words of two renderings of one frame say the same thing."""

from __future__ import annotations

from typing import NamedTuple

from crossling.babel.language import Word


class Link(NamedTuple):
    """Positions count from 0; `sure` where both words are the content of one node, else possible only."""

    source: int
    target: int
    sure: bool


def links(source: list[Word], target: list[Word]) -> list[Link]:
    """Content words of one node are linked for sure.

    A function word is possibly linked to the one that says the same on the other side or, where an affix or
    nothing says it there, to the content word that it belongs to. A pronoun that the other side leaves out
    belongs to the verb.
    """
    found = {Link(i, j, sure) for i, j, sure in _half(source, target)}
    found |= {Link(j, i, sure) for i, j, sure in _half(target, source)}
    return sorted(found)


def _half(source: list[Word], target: list[Word]) -> list[Link]:
    """The links that the words of `source` ask for."""
    places = {(word.node, word.feature): place for place, word in enumerate(target)}
    half = []
    for i, word in enumerate(source):
        j = places.get((word.node, word.feature))
        if j is not None:
            half.append(Link(i, j, sure=not word.feature))
        else:
            clause = "clause." if word.node.startswith("clause.") else ""
            carrier = places.get((word.node, ""), places[clause + "verb", ""])
            half.append(Link(i, carrier, sure=False))
    return half
