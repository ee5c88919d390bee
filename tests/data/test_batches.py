"""Steps are a function of seed and step, and contain all objectives."""

from __future__ import annotations

import multiprocessing
import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from crossling.data import example_groups
from crossling.data.batches import Batches, StepWork, Stream
from crossling.data.shards import ArrayWriter, Shards, TokenizedBitext, TokenizedSentences
from crossling.objectives import CAMLM, CATLM, MLM, MRTD, TLM, TRTD, XLCo
from crossling.sampling import Sampling
from crossling.vocabulary.vocabulary import EOS

from .batch_helpers import Reader, batches_of, fake, is_same, scalars, sequences, shards_of, text_and_pairs


def test_steps_do_not_depend_on_their_order(shards: Shards) -> None:
    one, other, third = (Batches(shards, text_and_pairs(), Sampling(), seed=7, micro_tokens=128) for _ in range(3))
    in_turn = [one[step] for step in range(12)]
    order = [5, 3, 11, 0, 3, 10, 4, 1, 2, 9, 8, 7, 6, 5]
    assert all(is_same(other[step], in_turn[step]) for step in order)
    assert is_same(third[9], in_turn[9])  # without the steps before it


def test_far_steps_are_available_at_once(shards: Shards) -> None:
    far = 10**9
    one, other = (Batches(shards, text_and_pairs(), Sampling(), seed=7, micro_tokens=128) for _ in range(2))
    assert is_same(other[far + 1], [one[far], one[far + 1]][1])


def test_loader_workers_give_the_same_steps(shards: Shards) -> None:
    batches = Batches(shards, text_and_pairs(), Sampling(), seed=7, micro_tokens=128)
    loader = DataLoader(
        batches,
        batch_size=None,
        sampler=[4, 0, 3, 1],
        num_workers=1,
        multiprocessing_context=multiprocessing.get_context("fork"),
    )
    assert all(is_same(work, batches[step]) for step, work in zip([4, 0, 3, 1], loader, strict=True))


def test_pickled_batches_do_not_contain_the_data(shards: Shards) -> None:
    batches = Batches(shards, text_and_pairs(), Sampling(), seed=7, micro_tokens=128)
    work = batches[2]
    sent = pickle.dumps(batches)
    assert is_same(pickle.loads(sent)[2], work)
    text = batches.groups["text"][0]
    assert len(pickle.dumps(text)) < 1000


def test_steps_and_seeds_differ(shards: Shards) -> None:
    one, other = (Batches(shards, text_and_pairs(), Sampling(), seed=seed, micro_tokens=128) for seed in (1, 2))
    assert not is_same(one[0], one[1])
    assert not is_same(one[0], other[0])


@pytest.mark.parametrize("stream", ["text", "pairs"])
def test_objectives_of_one_order_read_the_same_examples(shards: Shards, stream: Stream) -> None:
    reader = Reader(stream=stream, number=20)
    objectives = {"one": reader, "two": reader, "three": replace(reader, example_order="another")}
    batches = Batches(shards, objectives, Sampling(), seed=0, micro_tokens=10**9)
    (_, one), (_, two), (_, three) = batches[3].micro_batches
    first, second, third = ([column.tolist() for column in batches.samplers[name][3]] for name in objectives)
    assert first == second != third
    assert torch.equal(one["row"], two["row"])
    assert not any(torch.equal(one["noise"], other["noise"]) for other in (two, three))


def test_recipes_are_compared_on_the_same_data() -> None:
    assert len({objective().example_order for objective in (MLM, MRTD, CAMLM)}) == 1
    assert len({objective().example_order for objective in (TLM, TRTD, CATLM)}) == 1
    assert len({objective().example_order for objective in (MLM, TLM, XLCo)}) == 3


