"""Signatures estimate what texts have in common, and do not depend on the batch."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.errors import BadInput
from crossling.quality.shingles import (
    BANDS,
    PERMUTATIONS,
    SHINGLE,
    folded,
    has_signature,
    places,
    signatures,
    similarity,
)


def jaccard(left: str, right: str) -> float:
    a, b = ({text[i : i + SHINGLE] for i in range(len(text) - SHINGLE + 1)} for text in (left, right))
    return len(a & b) / len(a | b)


def test_the_estimate_is_right_on_average() -> None:
    rng = random.Random(0)
    pairs = []
    for _ in range(300):
        left = [rng.choice("abcdefgh你好") for _ in range(120)]
        right = list(left)
        for place in rng.sample(range(120), rng.randrange(12)):
            right[place] = rng.choice("xyz")
        pairs.append(("".join(left), "".join(right)))
    estimated = similarity(signatures([a for a, _ in pairs]), signatures([b for _, b in pairs]))
    errors = estimated - np.array([jaccard(*pair) for pair in pairs])
    assert abs(errors.mean()) < 0.01
    assert errors.std() < 0.05


@given(st.lists(st.text("abc你𝒳", max_size=60), max_size=8))
def test_a_signature_does_not_depend_on_its_neighbours(texts: list[str]) -> None:
    alone = [signatures([text])[0] for text in texts]
    assert np.array_equal(signatures(texts), np.array(alone, dtype=np.uint16).reshape(-1, PERMUTATIONS))


def test_short_texts_have_none() -> None:
    signed = signatures(["", "short", "a text that is long enough"])
    assert has_signature(signed).tolist() == [False, False, True]
    assert not signed[:2].any()


def test_bands_lie_in_the_signature_and_tell_texts_apart() -> None:
    signed = signatures(["the first of the texts", "the first of the texts", "a second text altogether"])
    for band in range(BANDS):
        values = folded(signed[:, places(band)])
        assert values[0] == values[1] != values[2]
    assert places(BANDS - 1).stop <= PERMUTATIONS


def test_without_the_package_the_sentence_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rensa", None)
    with pytest.raises(BadInput, match=r"needs the package rensa: pip install crossling\[data\]"):
        signatures(["a"])
