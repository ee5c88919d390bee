"""What follows from what: the rule against all possible worlds, and squares that give nothing away."""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations, islice

from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.babel.domain import DOMAINS
from crossling.babel.family import Family
from crossling.babel.inference import CONTRADICTION, ENTAILMENT, NEUTRAL, Claim, Inference, relation
from crossling.babel.language import found_languages
from crossling.babel.world import World

DETAILS = ("place", "time", "kind")
KINDS = [frozenset(some) for many in range(4) for some in combinations(DETAILS, many)]  # of what can happen
WORLDS = [frozenset(some) for some in chain.from_iterable(combinations(KINDS, many) for many in range(len(KINDS) + 1))]


def holds(claim: Claim, world: frozenset[frozenset[str]]) -> bool:
    """Whether something happened that has all the details told; or that nothing of the kind did."""
    return any(claim.details <= happened for happened in world) != claim.negated


def by_worlds(premise: Claim, hypothesis: Claim) -> str:
    possible = [world for world in WORLDS if holds(premise, world)]
    true = sum(holds(hypothesis, world) for world in possible)
    return ENTAILMENT if true == len(possible) else NEUTRAL if true else CONTRADICTION


claims = st.builds(Claim, st.frozensets(st.sampled_from(DETAILS), min_size=1), st.booleans())


@settings(max_examples=200)
@given(claims, claims)
def test_the_rule_is_what_holds_in_all_possible_worlds(premise: Claim, hypothesis: Claim) -> None:
    assert relation(premise, hypothesis) == by_worlds(premise, hypothesis)


@given(st.integers(2, 5), st.integers(2, 5), st.booleans(), st.booleans())
def test_numbers_are_exact(one: int, other: int, denied: bool, denies: bool) -> None:
    """In every world there is one number, or nothing happened at all."""
    kept = frozenset({"place"})
    possible = [number for number in (None, 2, 3, 4, 5, 6) if (number == one) != denied]
    true = sum((number == other) != denies for number in possible)
    expected = ENTAILMENT if true == len(possible) else NEUTRAL if true else CONTRADICTION
    assert relation(Claim(kept, denied, one), Claim(kept, denies, other)) == expected


@given(claims, claims)
def test_nothing_follows_for_another_event(premise: Claim, hypothesis: Claim) -> None:
    other = Claim(hypothesis.details, hypothesis.negated, exchanged=True)
    assert relation(premise, other) == relation(other, premise) == NEUTRAL


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(DOMAINS)))
def test_in_a_group_each_sentence_is_met_once_with_each_label(seed: int, domain: str) -> None:
    world = World(300, seed, DOMAINS[domain])
    family = Family(world, found_languages(2, world, seed), seed)
    for group in islice(filter(None, Inference(family).draw("test")), 30):
        for side in (0, 1):
            met = Counter((id(example[side]), example[2]) for example in group.examples)
            assert len(met) == 4 * 3
            assert {*met.values()} == {1}
        assert len(group.sentences) == 8
        assert {len(one.frame.concepts()) >= 5 for one in group.sentences} == {True}
