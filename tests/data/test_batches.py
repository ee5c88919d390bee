"""A step's batches are a function of the step, draw every example in turn, and lose none on the way."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from crossling.data import batches as module
from crossling.data import blocks as blocks_module
from crossling.data.batches import Batches, Corrupted, Examples, Work, parts
from crossling.data.blocks import blocks
from crossling.data.column import Column
from crossling.data.noise import Noise
from crossling.data.packing import Batch, Sequences
from crossling.data.shards import Bitext, Sentences, Shards
from crossling.errors import BadInput
from crossling.objectives import CAMLM, CATLM, MLM, MRTD, TLM, TRTD, XLCo
from crossling.sampling import Sampling
from crossling.vocabulary.vocabulary import BOS, EOS, PAD

DEFAULT = Sampling()


@dataclass(frozen=True)
class Reader:
    """A task that leaves its examples as they are, and hands the random numbers on that it is given."""

    stream: Literal["text", "pairs"] = "text"
    length: int = 16
    number: int = 8
    whole: bool = False
    pairs: bool = False  # two examples stay together: the first half and the second
    inputs: tuple[str, ...] = ("ids",)
    paired: bool = False
    order: str = "read"
    expected: list[float] = field(default_factory=list, compare=False)
    groups: list[np.ndarray] = field(default_factory=list, compare=False)

    def examples(self, expected_length: float) -> int:
        self.expected.append(expected_length)
        return self.number

    def units(self, group_N: np.ndarray, noise: Noise) -> np.ndarray:
        self.groups.append(group_N)
        assert len(noise.seed_N) == len(group_N)
        order = np.arange(len(group_N) // 2 * 2 if self.pairs else len(group_N))
        return order.reshape(2, -1).T if self.pairs else order[:, None]

    def corrupt(self, examples: Examples, noise: Noise, mask: int) -> Corrupted:
        number = len(examples.ids)
        ids = examples.joined() if examples.others else examples.alone()
        inputs = {"ids": Sequences(ids.lengths_N, ids.tokens | {"sand": noise.tokens("sand", ids.numbers, ids.places)})}
        if "other" in self.inputs:
            inputs = {"ids": flat("ids", examples.ids), "other": flat("other", examples.others)}
        rows = np.full(number, -1) if examples.row_N is None else examples.row_N
        each = {"row": rows, "noise": noise.each("test"), "mask": np.full(number, mask)}
        return Corrupted(inputs, each, self.paired)

    def counts(self, batch: Batch) -> dict[str, int]:
        segments = batch["ids_segments"]
        return {"examples": len(segments[segments > 0].unique()), "filled": int((batch["ids"] != PAD).sum())}


def flat(name: str, arrays: Sequence[np.ndarray]) -> Sequences:
    return Sequences(np.array(list(map(len, arrays))), {name: np.concatenate(arrays).astype(np.int64)})


Lengths = Sequence[int] | Sequence[Sequence[int]]  # of sentences, in documents or not


def side(lengths: Lengths, first: int) -> Sentences:
    """Sentences of these lengths (</s> included); no id comes twice."""
    documents = [[item] if isinstance(item, int) else [*item] for item in lengths]
    ends = None if all(isinstance(item, int) for item in lengths) else np.cumsum([0, *map(len, documents)])
    flat = [length for document in documents for length in document]
    ids = count(first)
    tokens = [EOS if i == length - 1 else next(ids) for length in flat for i in range(length)]
    return Sentences(np.asarray(tokens, dtype=np.uint32), np.cumsum([0, *flat]), ends)


def shards_of(text: dict[str, Lengths] | None = None, bitexts: Sequence[Bitext] = ()) -> Any:
    sides = {language: side(lengths, 1_000_000 * i + 10) for i, (language, lengths) in enumerate((text or {}).items())}
    return fake(sides, bitexts)


def fake(text: dict[str, Sentences], bitexts: Sequence[Bitext]) -> Any:
    manifest = {"text": {language: {"tokens": len(these.tokens)} for language, these in text.items()}}
    return SimpleNamespace(
        path=Path("shards"), manifest=manifest, text=text, bitexts=list(bitexts), vocabulary_size=9_000_000
    )


def bitext(number: int, languages: str, *lengths: Sequence[int], name: str | None = None) -> Bitext:
    sides = side(lengths[0], 1_000_000 * (2 * number + 1)), side(lengths[1], 1_000_000 * (2 * number + 2))
    pairs = int((sides[0].filled() & sides[1].filled()).sum())
    first, second = languages.split("-")
    return Bitext(name or f"corpus{number}", (first, second), sides, pairs, number)


def batches_of(shards: Any, task: Reader, sampling: Sampling = DEFAULT, seed: int = 0, micro: int = 10**9) -> Batches:
    return Batches(shards, {"task": task}, sampling, seed, micro)


def sequences(work: Work, name: str = "ids", of: str = "") -> list[tuple[Any, ...]]:
    """The tokens of every example of a task, in order, or what lies where they lie."""
    found: dict[int, tuple[Any, ...]] = {}
    before = 0  # sequences are numbered anew in each micro-batch
    for _, batch in work.micro:
        tokens, segments = batch[of or name].flatten(), batch[f"{name}_segments"].flatten()
        assert set(tokens[segments == 0].tolist()) <= {0 if of else PAD}
        numbers, lengths = segments.unique_consecutive(return_counts=True)
        ends = lengths.cumsum(0)
        for number, start, end in zip(numbers.tolist(), (ends - lengths).tolist(), ends.tolist(), strict=True):
            if number:
                assert before + number not in found  # in one piece
                assert start // batch[name].shape[1] == (end - 1) // batch[name].shape[1]
                assert f"{name}_starts" not in batch or batch[f"{name}_starts"][number - 1] == start
                found[before + number] = tuple(tokens[start:end].tolist())
        before += int(numbers.max())
    assert sorted(found) == [*range(1, len(found) + 1)]
    return [found[number] for number in sorted(found)]


def scalars(work: Work, name: str) -> list[Any]:
    """What is one number for each example, in order."""
    return [value for _, batch in work.micro for value in batch[name].tolist()]


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


@pytest.fixture(scope="module")
def shards(made: Shards, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Real ones of our own, as blocks are kept beside the tokens."""
    return Shards.open(shutil.copytree(made.path, tmp_path_factory.mktemp("batches") / "shards"))


