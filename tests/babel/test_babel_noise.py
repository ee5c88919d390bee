from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossling.babel import Noise
from crossling.babel.noise import damage
from crossling.errors import BadInput

ROWS = [(f"a{i} b{i} c{i} d{i}", f"w{i} x{i} y{i}") for i in range(400)]


def test_no_noise_changes_nothing() -> None:
    assert damage(ROWS, Noise(), random.Random(0)) == (ROWS, [])


@given(
    st.lists(st.integers(0, 25), min_size=4, max_size=4),
    st.integers(0, 1000),
)
@example([25, 25, 25, 25], 39)  # no row stays whole: a row must not become one of the many that have its own target
def test_rates_are_exact_and_every_change_is_recorded(percents: list[int], seed: int) -> None:
    noise = Noise(*(percent / 100 for percent in percents))
    noisy, record = damage(ROWS, noise, random.Random(seed))
    assert len(noisy) == len(ROWS)
    kinds = Counter(one.kind for one in record)
    assert {kind: kinds[kind] for kind in asdict(noise)} == {
        kind: round(rate * len(ROWS)) for kind, rate in asdict(noise).items()
    }
    assert {one.row for one in record} == {i for i in range(len(ROWS)) if noisy[i] != ROWS[i]}


def test_damage_is_what_its_name_says() -> None:
    noisy, record = damage(ROWS, Noise(0.1, 0.1, 0.1, 0.1), random.Random(0))
    crowds: Counter[int] = Counter()
    for row, kind, origin in record:
        source, target = noisy[row]
        if kind == "copies":
            assert source == target == ROWS[row][0]
            continue
        assert noisy[origin] == ROWS[origin], "what is borrowed from stays whole"
        assert target == ROWS[origin][1] != ROWS[row][1]
        if kind == "near_duplicates":
            assert source != ROWS[origin][0]
            assert len(set(source.split()) & set(ROWS[origin][0].split())) >= 3
        else:
            assert source == ROWS[row][0]
        if kind == "many_to_one":
            crowds[origin] += 1
    assert max(crowds.values()) >= 8
    assert len(crowds) <= 5


@pytest.mark.parametrize("rates", [{"wrong": -0.1}, {"copies": 1.5}, {"wrong": 0.6, "many_to_one": 0.6}])
def test_impossible_rates_are_refused(rates: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="expected"):
        Noise(**rates)
