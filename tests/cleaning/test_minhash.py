"""Signatures estimate the similarity of texts, and do not depend on the batch."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.cleaning.minhash import (
    BANDS,
    PERMUTATIONS,
    SHINGLE,
    band_slice,
    compute_signatures,
    has_signature,
    hash_band,
    similarity,
)
from crossling.core.errors import BadInput


def jaccard(left: str, right: str) -> float:
    a, b = ({text[i : i + SHINGLE] for i in range(len(text) - SHINGLE + 1)} for text in (left, right))
    return len(a & b) / len(a | b)


def test_the_estimate_is_unbiased() -> None:
    rng = random.Random(0)
    pairs = []
    for _ in range(300):
        left = [rng.choice("abcdefgh你好") for _ in range(120)]
        right = list(left)
        for position in rng.sample(range(120), rng.randrange(12)):
            right[position] = rng.choice("xyz")
        pairs.append(("".join(left), "".join(right)))
    estimated = similarity(compute_signatures([a for a, _ in pairs]), compute_signatures([b for _, b in pairs]))
    errors = estimated - np.array([jaccard(*pair) for pair in pairs])
    assert abs(errors.mean()) < 0.01
    assert errors.std() < 0.05


@given(st.lists(st.text("abc你𝒳", max_size=60), max_size=8))
def test_a_signature_does_not_depend_on_the_batch(texts: list[str]) -> None:
    alone = [compute_signatures([text])[0] for text in texts]
    assert np.array_equal(compute_signatures(texts), np.array(alone, dtype=np.uint16).reshape(-1, PERMUTATIONS))


def test_short_texts_have_no_signature() -> None:
    signatures = compute_signatures(["", "short", "a text that is long enough"])
    assert has_signature(signatures).tolist() == [False, False, True]
    assert not signatures[:2].any()


def test_bands_are_inside_the_signature_and_distinguish_texts() -> None:
    signatures = compute_signatures(["the first of the texts", "the first of the texts", "a second text altogether"])
    for band in range(BANDS):
        values = hash_band(signatures[:, band_slice(band)])
        assert values[0] == values[1] != values[2]
    assert band_slice(BANDS - 1).stop <= PERMUTATIONS


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rensa", None)
    with pytest.raises(BadInput, match=r"need the package rensa\. Install it with pip install crossling\[data\]"):
        compute_signatures(["a"])
