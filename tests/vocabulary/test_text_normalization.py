"""Tests of the normalization rules: SentencePiece alone gives NFKC for marks in any order."""

from __future__ import annotations

import random
import unicodedata
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceNormalizer
from sentencepiece import sentencepiece_model_pb2 as proto

from crossling.vocabulary.text_normalization import (
    build_charsmap,
    default_charsmap,
    normalize_nfkc,
    unnormalized_clusters,
)

from .texts import ODD

# From real text: a letter and marks in an order that no rule of SentencePiece matches.
CLUSTERS = ("e\u0335\u0323\u0301", "ש\u05bc\u05c1\u05b8", "ت\u0651\u0650\u064e", "ا\u0650\u0653", "ည\u1039\u1037\u1037")


def normalizer(rules: bytes) -> SentencePieceNormalizer:
    model = proto.ModelProto()
    model.pieces.add(piece="<unk>", type=proto.ModelProto.SentencePiece.UNKNOWN)
    model.normalizer_spec.precompiled_charsmap = rules
    return SentencePieceNormalizer(model_proto=model)


DEFAULT, STANDARD, SPECIAL = (
    normalizer(rules) for rules in (default_charsmap(), build_charsmap(), build_charsmap(CLUSTERS))
)


def target(text: str) -> str:
    return DEFAULT.normalize(normalize_nfkc(text))


@pytest.mark.parametrize(
    "text",
    [
        "ن\u0651\u064e",  # Arabic: shadda before fatha
        "ب\u05bc\u05b0",
        "ב\u05bc\u05b0",  # Hebrew: dagesh before the vowel
        "င\u103a\u1037",  # Burmese
        "ຜ\u0ec9\u0eb9",  # Lao
        "o\u0301\u0323",  # Yoruba, and three other spellings
        "ó\u0323",
        "o\u0323\u0301",
        "ọ\u0301",
        "ê\u0300",  # Vietnamese, half composed
        "o\u0302\u0323",
        "～",
        "ොිූ් \u0ddc\u0dca",  # Sinhala
        "\u0cca\u0cd5",  # Kannada
    ],
)
def test_the_standard_rules_give_nfkc(text: str) -> None:
    assert STANDARD.normalize(text) == target(text)
    assert not unnormalized_clusters(text)


def test_the_rules_of_sentencepiece_do_not_give_nfkc() -> None:
    assert DEFAULT.normalize("ن\u0651\u064e") != target("ن\u0651\u064e")
    assert DEFAULT.normalize("ê\u0300") != target("ê\u0300")


@pytest.mark.parametrize("line", ODD)
def test_added_rules_do_not_change_text_in_nfkc(line: str) -> None:
    text = normalize_nfkc(line)
    assert SPECIAL.normalize(text) == STANDARD.normalize(text) == DEFAULT.normalize(text)


def test_the_standard_rules_cover_one_mark_more_and_two_marks_of_a_script() -> None:
    rng = random.Random(3)
    letters = [c for c in map(chr, range(0xC0, 0x1F00)) if unicodedata.category(c)[0] == "L" and normalize_nfkc(c) == c]
    for letter in rng.choices(letters, k=3000):
        text = letter + rng.choice("\u0300\u0301\u0302\u0303\u0308\u030a\u031b\u0323\u0327\u0328\u0331")
        assert STANDARD.normalize(text) == target(text), ascii(text)
    for first, last in ((0x300, 0x36F), (0x591, 0x5C8), (0x64B, 0x660), (0xF71, 0xF85), (0x1037, 0x103B)):
        marks = [c for c in map(chr, range(first, last)) if unicodedata.combining(c)]
        for _ in range(500):
            text = "漢" + rng.choice(marks) + rng.choice(marks)
            assert STANDARD.normalize(text) == target(text), ascii(text)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_cluster_gives_nfkc_in_every_spelling(cluster: str) -> None:
    assert STANDARD.normalize(cluster) != target(cluster)
    letter, marks = cluster[0], cluster[1:]
    equivalent = [
        letter + "".join(order)
        for order in permutations(marks)
        if normalize_nfkc(letter + "".join(order)) == normalize_nfkc(cluster)
    ]
    assert len(equivalent) > 1
    for text in equivalent:
        assert SPECIAL.normalize(f"x{text} y") == target(f"x{text} y"), ascii(text)


def test_rules_for_marks_apply_after_other_letters() -> None:
    text = "ב\u05bc\u05c1\u05b8"  # the cluster has another letter
    assert STANDARD.normalize(text) != target(text)
    assert SPECIAL.normalize(text) == target(text)


MARKS = st.sampled_from(
    "\u0300\u0301\u0302\u0307\u0323\u0328\u0335\u05b0\u05b8\u05bc\u05c1\u064e\u0650\u0651\u0653\u1037\u103a"
)
LETTERS = st.sampled_from("aeoéôọשבتاည漢 xﬁ½")


@settings(max_examples=3, deadline=None)
@given(clusters=st.lists(st.tuples(LETTERS, st.lists(MARKS, min_size=2, max_size=6)), min_size=40, max_size=60))
def test_rules_for_the_clusters_of_a_text_give_nfkc(clusters: list[tuple[str, list[str]]]) -> None:
    words = [letter + "".join(marks) for letter, marks in clusters]
    lines = [*words, "".join(words), "x".join(words)]
    made = normalizer(build_charsmap(set().union(*map(unnormalized_clusters, lines))))
    assert made.normalize(lines) == list(map(target, lines))
