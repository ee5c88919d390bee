"""Writing: the same sounds in Latin, Cyrillic, Greek, Devanagari, Hangul or Han.

Alphabets write a letter or two for each sound. Devanagari writes vowels as signs on their consonant. Hangul
composes a block, and Han takes one character, for each syllable; so Han is used as it is for foreign names,
by sound. Words are separated by spaces in every script, since word alignment counts them.
"""

from __future__ import annotations

from crossling.babel.phonology import CONSONANTS, VOWELS, syllables


def _letters(sounds: str, written: str) -> dict[str, str]:
    return dict(zip(sounds, written.split(), strict=True))


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
_HANGUL_ONSETS = dict(
    zip("ptkbdgmnszSCfvhlrN", [17, 16, 15, 7, 3, 0, 6, 2, 9, 12, 10, 14, 8, 13, 18, 5, 5, 2], strict=True)
)
_HANGUL_VOWELS = {
    "": dict(zip(VOWELS, [0, 5, 20, 8, 13], strict=True)) | {"": 18},
    "j": dict(zip(VOWELS, [2, 7, 20, 12, 17], strict=True)) | {"": 20},
    "w": dict(zip(VOWELS, [9, 15, 16, 14, 13], strict=True)) | {"": 13},
}
_HANGUL_CODAS = {"": 0} | dict(
    zip("ptkbdgmnszSCfvhlrN", [17, 7, 1, 17, 7, 1, 16, 4, 19, 22, 20, 23, 26, 17, 27, 8, 8, 21], strict=True)
)
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
    """The phonemes of `word` in a script."""
    match script:
        case "Devanagari":
            return _devanagari(word)
        case "Hangul":
            return "".join(_hangul(*syllable) for syllable in syllables(word))
        case "Han":
            return "".join(_han(*syllable) for syllable in syllables(word))
        case "Greek":
            written = "".join(_ALPHABETS[script][sound] for sound in word)
            return written[:-1] + "ς" if written.endswith("σ") else written
        case _:
            return "".join(_ALPHABETS[script][sound] for sound in word)


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
    position = (_place(onset, CONSONANTS) * 6 + _place(vowel, VOWELS)) * 21 + _place(coda, CONSONANTS)
    return chr(_HAN_FIRST + position * _HAN_STEP % _HAN_COUNT)


def _place(sound: str, sounds: str) -> int:
    """0 for no sound, and from 1 on its place among them."""
    return sounds.index(sound) + 1 if sound else 0
