"""The masker by its statistics and by what it must never do: single tokens, and spans."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.data.batches import TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Sequences
from crossling.objectives import MLM, MRTD, TLM, TRTD
from crossling.objectives.mlm import mask_tokens
from crossling.vocabulary.special_tokens import SpecialTokens

texts_of_words = st.lists(st.lists(st.integers(3, 98), max_size=40), min_size=1, max_size=5)
texts_of_sentences = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=5), min_size=1, max_size=4)
spans = st.sampled_from([1.0, 1.5, 3.0, 20.0])


def sequences(*ids: list[int]) -> Sequences:
    return Sequences(np.array(list(map(len, ids))), {"ids": np.array([i for one in ids for i in one])})


def runs(chosen: np.ndarray) -> np.ndarray:
    """Return the lengths of masked runs."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
    return edges[1::2] - edges[::2]


@pytest.mark.parametrize("span", [1.0, 3.0])
def test_masked_positions_stay_or_become_random_or_mask(span: float) -> None:
    ids = np.append(np.random.default_rng(0).integers(4, 1000, size=60_000), 2)
    given_ = Sequences(np.array([60_001]), {"ids": ids})
    out = mask_tokens(
        given_, KeyedRandom([1], 0, 1), SpecialTokens.standard(1001), rate=0.15, keep=0.2, random=0.1, span=span
    )
    chosen = out.tokens["masked"]
    assert chosen.sum() == pytest.approx(0.15 * 60_000, abs=1)
    hidden, original = out.tokens["ids"][chosen], ids[chosen]
    assert np.mean(hidden == 1000) == pytest.approx(0.7, abs=0.02)
    assert np.mean(hidden == original) == pytest.approx(0.2, abs=0.02)
    random_ids = hidden[(hidden != 1000) & (hidden != original)]
    assert len(random_ids) / len(hidden) == pytest.approx(0.1, abs=0.02)
    assert random_ids.min() >= 4
    assert random_ids.max() < 1000


def test_every_token_can_be_the_random_one() -> None:
    ids = np.append(np.full(5000, 5), 2)
    out = mask_tokens(
        Sequences(np.array([5001]), {"ids": ids}),
        KeyedRandom([1], 0, 1),
        SpecialTokens.standard(10),
        rate=1.0,
        keep=0.0,
        random=1.0,
    )
    assert set(out.tokens["ids"][:-1].tolist()) == {4, 5, 6, 7, 8}


@given(texts_of_words, st.integers(0, 2**32), st.floats(0.01, 0.9), spans)
def test_masking_keeps_special_tokens_and_returns_the_originals(
    texts: list[list[int]], seed: int, rate: float, span: float
) -> None:
    given_ = sequences(*([0, *words, 2] for words in texts))
    out = mask_tokens(given_, KeyedRandom([seed], 0, len(texts)), SpecialTokens.standard(100), rate=rate, span=span)
    ids, where = given_.tokens["ids"], out.tokens["masked"]
    assert not where[(ids == 0) | (ids == 2)].any()
    assert out.tokens["targets"].tolist() == ids.tolist()
    assert (out.tokens["ids"][where] == 99).all()
    assert (out.tokens["ids"][~where] == ids[~where]).all()
    for number, words in enumerate(texts):
        chosen = where[given_.sequence_ids == number].sum()
        least = max(1, math.floor(rate * len(words)))
        assert (least <= chosen <= least + 1) if words else chosen == 0


@given(texts_of_sentences, st.integers(0, 2**32), st.floats(0.01, 1.0), st.floats(1.01, 12))
def test_spans_mask_exactly_as_much_as_single_tokens(
    texts: list[list[int]], seed: int, rate: float, span: float
) -> None:
    """Also where sentences are empty, or short for a span."""
    given_ = sequences(*([0, *(i for words in text for i in [*[7] * words, 2])] for text in texts))
    noise = KeyedRandom([seed], 0, len(texts))
    alone, in_spans = (
        mask_tokens(given_, noise, SpecialTokens.standard(100), rate=rate, span=each).tokens["masked"]
        for each in (1.0, span)
    )
    assert np.bincount(given_.sequence_ids, in_spans).tolist() == np.bincount(given_.sequence_ids, alone).tolist()
    assert not in_spans[given_.tokens["ids"] != 7].any()


@pytest.mark.parametrize("span", [1.0, 3.0])
def test_the_masking_rate_holds_on_average_for_short_sentences(span: float) -> None:
    texts = [[0, *range(4, 14), 2]] * 2000
    out = mask_tokens(sequences(*texts), KeyedRandom([0], 0, 2000), SpecialTokens.standard(100), rate=0.25, span=span)
    assert out.tokens["masked"].sum() / 20_000 == pytest.approx(0.25, abs=0.01)


