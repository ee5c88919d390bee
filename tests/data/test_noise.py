"""Random numbers are a function of where they are used, and look random."""

from __future__ import annotations

import numpy as np
import pytest

from crossling.data.noise import Noise, places


def draws(noise: Noise, purpose: str = "x", lengths: tuple[int, ...] = (4, 3)) -> np.ndarray:
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    return noise.tokens(purpose, numbers, places(np.array(lengths)))


def test_places_begin_anew_in_every_sequence() -> None:
    assert places(np.array([3, 0, 2])).tolist() == [0, 1, 2, 0, 1]
    assert places(np.array([], dtype=np.int64)).tolist() == []


def test_the_same_key_gives_the_same_numbers() -> None:
    assert draws(Noise([1, 2], 3, 2)).tolist() == draws(Noise([1, 2], 3, 2)).tolist()
    assert Noise([1], 0, 5).each("x").tolist() == Noise([1], 0, 5).each("x").tolist()


def test_a_number_does_not_depend_on_what_is_beside_it() -> None:
    few, many = Noise([1], 7, 2), Noise([1], 7, 9)
    assert many.each("x")[:2].tolist() == few.each("x").tolist()
    assert draws(many, lengths=(4, 30, 5))[:4].tolist() == draws(few, lengths=(4, 3))[:4].tolist()


def test_every_part_of_the_key_matters() -> None:
    one = draws(Noise([1, 2], 3, 2)).tolist()
    for other in (Noise([1, 3], 3, 2), Noise([2, 2], 3, 2), Noise([1, 2], 4, 2)):
        assert not set(one) & set(draws(other).tolist())
    assert not set(one) & set(draws(Noise([1, 2], 3, 2), "y").tolist())
    assert len(set(one)) == 7  # no two tokens share one


@pytest.mark.parametrize("what", ["each", "tokens"])
def test_numbers_are_uniform(what: str) -> None:
    """Sixteen equal classes, 32,000 numbers: chi-square with 15 degrees of freedom is below 45 but for 1 in 10,000."""
    noise = Noise([0], 0, 32_000)
    found = noise.each("x") if what == "each" else draws(Noise([0], 1, 320), lengths=(100,) * 320)
    assert found.min() >= 0
    assert found.max() < 1
    counts = np.bincount((found * 16).astype(int), minlength=16)
    assert ((counts - 2000) ** 2 / 2000).sum() < 45
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.03