def real_tasks() -> dict[str, Reader]:
    return {"text": Reader(number=20), "pairs": Reader("pairs", 24, number=9)}


# ---- a function of the step -------------------------------------------------------------------------------


def test_steps_are_the_same_in_any_order_and_any_object(shards: Shards) -> None:
    one, other, third = (Batches(shards, real_tasks(), Sampling(), 7, 128) for _ in range(3))
    in_turn = [one[step] for step in range(12)]
    order = [5, 3, 11, 0, 3, 10, 4, 1, 2, 9, 8, 7, 6, 5]
    assert all(same(other[step], in_turn[step]) for step in order)
    assert same(third[9], in_turn[9])  # without the steps before it


def test_far_steps_can_be_had_at_once(shards: Shards) -> None:
    far = 10**9
    one, other = (Batches(shards, real_tasks(), Sampling(), 7, 128) for _ in range(2))
    assert same(other[far + 1], [one[far], one[far + 1]][1])


def test_steps_are_the_same_in_other_processes(shards: Shards) -> None:
    batches = Batches(shards, real_tasks(), Sampling(), 7, 128)
    loader = DataLoader(
        batches,
        batch_size=None,
        sampler=[4, 0, 3, 1],
        num_workers=1,
        multiprocessing_context=multiprocessing.get_context("fork"),
    )
    assert all(same(work, batches[step]) for step, work in zip([4, 0, 3, 1], loader, strict=True))


def test_batches_travel_to_other_processes_without_their_data(shards: Shards) -> None:
    batches = Batches(shards, real_tasks(), Sampling(), 7, 128)
    work = batches[2]
    sent = pickle.dumps(batches)
    assert same(pickle.loads(sent)[2], work)
    text = batches.groups["text"][0]
    assert len(pickle.dumps(text)) < 1000


def test_steps_and_seeds_differ(shards: Shards) -> None:
    one, other = (Batches(shards, real_tasks(), Sampling(), seed, 128) for seed in (1, 2))
    assert not same(one[0], one[1])
    assert not same(one[0], other[0])


@pytest.mark.parametrize("stream", ["text", "pairs"])
def test_tasks_of_one_order_read_the_same_examples_and_others_do_not(
    shards: Shards, stream: Literal["text", "pairs"]
) -> None:
    reader = Reader(stream=stream, number=20)
    tasks = {"one": reader, "two": reader, "three": replace(reader, order="another")}
    batches = Batches(shards, tasks, Sampling(), 0, 10**9)
    (_, one), (_, two), (_, three) = batches[3].micro
    first, second, third = ([column.tolist() for column in batches.draws[name][3]] for name in tasks)
    assert first == second != third
    assert torch.equal(one["row"], two["row"])
    assert not any(torch.equal(one["noise"], other["noise"]) for other in (two, three))


