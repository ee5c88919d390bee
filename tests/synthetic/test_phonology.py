"""Scripts, syllables and sound changes."""

from __future__ import annotations

import random

import pytest

from crossling.synthetic.phonology import (
    CONSONANTS,
    SCRIPTS,
    VOWELS,
    Phonotactics,
    adapt_to_inventory,
    apply_sound_changes,
    split_syllables,
    write,
)


@pytest.mark.parametrize(
    ("word", "script", "written"),
    [
        ("Sakin", "Latin", "shakin"),
        ("Sakin", "Cyrillic", "шакин"),
        ("sakis", "Greek", "σακις"),
        ("kati", "Devanagari", "कति"),
        ("anta", "Devanagari", "अन्त"),
        ("hanguk", "Hangul", "한국"),
        ("wanja", "Hangul", "완야"),
        ("stok", "Hangul", "스톡"),
    ],
)
def test_known_spellings(word: str, script: str, written: str) -> None:
    assert write(word, script) == written


def test_han_has_a_character_for_every_syllable() -> None:
    every = [
        onset + vowel + coda
        for onset in ["", *CONSONANTS]
        for vowel in VOWELS
        for coda in ["", *CONSONANTS.replace("j", "").replace("w", "")]
    ]
    written = {write(syllable, "Han") for syllable in every}
    assert len(written) == len(every)
    assert all(len(one) == 1 for one in written)


@pytest.mark.parametrize("script", list(SCRIPTS))
def test_letters_come_from_the_range_of_their_script(script: str) -> None:
    rng = random.Random(0)
    first, last = SCRIPTS[script]
    words = ["".join(rng.choices(CONSONANTS + VOWELS, k=rng.randint(1, 9))) for _ in range(500)]
    assert all(first <= ord(letter) <= last for word in words for letter in write(word, script))


def test_syllables_contain_every_sound() -> None:
    rng = random.Random(1)
    for _ in range(500):
        word = "".join(rng.choices(CONSONANTS + VOWELS, k=8))
        assert "".join("".join(syllable) for syllable in split_syllables(word)) == word


def test_sound_change_is_regular_and_keeps_a_syllable() -> None:
    assert apply_sound_changes("pata", (("p", "f"), ("[ao]$", ""))) == "fat"
    assert apply_sound_changes("ta", (("[ao]$", ""),)) == "ta"


def test_foreign_sounds_become_the_nearest_sound() -> None:
    assert adapt_to_inventory("fabizo", "pbts") == "pabiso"


def test_families_have_different_phonotactics() -> None:
    phonotactics = {Phonotactics.invent(random.Random(seed)) for seed in range(20)}
    assert len(phonotactics) == 20
