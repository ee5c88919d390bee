"""M2M-100's and XY-LENT's rules: probabilities with the target marginals, an optimum each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import null_space

from crossling.sampling import Pair, m2m, temperature_sampling, xy_lent
from crossling.sampling.marginals import closest_feasible_marginals, language_marginals
from crossling.sampling.pair_rules import fit_marginals

from .graphs import STAR, TEMPERATURES, WORKED, counts, full_counts, incidence, marginals_of, matrix

pytestmark = pytest.mark.filterwarnings("ignore:.*pairs are never sampled")
Rule = Callable[..., dict[Pair, float]]
both = pytest.mark.parametrize("rule", [m2m, xy_lent])

# ---- both rules ---------------------------------------------------------------------------------------------


@both
@given(counts(), TEMPERATURES)
def test_result_is_a_distribution_over_the_same_pairs(rule: Rule, pairs: dict[Pair, int], temperature: float) -> None:
    probabilities = rule(pairs, temperature, relax=True)
    assert [*probabilities] == [*pairs]
    assert all(0 <= probability <= 1 + 1e-12 for probability in probabilities.values())
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-12)


@both
@given(counts(), TEMPERATURES)
def test_marginals_are_met(rule: Rule, pairs: dict[Pair, int], temperature: float) -> None:
    target = closest_feasible_marginals([*pairs], language_marginals(pairs, temperature))
    assert marginals_of(rule(pairs, temperature, relax=True)) == pytest.approx(target, rel=0, abs=1e-9)


@both
@given(counts(10**6), TEMPERATURES, st.integers(2, 10**6))
def test_scaling_all_counts_changes_nothing(
    rule: Rule, pairs: dict[Pair, int], temperature: float, factor: int
) -> None:
    scaled = rule({pair: n * factor for pair, n in pairs.items()}, temperature, relax=True)
    assert scaled == pytest.approx(rule(pairs, temperature, relax=True), abs=1e-9)


@both
@given(counts(10**6), TEMPERATURES, st.randoms(use_true_random=False))
def test_order_of_the_counts_does_not_matter(
    rule: Rule, pairs: dict[Pair, int], temperature: float, random: object
) -> None:
    items = [*pairs.items()]
    random.shuffle(items)  # type: ignore[attr-defined]
    assert rule(dict(items), temperature, relax=True) == pytest.approx(rule(pairs, temperature, relax=True), abs=1e-9)


@given(full_counts(), TEMPERATURES, st.permutations([f"l{i}" for i in range(5)]))
def test_language_names_do_not_matter(pairs: dict[Pair, int], temperature: float, names: list[str]) -> None:
    """XY-LENT's optimum is unique; that of M2M-100 need not be."""
    new = {f"l{i}": name for i, name in enumerate(names)}
    renamed = xy_lent({(new[a], new[b]): n for (a, b), n in pairs.items()}, temperature, relax=True)
    expected = xy_lent(pairs, temperature, relax=True)
    assert renamed == pytest.approx(
        {(new[a], new[b]): probability for (a, b), probability in expected.items()}, abs=1e-9
    )


@both
@given(st.dictionaries(st.sampled_from([f"l{i}" for i in range(9)]), st.integers(1, 10**9), min_size=1), TEMPERATURES)
def test_relaxed_star_is_temperature_sampling(rule: Rule, sizes: Mapping[str, int], temperature: float) -> None:
    star = {("en", language): n for language, n in sizes.items()}
    assert rule(star, temperature, relax=True) == pytest.approx(temperature_sampling(star, 1 / temperature), abs=1e-9)


@both
@given(
    st.tuples(st.integers(1, 10**12), st.integers(1, 10**12), st.integers(1, 10**12)),
    st.sampled_from([1.001, 1.05, 1 / 0.7, 5.0, 1000.0]),
)
def test_triangle_is_determined_by_its_marginals(rule: Rule, sizes: tuple[int, int, int], temperature: float) -> None:
    """Holds even if a pair that must be sampled often has almost no data."""
    pairs = dict(zip((("a", "b"), ("b", "c"), ("a", "c")), sizes, strict=True))
    m = closest_feasible_marginals([*pairs], language_marginals(pairs, temperature))
    expected = {("a", "b"): m["a"] + m["b"] - m["c"], ("b", "c"): m["b"] + m["c"] - m["a"]}
    expected |= {("a", "c"): m["a"] + m["c"] - m["b"]}
    assert rule(pairs, temperature, relax=True) == pytest.approx(expected, abs=1e-9)