@settings(max_examples=30, deadline=None)
@given(
    groups=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    number=st.integers(1, 9),
    seed=st.integers(0, 1000),
    order=st.permutations(range(8)),
)
def test_any_step_can_be_read_first(groups: list[int], number: int, seed: int, order: list[int]) -> None:
    shards = shards_of({f"l{i}": [4] * size for i, size in enumerate(groups)})
    in_turn, jumping = (batches_of(shards, Reader(length=5, number=number), seed=seed) for _ in range(2))
    expected = [in_turn[step] for step in range(8)]
    assert all(is_same(jumping[step], expected[step]) for step in order)


def test_random_numbers_never_repeat() -> None:
    batches = batches_of(shards_of({"en": [4] * 10}), Reader(length=5, number=10))
    works = [batches[step] for step in range(20)]
    assert len({value for work in works for value in scalars(work, "noise")}) == 200
    assert len({value for work in works for values in sequences(work, of="sand") for value in values}) == 1000


def test_mask_id_is_the_last_of_the_vocabulary() -> None:
    assert set(scalars(batches_of(shards_of({"en": [4] * 10}), Reader())[0], "mask")) == {9_000_000 - 1}


def test_alternating_streams_skip_no_example(shards: Shards) -> None:
    plain, in_turn = (
        Batches(shards, text_and_pairs(), Sampling(), seed=7, micro_tokens=128, alternate=alternate)
        for alternate in (False, True)
    )
    for step in range(4):
        text, pairs = in_turn[2 * step], in_turn[2 * step + 1]
        assert {name for name, _ in text.micro_batches} == {"text"}
        assert {name for name, _ in pairs.micro_batches} == {"pairs"}
        expected = plain[step]
        together = StepWork(
            [*text.micro_batches, *pairs.micro_batches],
            {name: text.counts[name] + pairs.counts[name] for name in text.counts},
            text.tokens + pairs.tokens,
        )
        assert is_same(together, expected)


@pytest.mark.parametrize("name", ["text", "pairs"])
def test_one_stream_alone_does_not_alternate(shards: Shards, name: str) -> None:
    task = {name: text_and_pairs()[name]}
    plain, in_turn = (
        Batches(shards, task, Sampling(), seed=7, micro_tokens=128, alternate=alternate) for alternate in (False, True)
    )
    assert all(is_same(in_turn[step], plain[step]) for step in range(4))


def saved(folder: Path, lengths: np.ndarray, documents: int = 0) -> TokenizedSentences:
    """On disk, as only what is read from there is not kept in memory."""
    folder.mkdir(parents=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    arrays = {"tokens": np.full(offsets[-1], EOS, dtype=np.uint16), "offsets": offsets}
    if documents:
        arrays["documents"] = np.arange(0, len(lengths) + 1, documents)
    for name, values in arrays.items():
        with ArrayWriter(folder / f"{name}.npy", values.dtype) as column:
            column.add(values)
    return TokenizedSentences.open(folder, documents=bool(documents))


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_groups, "CHUNK_SIZE", 256)

    def peak(name: str, rows: int) -> int:
        text = saved(tmp_path / name / "text", np.full(rows, 20), documents=10)
        sides = (
            saved(tmp_path / name / "en", np.where(np.arange(rows) % 3, 9, 0)),
            saved(tmp_path / name / "sw", np.where(np.arange(rows) % 5, 9, 0)),
        )
        pairs = int((sides[0].presence() & sides[1].presence()).sum())
        shards = fake(
            {"en": text}, [TokenizedBitext(corpus="set", languages=("en", "sw"), sides=sides, pairs=pairs, corpus_id=0)]
        )
        tracemalloc.start()
        objectives = {"text": Reader(length=64, number=100), "pairs": Reader("pairs", 64, 100)}
        batches = Batches(shards, objectives, Sampling(), seed=0, micro_tokens=10**9)
        for step in (0, 1, 50, 10**6):
            assert batches[step].tokens > 0
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak("first", 1000)  # what is set up once
    assert peak("long", 50_000) < 1.3 * peak("short", 5_000)
