"""Sounds and scripts: how words are built, how they change in each language, and how they are written.

A word is a string of phonemes, one character each; S, C and N stand for the first sounds of ship and chip and the last
of sing. Alphabets write a letter or two for each sound. Devanagari writes vowels as signs on their consonant. Hangul
composes a block for each syllable, and Han has one character for each. Words are separated by spaces in every script,
because word alignment counts them.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

VOWELS = "aeiou"
CONSONANTS = "ptkbdgmnszSCfvhlrjwN"
CODAS = "nmlrsktpN"

# Regular sound changes of natural languages, as pattern and replacement.
SOUND_CHANGES = (
    ("p", "f"), ("b", "v"), ("w", "v"), ("z", "s"), ("S", "s"), ("f", "h"), ("h", "k"), ("l(?=[iu])", "r"),
    ("r(?=[ae])", "l"), ("t(?=i)", "C"), ("k(?=[ie])", "C"), ("g(?=[ie])", "j"), ("s(?=[iu])", "S"),
    ("d(?=[iu])", "z"), ("(?<=[aeiou])t(?=[aeiou])", "d"), ("(?<=[aeiou])k(?=[aeiou])", "g"),
    ("(?<=[aeiou])p(?=[aeiou])", "b"), ("[ao]$", ""), ("e(?=.*[iu])", "i"), ("o(?=.*[iu])", "u"), ("a(?=[nmN])", "o"),
    ("n$", "N"), ("m$", "n"), ("a$", "e"),
)  # fmt: skip

# Substitutes for a sound that a language lacks, nearest first.
_NEAREST = {
    "p": "bfv", "b": "pvw", "t": "dsk", "d": "tzl", "k": "ght", "g": "khd", "m": "nb",
    "n": "mN", "s": "zSC", "z": "sdS", "S": "sCz", "C": "Stk", "f": "pvb", "v": "wbf",
    "h": "kgf", "l": "rnd", "r": "ldn", "j": "glr", "w": "vbm", "N": "nm",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Phonotactics:
    """The sounds of a family, frequent ones first, and the shape of its syllables."""

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
        coda = _sample_sound(self.codas, rng) if rng.random() < self.closed else ""
        return _sample_sound(self.onsets, rng) + _sample_sound(self.vowels, rng) + coda


def _sample_sound(sounds: str, rng: random.Random) -> str:
    """Sample a sound with a skewed distribution."""
    return sounds[int(len(sounds) * rng.random() ** 1.5)]


def apply_sound_changes(word: str, changes: tuple[tuple[str, str], ...]) -> str:
    """Apply each change in turn, except one that would remove the last syllable."""
    for pattern, replacement in changes:
        changed = re.sub(pattern, replacement, word)
        if len(changed) > 1 and re.search(f"[{VOWELS}]", changed):
            word = changed
    return word


def adapt_to_inventory(word: str, inventory: str) -> str:
    """Replace sounds that are not in `inventory`."""
    return "".join(_nearest_sound(sound, inventory) for sound in word)


def _nearest_sound(sound: str, inventory: str) -> str:
    if sound in inventory or sound in VOWELS:
        return sound
    return next((near for near in _NEAREST[sound] if near in inventory), sound)


def split_syllables(word: str) -> list[tuple[str, str, str]]:
    """Split into onset, vowel and coda; a stray consonant is an onset without a vowel."""
    pattern = rf"([{CONSONANTS}]?)([{VOWELS}])((?:[ptkbdgmnszSCfvhlrN](?![{VOWELS}]))?)|([{CONSONANTS}])"
    return [(onset or stray, vowel, coda) for onset, vowel, coda, stray in re.findall(pattern, word)]


def _letters(sounds: str, written: str) -> dict[str, str]:
    return dict(zip(sounds, written.split(), strict=True))


def _positions(sounds: str, numbers: str) -> dict[str, int]:
    return {sound: int(number) for sound, number in _letters(sounds, numbers).items()}


_ALPHABETS = {
    "Latin": _letters(CONSONANTS + VOWELS, "p t k b d g m n s z sh ch f v h l r y w ng a e i o u"),
    "Cyrillic": _letters(CONSONANTS + VOWELS, "п т к б д г м н с з ш ч ф в х л р й ў нг а е и о у"),
    "Greek": _letters(CONSONANTS + VOWELS, "π τ κ β δ γ μ ν σ ζ ξ ψ φ θ χ λ ρ η ω νγ α ε ι ο υ"),
}
_DEVANAGARI = _letters(CONSONANTS, "प त क ब द ग म न स ज श च फ व ह ल र य ळ ङ")
_VOWEL_LETTERS = _letters(VOWELS, "अ ए इ ओ उ")
_VOWEL_SIGNS = {"a": ""} | _letters("eiou", "े ि ो ु")
_VIRAMA = "्"

# Positions in the Unicode composition of Hangul blocks: 19 onsets, 21 vowels, 28 codas.
_HANGUL_CONSONANTS = "ptkbdgmnszSCfvhlrN"
_HANGUL_ONSETS = _positions(_HANGUL_CONSONANTS, "17 16 15 7 3 0 6 2 9 12 10 14 8 13 18 5 5 2")
_HANGUL_VOWELS = {
    "": _positions(VOWELS, "0 5 20 8 13") | {"": 18},
    "j": _positions(VOWELS, "2 7 20 12 17") | {"": 20},
    "w": _positions(VOWELS, "9 15 16 14 13") | {"": 13},
}
_HANGUL_CODAS = {"": 0} | _positions(_HANGUL_CONSONANTS, "17 7 1 17 7 1 16 4 19 22 20 23 26 17 27 8 8 21")
_SILENT_ONSET = 11

# A prime number of characters: multiples of a step visit each once, so every syllable has its own.
_HAN_FIRST, _HAN_COUNT, _HAN_STEP = 0x4E00, 20011, 4799

# The Unicode range each script's letters come from.
SCRIPTS = {
    "Latin": (0x61, 0x7A),
    "Cyrillic": (0x400, 0x4FF),
    "Greek": (0x370, 0x3FF),
    "Devanagari": (0x900, 0x97F),
    "Hangul": (0xAC00, 0xD7A3),
    "Han": (_HAN_FIRST, _HAN_FIRST + _HAN_COUNT - 1),
}


def write(word: str, script: str) -> str:
    """Write the phonemes of `word` in a script."""
    if script == "Devanagari":
        return _devanagari(word)
    if script in ("Hangul", "Han"):
        compose = _hangul if script == "Hangul" else _han
        return "".join(compose(*syllable) for syllable in split_syllables(word))
    written = "".join(_ALPHABETS[script][sound] for sound in word)
    return written[:-1] + "ς" if written.endswith("σ") else written  # Greek's letter at the end of a word


def _devanagari(word: str) -> str:
    written = ""
    for before, sound, after in zip(" " + word, word, word[1:] + " ", strict=False):
        if sound in VOWELS:
            written += _VOWEL_SIGNS[sound] if before in CONSONANTS else _VOWEL_LETTERS[sound]
        else:
            written += _DEVANAGARI[sound] + ("" if after in VOWELS else _VIRAMA)
    return written


def _hangul(onset: str, vowel: str, coda: str) -> str:
    glide = onset if onset in ("j", "w") else ""
    lead = _HANGUL_ONSETS.get(onset, _SILENT_ONSET)
    return chr(0xAC00 + (lead * 21 + _HANGUL_VOWELS[glide][vowel]) * 28 + _HANGUL_CODAS[coda])


def _han(onset: str, vowel: str, coda: str) -> str:
    position = (_index(onset, CONSONANTS) * 6 + _index(vowel, VOWELS)) * 21 + _index(coda, CONSONANTS)
    return chr(_HAN_FIRST + position * _HAN_STEP % _HAN_COUNT)


def _index(sound: str, sounds: str) -> int:
    """Return the position of a sound, counted from 1, or 0 for the empty sound."""
    return sounds.index(sound) + 1 if sound else 0
