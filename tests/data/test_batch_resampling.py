"""Sampling probabilities of bitext change from a step on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from crossling.data.batches import Batches, StepWork
from crossling.data.packing import Batch
from crossling.data.shards import Shards
from crossling.sampling import Sampling

from .batch_helpers import Reader, bitext, is_same, scalars, shards_of, text_and_pairs


def several() -> Any:
    lengths = [[4] * 40, [5] * 40]
    return shards_of(
        {"en": [6] * 30}, [bitext(n, pair, *lengths) for n, pair in enumerate(("en-de", "en-fr", "de-fr"))]
    )


def sampled_groups(batches: Batches, name: str, steps: range) -> Counter[str]:
    return Counter(
        batches.groups[name][group].name for step in steps for group in batches.samplers[name][step][0].tolist()
    )


NEW = {"corpus0 en-de": 0.8, "corpus1 en-fr": 0.1, "corpus2 de-fr": 0.1}


def test_resampling_changes_bitext_but_not_text() -> None:
    objectives = {"text": Reader(number=20), "pairs": Reader("pairs", 24, number=100)}
    batches, plain = (Batches(several(), objectives, Sampling(), seed=7, micro_tokens=10**9) for _ in range(2))
    batches.resample(NEW, 5)
    found = sampled_groups(batches, "pairs", range(5, 10))
    assert {name: count / 500 for name, count in found.items()} == pytest.approx(NEW, abs=0.02)
    assert is_same(StepWork(*_of(batches[6], "text")), StepWork(*_of(plain[6], "text")))
    assert not is_same(batches[6], plain[6])


def _of(work: StepWork, name: str) -> tuple[list[tuple[str, Batch]], dict[str, int], int]:
    return [(task, batch) for task, batch in work.micro_batches if task == name], {}, 0


def test_resampling_with_the_same_probabilities_changes_nothing(shards: Shards) -> None:
    batches, plain = (
        Batches(shards, text_and_pairs(), Sampling(), seed=7, micro_tokens=128, alternate=True) for _ in range(2)
    )
    batches.resample({group.name: group.probability for group in batches.groups["pairs"]}, 4)
    assert all(is_same(batches[step], plain[step]) for step in range(4, 12))


@pytest.mark.parametrize("step", [4, 5])
def test_alternating_resampling_starts_at_the_next_step_of_pairs(step: int) -> None:
    objectives = {"text": Reader(number=20), "pairs": Reader("pairs", 24, number=100)}
    batches, plain = (
        Batches(several(), objectives, Sampling(), seed=7, micro_tokens=10**9, alternate=True) for _ in range(2)
    )
    batches.resample(NEW, step)
    assert is_same(batches[4], plain[4])
    assert not is_same(batches[5], plain[5])
    assert sampled_groups(batches, "pairs", range(2, 4))["corpus0 en-de"] == pytest.approx(160, abs=4)


def test_longer_pairs_need_more_micro_batches() -> None:
    short, long = bitext(0, "en-de", [3] * 40, [3] * 40), bitext(1, "en-fr", [11] * 40, [11] * 40)
    batches = Batches(
        shards_of(bitexts=[short, long]),
        {"pairs": Reader("pairs", 24, number=100)},
        Sampling(),
        seed=7,
        micro_tokens=400,
    )
    before = batches.micro_batch_counts["pairs"]
    batches.resample({"corpus0 en-de": 0.01, "corpus1 en-fr": 0.99}, 2)
    assert batches.micro_batch_counts["pairs"] > before
    assert batches.mean_lengths["pairs"] == pytest.approx(1 + 6 * 0.01 + 22 * 0.99)
    assert batches.samplers["pairs"].examples_per_step == 100


def test_a_single_group_gives_the_same_examples_for_any_world_size() -> None:
    objectives = {"text": Reader(number=20), "pairs": Reader("pairs", 24, number=12)}
    one, *two = (
        Batches(several(), objectives, Sampling(), seed=7, micro_tokens=10**9, rank=rank, world_size=number)
        for rank, number in ((0, 1), (0, 2), (1, 2))
    )
    few = {"pairs": Reader("pairs", 24, number=30)}
    found = scalars(one.single_group(1, few, 99)[0], "row")
    assert set(np.asarray(found) >> 40) == {1}
    assert len(set(found)) == 30
    assert sorted(row for batches in two for row in scalars(batches.single_group(1, few, 99)[0], "row")) == sorted(
        found
    )
    assert scalars(one.single_group(1, few, 98)[0], "row") != found
    assert one.samplers["pairs"].examples_per_step == 12  # as it was
