"""A step's batches are a function of the step, draw every example in turn, and lose none on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.data.batches import Batch, Batches, Corrupted, Example, Work, blocks, collate, rates
from crossling.data.shards import Bitext, Sentences, Shards
from crossling.errors import BadInput
from crossling.objectives import MLM, TLM, XLCo
from crossling.sampling import Sampling
from crossling.vocabulary.vocabulary import BOS, EOS, PAD

DEFAULT = Sampling()


@dataclass(frozen=True)
class Reader:
    """A task that leaves its examples as they are; one random number shows the state of its generator."""

    stream: Literal["text", "pairs"] = "text"
    length: int = 16
    number: int = 8
    whole: bool = True
    inputs: tuple[str, ...] = ("ids",)
    expected: list[float] = field(default_factory=list, compare=False)

    def examples(self, expected_length: float) -> int:
        self.expected.append(expected_length)
        return self.number

    def corrupt(self, example: Example, rng: np.random.Generator, mask: int) -> Corrupted:
        ids = example.alone() if example.other is None else example.joined()
        found = {
            "ids": ids,
            "row": np.asarray(example.row),
            "noise": np.asarray(rng.random()),
            "mask": np.asarray(mask),
        }
        if example.other is not None and "other" in self.inputs:
            found |= {"ids": example.ids, "other": example.other}
        return found

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"examples": len(batch["row"]), "filled": int((batch["ids"] != PAD).sum())}


def side(lengths: Sequence[int], first: int) -> Sentences:
    """Sentences of these lengths (</s> included); no id comes twice."""
    ids = count(first)
    tokens = [EOS if i == length - 1 else next(ids) for length in lengths for i in range(length)]
    return Sentences(np.asarray(tokens, dtype=np.uint32), np.cumsum([0, *lengths]))


def shards_of(text: dict[str, Sequence[int]] | None = None, bitexts: Sequence[Bitext] = ()) -> Any:
    sides = {language: side(lengths, 1_000_000 * i + 10) for i, (language, lengths) in enumerate((text or {}).items())}
    manifest = {"text": {language: {"tokens": len(these.tokens)} for language, these in sides.items()}}
    return SimpleNamespace(
        path=Path("shards"), manifest=manifest, text=sides, bitexts=list(bitexts), vocabulary_size=9_000_000
    )


def bitext(number: int, languages: str, *lengths: Sequence[int], name: str | None = None) -> Bitext:
    sides = side(lengths[0], 1_000_000 * (2 * number + 1)), side(lengths[1], 1_000_000 * (2 * number + 2))
    pairs = int((sides[0].filled & sides[1].filled).sum())
    first, second = languages.split("-")
    return Bitext(name or f"corpus{number}", (first, second), sides, pairs, number)


def batches_of(shards: Any, task: Reader, sampling: Sampling = DEFAULT, seed: int = 0, micro: int = 10**9) -> Batches:
    return Batches(shards, {"task": task}, sampling, seed, micro)


def sequences(work: Work, name: str = "ids") -> list[tuple[int, ...]]:
    """The real tokens of every example, in order."""
    rows = [row for _, batch in work.micro for row in batch[name].tolist()]
    return [tuple(token for token in row if token != PAD) for row in rows]


def same(one: Work, other: Work) -> bool:
    return (
        one.counts == other.counts
        and one.tokens == other.tokens
        and [name for name, _ in one.micro] == [name for name, _ in other.micro]
        and all(
            a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
            for (_, a), (_, b) in zip(one.micro, other.micro, strict=True)
        )
    )


def real_tasks(shards: Shards) -> dict[str, Reader]:
    assert shards.text
    assert shards.bitexts
    return {"text": Reader(number=20, whole=False), "pairs": Reader("pairs", 24, number=9)}


# ---- a function of the step -------------------------------------------------------------------------------


def test_steps_are_the_same_in_any_order_and_any_object(shards: Shards) -> None:
    one, other, third = (Batches(shards, real_tasks(shards), Sampling(), 7, 128) for _ in range(3))
    in_turn = [one[step] for step in range(12)]
    order = [5, 3, 11, 0, 3, 10, 4, 1, 2, 9, 8, 7, 6, 5]
    assert all(same(other[step], in_turn[step]) for step in order)
    assert same(third[9], in_turn[9])  # without the steps before it


def test_steps_and_seeds_differ(shards: Shards) -> None:
    one, other = (Batches(shards, real_tasks(shards), Sampling(), seed, 128) for seed in (1, 2))
    assert not same(one[0], one[1])
    assert not same(one[0], other[0])


def test_tasks_on_the_same_stream_draw_apart(shards: Shards) -> None:
    work = Batches(shards, {"one": Reader(number=20), "two": Reader(number=20)}, Sampling(), 0, 10**9)[0]
    (_, one), (_, two) = work.micro
    assert not torch.equal(one["noise"], two["noise"])


@settings(max_examples=30, deadline=None)
@given(
    groups=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    number=st.integers(1, 9),
    seed=st.integers(0, 1000),
    order=st.permutations(range(8)),
)
def test_any_step_can_come_first(groups: list[int], number: int, seed: int, order: list[int]) -> None:
    shards = shards_of({f"l{i}": [4] * size for i, size in enumerate(groups)})
    in_turn, jumping = (batches_of(shards, Reader(length=5, number=number), seed=seed) for _ in range(2))
    expected = [in_turn[step] for step in range(8)]
    assert all(same(jumping[step], expected[step]) for step in order)


def test_noise_is_never_the_same_twice() -> None:
    batches = batches_of(shards_of({"en": [4] * 10}), Reader(length=5, number=10))
    drawn = [value for step in range(20) for value in batches[step].micro[0][1]["noise"].tolist()]
    assert len(set(drawn)) == 200


def test_mask_id_is_the_last() -> None:
    [(_, batch)] = batches_of(shards_of({"en": [4] * 10}), Reader()).__getitem__(0).micro
    assert set(batch["mask"].tolist()) == {9_000_000 - 1}


# ---- every example in turn ----------------------------------------------------------------------------------


def in_epochs(drawn: list[Any], everything: set[Any]) -> bool:
    """Whether each example comes once before any comes again."""
    size = len(everything)
    epochs = [drawn[start : start + size] for start in range(0, len(drawn), size)]
    return all(len(set(epoch)) == len(epoch) and set(epoch) <= everything for epoch in epochs)


@settings(max_examples=40, deadline=None)
@given(
    groups=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    number=st.integers(1, 30),
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 12),
    alpha=st.floats(0, 1),
)
def test_every_block_once_before_any_again(groups: list[int], number: int, seed: int, steps: int, alpha: float) -> None:
    shards = shards_of({f"l{i}": [4] * size for i, size in enumerate(groups)})
    batches = batches_of(shards, Reader(length=5, number=number), Sampling(text_alpha=alpha), seed)
    drawn = [ids for step in range(steps) for ids in sequences(batches[step])]
    assert len(drawn) == number * steps
    found = 0
    for sentences in shards.text.values():
        everything = {(BOS, *sentences[i].tolist()) for i in range(len(sentences))}
        of_group = [ids for ids in drawn if ids in everything]
        found += len(of_group)
        assert in_epochs(of_group, everything)
    assert found == len(drawn)


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 15), number=st.integers(1, 20), seed=st.integers(0, 100))
def test_every_pair_once_before_any_again(size: int, number: int, seed: int) -> None:
    corpus = bitext(0, "en-sw", [3, 0, 3] * size, [3, 3, 0] * size)  # only rows 0, 3, 6, ... have both sides
    batches = batches_of(shards_of(bitexts=[corpus]), Reader("pairs", number=number), seed=seed)
    drawn = [row for step in range(5) for row in batches[step].micro[0][1]["row"].tolist()]
    assert in_epochs(drawn, set(range(0, 3 * size, 3)))


def test_order_is_new_in_every_epoch() -> None:
    batches = batches_of(shards_of({"en": [4] * 60}), Reader(length=5, number=60))
    first, second = sequences(batches[0]), sequences(batches[1])
    assert sorted(first) == sorted(second)
    assert first != second
    assert first != sorted(first)


def test_languages_of_one_size_have_orders_of_their_own() -> None:
    shards = shards_of({"en": [4] * 60, "sw": [4] * 60})
    first = {name: int(sentences.tokens[0]) for name, sentences in shards.text.items()}
    drawn = sequences(batches_of(shards, Reader(length=5, number=80))[0])
    places = {
        name: [ids[1] - start for ids in drawn if 0 <= ids[1] - start < 500_000][:20] for name, start in first.items()
    }
    assert len(places["en"]) == len(places["sw"]) == 20
    assert places["en"] != places["sw"]


# ---- how often ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "parts"), [(1.0, (16, 4, 1)), (0.5, (4, 2, 1)), (0.0, (1, 1, 1))])
def test_languages_are_drawn_at_their_rates(alpha: float, parts: tuple[int, ...]) -> None:
    shards = shards_of({"de": [4] * 160, "en": [4] * 40, "sw": [4] * 10})
    sampling = Sampling(text_alpha=alpha)
    expected = np.array(parts) / sum(parts)
    assert list(rates(shards, "text", sampling).values()) == pytest.approx(expected)
    batches = batches_of(shards, Reader(length=5, number=500), sampling)
    language_of = {int(s.tokens[s.offsets[i]]): name for name, s in shards.text.items() for i in range(len(s))}
    drawn = Counter(language_of[ids[1]] for step in range(10) for ids in sequences(batches[step]))
    found = np.array([drawn[name] for name in shards.text])
    assert np.all(np.abs(found - 5000 * expected) < 4 * np.sqrt(5000 * expected * (1 - expected)))


def test_pairs_are_tempered_by_language_pair_and_corpora_follow_their_size() -> None:
    corpora = [
        bitext(0, "en-sw", [3] * 60, [3] * 60),
        bitext(1, "sw-en", [3] * 30, [3] * 30),  # the same languages the other way round
        bitext(2, "de-en", [3] * 10, [3] * 10),
    ]
    found = rates(shards_of(bitexts=corpora), "pairs", Sampling(pair_alpha=0.5))
    assert found == pytest.approx({"corpus0 en-sw": 0.75 * 2 / 3, "corpus1 sw-en": 0.75 / 3, "corpus2 de-en": 0.25})
    batches = batches_of(shards_of(bitexts=corpora), Reader("pairs", number=4000), Sampling(pair_alpha=0.5))
    drawn = Counter((batches[0].micro[0][1]["row"] >> 40).tolist())
    assert [drawn[number] / 4000 for number in range(3)] == pytest.approx([0.5, 0.25, 0.25], abs=0.03)


def test_pivot_keeps_only_pairs_with_it(shards: Shards) -> None:
    languages = [bitext.languages for bitext in shards.bitexts]
    pivot = Counter(language for pair in languages for language in pair).most_common()[-1][0]
    found = rates(shards, "pairs", Sampling(pivot=pivot))
    assert len(found) == sum(pivot in pair for pair in languages) < len(languages)
    assert all(pivot in name.split()[-1].split("-") for name in found)
    assert sum(found.values()) == pytest.approx(1)


def test_pivot_is_what_is_drawn() -> None:
    corpora = [bitext(i, pair, [3] * 9, [3] * 9) for i, pair in enumerate(["de-en", "de-sw", "en-sw"])]
    batches = batches_of(shards_of(bitexts=corpora), Reader("pairs", number=200), Sampling(pivot="en"))
    assert set((batches[0].micro[0][1]["row"] >> 40).tolist()) == {0, 2}


def test_pivot_leaves_text_alone() -> None:
    assert set(rates(shards_of({"de": [4], "en": [4]}), "text", Sampling(pivot="en"))) == {"de", "en"}


def test_corpora_without_a_pair_are_never_drawn() -> None:
    corpora = [bitext(0, "en-sw", [3] * 4, [3] * 4), bitext(1, "en-sw", [3], [0]), bitext(2, "de-en", [0], [3])]
    batches = batches_of(shards_of(bitexts=corpora), Reader("pairs", number=100))
    assert set((batches[0].micro[0][1]["row"] >> 40).tolist()) == {0}


@pytest.mark.parametrize(
    ("shards", "task", "pivot", "wanted"),
    [
        (shards_of(bitexts=[bitext(0, "en-sw", [3], [3])]), Reader("text"), "de", "text"),
        (shards_of({"en": [0]}), Reader("text"), None, "text"),
        (shards_of({"en": [4]}), Reader("pairs"), None, "translation pairs"),
        (shards_of(bitexts=[bitext(0, "en-sw", [3], [0])]), Reader("pairs"), None, "translation pairs"),
        (shards_of(bitexts=[bitext(0, "en-sw", [3], [3])]), Reader("pairs"), "de", "translation pairs with de"),
    ],
)
def test_shards_without_what_is_needed(shards: Any, task: Reader, pivot: str | None, wanted: str) -> None:
    with pytest.raises(BadInput, match=f"^shards: the recipe needs {wanted} and these shards have none$"):
        batches_of(shards, task, Sampling(pivot=pivot))


# ---- blocks of text -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 50))
def test_blocks_hold_everything_once_in_order(lengths: list[int], capacity: int) -> None:
    offsets = np.cumsum([0, *lengths])
    starts = blocks(offsets, capacity)
    assert starts[0] == 0
    assert starts[-1] == offsets[-1]
    sizes = np.diff(starts)
    assert np.all(sizes > 0)
    assert np.all(sizes <= capacity)
    ends = set(offsets.tolist())
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        nearest = min(offset for offset in ends if offset > start)
        if end not in ends:  # broken inside a sentence: only one that would not fit, and then the block is full
            assert nearest - start > capacity
            assert end - start == capacity
        else:  # no sentence more would have fitted
            following = [offset for offset in ends if offset > end]
            assert not following or min(following) - start > capacity


def test_blocks_of_nothing() -> None:
    assert blocks(np.array([0]), 8).tolist() == [0]
    assert blocks(np.array([0, 0, 0]), 8).tolist() == [0]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 30), min_size=1, max_size=30), st.integers(4, 20))
def test_text_of_an_epoch_is_the_whole_text(lengths: list[int], length: int) -> None:
    shards = shards_of({"en": lengths})
    number = len(blocks(shards.text["en"].offsets, length - 1)) - 1
    task = Reader(length=length, number=number)
    [(_, batch)] = batches_of(shards, task)[0].micro
    found = sequences(Work([("task", batch)], {}, 0))
    assert all(ids[0] == BOS and BOS not in ids[1:] and 2 <= len(ids) <= length for ids in found)
    assert Counter(i for ids in found for i in ids[1:]) == Counter(shards.text["en"].tokens.tolist())
    assert task.expected == [pytest.approx(np.mean([len(ids) for ids in found]))]


# ---- pairs -------------------------------------------------------------------------------------------------


def test_pairs_are_joined_in_either_order() -> None:
    corpus = bitext(0, "en-sw", [4] * 400, [5] * 400)
    batches = batches_of(shards_of(bitexts=[corpus]), Reader("pairs", length=20, number=400))
    [(_, batch)] = batches[0].micro
    flipped = 0
    for ids, row in zip(sequences(batches[0]), batch["row"].tolist(), strict=True):
        source, target = (these[row].tolist() for these in corpus.sides)
        plain, turned = (BOS, *source, *target), (BOS, *target, *source)
        assert ids in (plain, turned)
        assert ids.count(EOS) == 2
        flipped += ids == turned
    assert 160 < flipped < 240


def test_order_of_a_pair_is_not_the_same_for_ever() -> None:
    batches = batches_of(shards_of(bitexts=[bitext(0, "en-sw", [3], [4])]), Reader("pairs", number=1))
    assert len({sequences(batches[step])[0] for step in range(30)}) == 2


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(8, 40))
def test_long_pairs_are_cut_and_closed(source: int, target: int, length: int) -> None:
    corpus = bitext(0, "en-sw", [source], [target])
    task = Reader("pairs", length=length, number=1, inputs=("ids", "other"))
    work = batches_of(shards_of(bitexts=[corpus]), task)[0]
    [one], [other] = sequences(work), sequences(work, "other")
    assert 1 + len(one) + len(other) <= length
    whole = [tuple(these[0].tolist()) for these in corpus.sides]
    most = (length - 1) // 2
    for ids in (one, other):
        assert ids[-1] == EOS
        assert EOS not in ids[:-1]
        original = next(these for these in whole if these[0] == ids[0])
        assert ids == (original if len(original) <= most else (*original[: most - 1], EOS))
    assert work.tokens == len(one) + len(other)


def test_expected_length_counts_cut_pairs() -> None:
    task = Reader("pairs", length=21)
    batches_of(shards_of(bitexts=[bitext(0, "en-sw", [4, 30], [6, 8])]), task)
    assert task.expected == [1 + (4 + 10) / 2 + (6 + 8) / 2]


def test_rows_of_a_multi_way_set_are_shared_and_no_others(shards: Shards) -> None:
    batches = batches_of(shards, Reader("pairs", length=512, number=400, inputs=("ids", "other")))
    translations: dict[int, set[tuple[int, ...]]] = {}
    for bitext in shards.bitexts:
        for row in bitext.rows.tolist():
            found = translations.setdefault((bitext.number << 40) + row, set())
            found |= {tuple(side[row].tolist()) for side in bitext.sides}
    drawn: dict[int, set[tuple[int, ...]]] = {}
    for step in range(3):
        work = batches[step]
        rows = work.micro[0][1]["row"].tolist()
        for row, *sides in zip(rows, sequences(work), sequences(work, "other"), strict=True):
            assert set(sides) <= translations[row]
            drawn.setdefault(row, set()).update(sides)
    assert max(map(len, drawn.values())) > 2  # some row was met in more than one pair of languages


def test_rows_of_different_corpora_differ() -> None:
    one = bitext(0, "en-sw", [3] * 5, [3] * 5)
    set_of_three = [bitext(1, pair, [3] * 5, [3] * 5, name="set") for pair in ("de-en", "de-sw", "en-sw")]
    batches = batches_of(shards_of(bitexts=[one, *set_of_three]), Reader("pairs", number=300))
    found = Counter(batches[0].micro[0][1]["row"].tolist())
    assert set(found) == {*range(5), *((1 << 40) + row for row in range(5))}


def test_text_has_no_row() -> None:
    [(_, batch)] = batches_of(shards_of({"en": [4]}), Reader())[0].micro
    assert set(batch["row"].tolist()) == {-1}


# ---- padding and micro-batches ---------------------------------------------------------------------------


@given(st.lists(st.integers(0, 30), min_size=1, max_size=10))
def test_padding_fills_up_to_a_multiple_of_eight(lengths: list[int]) -> None:
    examples: list[Corrupted] = [
        {
            "ids": np.full(n, 7, dtype=np.int64),
            "marks": np.ones(n, dtype=np.bool_),
            "weights": np.full(n, 0.5, dtype=np.float32),
            "row": np.asarray(n),
        }
        for n in lengths
    ]
    batch = collate(examples)
    width = batch["ids"].shape[1]
    assert width % 8 == 0
    assert max(lengths) <= width < max(lengths) + 8
    assert batch["row"].tolist() == lengths
    assert [batch[name].dtype for name in examples[0]] == [torch.int64, torch.bool, torch.float32, torch.int64]
    for row, n in enumerate(lengths):
        assert batch["ids"][row].tolist() == [7] * n + [PAD] * (width - n)
        assert batch["marks"][row].tolist() == [True] * n + [False] * (width - n)
        assert batch["weights"][row].tolist() == [0.5] * n + [0.0] * (width - n)


def test_sequences_of_a_batch_are_as_wide_as_they_need_to_be() -> None:
    batch = collate([{"a": np.ones(3, dtype=np.int64), "b": np.ones(17, dtype=np.int64)}])
    assert (batch["a"].shape[1], batch["b"].shape[1]) == (8, 24)


def contents(work: Work, names: Sequence[str]) -> Counter[Any]:
    """Every example with all that belongs to it."""
    columns = [sequences(work, name) for name in names]
    numbers = [[value for _, batch in work.micro for value in batch[name].tolist()] for name in ("row", "noise")]
    return Counter(zip(*columns, *numbers, strict=True))


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(2, 30), st.integers(2, 30)), min_size=1, max_size=20),
    micro=st.integers(1, 400),
    two=st.booleans(),
)
def test_splitting_changes_nothing_but_the_split(lengths: list[tuple[int, int]], micro: int, two: bool) -> None:
    corpus = bitext(0, "en-sw", *map(list, zip(*lengths, strict=True)))
    names = ("ids", "other") if two else ("ids",)
    task = Reader("pairs", length=61, number=24, inputs=names)
    whole = batches_of(shards_of(bitexts=[corpus]), task, micro=micro)[0]
    split = batches_of(shards_of(bitexts=[corpus]), Reader("pairs", 61, 24, False, names), micro=micro)[0]
    assert len(whole.micro) == 1
    assert contents(split, names) == contents(whole, names)
    assert split.counts == whole.counts
    assert split.counts["examples"] == 24
    assert split.tokens == whole.tokens == sum(len(ids) for name in names for ids in sequences(whole, name))
    sizes = [[batch[name].shape for name in names] for _, batch in split.micro]
    for shapes in sizes:
        assert shapes[0][0] == 1 or sum(rows * width for rows, width in shapes) <= micro


def test_micro_batches_are_no_smaller_than_need_be() -> None:
    shards = shards_of({"en": [7] * 40})
    work = batches_of(shards, Reader(length=8, number=40, whole=False), micro=80)[0]
    assert [batch["ids"].shape for _, batch in work.micro] == [(10, 8)] * 4


def test_tokens_are_real_ones() -> None:
    shards = shards_of({"en": [3] * 5})
    work = batches_of(shards, Reader(length=4, number=10), micro=1)[0]
    assert work.micro[0][1]["ids"].shape == (10, 8)
    assert work.tokens == 10 * 4 == work.counts["filled"]


def test_tasks_of_a_step_are_added_up(shards: Shards) -> None:
    tasks = real_tasks(shards)
    work = Batches(shards, tasks, Sampling(), 0, 10**9)[3]
    assert [name for name, _ in work.micro] == ["text", "pairs"]
    assert work.counts["examples"] == 29
    assert work.counts["filled"] == work.tokens


def test_turning_a_task_off_leaves_the_data_of_the_others_as_they_are(shards: Shards) -> None:
    tasks = {"mlm": MLM(tokens=200, length=32), "tlm": TLM(tokens=200, length=32), "xlco": XLCo(pairs=4, length=32)}
    together = Batches(shards, tasks, Sampling(), seed=5, micro_tokens=10_000)[3]
    for name, task in tasks.items():
        alone = Batches(shards, {name: task}, Sampling(), seed=5, micro_tokens=10_000)[3]
        [(_, expected)] = [(n, batch) for n, batch in together.micro if n == name]
        [(_, found)] = alone.micro
        assert all(torch.equal(found[field], expected[field]) for field in expected), name
