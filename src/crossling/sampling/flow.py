"""The most that can be sent from a left side to a right side along given arcs, in whole numbers and so exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Arc = tuple[str, str]  # a node of the left, a node of the right; the sides may use the same names


@dataclass(frozen=True)
class Flow:
    sent: Mapping[Arc, int]
    # Why no more can be sent: all that the left nodes `stuck` reach is the right nodes `full`, which can take no more.
    # Both are empty when all was sent; otherwise no set has a larger surplus, and no smaller set has as large a one.
    stuck: frozenset[str]
    full: frozenset[str]


def most(arcs: Iterable[Arc], supply: Mapping[str, int], demand: Mapping[str, int]) -> Flow:
    """Shortest augmenting paths, all of one length at a time."""
    ahead, back = defaultdict(list), defaultdict(list)
    for left, right in arcs:
        ahead[left].append(right)
        back[right].append(left)
    spare, room = dict(supply), dict(demand)
    sent: dict[Arc, int] = defaultdict(int)
    while True:
        # Breadth first from every left node with something to send: over any arc forwards, over a used one back.
        layer = [left for left in spare if spare[left]]
        from_right: dict[str, str | None] = dict.fromkeys(layer)  # how the search came to a left node
        from_left: dict[str, str] = {}
        ends: list[str] = []
        while layer and not ends:
            found = []
            for left in layer:
                new = [right for right in ahead[left] if right not in from_left]
                from_left.update(dict.fromkeys(new, left))
                found += new
            ends = [right for right in found if room[right]]
            layer = []
            for right in found:
                new = [left for left in back[right] if left not in from_right and sent[left, right]]
                from_right.update(dict.fromkeys(new, right))
                layer += new
        if not ends:
            return Flow(dict(sent), frozenset(from_right), frozenset(from_left))
        for end in ends:
            _send(end, from_left, from_right, spare, room, sent)


def _send(
    end: str,
    from_left: Mapping[str, str],
    from_right: Mapping[str, str | None],
    spare: dict[str, int],
    room: dict[str, int],
    sent: dict[Arc, int],
) -> None:
    """As much as fits along the path found to `end`."""
    forwards, backwards = [(from_left[end], end)], []
    while (right := from_right[start := forwards[-1][0]]) is not None:
        backwards.append((start, right))
        forwards.append((from_left[right], right))
    amount = min(room[end], spare[start], *(sent[arc] for arc in backwards))
    room[end] -= amount
    spare[start] -= amount
    for arc in forwards:
        sent[arc] += amount
    for arc in backwards:
        sent[arc] -= amount
