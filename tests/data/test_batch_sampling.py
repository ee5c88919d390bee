"""Examples are sampled without replacement and in proportion, as blocks of text and as pairs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.data import example_groups as module
from crossling.data.batches import Batches
from crossling.data.example_groups import block_starts
from crossling.data.shards import Shards
from crossling.sampling import Sampling
from crossling.vocabulary.vocabulary import BOS, EOS

from .batch_helpers import Reader, batches_of, bitext, is_same, scalars, sequences, shards_of


def in_epochs(sampled: list[Any], everything: set[Any]) -> bool:
    """Return True if each example is sampled once before any is repeated."""
    size = len(everything)
    epochs = [sampled[start : start + size] for start in range(0, len(sampled), size)]
    return all(len(set(epoch)) == len(epoch) and set(epoch) <= everything for epoch in epochs)


@settings(max_examples=40, deadline=None)
@given(
    groups=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    number=st.integers(1, 30),
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 12),
    alpha=st.floats(0, 1),
)
def test_every_block_is_read_once_before_any_is_repeated(
    groups: list[int], number: int, seed: int, steps: int, alpha: float
) -> None:
    shards = shards_of({f"l{i}": [4] * size for i, size in enumerate(groups)})
    batches = batches_of(shards, Reader(length=5, number=number), Sampling(text_alpha=alpha), seed)
    sampled = [ids for step in range(steps) for ids in sequences(batches[step])]
    assert len(sampled) == number * steps
    found = 0
    for sentences in shards.text.values():
        everything = {(BOS, *sentences[i].tolist()) for i in range(len(sentences))}
        of_group = [ids for ids in sampled if ids in everything]
        found += len(of_group)
        assert in_epochs(of_group, everything)
    assert found == len(sampled)


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 15), number=st.integers(1, 20), seed=st.integers(0, 100))
def test_every_pair_is_read_once_before_any_is_repeated(size: int, number: int, seed: int) -> None:
    corpus = bitext(0, "en-sw", [3, 0, 3] * size, [3, 3, 0] * size)  # only rows 0, 3, 6, ... have both sides
    batches = batches_of(shards_of(bitexts=[corpus]), Reader("pairs", number=number), seed=seed)
    sampled = [row for step in range(5) for row in scalars(batches[step], "row")]
    assert in_epochs(sampled, set(range(0, 3 * size, 3)))


def test_order_is_new_in_every_epoch() -> None:
    batches = batches_of(shards_of({"en": [4] * 60}), Reader(length=5, number=60))
    first, second = sequences(batches[0]), sequences(batches[1])
    assert sorted(first) == sorted(second)
    assert first != second
    assert first != sorted(first)


def test_languages_of_one_size_have_different_orders() -> None:
    shards = shards_of({"en": [4] * 60, "sw": [4] * 60})
    first = {name: int(sentences.tokens[0]) for name, sentences in shards.text.items()}
    sampled = sequences(batches_of(shards, Reader(length=5, number=80))[0])
    places = {
        name: [ids[1] - start for ids in sampled if 0 <= ids[1] - start < 500_000][:20] for name, start in first.items()
    }
    assert len(places["en"]) == len(places["sw"]) == 20
    assert places["en"] != places["sw"]


@pytest.mark.parametrize(("alpha", "parts"), [(1.0, (16, 4, 1)), (0.5, (4, 2, 1)), (0.0, (1, 1, 1))])
def test_languages_are_sampled_with_their_probabilities(alpha: float, parts: tuple[int, ...]) -> None:
    shards = shards_of({"de": [4] * 160, "en": [4] * 40, "sw": [4] * 10})
    batches = batches_of(shards, Reader(length=5, number=500), Sampling(text_alpha=alpha))
    language_of = {int(s.tokens[s.offsets[i]]): name for name, s in shards.text.items() for i in range(len(s))}
    sampled = Counter(language_of[ids[1]] for step in range(10) for ids in sequences(batches[step]))
    expected = 5000 * np.array(parts) / sum(parts)
    assert [sampled[name] for name in shards.text] == pytest.approx(expected, abs=15)


def test_text_probabilities_count_tokens() -> None:
    """At exponent 1 languages are read in proportion to their tokens, even if short documents give short blocks."""
    shards = shards_of({"en": [[15] * 400], "sw": [[4]] * 1500})
    batches = batches_of(shards, Reader(length=31, number=200), Sampling(text_alpha=1.0))
    first = {name: int(sentences.tokens[0]) for name, sentences in shards.text.items()}
    counts = Counter(
        max((name for name in first if first[name] <= token), key=lambda name: first[name])
        for step in range(10)
        for ids in sequences(batches[step])
        for token in ids
        if token not in (BOS, EOS)
    )
    assert counts["en"] / counts["sw"] == pytest.approx((14 * 400) / (3 * 1500), rel=0.05)


@pytest.mark.parametrize(("number", "length"), [(1 << 21, 16), (8, 1 << 17)])
def test_too_large_a_step_is_an_error(number: int, length: int) -> None:
    with pytest.raises(BadInput, match=r"^task: .* sequences of up to .* Lower task.tokens or task.length\.$"):
        batches_of(shards_of({"en": [4] * 5}), Reader(length=length, number=number))


def test_corpora_of_a_language_pair_are_sampled_by_size() -> None:
    corpora = [
        bitext(0, "en-sw", [3] * 60, [3] * 60),
        bitext(1, "sw-en", [3] * 30, [3] * 30),  # the same languages the other way round
        bitext(2, "de-en", [3] * 10, [3] * 10),
    ]
    batches = batches_of(shards_of(bitexts=corpora), Reader("pairs", number=4000), Sampling(pair_alpha=0.5))
    sampled = Counter(row >> 40 for row in scalars(batches[0], "row"))
    assert [sampled[number] / 4000 for number in range(3)] == pytest.approx([0.5, 0.25, 0.25], abs=0.01)


def test_only_pairs_with_the_pivot_are_sampled() -> None:
    corpora = [bitext(i, pair, [3] * 9, [3] * 9) for i, pair in enumerate(["de-en", "de-sw", "en-sw"])]
    batches = batches_of(shards_of(bitexts=corpora), Reader("pairs", number=200), Sampling(pivot="en"))
    assert {row >> 40 for row in scalars(batches[0], "row")} == {0, 2}


@pytest.mark.parametrize("stream", ["text", "pairs"])
def test_a_language_subset_reads_what_shards_of_these_languages_give(stream: Any) -> None:
    text = {"de": [4] * 9, "en": [5] * 9, "sw": [4] * 5}
    corpora = [bitext(i, pair, [3] * 9, [3] * 9) for i, pair in enumerate(["de-en", "de-sw", "en-sw"])]
    everything, own = shards_of(text, corpora), shards_of(text, corpora)
    own.manifest["text"] = {"de": own.manifest["text"]["de"], "sw": own.manifest["text"]["sw"]}
    own.bitexts = [corpora[1]]
    task = Reader(stream, number=30)
    subset = batches_of(everything, task, Sampling(languages="de,sw"))
    expected = batches_of(own, task)
    for step in range(3):
        assert is_same(subset[step], expected[step])


@pytest.mark.parametrize(
    ("fewest", "sampling", "found"),
    [
        (1, Sampling(), {0, 1, 2, 3}),
        (15, Sampling(), {0, 1, 2}),  # fr has 4 pairs
        (16, Sampling(), {0}),  # sw has 15 in two corpora, de and en have at least 20
        (20, Sampling(), {0}),
        (15, Sampling(languages="de,en,sw"), {0, 1, 2}),
        (11, Sampling(languages="de,sw,fr", pair_rule="xy_lent", relax=True), set()),
    ],
)
def test_pairs_of_languages_with_few_pairs_are_not_sampled(fewest: int, sampling: Sampling, found: set[int]) -> None:
    corpora = [
        *(bitext(0, "de-en", [3] * 20, [3] * 20), bitext(1, "en-sw", [3] * 5, [3] * 5)),
        *(bitext(2, "de-sw", [3] * 10, [3] * 10), bitext(3, "de-fr", [3] * 4, [3] * 4)),
    ]
    sampling = replace(sampling, min_pairs=fewest)
    if not found:
        with pytest.raises(BadInput, match=f"no translation pairs among de, fr, sw of languages with {fewest} or more"):
            batches_of(shards_of(bitexts=corpora), Reader("pairs", number=200), sampling)
        return
    batches = batches_of(shards_of(bitexts=corpora), Reader("pairs", number=200), sampling)
    assert {row >> 40 for row in scalars(batches[0], "row")} == found


def test_corpora_without_pairs_are_never_sampled() -> None:
    corpora = [bitext(0, "en-sw", [3] * 4, [3] * 4), bitext(1, "en-sw", [3], [0]), bitext(2, "de-en", [0], [3])]
    batches = batches_of(shards_of(bitexts=corpora), Reader("pairs", number=100))
    assert {row >> 40 for row in scalars(batches[0], "row")} == {0}


@pytest.mark.parametrize(
    ("shards", "task", "sampling", "wanted"),
    [
        (shards_of(bitexts=[bitext(0, "en-sw", [3], [3])]), Reader("text"), Sampling(pivot="de"), "text"),
        (shards_of({"en": [0]}), Reader("text"), Sampling(), "text"),
        (shards_of({"en": [4]}), Reader("pairs"), Sampling(), "translation pairs"),
        (shards_of(bitexts=[bitext(0, "en-sw", [3], [0])]), Reader("pairs"), Sampling(), "translation pairs"),
        (
            shards_of(bitexts=[bitext(0, "en-sw", [3], [3])]),
            Reader("pairs"),
            Sampling(pivot="de"),
            "translation pairs with de",
        ),
        (
            shards_of({"en": [4]}, [bitext(0, "en-sw", [3], [3])]),
            Reader("pairs"),
            Sampling(pivot="most", languages="sw"),
            "translation pairs with the language with the most pairs among sw",
        ),
        (
            shards_of({"en": [4]}, [bitext(0, "en-sw", [3], [3])]),
            Reader("text"),
            Sampling(languages="sw"),
            "text in sw",
        ),
    ],
)
def test_shards_without_data_for_an_objective_are_an_error(
    shards: Any, task: Reader, sampling: Sampling, wanted: str
) -> None:
    with pytest.raises(BadInput, match=f"^shards: no {wanted} in these shards, which the recipe needs"):
        batches_of(shards, task, sampling)


@settings(max_examples=40, deadline=None)
@given(
    documents=st.lists(st.lists(st.integers(2, 30), min_size=1, max_size=10), min_size=1, max_size=6),
    length=st.integers(4, 20),
)
def test_an_epoch_contains_the_whole_text(documents: list[list[int]], length: int) -> None:
    shards = shards_of({"en": documents})
    text = shards.text["en"]
    number = len(block_starts(text, length - 1)) - 1
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


def test_blocks_are_cached(shards: Shards) -> None:
    first = Batches(shards, {"text": Reader(length=13)}, Sampling(), seed=0, micro_tokens=10**9)
    file = shards.path / "text" / "en" / "blocks-12.npy"
    before = file.stat().st_mtime_ns
    again = Batches(Shards.open(shards.path), {"text": Reader(length=13)}, Sampling(), seed=0, micro_tokens=10**9)
    assert is_same(first[3], again[3])
    assert file.stat().st_mtime_ns == before


def test_pairs_are_joined_in_random_order() -> None:
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


def test_order_of_a_pair_changes() -> None:
    batches = batches_of(shards_of(bitexts=[bitext(0, "en-sw", [3], [4])]), Reader("pairs", number=1))
    assert len({sequences(batches[step])[0] for step in range(30)}) == 2


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(8, 40))
def test_long_pairs_are_truncated_and_end_in_eos(source: int, target: int, length: int) -> None:
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


def test_mean_length_counts_truncated_pairs() -> None:
    task = Reader("pairs", length=21)
    batches_of(shards_of(bitexts=[bitext(0, "en-sw", [0, 4, 9, 30], [5, 6, 0, 8])]), task)
    assert task.expected == [1 + (4 + 10) / 2 + (6 + 8) / 2]


def test_mean_length_of_many_pairs_is_estimated_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LENGTH_SAMPLE", 50)
    lengths = np.clip(np.random.default_rng(0).lognormal(2, 0.5, 1000), 2, 40).astype(int).tolist()
    task = Reader("pairs", length=128)
    batches_of(shards_of(bitexts=[bitext(0, "en-sw", lengths, lengths)]), task)
    assert task.expected == [pytest.approx(1 + 2 * np.mean(lengths[::20]))]
    assert task.expected == [pytest.approx(1 + 2 * np.mean(lengths), rel=0.15)]


def test_translations_of_a_multi_way_corpus_have_one_row(shards: Shards) -> None:
    batches = Batches(
        shards, {"task": Reader("pairs", 512, 400, inputs=("ids", "other"))}, Sampling(), seed=0, micro_tokens=10**9
    )
    translations: dict[int, set[tuple[int, ...]]] = {}
    for corpus in shards.bitexts:
        for row in map(corpus.row, range(corpus.pairs)):
            found = translations.setdefault((corpus.corpus_id << 40) + row, set())
            found |= {tuple(side[row].tolist()) for side in corpus.sides}
    sampled: dict[int, set[tuple[int, ...]]] = {}
    for step in range(3):
        work = batches[step]
        for row, *sides in zip(scalars(work, "row"), sequences(work), sequences(work, "other"), strict=True):
            assert set(sides) <= translations[row]
            sampled.setdefault(row, set()).update(sides)
    assert max(map(len, sampled.values())) > 2  # some row was met in more than one pair of languages


def test_rows_of_different_corpora_differ() -> None:
    one = bitext(0, "en-sw", [3] * 5, [3] * 5)
    set_of_three = [bitext(1, pair, [3] * 5, [3] * 5, name="set") for pair in ("de-en", "de-sw", "en-sw")]
    batches = batches_of(shards_of(bitexts=[one, *set_of_three]), Reader("pairs", number=300))
    assert {*scalars(batches[0], "row")} == {*range(5), *((1 << 40) + row for row in range(5))}


def test_text_has_no_row() -> None:
    assert {*scalars(batches_of(shards_of({"en": [4]}), Reader())[0], "row")} == {-1}