@both
@pytest.mark.parametrize("relax", [False, True])
def test_pairs_without_data_are_never_sampled(rule: Rule, relax: bool) -> None:
    assert rule({}, 2, relax) == {}
    assert rule({("a", "b"): 0}, 2, relax) == {("a", "b"): 0.0}
    probabilities = rule({("a", "b"): 5, ("c", "d"): 0, ("b", "c"): 0}, 2, relax)
    assert probabilities == pytest.approx({("a", "b"): 1.0, ("c", "d"): 0.0, ("b", "c"): 0.0})


@both
def test_a_hundred_languages(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    size = np.exp(rng.normal(0, 2, 100))
    pairs = [(i, j) for i, j in combinations(range(100), 2) if rng.random() < 0.6]
    sizes = {(f"l{i}", f"l{j}"): 1 + int(1e5 * size[i] * size[j] * np.exp(rng.normal())) for i, j in pairs}
    assert len(sizes) > 2900
    probabilities = rule(sizes, 1 / 0.7)
    target = language_marginals(sizes, 1 / 0.7)
    assert marginals_of(
        {pair: probability for pair, probability in probabilities.items() if probability}
    ) == pytest.approx(target, abs=1e-9)
    never = sum(probability < 1e-12 for probability in probabilities.values()) / len(probabilities)
    assert never > 0.95 if rule is m2m else never == 0


@both
def test_infeasible_marginals_are_an_error_without_relax(rule: Rule) -> None:
    with pytest.raises(ValueError, match="paired only with en"):
        rule(STAR, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rule(STAR, 2, relax=True)[("en", "de")] > 0


# ---- M2M-100 ------------------------------------------------------------------------------------------------


def test_worked_example_of_m2m_drops_two_pairs_and_spends_a_third_on_almost_nothing() -> None:
    probabilities = m2m(WORKED, 5)
    assert probabilities["en", "sw"] == probabilities["de", "sw"] == 0
    assert round(probabilities["sw", "ta"], 2) == 0.36
    assert WORKED["sw", "ta"] / sum(WORKED.values()) == pytest.approx(0.002, abs=2e-4)


@given(full_counts(), TEMPERATURES)
def test_m2m_keeps_most_of_the_data(pairs: dict[Pair, int], temperature: float) -> None:
    best, other = m2m(pairs, temperature, relax=True), xy_lent(pairs, temperature, relax=True)
    total = sum(pairs.values())
    assert sum(best[p] * n for p, n in pairs.items()) >= sum(other[p] * n for p, n in pairs.items()) - 1e-9 * total


@given(counts(), TEMPERATURES)
def test_m2m_samples_at_most_as_many_pairs_as_languages(pairs: dict[Pair, int], temperature: float) -> None:
    """A corner of the polytope has no more positive entries than there are equations."""
    sampled = sum(probability > 1e-9 for probability in m2m(pairs, temperature, relax=True).values())
    assert sampled <= len({language for pair in pairs for language in pair})


def test_m2m_is_the_limit_of_the_entropic_problem_on_pairs_with_data() -> None:
    """Sinkhorn's algorithm with the kernel exp(Q / epsilon), masked, and as it is often written, without a mask."""
    target = language_marginals(WORKED, 5)
    languages, log_m = [*target], np.log([*target.values()])
    Q = matrix(WORKED, languages)
    masked = np.exp(fit_marginals(np.where(Q > 0, Q / 0.005, -np.inf), log_m))
    assert masked == pytest.approx(matrix(m2m(WORKED, 5), languages), abs=1e-6)
    unmasked = np.exp(fit_marginals(Q / 0.005, log_m))
    assert np.trace(unmasked) == pytest.approx(0.165, abs=5e-4)  # languages paired with themselves


# ---- XY-LENT ------------------------------------------------------------------------------------------------


def test_worked_example_of_xy_lent() -> None:
    each_direction = {"-".join(pair): round(probability / 2, 4) for pair, probability in xy_lent(WORKED, 5).items()}
    assert each_direction == {
        "en-de": 0.1811,
        "en-sw": 0.0676,
        "en-ta": 0.0669,
        "de-sw": 0.0558,
        "de-ta": 0.0736,
        "sw-ta": 0.0550,
    }


@given(counts())
def test_temperature_1_gives_the_data(pairs: dict[Pair, int]) -> None:
    total = sum(pairs.values())
    assert xy_lent(pairs, 1) == pytest.approx({pair: n / total for pair, n in pairs.items()}, rel=1e-9)


@given(full_counts(), TEMPERATURES, st.integers(0, 2**32 - 1))
def test_xy_lent_is_closest_to_the_data_of_all_with_the_marginals(
    pairs: dict[Pair, int], temperature: float, seed: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probabilities = xy_lent(pairs, temperature, relax=True)
    sampled = [pair for pair in pairs if probabilities[pair]]
    q, p = (np.array([float(of[pair]) for pair in sampled]) for of in (pairs, probabilities))
    directions = null_space(incidence(sampled, sorted({language for pair in sampled for language in pair})))
    if not directions.size:
        return
    move = directions @ np.random.default_rng(seed).normal(size=directions.shape[1])
    farthest = (p / np.abs(move)).min()
    for step in (1e-3 * farthest, 0.1 * farthest, 0.9 * farthest):
        other = p + step * move
        assert other @ np.log(other / q) >= p @ np.log(p / q) - 1e-12


@given(full_counts(), TEMPERATURES)
def test_xy_lent_scales_rows_and_columns_of_the_data(pairs: dict[Pair, int], temperature: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probabilities = xy_lent(pairs, temperature, relax=True)
    sampled = [pair for pair in pairs if probabilities[pair]]
    ratio = np.log([probabilities[pair] / pairs[pair] for pair in sampled])
    languages = sorted({language for pair in sampled for language in pair})
    design = incidence(sampled, languages).T
    scale, *_ = np.linalg.lstsq(design, ratio, rcond=None)
    assert design @ scale == pytest.approx(ratio, abs=1e-5)


def test_xy_lent_equals_plain_proportional_fitting() -> None:
    target = language_marginals(WORKED, 5)
    languages, m = [*target], np.array([*target.values()])
    Q = matrix(WORKED, languages)
    u = v = np.ones(len(m))
    for _ in range(50):
        u = m / (Q @ v)
        v = m / (Q.T @ u)
    assert matrix(xy_lent(WORKED, 5), languages) == pytest.approx(u[:, None] * Q * v, abs=1e-10)


@pytest.mark.parametrize(("temperature", "leaked"), [(1 / 0.7, 0.08), (5, 0.35)])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-9, 1e-12])
def test_smoothed_counts_would_sample_pairs_without_data(temperature: float, leaked: float, epsilon: float) -> None:
    """-log(Q + epsilon), as the paper has it, succeeds on a star by drawing pairs that do not exist."""
    target = language_marginals(STAR, temperature)
    Q = matrix(STAR, [*target])
    P = np.exp(fit_marginals(np.log(Q + epsilon), np.log([*target.values()])))
    assert round(float(P[Q == 0].sum()), 2) == leaked


@given(st.floats(1e-7, 0.2))
def test_fit_converges_near_the_border_of_the_feasible_set(slack: float) -> None:
    """a, d and e have only b and c, and want almost as much: what is left for b-c is the slack."""
    pairs = {("a", "b"): 5, ("b", "c"): 10**6, ("c", "d"): 7, ("c", "e"): 1, ("b", "e"): 2}
    target = {"a": 0.2, "d": 0.1, "e": 0.2 - slack / 2, "b": 0.3, "c": 0.2 + slack / 2}
    Q = matrix(pairs, [*target])
    with np.errstate(divide="ignore"):
        P = np.exp(fit_marginals(np.log(Q), np.log([*target.values()])))
    assert P.sum(1) == pytest.approx([*target.values()], rel=1e-9)
    assert P[3, 4] == pytest.approx(slack / 2, rel=1e-3)


def test_xy_lent_warns_about_pairs_that_are_never_sampled() -> None:
    chain = {("a", "b"): 5, ("b", "c"): 500, ("c", "d"): 5}
    with pytest.warns(UserWarning, match=r"1 of 3 pairs are never sampled, because .*: b-c\.$"):
        probabilities = xy_lent(chain, float("inf"))
    assert probabilities == pytest.approx({("a", "b"): 0.5, ("b", "c"): 0.0, ("c", "d"): 0.5})
