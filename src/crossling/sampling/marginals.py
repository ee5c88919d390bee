r"""Language marginals of M2M-100 and XY-LENT: how often each *language* is sampled, whatever it is paired with.

    m = p^(1/T) / sum of p^(1/T)            p_l: the share of language l in all sides of all pairs

Not every m is feasible. Languages that are paired only with others, never among themselves, can be sampled at most as
often as those others. If such a set S has a larger target than its neighbors N(S),

    m(S) > m(N(S)),

no distribution over the pairs has these marginals. If no set does, there is one (Hall's condition, for transport).

The closest feasible m', with the least KL(m || m'), has a simple form. S and N(S) together keep m(S) + m(N(S)), and
each of the two gets half of it, in the proportions of m. All other languages keep their target. If several sets are
infeasible, the one with the largest ratio of m(S) to m(N(S)) is settled first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from crossling.core.errors import BadInput

Key = TypeVar("Key")


def temperature_sampling(counts: Mapping[Key, int], alpha: float) -> dict[Key, float]:
    """Return the sampling probability of each key with exponent `alpha` = 1 / T.

    Alpha 1 follows the data. Alpha 0 is uniform over the keys with a count above 0.
    """
    if not any(counts.values()):
        return dict.fromkeys(counts, 0.0)
    # Divide by the largest count first, so that no power overflows.
    largest = max(counts.values())
    powers = {key: (n / largest) ** alpha if n else 0.0 for key, n in counts.items()}
    total = sum(powers.values())
    return {key: power / total for key, power in powers.items()}


Arc = tuple[str, str]  # a left node and a right node; the two sides may use the same names


@dataclass(frozen=True)
class Flow:
    """A maximum flow and the minimum cut that proves it.

    All arcs of the left nodes in `cut_left` end in `cut_right`, whose demand is used up. Both are empty if all supply
    was sent. Otherwise no set of left nodes exceeds its neighbors by more, and no smaller set by as much.
    """

    amounts: Mapping[Arc, int]
    cut_left: frozenset[str]
    cut_right: frozenset[str]


def max_flow(arcs: Iterable[Arc], supply: Mapping[str, int], demand: Mapping[str, int]) -> Flow:
    """Send as much as possible from left to right, by shortest augmenting paths, all of one length at a time."""
    successors, predecessors = defaultdict(list), defaultdict(list)
    for left, right in arcs:
        successors[left].append(right)
        predecessors[right].append(left)
    supply_left, demand_left = dict(supply), dict(demand)
    amounts: dict[Arc, int] = defaultdict(int)
    while True:
        # Breadth first from every left node with supply: forward over any arc, backward over arcs that carry flow.
        layer = [left for left in supply_left if supply_left[left]]
        parent_of_left: dict[str, str | None] = dict.fromkeys(layer)
        parent_of_right: dict[str, str] = {}
        ends: list[str] = []
        while layer and not ends:
            reached = []
            for left in layer:
                new = [right for right in successors[left] if right not in parent_of_right]
                parent_of_right.update(dict.fromkeys(new, left))
                reached += new
            ends = [right for right in reached if demand_left[right]]
            layer = []
            for right in reached:
                new = [left for left in predecessors[right] if left not in parent_of_left and amounts[left, right]]
                parent_of_left.update(dict.fromkeys(new, right))
                layer += new
        if not ends:
            return Flow(dict(amounts), frozenset(parent_of_left), frozenset(parent_of_right))
        for end in ends:
            forward, backward = [(parent_of_right[end], end)], []
            while (parent := parent_of_left[start := forward[-1][0]]) is not None:
                backward.append((start, parent))
                forward.append((parent_of_right[parent], parent))
            amount = min(demand_left[end], supply_left[start], *(amounts[arc] for arc in backward))
            demand_left[end] -= amount
            supply_left[start] -= amount
            for arc in forward:
                amounts[arc] += amount
            for arc in backward:
                amounts[arc] -= amount


Pair = tuple[str, str]  # two languages, in any order; each pair occurs once

UNIT = 2**100  # Probabilities become whole multiples of 1 / UNIT.
TOLERANCE = 2**44  # A set may exceed its neighbors by 1 / TOLERANCE: floats are not exact.
MIN_FLOW = 2**36  # An arc with less than 1 / MIN_FLOW of its smaller language carries nothing.
MAX_LISTED = 6  # Languages to list in a message.


class InfeasibleMarginals(BadInput):
    """No distribution over the pairs has the target marginals."""


@dataclass(frozen=True)
class SamplingProblem:
    """Target marginals of the languages, and the pairs that can have a probability above 0 under them."""

    marginals: dict[str, float]
    counts: dict[Pair, int]


def build_problem(counts: Mapping[Pair, int], temperature: float, relax: bool) -> SamplingProblem:
    """Return the marginals at a temperature and the pairs to sample from.

    Args:
        counts: Number of sentence pairs of each language pair.
        temperature: T of the marginals.
        relax: Use the closest feasible marginals if the exact ones are infeasible. Otherwise raise InfeasibleMarginals.
    """
    present = {pair: n for pair, n in counts.items() if n}
    if len({frozenset(pair) for pair in present}) < len(present) or any(a == b for a, b in present):
        raise ValueError("counts: expected pairs of two different languages, each pair once.")
    target = language_marginals(present, temperature)
    infeasible = find_infeasible_set(list(present), target)
    if infeasible is not None:
        if not relax:
            raise InfeasibleMarginals(
                f"sampling at temperature {temperature:.3g}: {infeasible}. Set sampling.relax=true or"
                f" sampling.pair_alpha={_closest_feasible_alpha(present, 1 / temperature):g}, or add pairs among them."
            )
        target = closest_feasible_marginals(list(present), target)
    return SamplingProblem(target, {pair: present[pair] for pair in feasible_pairs(list(present), target)})


def language_marginals(counts: Mapping[Pair, int], temperature: float) -> dict[str, float]:
    """Return the target of each language, p^(1/T) renormalized, sorted by language code."""
    sides: dict[str, int] = dict.fromkeys(sorted({language for pair in counts for language in pair}), 0)
    for pair, n in counts.items():
        for language in pair:
            sides[language] += n
    return temperature_sampling(sides, 1 / temperature)


@dataclass(frozen=True)
class InfeasibleSet:
    """Languages whose target exceeds that of all languages they are paired with."""

    languages: tuple[str, ...]
    mass: float
    neighbors: tuple[str, ...]
    neighbors_mass: float

    def __str__(self) -> str:
        return (
            f"{_list(self.languages)} should be {self.mass:.2%} of all sampled sentences, but they are paired only with"
            f" {_list(self.neighbors)}, at {self.neighbors_mass:.2%}, and cannot exceed that"
        )


def find_infeasible_set(pairs: Sequence[Pair], target: Mapping[str, float]) -> InfeasibleSet | None:
    """Return the set of languages that exceeds its neighbors most, or None if `target` is feasible."""
    arcs = _infeasible_arcs(pairs, _to_integers(target))
    if not arcs:
        return None
    # Several independent groups may be infeasible; report the worst one.
    groups = [
        InfeasibleSet(tuple(languages), _mass(target, languages), tuple(others), _mass(target, others))
        for languages, others in _connected(arcs)
    ]
    return max(groups, key=lambda group: group.mass - group.neighbors_mass)


def closest_feasible_marginals(pairs: Sequence[Pair], target: Mapping[str, float]) -> dict[str, float]:
    """Return the feasible marginals m' with the least KL(target || m'). Feasible targets do not change."""
    integers = _to_integers(target)
    result = dict(target)
    arcs = _infeasible_arcs(pairs, integers)
    for languages, others in _blocks(arcs, integers) if arcs else ():
        half = (_mass(target, languages) + _mass(target, others)) / 2
        for side in (languages, others):
            scale = half / _mass(target, side)
            result |= {language: target[language] * scale for language in side}
    return result


def feasible_pairs(pairs: Sequence[Pair], target: Mapping[str, float]) -> list[Pair]:
    """Return the pairs that have a probability above 0 in some distribution with these marginals.

    An arc can carry flow if it does now, or if the flow can be redirected along a cycle through it. Both of its ends
    then lie in one strongly connected component of the residual graph.
    """
    from scipy.sparse import coo_array  # takes longer to import than all of crossling
    from scipy.sparse.csgraph import connected_components

    integers = _to_integers(target)
    amounts = max_flow(_both_directions(pairs), integers, integers).amounts
    index = {language: i for i, language in enumerate(integers)}
    forward = [(index[a], len(index) + index[b]) for a, b in _both_directions(pairs)]
    backward = [
        (len(index) + index[b], index[a])
        for a, b in _both_directions(pairs)
        # The flow of one direction could also go in the other.
        if (amounts.get((a, b), 0) + amounts.get((b, a), 0)) * MIN_FLOW > min(integers[a], integers[b])
    ]
    starts, ends = zip(*forward, *backward, strict=True) if pairs else ((), ())
    size = 2 * len(index)
    graph = coo_array(([1] * len(starts), (starts, ends)), shape=(size, size))
    _, component = connected_components(graph, connection="strong") if size else (0, [])
    return [(a, b) for a, b in pairs if component[index[a]] == component[len(index) + index[b]]]


def _closest_feasible_alpha(counts: Mapping[Pair, int], alpha: float) -> float:
    """Return the smallest feasible exponent above `alpha`, in hundredths. Exponent 1, the data itself, is feasible."""
    infeasible, feasible = min(math.floor(100 * alpha), 99), 100
    while feasible - infeasible > 1:
        middle = (infeasible + feasible) // 2
        if find_infeasible_set(list(counts), language_marginals(counts, 100 / middle)) is None:
            feasible = middle
        else:
            infeasible = middle
    return feasible / 100


def _infeasible_arcs(pairs: Sequence[Pair], integers: Mapping[str, int]) -> list[Arc]:
    """Return the arcs of the languages that cannot send their mass to those they are paired with."""
    arcs = _both_directions(pairs)
    flow = max_flow(arcs, integers, _with_tolerance(integers))
    return [arc for arc in arcs if arc[0] in flow.cut_left]


def _with_tolerance(demand: Mapping[str, int]) -> dict[str, int]:
    return {language: mass + mass // TOLERANCE for language, mass in demand.items()}


def _blocks(arcs: Sequence[Pair], integers: Mapping[str, int]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield sets and their neighbors, from the largest ratio of their masses to the smallest.

    This is the principal partition of a bipartite graph: a set is split while a part of it has a larger ratio.
    """
    languages, others = (sorted({arc[side] for arc in arcs}) for side in (0, 1))
    total, total_others = (sum(integers[language] for language in side) for side in (languages, others))
    supply = {language: integers[language] * total_others for language in languages}
    demand = {language: integers[language] * total for language in others}
    flow = max_flow(arcs, supply, _with_tolerance(demand))
    if not flow.cut_left:
        yield languages, others
        return
    yield from _blocks([arc for arc in arcs if arc[0] in flow.cut_left], integers)
    rest = [arc for arc in arcs if arc[0] not in flow.cut_left and arc[1] not in flow.cut_right]
    yield from _blocks(rest, integers)