def test_every_position_is_masked_equally_often() -> None:
    out = mask_tokens(
        sequences(*[[0, *range(4, 14), 2]] * 5000), KeyedRandom([3], 0, 5000), SpecialTokens.standard(100), rate=0.2
    )
    by_place = out.tokens["masked"].reshape(5000, 12)[:, 1:-1].mean(0)
    assert by_place == pytest.approx([0.2] * 10, abs=0.025)


@pytest.mark.parametrize("span", [2.0, 3.5, 6.0])
def test_span_lengths_are_geometric_with_the_given_mean(span: float) -> None:
    """At a rate so low that spans seldom meet. There are a thousand or more: three deviations are below 0.04."""
    text = sequences([0, *[7] * 200_000, 2])
    lengths = runs(
        mask_tokens(text, KeyedRandom([4], 0, 1), SpecialTokens.standard(100), rate=0.03, span=span).tokens["masked"]
    )
    assert lengths.mean() == pytest.approx(span, rel=0.08)
    for least in (1, 2, 5, 10):
        assert np.mean(lengths > least) == pytest.approx((1 - 1 / span) ** least, abs=0.04)


def test_single_tokens_are_chosen_one_by_one() -> None:
    lengths = runs(
        mask_tokens(
            sequences([0, *[7] * 50_000, 2]), KeyedRandom([4], 0, 1), SpecialTokens.standard(100), rate=0.15
        ).tokens["masked"]
    )
    assert lengths.mean() == pytest.approx(1 / (1 - 0.15), rel=0.03)


def test_a_span_ends_before_a_special_token() -> None:
    """In sentences of one word, the next word is masked as often after a masked one as after any."""
    text = sequences([0, *[7, 2] * 20_000])
    chosen = mask_tokens(text, KeyedRandom([4], 0, 1), SpecialTokens.standard(100), rate=0.2, span=8.0).tokens[
        "masked"
    ][1::2]
    assert chosen.mean() == pytest.approx(0.2, abs=0.001)
    assert chosen[1:][chosen[:-1]].mean() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(
    "objective", [MLM(rate=0.1), TLM(rate=0.1), MRTD(rate=0.1), TRTD(rate=0.1)], ids=["mlm", "tlm", "mrtd", "trtd"]
)
def test_objectives_mask_spans(objective: MLM | MRTD) -> None:
    long = [np.append(np.full(20_000, 7), 2)]
    for span in (1.0, 5.0):
        hidden = (
            replace(objective, span=span)
            .corrupt(TokenizedExamples(long, long), KeyedRandom([4], 0, 1), SpecialTokens.standard(100))
            .inputs["ids"]
        )
        assert runs(hidden.tokens["masked"]).mean() == pytest.approx(1.1 * span, rel=0.1)


@pytest.mark.parametrize("span", [1.0, 3.0])
def test_masking_does_not_depend_on_other_sequences(span: float) -> None:
    """Only on its place in the global batch: so a batch can be split over ranks."""
    texts = [[0, *range(4, 4 + length), 2] for length in (7, 30, 3, 12)]
    together = mask_tokens(
        sequences(*texts),
        KeyedRandom([5], 9, 4),
        SpecialTokens.standard(100),
        rate=0.3,
        keep=0.1,
        random=0.1,
        span=span,
    ).tokens["ids"]
    longer = mask_tokens(
        sequences(*texts, [0, 5, 6, 2]),
        KeyedRandom([5], 9, 5),
        SpecialTokens.standard(100),
        rate=0.3,
        keep=0.1,
        random=0.1,
        span=span,
    ).tokens["ids"]
    assert longer[: len(together)].tolist() == together.tolist()
    last = mask_tokens(
        sequences(*texts[2:]),
        KeyedRandom([5], 9, 4).select(np.array([2, 3])),
        SpecialTokens.standard(100),
        rate=0.3,
        keep=0.1,
        random=0.1,
        span=span,
    ).tokens["ids"]
    assert last.tolist() == together[-len(last) :].tolist()


@pytest.mark.parametrize("span", [1.0, 3.0])
def test_purposes_are_masked_independently(span: float) -> None:
    text = sequences([0, *[7] * 1000, 2])
    one, other = (
        mask_tokens(
            text,
            KeyedRandom([5], 9, 1),
            SpecialTokens.standard(100),
            rate=0.3,
            keep=0,
            random=0,
            span=span,
            purpose=purpose,
        ).tokens["masked"]
        for purpose in "xy"
    )
    assert (one & other).sum() == pytest.approx(0.09 * 1000, abs=30)
