"""M2M's linear programme: an optimum, and a sparse one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from crossling.sampling import Pair, m2m, marginals, xy_lent
from crossling.sampling.xy_lent import fitted

from .graphs import TEMPERATURES, WORKED, counts, full_counts, matrix


def test_the_worked_example_drops_two_pairs_and_spends_a_third_on_almost_nothing() -> None:
    rates = m2m(WORKED, 5)
    assert rates["en", "sw"] == rates["de", "sw"] == 0
    assert round(rates["sw", "ta"], 2) == 0.36
    assert WORKED["sw", "ta"] / sum(WORKED.values()) == pytest.approx(0.002, abs=2e-4)


@given(full_counts(), TEMPERATURES)
def test_no_other_distribution_keeps_more_of_the_data(pairs: dict[Pair, int], temperature: float) -> None:
    best, other = m2m(pairs, temperature, relax=True), xy_lent(pairs, temperature, relax=True)
    total = sum(pairs.values())
    assert sum(best[p] * n for p, n in pairs.items()) >= sum(other[p] * n for p, n in pairs.items()) - 1e-9 * total


@given(counts(), TEMPERATURES)
@pytest.mark.filterwarnings("ignore:.*pairs are never drawn")
def test_at_most_as_many_pairs_as_languages_are_drawn(pairs: dict[Pair, int], temperature: float) -> None:
    """A corner of the polytope has no more positive entries than there are equations."""
    drawn = sum(rate > 1e-9 for rate in m2m(pairs, temperature, relax=True).values())
    assert drawn <= len({language for pair in pairs for language in pair})


def test_it_is_the_limit_of_the_entropic_problem_but_only_on_the_pairs_there_are() -> None:
    """Sinkhorn's algorithm with the kernel exp(Q / epsilon), masked, and as it is often written, without a mask."""
    wanted = marginals(WORKED, 5)
    languages, log_m = [*wanted], np.log([*wanted.values()])
    Q = matrix(WORKED, languages)
    masked = np.exp(fitted(np.where(Q > 0, Q / 0.005, -np.inf), log_m))
    assert masked == pytest.approx(matrix(m2m(WORKED, 5), languages), abs=1e-6)
    unmasked = np.exp(fitted(Q / 0.005, log_m))
    assert np.trace(unmasked) == pytest.approx(0.165, abs=5e-4)  # languages paired with themselves
