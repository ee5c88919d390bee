"""With shuffle windows, steps read few long runs of a corpus. Everything else is as without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossling.core.errors import BadInput
from crossling.data.batches import Batches
from crossling.recipes import get_recipe
from crossling.sampling import Sampling

from .batch_helpers import Reader, bitext, scalars, sequences, shards_of

LENGTH, TOKENS = 8, 35  # of a block with <s>, and of a shuffle window: 4 blocks


def batches(sampling: Sampling, rank: int = 0, world_size: int = 1) -> Batches:
    shards = shards_of(
        {"en": [7] * 4000, "sw": [7] * 900},
        [bitext(0, "en-sw", [3, 0, 4] * 900, [3, 3, 4] * 900), bitext(1, "de-sw", [4] * 900, [2] * 900)],
    )
    objectives = {"text": Reader(length=LENGTH, number=30), "pairs": Reader("pairs", 24, number=24)}
    return Batches(shards, objectives, sampling, seed=3, micro_tokens=10**9, rank=rank, world_size=world_size)


WINDOWS = Sampling(shuffle_window=TOKENS)


def examples(of: Batches, name: str, steps: range) -> list[tuple[list[int], list[int]]]:
    return [(group_N.tolist(), index_N.tolist()) for group_N, index_N in map(of.samplers[name].__getitem__, steps)]


@pytest.mark.parametrize("name", ["text", "pairs"])
def test_a_stretch_of_steps_reads_few_runs_of_each_corpus(name: str) -> None:
    found = batches(WINDOWS)
    windows_G = found.samplers[name].windows_G
    assert windows_G is not None
    expected = [TOKENS // group.mean_length for group in found.groups[name]]
    assert windows_G.tolist() == expected
    groups, indices = (np.concatenate(column) for column in zip(*examples(found, name, range(3)), strict=True))
    for group, window in enumerate(windows_G.tolist()):
        read = np.sort(indices[groups == group])
        assert len(read) > 8
        assert 1 + (np.diff(read) > window).sum() <= 2 * 16 + 2  # of two times 16 windows
        everywhere = np.concatenate([i for _, i in examples(batches(Sampling()), name, range(3))])
    assert len({*(everywhere // 4).tolist()}) > 60


def test_windows_change_no_proportions_and_no_batch_sizes() -> None:
    plain, windowed = batches(Sampling()), batches(WINDOWS)
    for name in ("text", "pairs"):
        of_plain, of_windowed = (examples(each, name, range(9)) for each in (plain, windowed))
        assert [groups for groups, _ in of_plain] == [groups for groups, _ in of_windowed]
        assert of_plain != of_windowed
    assert plain.micro_batch_counts == windowed.micro_batch_counts


def test_the_global_batch_is_the_same_for_any_world_size() -> None:
    def content(works: list[Any]) -> list[Any]:
        return sorted(row for work in works for row in zip(scalars(work, "noise"), sequences(work), strict=True))

    alone = batches(WINDOWS)
    for step in (50, 3):  # in any order
        for world_size in (2, 3):
            world = [batches(WINDOWS, rank, world_size)[step] for rank in range(world_size)]
            assert content(world) == content([alone[step]])


def test_a_window_has_at_least_one_token() -> None:
    recipe = get_recipe("xlm_e", "tiny").set(["sampling.shuffle_window=1048576"])
    assert recipe.sampling.shuffle_window == 1048576
    assert get_recipe("xlm_e", "tiny").sampling.shuffle_window is None
    with pytest.raises(BadInput, match=r"sampling\.shuffle_window must be at least 1, found 0\."):
        recipe.set(["sampling.shuffle_window=0"]).check()