def test_recipes_are_compared_on_the_same_data() -> None:
    assert len({task().order for task in (MLM, MRTD, CAMLM)}) == 1
    assert len({task().order for task in (TLM, TRTD, CATLM)}) == 1
    assert len({task().order for task in (MLM, TLM, XLCo)}) == 3


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
    works = [batches[step] for step in range(20)]
    assert len({value for work in works for value in scalars(work, "noise")}) == 200
    assert len({value for work in works for values in sequences(work, of="sand") for value in values}) == 1000


def test_mask_id_is_the_last() -> None:
    assert set(scalars(batches_of(shards_of({"en": [4] * 10}), Reader())[0], "mask")) == {9_000_000 - 1}


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
    drawn = [row for step in range(5) for row in scalars(batches[step], "row")]
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
    batches = batches_of(shards, Reader(length=5, number=500), Sampling(text_alpha=alpha))
    language_of = {int(s.tokens[s.offsets[i]]): name for name, s in shards.text.items() for i in range(len(s))}
    drawn = Counter(language_of[ids[1]] for step in range(10) for ids in sequences(batches[step]))
    expected = 5000 * np.array(parts) / sum(parts)
    assert [drawn[name] for name in shards.text] == pytest.approx(expected, abs=15)


def test_rates_of_text_are_of_tokens_whatever_the_documents() -> None:
    """At exponent 1 every language is seen equally often, also where blocks are short for want of longer documents."""
    shards = shards_of({"en": [[15] * 400], "sw": [[4]] * 1500})
    batches = batches_of(shards, Reader(length=31, number=200), Sampling(text_alpha=1.0))
    first = {name: int(sentences.tokens[0]) for name, sentences in shards.text.items()}
    seen = Counter(
        max((name for name in first if first[name] <= token), key=lambda name: first[name])
        for step in range(10)
        for ids in sequences(batches[step])
        for token in ids
        if token not in (BOS, EOS)
    )
    assert seen["en"] / seen["sw"] == pytest.approx((14 * 400) / (3 * 1500), rel=0.05)


@pytest.mark.parametrize(("number", "length"), [(1 << 21, 16), (8, 1 << 17)])
def test_more_than_can_be_drawn_is_one_sentence(number: int, length: int) -> None:
    with pytest.raises(
        BadInput, match=r"^task asks for .* sequences of up to .* set task.tokens or task.length lower$"
    ):
        batches_of(shards_of({"en": [4] * 5}), Reader(length=length, number=number))


def test_corpora_of_a_language_pair_are_drawn_by_their_size() -> None:
    corpora = [
        bitext(0, "en-sw", [3] * 60, [3] * 60),
        bitext(1, "sw-en", [3] * 30, [3] * 30),  # the same languages the other way round
        bitext(2, "de-en", [3] * 10, [3] * 10),
    ]
    batches = batches_of(shards_of(bitexts=corpora), Reader("pairs", number=4000), Sampling(pair_alpha=0.5))
    drawn = Counter(row >> 40 for row in scalars(batches[0], "row"))
    assert [drawn[number] / 4000 for number in range(3)] == pytest.approx([0.5, 0.25, 0.25], abs=0.01)


def test_pivot_is_what_is_drawn() -> None:
    corpora = [bitext(i, pair, [3] * 9, [3] * 9) for i, pair in enumerate(["de-en", "de-sw", "en-sw"])]
    batches = batches_of(shards_of(bitexts=corpora), Reader("pairs", number=200), Sampling(pivot="en"))
    assert {row >> 40 for row in scalars(batches[0], "row")} == {0, 2}


def test_corpora_without_a_pair_are_never_drawn() -> None:
    corpora = [bitext(0, "en-sw", [3] * 4, [3] * 4), bitext(1, "en-sw", [3], [0]), bitext(2, "de-en", [0], [3])]
    batches = batches_of(shards_of(bitexts=corpora), Reader("pairs", number=100))
    assert {row >> 40 for row in scalars(batches[0], "row")} == {0}


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