def _connected(arcs: Sequence[Pair]) -> list[tuple[list[str], list[str]]]:
    """Return the left and right nodes of each connected component."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    left, right = ({name: i for i, name in enumerate(sorted({arc[side] for arc in arcs}))} for side in (0, 1))
    ends = [left[a] for a, _ in arcs], [len(left) + right[b] for _, b in arcs]
    size = len(left) + len(right)
    number, component = connected_components(coo_array(([1] * len(arcs), ends), shape=(size, size)), directed=False)
    return [
        (
            [name for name, i in left.items() if component[i] == k],
            [name for name, i in right.items() if component[len(left) + i] == k],
        )
        for k in range(number)
    ]


def _both_directions(pairs: Sequence[Pair]) -> list[Pair]:
    return [*pairs, *((b, a) for a, b in pairs)]


def _to_integers(target: Mapping[str, float]) -> dict[str, int]:
    return {language: int(mass * UNIT) for language, mass in target.items()}


def _mass(target: Mapping[str, float], languages: Sequence[str]) -> float:
    return sum(target[language] for language in languages)


def _list(languages: Sequence[str]) -> str:
    listed = ", ".join(languages[:MAX_LISTED])
    return listed if len(languages) <= MAX_LISTED else f"{listed} and {len(languages) - MAX_LISTED} more"
