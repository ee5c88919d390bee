"""What the rules of M2M and XY-LENT have in common: probabilities of the pairs there are, with the marginals wanted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.sampling import Pair, m2m, marginals, relaxed, tempered, xy_lent

from .graphs import STAR, TEMPERATURES, counts, full_counts, marginals_of

pytestmark = pytest.mark.filterwarnings("ignore:.*pairs are never drawn")
Rule = Callable[..., dict[Pair, float]]
both = pytest.mark.parametrize("rule", [m2m, xy_lent])


@both
@given(counts(), TEMPERATURES)
def test_probabilities_of_the_same_pairs(rule: Rule, pairs: dict[Pair, int], temperature: float) -> None:
    rates = rule(pairs, temperature, relax=True)
    assert [*rates] == [*pairs]
    assert all(0 <= rate <= 1 + 1e-12 for rate in rates.values())
    assert sum(rates.values()) == pytest.approx(1, abs=1e-12)


@both
@given(counts(), TEMPERATURES)
def test_marginals_are_met(rule: Rule, pairs: dict[Pair, int], temperature: float) -> None:
    wanted = relaxed([*pairs], marginals(pairs, temperature))
    assert marginals_of(rule(pairs, temperature, relax=True)) == pytest.approx(wanted, rel=0, abs=1e-9)


@both
@given(counts(10**6), TEMPERATURES, st.integers(2, 10**6))
def test_only_proportions_matter(rule: Rule, pairs: dict[Pair, int], temperature: float, factor: int) -> None:
    scaled = rule({pair: n * factor for pair, n in pairs.items()}, temperature, relax=True)
    assert scaled == pytest.approx(rule(pairs, temperature, relax=True), abs=1e-9)


@both
@given(counts(10**6), TEMPERATURES, st.randoms(use_true_random=False))
def test_the_order_of_the_counts_does_not_matter(
    rule: Rule, pairs: dict[Pair, int], temperature: float, random: object
) -> None:
    items = [*pairs.items()]
    random.shuffle(items)  # type: ignore[attr-defined]
    assert rule(dict(items), temperature, relax=True) == pytest.approx(rule(pairs, temperature, relax=True), abs=1e-9)


@given(full_counts(), TEMPERATURES, st.permutations([f"l{i}" for i in range(5)]))
def test_names_do_not_matter(pairs: dict[Pair, int], temperature: float, names: list[str]) -> None:
    """Of XY-LENT's rule, whose optimum is unique."""
    new = {f"l{i}": name for i, name in enumerate(names)}
    renamed = xy_lent({(new[a], new[b]): n for (a, b), n in pairs.items()}, temperature, relax=True)
    expected = xy_lent(pairs, temperature, relax=True)
    assert renamed == pytest.approx({(new[a], new[b]): rate for (a, b), rate in expected.items()}, abs=1e-9)


@both
@given(st.dictionaries(st.sampled_from([f"l{i}" for i in range(9)]), st.integers(1, 10**9), min_size=1), TEMPERATURES)
def test_a_star_relaxed_is_the_plain_exponent(rule: Rule, sizes: Mapping[str, int], temperature: float) -> None:
    star = {("en", language): n for language, n in sizes.items()}
    assert rule(star, temperature, relax=True) == pytest.approx(tempered(star, 1 / temperature), abs=1e-9)


@both
@given(
    st.tuples(st.integers(1, 10**12), st.integers(1, 10**12), st.integers(1, 10**12)),
    st.sampled_from([1.001, 1.05, 1 / 0.7, 5.0, 1000.0]),
)
def test_a_triangle_is_decided_by_its_marginals(rule: Rule, sizes: tuple[int, int, int], temperature: float) -> None:
    """Also where the data have almost nothing of a pair that must be drawn often."""
    pairs = dict(zip((("a", "b"), ("b", "c"), ("a", "c")), sizes, strict=True))
    m = relaxed([*pairs], marginals(pairs, temperature))
    expected = {("a", "b"): m["a"] + m["b"] - m["c"], ("b", "c"): m["b"] + m["c"] - m["a"]}
    expected |= {("a", "c"): m["a"] + m["c"] - m["b"]}
    assert rule(pairs, temperature, relax=True) == pytest.approx(expected, abs=1e-9)


@both
@pytest.mark.parametrize("relax", [False, True])
def test_pairs_without_examples_are_never_drawn(rule: Rule, relax: bool) -> None:
    assert rule({}, 2, relax) == {}
    assert rule({("a", "b"): 0}, 2, relax) == {("a", "b"): 0.0}
    rates = rule({("a", "b"): 5, ("c", "d"): 0, ("b", "c"): 0}, 2, relax)
    assert rates == pytest.approx({("a", "b"): 1.0, ("c", "d"): 0.0, ("b", "c"): 0.0})


@both
def test_a_hundred_languages(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    size = np.exp(rng.normal(0, 2, 100))
    pairs = [(i, j) for i, j in combinations(range(100), 2) if rng.random() < 0.6]
    sizes = {(f"l{i}", f"l{j}"): 1 + int(1e5 * size[i] * size[j] * np.exp(rng.normal())) for i, j in pairs}
    assert len(sizes) > 2900
    rates = rule(sizes, 1 / 0.7)
    wanted = marginals(sizes, 1 / 0.7)
    assert marginals_of({pair: rate for pair, rate in rates.items() if rate}) == pytest.approx(wanted, abs=1e-9)
    never = sum(rate < 1e-12 for rate in rates.values()) / len(rates)
    assert never > 0.95 if rule is m2m else never == 0


@both
def test_nothing_is_relaxed_that_was_not_asked_for(rule: Rule) -> None:
    with pytest.raises(ValueError, match="paired only with en"):
        rule(STAR, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rule(STAR, 2, relax=True)[("en", "de")] > 0
