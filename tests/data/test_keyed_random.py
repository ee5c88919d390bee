"""Random numbers are a function of where they are used, and are uniform."""

from __future__ import annotations

import numpy as np
import pytest

from crossling.data.keyed_random import KeyedRandom, positions_within


def sample(noise: KeyedRandom, purpose: str = "x", lengths: tuple[int, ...] = (4, 3)) -> np.ndarray:
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    return noise.per_token(purpose, numbers, positions_within(np.array(lengths)))


def test_positions_restart_in_every_sequence() -> None:
    assert positions_within(np.array([3, 0, 2])).tolist() == [0, 1, 2, 0, 1]
    assert positions_within(np.array([], dtype=np.int64)).tolist() == []


def test_the_same_key_gives_the_same_numbers() -> None:
    assert sample(KeyedRandom([1, 2], 3, 2)).tolist() == sample(KeyedRandom([1, 2], 3, 2)).tolist()
    assert KeyedRandom([1], 0, 5).per_example("x").tolist() == KeyedRandom([1], 0, 5).per_example("x").tolist()


def test_a_number_does_not_depend_on_other_examples() -> None:
    few, many = KeyedRandom([1], 7, 2), KeyedRandom([1], 7, 9)
    assert many.per_example("x")[:2].tolist() == few.per_example("x").tolist()
    assert sample(many, lengths=(4, 30, 5))[:4].tolist() == sample(few, lengths=(4, 3))[:4].tolist()


def test_every_part_of_the_key_changes_the_numbers() -> None:
    one = sample(KeyedRandom([1, 2], 3, 2)).tolist()
    for other in (KeyedRandom([1, 3], 3, 2), KeyedRandom([2, 2], 3, 2), KeyedRandom([1, 2], 4, 2)):
        assert not set(one) & set(sample(other).tolist())
    assert not set(one) & set(sample(KeyedRandom([1, 2], 3, 2), "y").tolist())
    assert len(set(one)) == 7  # all different


@pytest.mark.parametrize("method", ["per_example", "per_token"])
def test_numbers_are_uniform(method: str) -> None:
    """With 16 bins and 32,000 numbers, chi-square with 15 degrees of freedom exceeds 45 once in 10,000."""
    noise = KeyedRandom([0], 0, 32_000)
    found = (
        noise.per_example("x") if method == "per_example" else sample(KeyedRandom([0], 1, 320), lengths=(100,) * 320)
    )
    assert found.min() >= 0
    assert found.max() < 1
    counts = np.bincount((found * 16).astype(int), minlength=16)
    assert ((counts - 2000) ** 2 / 2000).sum() < 45
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.03