@settings(max_examples=40, deadline=None)
@given(
    documents=st.lists(st.lists(st.integers(2, 30), min_size=1, max_size=10), min_size=1, max_size=6),
    length=st.integers(4, 20),
)
def test_text_of_an_epoch_is_the_whole_text(documents: list[list[int]], length: int) -> None:
    shards = shards_of({"en": documents})
    text = shards.text["en"]
    number = len(blocks(text, length - 1)) - 1
    task = Reader(length=length, number=number)
    found = sequences(batches_of(shards, task)[0])
    assert all(ids[0] == BOS and BOS not in ids[1:] and 2 <= len(ids) <= length for ids in found)
    assert Counter(i for ids in found for i in ids[1:]) == Counter(text.tokens.tolist())
    assert task.expected == [pytest.approx(np.mean([len(ids) for ids in found]))]
    borders = text.offsets[text.documents].tolist()
    of_documents = [text.tokens[start:end].tolist() for start, end in pairwise(borders)]
    # A block is a run of tokens of one document.
    assert all(any(run_of(ids[1:], document) for document in of_documents) for ids in found)


def run_of(ids: tuple[int, ...], document: list[int]) -> bool:
    places = [place for place, token in enumerate(document) if token == ids[0]]
    return any(tuple(document[place : place + len(ids)]) == ids for place in places)


def test_a_text_drawn_again_comes_from_the_blocks_that_were_kept(shards: Shards) -> None:
    first = Batches(shards, {"text": Reader(length=13)}, Sampling(), 0, 10**9)
    file = shards.path / "text" / "en" / "blocks-12.npy"
    before = file.stat().st_mtime_ns
    again = Batches(Shards.open(shards.path), {"text": Reader(length=13)}, Sampling(), 0, 10**9)
    assert same(first[3], again[3])
    assert file.stat().st_mtime_ns == before


# ---- pairs -------------------------------------------------------------------------------------------------


def test_pairs_are_joined_in_either_order() -> None:
    corpus = bitext(0, "en-sw", [4] * 2000, [5] * 2000)
    work = batches_of(shards_of(bitexts=[corpus]), Reader("pairs", length=20, number=2000))[0]
    flipped = 0
    for ids, row in zip(sequences(work), scalars(work, "row"), strict=True):
        source, target = (these[row].tolist() for these in corpus.sides)
        plain, turned = (BOS, *source, *target), (BOS, *target, *source)
        assert ids in (plain, turned)
        assert ids.count(EOS) == 2
        flipped += ids == turned
    assert 0.46 < flipped / 2000 < 0.54


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


def test_expected_length_counts_pairs_as_they_are_cut_and_no_others() -> None:
    task = Reader("pairs", length=21)
    batches_of(shards_of(bitexts=[bitext(0, "en-sw", [0, 4, 9, 30], [5, 6, 0, 8])]), task)
    assert task.expected == [1 + (4 + 10) / 2 + (6 + 8) / 2]


def test_expected_length_of_many_pairs_is_that_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 50)
    lengths = np.clip(np.random.default_rng(0).lognormal(2, 0.5, 1000), 2, 40).astype(int).tolist()
    task = Reader("pairs", length=128)
    batches_of(shards_of(bitexts=[bitext(0, "en-sw", lengths, lengths)]), task)
    assert task.expected == [pytest.approx(1 + 2 * np.mean(lengths[::20]))]
    assert task.expected == [pytest.approx(1 + 2 * np.mean(lengths), rel=0.15)]


def test_rows_of_a_multi_way_set_are_shared_and_no_others(shards: Shards) -> None:
    batches = Batches(
        shards, {"task": Reader("pairs", 512, 400, inputs=("ids", "other"))}, Sampling(), 0, micro_tokens=10**9
    )
    translations: dict[int, set[tuple[int, ...]]] = {}
    for bitext in shards.bitexts:
        for row in map(bitext.row, range(bitext.pairs)):
            found = translations.setdefault((bitext.number << 40) + row, set())
            found |= {tuple(side[row].tolist()) for side in bitext.sides}
    drawn: dict[int, set[tuple[int, ...]]] = {}
    for step in range(3):
        work = batches[step]
        for row, *sides in zip(scalars(work, "row"), sequences(work), sequences(work, "other"), strict=True):
            assert set(sides) <= translations[row]
            drawn.setdefault(row, set()).update(sides)
    assert max(map(len, drawn.values())) > 2  # some row was met in more than one pair of languages


def test_rows_of_different_corpora_differ() -> None:
    one = bitext(0, "en-sw", [3] * 5, [3] * 5)
    set_of_three = [bitext(1, pair, [3] * 5, [3] * 5, name="set") for pair in ("de-en", "de-sw", "en-sw")]
    batches = batches_of(shards_of(bitexts=[one, *set_of_three]), Reader("pairs", number=300))
    assert {*scalars(batches[0], "row")} == {*range(5), *((1 << 40) + row for row in range(5))}


