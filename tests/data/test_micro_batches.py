"""Splitting a step over micro-batches and processes loses no example and adds little padding."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.data import example_groups as module
from crossling.data.balanced_parts import count_micro_batches
from crossling.data.batches import Batches, StepWork
from crossling.data.shards import Shards
from crossling.objectives import CAMLM, CATLM, MLM, TLM, XLCo
from crossling.sampling import Sampling
from crossling.vocabulary.vocabulary import EOS, PAD

from .batch_helpers import DEFAULT, Reader, batches_of, bitext, is_same, scalars, sequences, shards_of, text_and_pairs


@given(st.floats(1, 10**7), st.integers(1, 10**6), st.integers(1, 3000), st.integers(1, 70), st.booleans())
def test_micro_batch_count_is_minimal_and_equal_in_all_processes(
    tokens: float, micro: int, units: int, processes: int, one_per_process: bool
) -> None:
    assume(units >= processes)
    found = count_micro_batches(tokens, micro, units, processes, one_per_process=one_per_process)
    assert found % processes == 0
    assert processes <= found <= units
    if one_per_process:
        assert found == processes
    elif found + processes <= units:  # not as many as there can be
        assert tokens / found <= micro * (1 + 1e-9)
        assert found == processes or tokens / (found - processes) > micro * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(2, 30), st.integers(2, 30)), min_size=1, max_size=20),
    micro=st.integers(1, 600),
    processes=st.sampled_from([1, 2, 3, 4]),
    inputs=st.sampled_from([("ids",), ("ids", "other")]),
    pairs=st.booleans(),
)
def test_micro_batches_of_all_processes_contain_the_same_examples(
    lengths: list[tuple[int, int]], micro: int, processes: int, inputs: tuple[str, ...], pairs: bool
) -> None:
    """Every example is in one micro-batch of one process, with all its values."""
    corpus = bitext(0, "en-sw", *map(list, zip(*lengths, strict=True)))
    shards, task = shards_of(bitexts=[corpus]), Reader("pairs", 61, 24, inputs=inputs, pairs=pairs)
    [whole] = in_world(shards, task, 10**9, 1)
    shared = in_world(shards, task, micro, processes)
    number = len(shared[0].micro_batches)
    assert len(whole.micro_batches) == 1
    assert [len(work.micro_batches) for work in shared] == [number] * processes
    # Micro-batch 0 of rank 0, micro-batch 0 of rank 1, ...
    one = StepWork([shared[rank].micro_batches[i] for i in range(number) for rank in range(processes)], {}, 0)
    sizes = [len(batch["row"]) for _, batch in one.micro_batches]
    assert max(sizes) - min(sizes) <= (2 if pairs else 1)
    assert not pairs or all(size % 2 == 0 for size in sizes)
    for name in inputs:
        assert in_order(one, sequences(one, name)) == in_order(whole, sequences(whole, name))
    if inputs == ("ids",):
        assert in_order(one, sequences(one, of="sand")) == in_order(whole, sequences(whole, of="sand"))
    for name in ("row", "noise", "position"):
        assert in_order(one, scalars(one, name)) == in_order(whole, scalars(whole, name))
    for term, expected in whole.counts.items():
        assert sum(work.counts[term] for work in shared) == expected
    assert sum(work.tokens for work in shared) == whole.tokens
    seeds = [seed for work in shared for seed in work.seeds]
    assert len({*seeds}) == len(seeds) == number * processes


def in_order(work: StepWork, values: list[Any]) -> list[Any]:
    """Return one value for each example, in the order of the global batch."""
    return [values[place] for place in np.argsort(scalars(work, "position"))]


def in_world(shards: Any, task: Reader, micro: int, processes: int) -> list[StepWork]:
    """Return the first step of every process."""
    return [
        Batches(shards, {"task": task}, DEFAULT, seed=0, micro_tokens=micro, rank=rank, world_size=processes)[0]
        for rank in range(processes)
    ]


def test_a_micro_batch_does_not_depend_on_the_rank(shards: Shards) -> None:
    """With equally many micro-batches, their content and dropout seeds are the same for any world size."""
    objectives = {"text": Reader(number=13), "pairs": Reader("pairs", 24, number=9)}
    worlds = {}
    for processes in (1, 2, 4):
        all_of_them = [
            Batches(shards, objectives, Sampling(), seed=7, micro_tokens=50, rank=r, world_size=processes)
            for r in range(processes)
        ]
        assert [batches.micro_batch_counts for batches in all_of_them] == [{"text": 4, "pairs": 4}] * processes
        works = [batches[3] for batches in all_of_them]
        worlds[processes] = {
            (name, processes * place + rank): (batch, seed)
            for rank, work in enumerate(works)
            for name in ("text", "pairs")
            for place, (batch, seed) in enumerate(
                (batch, seed)
                for (task, batch), seed in zip(work.micro_batches, work.seeds, strict=True)
                if task == name
            )
        }
    assert len(worlds[1]) == 8
    for world in (worlds[2], worlds[4]):
        assert world.keys() == worlds[1].keys()
        for key, (batch, seed) in worlds[1].items():
            assert seed == world[key][1]
            assert is_same(StepWork([("", batch)], {}, 0), StepWork([("", world[key][0])], {}, 0))


def test_a_process_reads_only_its_own_micro_batches(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Counter[int]()
    for kind in (module.TextGroup, module.PairGroup):

        def counted(self: Any, index: int, original: Any = kind.example) -> Any:
            read[rank] += 1
            return original(self, index)

        monkeypatch.setattr(kind, "example", counted)
    for rank in range(4):
        Batches(shards, text_and_pairs(), Sampling(), seed=7, micro_tokens=50, rank=rank, world_size=4)[0]
    assert sum(read.values()) == 29
    assert max(read.values()) <= 8


def test_fewer_examples_than_processes_are_an_error() -> None:
    shards = shards_of({"en": [4] * 9})
    Batches(shards, {"task": Reader(number=4)}, DEFAULT, seed=0, micro_tokens=10**9, rank=3, world_size=4)
    for task in (Reader(number=3), Reader(number=7, pairs=True)):
        with pytest.raises(BadInput, match=r"^task: 3 examples a step for 4 processes\. .* fewer processes\.$"):
            Batches(shards, {"task": task}, DEFAULT, seed=0, micro_tokens=10**9, rank=3, world_size=4)


def test_example_units_depend_on_the_sampled_groups() -> None:
    corpora = [bitext(i, "en-sw", [3] * 9, [3] * 9) for i in range(3)]
    task = Reader("pairs", number=60)
    work = batches_of(shards_of(bitexts=corpora), task)[0]
    found = {*zip(task.groups[-1].tolist(), (row >> 40 for row in scalars(work, "row")), strict=True)}
    assert len(found) == len({corpus for corpus, _ in found}) == 3


def test_micro_batches_are_as_large_as_allowed() -> None:
    shards = shards_of({"en": [7] * 40})
    work = batches_of(shards, Reader(length=8, number=40), micro=80)[0]
    assert [batch["ids"].shape for _, batch in work.micro_batches] == [(10, 8)] * 4


def test_all_tensors_of_a_step_are_pinned(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 0)
    work = Batches(shards, text_and_pairs(), Sampling(), seed=7, micro_tokens=128)[0]
    pinned = work.pin_memory()
    assert is_same(pinned, work)
    assert pinned.seeds == work.seeds
    assert all(pinned.micro_batches[0][1][name] is not values for name, values in work.micro_batches[0][1].items())


def test_each_input_has_its_own_rows(shards: Shards) -> None:
    task = Reader("pairs", length=61, number=40, inputs=("ids", "other"), has_in_batch_negatives=True)
    [(_, batch)] = Batches(shards, {"task": task}, Sampling(), seed=0, micro_tokens=1)[0].micro_batches
    assert batch["ids"].shape[1] == batch["other"].shape[1] == 64
    assert len(batch["ids_starts"]) == len(batch["other_starts"]) == len(batch["row"]) == 40


@pytest.mark.parametrize(("length", "width"), [(8, 8), (9, 16), (16, 16), (61, 64)])
def test_row_width_is_the_length_of_the_objective(length: int, width: int) -> None:
    [(_, batch)] = batches_of(shards_of({"en": [3] * 50}), Reader(length=length, number=9))[0].micro_batches
    assert batch["ids"].shape[1] == width


def test_tokens_are_counted_without_padding() -> None:
    work = batches_of(shards_of({"en": [4] * 5}), Reader(length=5, number=10), micro=1)[0]
    assert [batch["ids"].shape for _, batch in work.micro_batches] == [(1, 8)] * 10
    assert work.tokens == 10 * 5 == work.counts["filled"]


def log_normal(seed: int, number: int) -> list[int]:
    """Lengths as of real sentences: 28 tokens on average, some of 200."""
    return np.clip(np.random.default_rng(seed).lognormal(3.15, 0.6, number), 3, 300).astype(int).tolist()


def test_bitext_has_little_padding() -> None:
    corpus = bitext(0, "en-sw", log_normal(0, 6000), log_normal(1, 6000))
    batches = batches_of(shards_of(bitexts=[corpus]), Reader("pairs", 512, 2500), micro=1 << 14)
    for step in range(2):
        work = batches[step]
        shapes = [tuple(batch["ids"].shape) for _, batch in work.micro_batches]
        assert len(shapes) > 3
        assert all(28 <= rows <= 31 and width == 512 for rows, width in shapes)
        assert 1 - work.tokens / sum(rows * width for rows, width in shapes) < 0.035  # less than one row of 31


@pytest.mark.parametrize("inputs", [("ids",), ("ids", "other")])
@pytest.mark.parametrize("pairs", [False, True])
def test_processes_have_equally_many_tokens(inputs: tuple[str, ...], pairs: bool) -> None:
    corpora = [bitext(0, "en-sw", log_normal(0, 900), log_normal(1, 900)), bitext(1, "en-de", [9] * 900, [8] * 900)]
    task = Reader("pairs", 512, 2500, inputs=inputs, pairs=pairs)
    for micro in (1500, 10**9):  # several micro-batches in a process, and one
        tokens = [work.tokens for work in in_world(shards_of(bitexts=corpora), task, micro, 32)]
        assert max(tokens) / np.mean(tokens) < 1.02


@pytest.mark.parametrize("documents", [True, False])
def test_processes_have_equally_many_tokens_of_text(documents: bool) -> None:
    lengths = [log_normal(seed, 9) for seed in range(300)]
    shards, sampling = shards_of({"en": lengths}), Sampling(full_blocks=not documents)
    worlds = [
        Batches(
            shards,
            {"task": Reader(length=128, number=512)},
            sampling,
            seed=0,
            micro_tokens=10**9,
            rank=rank,
            world_size=16,
        )
        for rank in range(16)
    ]
    tokens = [batches[1].tokens for batches in worlds]
    assert max(tokens) / np.mean(tokens) < 1.005


def test_counts_of_all_objectives_are_summed(shards: Shards) -> None:
    work = Batches(shards, text_and_pairs(), Sampling(), seed=0, micro_tokens=10**9)[3]
    assert [name for name, _ in work.micro_batches] == ["text", "pairs"]
    assert work.counts["examples"] == 29
    assert work.counts["filled"] == work.tokens


def test_turning_off_an_objective_changes_no_other_data(shards: Shards) -> None:
    objectives = {
        "mlm": MLM(tokens=200, length=32),
        "tlm": TLM(tokens=200, length=32),
        "xlco": XLCo(pairs=4, length=32),
        "ca_mlm": CAMLM(tokens=200, length=32),
        "ca_tlm": CATLM(tokens=200, length=32),
    }
    together = Batches(shards, objectives, Sampling(), seed=5, micro_tokens=10_000)[3]
    for name, task in objectives.items():
        alone = Batches(shards, {name: task}, Sampling(), seed=5, micro_tokens=10_000)[3]
        [(_, expected)] = [(n, batch) for n, batch in together.micro_batches if n == name]
        [(_, found)] = alone.micro_batches
        assert all(torch.equal(found[field], expected[field]) for field in expected), name


def test_both_sides_of_a_pair_are_in_one_row() -> None:
    lengths = [*range(2, 31)]
    shards = shards_of(bitexts=[bitext(0, "en-sw", lengths, lengths[::-1])])
    task = CATLM(tokens=29 * 33, length=96)
    work = Batches(shards, {"ca_tlm": task}, Sampling(), seed=0, micro_tokens=700)[0]
    assert len(work.micro_batches) == 2
    for _, batch in work.micro_batches:
        rows = [{*row.tolist()} - {0} for row in batch["ids_segments"]]
        assert all(row == {each + side for each in row if each % 2 for side in (0, 1)} for row in rows)
        assert max(map(len, rows)) > 2  # several pairs


def test_batches_of_one_objective_are_those_of_the_step(shards: Shards) -> None:
    batches = Batches(shards, text_and_pairs(), Sampling(), seed=7, micro_tokens=128)
    for name in batches.objectives:
        expected = [batch for task, batch in batches[4].micro_batches if task == name]
        found = list(batches.objective_batches(name, 4))
        assert is_same(StepWork([(name, b) for b in found], {}, 0), StepWork([(name, b) for b in expected], {}, 0))


def test_joined_pairs_fit_for_any_sentence_length() -> None:
    """Mixup puts two sentences into a row that is long enough for both sides of one pair."""
    shards = shards_of(bitexts=[bitext(i, "en-sw", [99] * 9, [99] * 9) for i in range(2)])
    task = XLCo(pairs=4, queue=9, length=32, rate=0.0)
    [(_, batch)] = Batches(shards, {"xlco": task}, Sampling(), seed=0, micro_tokens=10**9)[0].micro_batches
    for side in ("query", "key"):
        assert batch[side].shape == (4, 32)
        assert all(ids.tolist().count(EOS) == 2 and (ids != PAD).sum() == 31 for ids in batch[side])
