r"""What M2M and XY-LENT ask for: how often each *language* is to be drawn, whatever it is paired with.

    m = p^(1/T) / sum of p^(1/T)            p_l: the share of language l in all sides of all pairs

Not every m can be had on the pairs there are: languages that are paired only with others, never among themselves, can
be drawn at most as often as those others. If a set S of such languages wants more than its neighbours N(S),

    m(S) > m(N(S)),

no distribution over the pairs has these marginals; if no set does, there is one (Hall's condition, for transport).

The closest m' that can be had, in the sense of the least KL(m || m'), has a simple form: S and N(S) keep what they want
together, m(S) + m(N(S)), and share it half and half, each in the proportions wanted; all other languages keep what they
want. Where several sets want too much, they are settled from the worst on, by the ratio of m(S) to m(N(S)).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from crossling.errors import BadInput
from crossling.sampling.exponent import tempered
from crossling.sampling.flow import Flow, most

Pair = tuple[str, str]  # two languages, in any order; each pair is named once

EXACT = 2**100  # masses become whole numbers of this fraction
ROUNDING = 2**44  # a set may want more than its neighbours by this fraction: floats are not exact
FORCED = 2**36  # what takes less than this fraction of its smaller language takes nothing
NAMED = 6  # languages of a long list that are named


class OutOfReach(BadInput):
    """No distribution over the pairs there are has the marginals wanted."""


@dataclass(frozen=True)
class Problem:
    """What a rule solves: languages and what they get, and the pairs that can have a part in it."""

    marginals: dict[str, float]
    counts: dict[Pair, int]  # only pairs that can be drawn at all under these marginals


def problem(counts: Mapping[Pair, int], temperature: float, relax: bool) -> Problem:
    """The marginals at a temperature, or the closest ones that can be had; OutOfReach if these are not wanted."""
    there = {pair: n for pair, n in counts.items() if n}
    if len({frozenset(pair) for pair in there}) < len(there) or any(a == b for a, b in there):
        raise ValueError("counts are keyed by two different languages, each pair once")
    wanted = marginals(there, temperature)
    short = shortage(list(there), wanted)
    if short is not None:
        if not relax:
            raise OutOfReach(
                f"sampling at temperature {temperature:.3g}: {short}: set sampling.relax=true or"
                f" sampling.pair_alpha={_exponent(there, 1 / temperature):g}, or add pairs among them"
            )
        wanted = relaxed(list(there), wanted)
    return Problem(wanted, {pair: there[pair] for pair in possible(list(there), wanted)})


def marginals(counts: Mapping[Pair, int], temperature: float) -> dict[str, float]:
    """What each language is to get: p^(1/T), renormalised. Languages are in order of their names."""
    sides: dict[str, int] = dict.fromkeys(sorted({language for pair in counts for language in pair}), 0)
    for pair, n in counts.items():
        for language in pair:
            sides[language] += n
    return tempered(sides, 1 / temperature)


@dataclass(frozen=True)
class Shortage:
    """Languages that want more than all they are paired with."""

    languages: tuple[str, ...]
    mass: float
    neighbours: tuple[str, ...]
    neighbours_mass: float

    def __str__(self) -> str:
        return (
            f"{_listed(self.languages)} should be {self.mass:.2%} of all sentences drawn, but they are paired only with"
            f" {_listed(self.neighbours)}, at {self.neighbours_mass:.2%}, and can be no more than that"
        )


def shortage(pairs: Sequence[Pair], wanted: Mapping[str, float]) -> Shortage | None:
    """The languages that stand most in the way of what is wanted, if any do."""
    flow = _flow(pairs, _exact(wanted))
    if not flow.stuck:
        return None
    # Several unrelated groups may want too much: the worst one is enough to know.
    arcs = [arc for arc in _both_ways(pairs) if arc[0] in flow.stuck]
    groups = [
        Shortage(tuple(some), _mass(wanted, some), tuple(others), _mass(wanted, others))
        for some, others in _connected(arcs)
    ]
    return max(groups, key=lambda group: group.mass - group.neighbours_mass)


def relaxed(pairs: Sequence[Pair], wanted: Mapping[str, float]) -> dict[str, float]:
    """The marginals m' that can be had with the least KL(wanted || m'); `wanted` itself if it can be had."""
    exact = _exact(wanted)
    flow = _flow(pairs, exact)
    result = dict(wanted)
    arcs = [arc for arc in _both_ways(pairs) if arc[0] in flow.stuck]
    for some, others in _blocks(arcs, exact) if flow.stuck else ():
        half = (_mass(wanted, some) + _mass(wanted, others)) / 2
        for side in (some, others):
            scale = half / _mass(wanted, side)
            result |= {language: wanted[language] * scale for language in side}
    return result


def possible(pairs: Sequence[Pair], wanted: Mapping[str, float]) -> list[Pair]:
    """The pairs that some distribution with these marginals draws. The others would take what a set needs whole.

    An arc can carry something if it does now, or if what others carry can be led round a circle through it: both of its
    ends then lie in one strongly connected part of what may still be changed.
    """
    exact = _exact(wanted)
    sent = most(_both_ways(pairs), exact, exact).sent
    number = {language: i for i, language in enumerate(exact)}
    forwards = [(number[a], len(number) + number[b]) for a, b in _both_ways(pairs)]
    backwards = [
        (len(number) + number[b], number[a])
        for a, b in _both_ways(pairs)
        # What one direction carries, the other could.
        if (sent.get((a, b), 0) + sent.get((b, a), 0)) * FORCED > min(exact[a], exact[b])
    ]
    starts, ends = zip(*forwards, *backwards, strict=True) if pairs else ((), ())
    size = 2 * len(number)
    graph = coo_array(([1] * len(starts), (starts, ends)), shape=(size, size))
    _, part = connected_components(graph, connection="strong") if size else (0, [])
    return [(a, b) for a, b in pairs if part[number[a]] == part[len(number) + number[b]]]


def _exponent(counts: Mapping[Pair, int], alpha: float) -> float:
    """The exponent next to `alpha` whose marginals can be had, in hundredths: 1, the data itself, always can."""
    short, enough = min(math.floor(100 * alpha), 99), 100
    while enough - short > 1:
        middle = (short + enough) // 2
        if shortage(list(counts), marginals(counts, 100 / middle)) is None:
            enough = middle
        else:
            short = middle
    return enough / 100


def _flow(pairs: Sequence[Pair], exact: Mapping[str, int]) -> Flow:
    """Each language sends its mass to those it is paired with, and takes as much."""
    return most(_both_ways(pairs), exact, {language: mass + mass // ROUNDING for language, mass in exact.items()})


def _blocks(arcs: Sequence[Pair], exact: Mapping[str, int]) -> Iterator[tuple[list[str], list[str]]]:
    """Sets and their neighbours, each set wanting the same multiple of its neighbours in all its parts; worst first.

    (The principal partition of a bipartite graph: a set is cut as long as a part of it wants more than its fair share.)
    """
    some, others = (sorted({arc[side] for arc in arcs}) for side in (0, 1))
    total, total_others = (sum(exact[language] for language in side) for side in (some, others))
    supply = {language: exact[language] * total_others for language in some}
    demand = {language: exact[language] * total for language in others}
    flow = most(arcs, supply, {language: mass + mass // ROUNDING for language, mass in demand.items()})
    if not flow.stuck:
        yield some, others
        return
    yield from _blocks([arc for arc in arcs if arc[0] in flow.stuck], exact)
    yield from _blocks([arc for arc in arcs if arc[0] not in flow.stuck and arc[1] not in flow.full], exact)


def _connected(arcs: Sequence[Pair]) -> list[tuple[list[str], list[str]]]:
    """The parts of a bipartite graph that have nothing to do with each other."""
    left, right = ({name: i for i, name in enumerate(sorted({arc[side] for arc in arcs}))} for side in (0, 1))
    ends = [left[a] for a, _ in arcs], [len(left) + right[b] for _, b in arcs]
    size = len(left) + len(right)
    parts, part = connected_components(coo_array(([1] * len(arcs), ends), shape=(size, size)), directed=False)
    return [
        ([name for name, i in left.items() if part[i] == k], [n for n, i in right.items() if part[len(left) + i] == k])
        for k in range(parts)
    ]


def _both_ways(pairs: Sequence[Pair]) -> list[Pair]:
    return [*pairs, *((b, a) for a, b in pairs)]


def _exact(wanted: Mapping[str, float]) -> dict[str, int]:
    return {language: int(mass * EXACT) for language, mass in wanted.items()}


def _mass(wanted: Mapping[str, float], languages: Sequence[str]) -> float:
    return sum(wanted[language] for language in languages)


def _listed(languages: Sequence[str]) -> str:
    named = ", ".join(languages[:NAMED])
    return named if len(languages) <= NAMED else f"{named} and {len(languages) - NAMED} more"
