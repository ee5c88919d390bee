"""SentencePiece alone brings text to NFKC, in however odd an order its marks were typed."""

from __future__ import annotations

import random
import unicodedata
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceNormalizer
from sentencepiece import sentencepiece_model_pb2 as proto

from crossling.vocabulary.normalise import character_map, nfkc, odd_clusters, plain_map

from .texts import ODD

# Seen in real text: base, marks in an order that no rule of SentencePiece knows.
SEEN = ("e\u0335\u0323\u0301", "ש\u05bc\u05c1\u05b8", "ت\u0651\u0650\u064e", "ا\u0650\u0653", "ည\u1039\u1037\u1037")


def normalizer(rules: bytes) -> SentencePieceNormalizer:
    model = proto.ModelProto()
    model.pieces.add(piece="<unk>", type=proto.ModelProto.SentencePiece.UNKNOWN)
    model.normalizer_spec.precompiled_charsmap = rules
    return SentencePieceNormalizer(model_proto=model)


PLAIN, STANDARD, SPECIAL = (normalizer(rules) for rules in (plain_map(), character_map(), character_map(SEEN)))


def target(text: str) -> str:
    return PLAIN.normalize(nfkc(text))


@pytest.mark.parametrize(
    "text",
    [
        "ن\u0651\u064e",  # Arabic: shadda before fatha
        "ب\u05bc\u05b0",
        "ב\u05bc\u05b0",  # Hebrew: dagesh before the vowel
        "င\u103a\u1037",  # Burmese
        "ຜ\u0ec9\u0eb9",  # Lao
        "o\u0301\u0323",  # Yoruba, and three other ways to write it
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
def test_any_text_comes_to_nfkc(text: str) -> None:
    assert STANDARD.normalize(text) == target(text)
    assert not odd_clusters(text)


def test_sentencepiece_had_not_known_these() -> None:
    assert PLAIN.normalize("ن\u0651\u064e") != target("ن\u0651\u064e")
    assert PLAIN.normalize("ê\u0300") != target("ê\u0300")


@pytest.mark.parametrize("line", ODD)
def test_text_in_nfkc_is_left_to_sentencepiece(line: str) -> None:
    text = nfkc(line)
    assert SPECIAL.normalize(text) == STANDARD.normalize(text) == PLAIN.normalize(text)


def test_every_letter_with_one_mark_and_every_two_marks_of_a_script() -> None:
    draw = random.Random(3)
    letters = [c for c in map(chr, range(0xC0, 0x1F00)) if unicodedata.category(c)[0] == "L" and nfkc(c) == c]
    for letter in draw.choices(letters, k=3000):
        text = letter + draw.choice("\u0300\u0301\u0302\u0303\u0308\u030a\u031b\u0323\u0327\u0328\u0331")
        assert STANDARD.normalize(text) == target(text), ascii(text)
    for first, last in ((0x300, 0x36F), (0x591, 0x5C8), (0x64B, 0x660), (0xF71, 0xF85), (0x1037, 0x103B)):
        marks = [c for c in map(chr, range(first, last)) if unicodedata.combining(c)]
        for _ in range(500):
            text = "漢" + draw.choice(marks) + draw.choice(marks)
            assert STANDARD.normalize(text) == target(text), ascii(text)


@pytest.mark.parametrize("cluster", SEEN)
def test_what_was_seen_comes_to_nfkc_however_it_is_written(cluster: str) -> None:
    assert STANDARD.normalize(cluster) != target(cluster)
    letter, marks = cluster[0], cluster[1:]
    equivalent = [
        letter + "".join(order) for order in permutations(marks) if nfkc(letter + "".join(order)) == nfkc(cluster)
    ]
    assert len(equivalent) > 1
    for text in equivalent:
        assert SPECIAL.normalize(f"x{text} y") == target(f"x{text} y"), ascii(text)


def test_marks_seen_after_one_letter_are_known_after_others() -> None:
    text = "ב\u05bc\u05c1\u05b8"  # seen after another letter
    assert STANDARD.normalize(text) != target(text)
    assert SPECIAL.normalize(text) == target(text)


MARKS = st.sampled_from(
    "\u0300\u0301\u0302\u0307\u0323\u0328\u0335\u05b0\u05b8\u05bc\u05c1\u064e\u0650\u0651\u0653\u1037\u103a"
)
LETTERS = st.sampled_from("aeoéôọשבتاည漢 xﬁ½")


@settings(max_examples=3, deadline=None)
@given(clusters=st.lists(st.tuples(LETTERS, st.lists(MARKS, min_size=2, max_size=6)), min_size=40, max_size=60))
def test_a_map_made_for_a_text_holds_for_it(clusters: list[tuple[str, list[str]]]) -> None:
    words = [letter + "".join(marks) for letter, marks in clusters]
    lines = [*words, "".join(words), "x".join(words)]
    made = normalizer(character_map(set().union(*map(odd_clusters, lines))))
    assert made.normalize(lines) == list(map(target, lines))
