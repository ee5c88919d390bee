"""Full blocks contain a text once and in order, cross documents, and have one length."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.objectives import MRTD
from crossling.recipes import get_recipe
from crossling.recipes.network import make_batches, objective_loads
from crossling.recipes.sampling_preview import preview_loads, preview_text
from crossling.sampling import Sampling
from crossling.vocabulary.vocabulary import BOS, PAD

from .batch_helpers import Reader, batches_of, is_same, sequences, shards_of

FULL = Sampling(full_blocks=True)
DOCUMENTS = st.lists(st.lists(st.integers(2, 30), min_size=1, max_size=10), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(documents=DOCUMENTS, length=st.integers(4, 40))
def test_an_epoch_contains_every_token_once_in_blocks_of_one_length(documents: list[list[int]], length: int) -> None:
    shards = shards_of({"en": documents})
    tokens = shards.text["en"].tokens.tolist()
    blocks = [(BOS, *tokens[start : start + length - 1]) for start in range(0, len(tokens), length - 1)]
    task = Reader(length=length, number=len(blocks))
    assert sorted(sequences(batches_of(shards, task, FULL)[0])) == sorted(blocks)
    assert task.expected == [pytest.approx(1 + len(tokens) / len(blocks))]


def test_blocks_cross_documents_and_leave_no_padding() -> None:
    shards = shards_of({"en": [[3, 4], [5], [2, 2, 7]] * 60})
    work = batches_of(shards, Reader(length=16, number=92), FULL)[0]
    [(_, batch)] = work.micro_batches
    assert batch["ids"].shape == (92, 16)
    assert not (batch["ids"] == PAD).any()
    ends = set(shards.text["en"].offsets[shards.text["en"].documents].tolist())
    crossed = [end for end in ends if end % 15]
    assert len(crossed) > 100


def test_a_step_of_the_papers_has_2048_sequences() -> None:
    shards = shards_of({"en": [[30] * 20] * 4000})
    batches = Batches(shards, {"mrtd": MRTD(tokens=1_048_576, length=512)}, FULL, seed=0, micro_tokens=65_536)
    assert batches.samplers["mrtd"].examples_per_step == 2048
    assert batches.micro_batch_counts["mrtd"] == 16


def test_steps_do_not_depend_on_their_order_or_the_world_size(shards: Shards) -> None:
    def batches(rank: int = 0, processes: int = 1) -> Batches:
        task = {"text": Reader(number=13)}
        return Batches(shards, task, FULL, seed=7, micro_tokens=52, rank=rank, world_size=processes)

    alone, earlier = batches()[3], batches()
    assert is_same(alone, [earlier[step] for step in (0, 5, 3)][-1])
    first, second = (batches(rank, 2)[3].micro_batches for rank in (0, 1))
    in_turn = [micro_batch for both in zip(first, second, strict=True) for micro_batch in both]
    for (_, one), (_, other) in zip(alone.micro_batches, in_turn, strict=True):
        assert one.keys() == other.keys()
        assert all((one[key] == other[key]).all() for key in one)


def test_nothing_is_computed_in_advance(shards: Shards) -> None:
    before = {file.name for file in (shards.path / "text").rglob("*")}
    Batches(shards, {"text": Reader(length=11)}, FULL, seed=0, micro_tokens=10**9)[0]
    assert {file.name for file in (shards.path / "text").rglob("*")} == before


@pytest.mark.parametrize("name", ["xlm_e", "xy_lent"])
def test_preview_has_the_length_of_the_blocks(name: str, shards: Shards) -> None:
    recipe = get_recipe(name, "tiny").set(["trtd=off"])
    assert recipe.sampling.full_blocks
    [found] = objective_loads(make_batches(recipe, shards)).values()
    [expected] = preview_loads(recipe, shards, preview_text(recipe, shards), None).values()
    assert expected.length == pytest.approx(found.length)


def test_neighbouring_blocks_continue_each_other() -> None:
    shards = shards_of({"en": [[6, 5]] * 30})
    group = batches_of(shards, Reader(length=9), FULL).groups["task"][0]
    blocks = [group.example(index)[0].tolist() for index in range(len(group))]
    assert [*chain.from_iterable(blocks)] == shards.text["en"].tokens.tolist()
    assert all(len(one) == 8 for one, _ in pairwise(blocks))
