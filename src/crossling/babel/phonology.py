"""Sounds: how words of a family are built, and how they change on the way to each of its languages.

A word is a string of phonemes, one character each; S, C and N stand for the first sounds of ship and chip
and the last of sing.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

VOWELS = "aeiou"
CONSONANTS = "ptkbdgmnszSCfvhlrjwN"
CODAS = "nmlrsktpN"

# Regular changes that the world's languages have gone through, as pattern and replacement.
SOUND_CHANGES = (
    ("p", "f"),
    ("b", "v"),
    ("w", "v"),
    ("z", "s"),
    ("S", "s"),
    ("f", "h"),
    ("h", "k"),
    ("l(?=[iu])", "r"),
    ("r(?=[ae])", "l"),
    ("t(?=i)", "C"),
    ("k(?=[ie])", "C"),
    ("g(?=[ie])", "j"),
    ("s(?=[iu])", "S"),
    ("d(?=[iu])", "z"),
    ("(?<=[aeiou])t(?=[aeiou])", "d"),
    ("(?<=[aeiou])k(?=[aeiou])", "g"),
    ("(?<=[aeiou])p(?=[aeiou])", "b"),
    ("[ao]$", ""),
    ("e(?=.*[iu])", "i"),
    ("o(?=.*[iu])", "u"),
    ("a(?=[nmN])", "o"),
    ("n$", "N"),
    ("m$", "n"),
    ("a$", "e"),
)

# What a foreign sound is heard as, nearest first, by those who lack it.
_NEAREST = {
    "p": "bfv", "b": "pvw", "t": "dsk", "d": "tzl", "k": "ght", "g": "khd", "m": "nb",
    "n": "mN", "s": "zSC", "z": "sdS", "S": "sCz", "C": "Stk", "f": "pvb", "v": "wbf",
    "h": "kgf", "l": "rnd", "r": "ldn", "j": "glr", "w": "vbm", "N": "nm",
}  # fmt: skip


@dataclass(frozen=True)
class Phonotactics:
    """The sounds a family uses, common ones first, and the shape of its syllables."""

    onsets: str
    vowels: str
    codas: str
    closed: float
    lengths: tuple[int, int, int]

    @classmethod
    def invent(cls, rng: random.Random) -> Phonotactics:
        return cls(
            onsets="".join(rng.sample(CONSONANTS, rng.randint(11, 14))),
            vowels="".join(rng.sample(VOWELS, len(VOWELS))),
            codas="".join(rng.sample(CODAS, rng.randint(3, 5))),
            closed=rng.uniform(0.2, 0.5),
            lengths=rng.choice([(1, 6, 3), (1, 5, 4), (2, 7, 1)]),
        )

    def root(self, rng: random.Random) -> str:
        count = rng.choices((1, 2, 3), self.lengths)[0]
        return "".join(self.syllable(rng) for _ in range(count))

    def syllable(self, rng: random.Random) -> str:
        coda = _skewed(self.codas, rng) if rng.random() < self.closed else ""
        return _skewed(self.onsets, rng) + _skewed(self.vowels, rng) + coda


def _skewed(sounds: str, rng: random.Random) -> str:
    """Sounds are used as unequally as words are, if less so: each family has its favourites."""
    return sounds[int(len(sounds) * rng.random() ** 1.5)]


def evolve(word: str, changes: tuple[tuple[str, str], ...]) -> str:
    """The word after each change in turn; a change that would leave no syllable is not made."""
    for pattern, replacement in changes:
        changed = re.sub(pattern, replacement, word)
        if len(changed) > 1 and re.search(f"[{VOWELS}]", changed):
            word = changed
    return word


def adapt(word: str, inventory: str) -> str:
    """A foreign word with the sounds of a language that has only those of `inventory`."""
    return "".join(_heard(sound, inventory) for sound in word)


def _heard(sound: str, inventory: str) -> str:
    if sound in inventory or sound in VOWELS:
        return sound
    return next((near for near in _NEAREST[sound] if near in inventory), sound)


def syllables(word: str) -> list[tuple[str, str, str]]:
    """Onset, vowel and coda of each syllable; a stray consonant is an onset without a vowel."""
    pattern = rf"([{CONSONANTS}]?)([{VOWELS}])((?:[ptkbdgmnszSCfvhlrN](?![{VOWELS}]))?)|([{CONSONANTS}])"
    return [(onset or stray, vowel, coda) for onset, vowel, coda, stray in re.findall(pattern, word)]