def test_text_has_no_row() -> None:
    assert {*scalars(batches_of(shards_of({"en": [4]}), Reader())[0], "row")} == {-1}


# ---- rows and micro-batches ------------------------------------------------------------------------------


@given(st.floats(1, 10**7), st.integers(1, 10**6), st.integers(1, 3000), st.integers(1, 70), st.booleans())
def test_parts_are_as_many_as_need_be_and_the_same_in_every_process(
    tokens: float, micro: int, units: int, processes: int, whole: bool
) -> None:
    assume(units >= processes)
    found = parts(tokens, micro, units, processes, whole)
    assert found % processes == 0
    assert processes <= found <= units
    if whole:
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
def test_splitting_changes_nothing_but_the_split(
    lengths: list[tuple[int, int]], micro: int, processes: int, inputs: tuple[str, ...], pairs: bool
) -> None:
    """Over micro-batches and processes: every example is somewhere once, with all that belongs to it."""
    corpus = bitext(0, "en-sw", *map(list, zip(*lengths, strict=True)))
    shards, task = shards_of(bitexts=[corpus]), Reader("pairs", 61, 24, inputs=inputs, pairs=pairs)
    [whole] = in_world(shards, task, 10**9, 1)
    shared = in_world(shards, task, micro, processes)
    number = len(shared[0].micro)
    assert len(whole.micro) == 1
    assert [len(work.micro) for work in shared] == [number] * processes
    # Part 0 of the first process, part 0 of the second, ...
    one = Work([shared[rank].micro[i] for i in range(number) for rank in range(processes)], {}, 0)
    sizes = [len(batch["row"]) for _, batch in one.micro]
    assert max(sizes) - min(sizes) <= (2 if pairs else 1)
    assert not pairs or all(size % 2 == 0 for size in sizes)
    for name in inputs:
        assert sequences(one, name) == sequences(whole, name)
    if inputs == ("ids",):
        assert sequences(one, of="sand") == sequences(whole, of="sand")
    for name in ("row", "noise"):
        assert scalars(one, name) == scalars(whole, name)
    for term, expected in whole.counts.items():
        assert sum(work.counts[term] for work in shared) == expected
    assert sum(work.tokens for work in shared) == whole.tokens
    seeds = [seed for work in shared for seed in work.seeds]
    assert len({*seeds}) == len(seeds) == number * processes


def in_world(shards: Any, task: Reader, micro: int, processes: int) -> list[Work]:
    """The first step of every process."""
    return [
        Batches(shards, {"task": task}, DEFAULT, 0, micro, rank=rank, processes=processes)[0]
        for rank in range(processes)
    ]


def test_a_part_is_the_same_whoever_has_it(shards: Shards) -> None:
    """Where the number of parts is the same, so are the micro-batches and the dropout of each."""
    tasks = {"text": Reader(number=13), "pairs": Reader("pairs", 24, number=9)}
    worlds = {}
    for processes in (1, 2, 4):
        all_of_them = [Batches(shards, tasks, Sampling(), 7, 50, rank=r, processes=processes) for r in range(processes)]
        assert [batches.parts for batches in all_of_them] == [{"text": 4, "pairs": 4}] * processes
        works = [batches[3] for batches in all_of_them]
        worlds[processes] = {
            (name, processes * place + rank): (batch, seed)
            for rank, work in enumerate(works)
            for name in ("text", "pairs")
            for place, (batch, seed) in enumerate(
                (batch, seed) for (task, batch), seed in zip(work.micro, work.seeds, strict=True) if task == name
            )
        }
    assert len(worlds[1]) == 8
    for world in (worlds[2], worlds[4]):
        assert world.keys() == worlds[1].keys()
        for part, (batch, seed) in worlds[1].items():
            assert seed == world[part][1]
            assert same(Work([("", batch)], {}, 0), Work([("", world[part][0])], {}, 0))


def test_a_process_reads_its_own_part_alone(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Counter[int]()
    for kind in (module._TextGroup, module._PairGroup):

        def counted(self: Any, index: int, original: Any = kind.example) -> Any:
            read[rank] += 1
            return original(self, index)

        monkeypatch.setattr(kind, "example", counted)
    for rank in range(4):
        Batches(shards, real_tasks(), Sampling(), 7, 50, rank=rank, processes=4)[0]
    assert sum(read.values()) == 29
    assert max(read.values()) <= 8


def test_fewer_examples_than_processes_is_one_sentence() -> None:
    shards = shards_of({"en": [4] * 9})
    Batches(shards, {"task": Reader(number=4)}, DEFAULT, 0, 10**9, rank=3, processes=4)
    for task in (Reader(number=3), Reader(number=7, pairs=True)):
        with pytest.raises(
            BadInput, match=r"^task has 3 examples a step, fewer than the 4 processes .* fewer processes$"
        ):
            Batches(shards, {"task": task}, DEFAULT, 0, 10**9, rank=3, processes=4)


def test_who_stays_together_is_chosen_by_the_groups_of_the_draw() -> None:
    corpora = [bitext(i, "en-sw", [3] * 9, [3] * 9) for i in range(3)]
    task = Reader("pairs", number=60)
    work = batches_of(shards_of(bitexts=corpora), task)[0]
    found = {*zip(task.groups[-1].tolist(), (row >> 40 for row in scalars(work, "row")), strict=True)}
    assert len(found) == len({corpus for corpus, _ in found}) == 3


def test_micro_batches_are_no_smaller_than_need_be() -> None:
    shards = shards_of({"en": [7] * 40})
    work = batches_of(shards, Reader(length=8, number=40), micro=80)[0]
    assert [batch["ids"].shape for _, batch in work.micro] == [(10, 8)] * 4


def test_work_is_pinned_as_a_whole(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 0)
    work = Batches(shards, real_tasks(), Sampling(), 7, 128)[0]
    pinned = work.pin_memory()
    assert same(pinned, work)
    assert pinned.seeds == work.seeds
    assert all(pinned.micro[0][1][name] is not values for name, values in work.micro[0][1].items())


def test_whole_tasks_with_two_inputs_have_rows_for_each(shards: Shards) -> None:
    task = Reader("pairs", length=61, number=40, inputs=("ids", "other"), whole=True)
    [(_, batch)] = Batches(shards, {"task": task}, Sampling(), 0, micro_tokens=1)[0].micro
    assert batch["ids"].shape[1] == batch["other"].shape[1] == 64
    assert len(batch["ids_starts"]) == len(batch["other_starts"]) == len(batch["row"]) == 40


@pytest.mark.parametrize(("length", "width"), [(8, 8), (9, 16), (16, 16), (61, 64)])
def test_rows_are_as_wide_as_the_task_is_long(length: int, width: int) -> None:
    [(_, batch)] = batches_of(shards_of({"en": [3] * 50}), Reader(length=length, number=9))[0].micro
    assert batch["ids"].shape[1] == width


def test_tokens_are_real_ones() -> None:
    work = batches_of(shards_of({"en": [4] * 5}), Reader(length=5, number=10), micro=1)[0]
    assert [batch["ids"].shape for _, batch in work.micro] == [(1, 8)] * 10
    assert work.tokens == 10 * 5 == work.counts["filled"]


def log_normal(seed: int, number: int) -> list[int]:
    """Lengths as of real sentences: 28 tokens on average, some of 200."""
    return np.clip(np.random.default_rng(seed).lognormal(3.15, 0.6, number), 3, 300).astype(int).tolist()


def test_little_of_a_step_of_bitext_is_padding() -> None:
    corpus = bitext(0, "en-sw", log_normal(0, 6000), log_normal(1, 6000))
    batches = batches_of(shards_of(bitexts=[corpus]), Reader("pairs", 512, 2500), micro=1 << 14)
    for step in range(2):
        work = batches[step]
        shapes = [tuple(batch["ids"].shape) for _, batch in work.micro]
        assert len(shapes) > 3
        assert all(28 <= rows <= 36 and width == 512 for rows, width in shapes)
        assert 1 - work.tokens / sum(rows * width for rows, width in shapes) < 0.03


def test_tasks_of_a_step_are_added_up(shards: Shards) -> None:
    work = Batches(shards, real_tasks(), Sampling(), 0, 10**9)[3]
    assert [name for name, _ in work.micro] == ["text", "pairs"]
    assert work.counts["examples"] == 29
    assert work.counts["filled"] == work.tokens


def test_turning_a_task_off_leaves_the_data_of_the_others_as_they_are(shards: Shards) -> None:
    tasks = {
        "mlm": MLM(tokens=200, length=32),
        "tlm": TLM(tokens=200, length=32),
        "xlco": XLCo(pairs=4, length=32),
        "ca_mlm": CAMLM(tokens=200, length=32),
        "ca_tlm": CATLM(tokens=200, length=32),
    }
    together = Batches(shards, tasks, Sampling(), seed=5, micro_tokens=10_000)[3]
    for name, task in tasks.items():
        alone = Batches(shards, {name: task}, Sampling(), seed=5, micro_tokens=10_000)[3]
        [(_, expected)] = [(n, batch) for n, batch in together.micro if n == name]
        [(_, found)] = alone.micro
        assert all(torch.equal(found[field], expected[field]) for field in expected), name


@pytest.mark.parametrize("whole", [True, False])
def test_paired_inputs_hold_the_same_examples_in_the_same_row(whole: bool) -> None:
    lengths = [*range(2, 31)]
    shards = shards_of(bitexts=[bitext(0, "en-sw", lengths, lengths[::-1])])
    work = batches_of(shards, Reader("pairs", 61, 29, whole, inputs=("ids", "other"), paired=True), micro=700)[0]
    assert len(work.micro) == (1 if whole else 2)
    for _, batch in work.micro:
        assert batch["ids"].shape == batch["other"].shape
        for one, other in zip(batch["ids_segments"], batch["other_segments"], strict=True):
            assert {*one.tolist()} - {0} == {*other.tolist()} - {0}
    assert len(work.micro[0][1]["ids"]) < len(work.micro[0][1]["row"])  # several in a row


def test_the_batches_of_one_task_are_those_of_the_step(shards: Shards) -> None:
    batches = Batches(shards, real_tasks(), Sampling(), 7, 128)
    for name in batches.tasks:
        expected = [batch for task, batch in batches[4].micro if task == name]
        found = list(batches.of(name, 4))
        assert same(Work([(name, b) for b in found], {}, 0), Work([(name, b) for b in expected], {}, 0))


def test_joined_pairs_fit_however_long_the_sentences_are() -> None:
    """Mixup puts two sentences into a row that holds both sides of one pair."""
    shards = shards_of(bitexts=[bitext(i, "en-sw", [99] * 9, [99] * 9) for i in range(2)])
    task = XLCo(pairs=4, queue=9, length=32, rate=0.0)
    [(_, batch)] = Batches(shards, {"xlco": task}, Sampling(), 0, 10**9)[0].micro
    for side in ("query", "key"):
        assert batch[side].shape == (4, 32)
        assert all(ids.tolist().count(EOS) == 2 and (ids != PAD).sum() == 31 for ids in batch[side])


# ---- text and pairs in turn ----------------------------------------------------------------------------------


def test_text_and_pairs_in_turn_leave_nothing_out(shards: Shards) -> None:
    plain, in_turn = (Batches(shards, real_tasks(), Sampling(), 7, 128, alternate) for alternate in (False, True))
    for step in range(4):
        text, pairs = in_turn[2 * step], in_turn[2 * step + 1]
        assert {name for name, _ in text.micro} == {"text"}
        assert {name for name, _ in pairs.micro} == {"pairs"}
        expected = plain[step]
        together = Work(
            [*text.micro, *pairs.micro],
            {name: text.counts[name] + pairs.counts[name] for name in text.counts},
            text.tokens + pairs.tokens,
        )
        assert same(together, expected)


@pytest.mark.parametrize("name", ["text", "pairs"])
def test_a_stream_alone_has_nothing_to_take_turns_with(shards: Shards, name: str) -> None:
    task = {name: real_tasks()[name]}
    plain, in_turn = (Batches(shards, task, Sampling(), 7, 128, alternate) for alternate in (False, True))
    assert all(same(in_turn[step], plain[step]) for step in range(4))


# ---- memory ------------------------------------------------------------------------------------------------


def saved(folder: Path, lengths: np.ndarray, documents: int = 0) -> Sentences:
    """On disk, as only what is read from there is not held in memory."""
    folder.mkdir(parents=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    arrays = {"tokens": np.full(offsets[-1], EOS, dtype=np.uint16), "offsets": offsets}
    if documents:
        arrays["documents"] = np.arange(0, len(lengths) + 1, documents)
    for name, values in arrays.items():
        with Column(folder / f"{name}.npy", values.dtype) as column:
            column.add(values)
    return Sentences.open(folder, documents=bool(documents))


def test_memory_stays_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "AT_ONCE", 256)

    def peak(name: str, rows: int) -> int:
        text = saved(tmp_path / name / "text", np.full(rows, 20), documents=10)
        sides = (
            saved(tmp_path / name / "en", np.where(np.arange(rows) % 3, 9, 0)),
            saved(tmp_path / name / "sw", np.where(np.arange(rows) % 5, 9, 0)),
        )
        pairs = int((sides[0].filled() & sides[1].filled()).sum())
        shards = fake({"en": text}, [Bitext("set", ("en", "sw"), sides, pairs, 0)])
        tracemalloc.start()
        tasks = {"text": Reader(length=64, number=100), "pairs": Reader("pairs", 64, 100)}
        batches = Batches(shards, tasks, Sampling(), 0, 10**9)
        for step in (0, 1, 50, 10**6):
            assert batches[step].tokens > 0
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak("first", 1000)  # what is set up once
    assert peak("long", 50_000) < 1.3 * peak("short", 5_000)


# ---- drawn anew ------------------------------------------------------------------------------------------------


def several() -> Any:
    lengths = [[4] * 40, [5] * 40]
    return shards_of(
        {"en": [6] * 30}, [bitext(n, pair, *lengths) for n, pair in enumerate(("en-de", "en-fr", "de-fr"))]
    )


def groups_drawn(batches: Batches, name: str, steps: range) -> Counter[str]:
    return Counter(
        batches.groups[name][group].name for step in steps for group in batches.draws[name][step][0].tolist()
    )


NEW = {"corpus0 en-de": 0.8, "corpus1 en-fr": 0.1, "corpus2 de-fr": 0.1}


def test_bitext_is_drawn_anew_from_a_step_on_and_text_stays() -> None:
    tasks = {"text": Reader(number=20), "pairs": Reader("pairs", 24, number=100)}
    batches, plain = (Batches(several(), tasks, Sampling(), 7, 10**9) for _ in range(2))
    batches.resample(NEW, 5)
    found = groups_drawn(batches, "pairs", range(5, 10))
    assert {name: count / 500 for name, count in found.items()} == pytest.approx(NEW, abs=0.02)
    assert same(Work(*_of(batches[6], "text")), Work(*_of(plain[6], "text")))
    assert not same(batches[6], plain[6])


def _of(work: Work, name: str) -> tuple[list[tuple[str, Batch]], dict[str, int], int]:
    return [(task, batch) for task, batch in work.micro if task == name], {}, 0


def test_the_first_rates_again_change_nothing(shards: Shards) -> None:
    batches, plain = (Batches(shards, real_tasks(), Sampling(), 7, 128, alternate=True) for _ in range(2))
    batches.resample({group.name: group.rate for group in batches.groups["pairs"]}, 4)
    assert all(same(batches[step], plain[step]) for step in range(4, 12))


@pytest.mark.parametrize("step", [4, 5])
def test_in_turn_with_text_rates_change_at_the_next_step_of_pairs(step: int) -> None:
    tasks = {"text": Reader(number=20), "pairs": Reader("pairs", 24, number=100)}
    batches, plain = (Batches(several(), tasks, Sampling(), 7, 10**9, alternate=True) for _ in range(2))
    batches.resample(NEW, step)
    assert same(batches[4], plain[4])
    assert not same(batches[5], plain[5])
    assert groups_drawn(batches, "pairs", range(2, 4))["corpus0 en-de"] == pytest.approx(160, abs=4)


def test_longer_pairs_are_cut_into_more_parts() -> None:
    short, long = bitext(0, "en-de", [3] * 40, [3] * 40), bitext(1, "en-fr", [11] * 40, [11] * 40)
    batches = Batches(shards_of(bitexts=[short, long]), {"pairs": Reader("pairs", 24, number=100)}, Sampling(), 7, 400)
    before = batches.parts["pairs"]
    batches.resample({"corpus0 en-de": 0.01, "corpus1 en-fr": 0.99}, 2)
    assert batches.parts["pairs"] > before
    assert batches.lengths["pairs"] == pytest.approx(1 + 6 * 0.01 + 22 * 0.99)
    assert batches.draws["pairs"].number == 100


def test_a_group_alone_gives_its_own_examples_whoever_reads_them() -> None:
    tasks = {"text": Reader(number=20), "pairs": Reader("pairs", 24, number=12)}
    one, *two = (
        Batches(several(), tasks, Sampling(), 7, 10**9, rank=rank, processes=number)
        for rank, number in ((0, 1), (0, 2), (1, 2))
    )
    few = {"pairs": Reader("pairs", 24, number=30)}
    found = scalars(one.alone(1, few, 99)[0], "row")
    assert set(np.asarray(found) >> 40) == {1}
    assert len(set(found)) == 30
    assert [row for batches in two for row in scalars(batches.alone(1, few, 99)[0], "row")] == found
    assert scalars(one.alone(1, few, 98)[0], "row") != found
    assert one.draws["pairs"].number == 12  # as it was
