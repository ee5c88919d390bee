"""Words of many scripts, and functions that make lines and corpora."""

from __future__ import annotations

import random
from pathlib import Path

from crossling.corpora.corpus import Corpora
from crossling.vocabulary.reuse_vocabulary import trim
from crossling.vocabulary.vocabulary import Vocabulary

ODD = (
    "the quick brown fox ... s pad mask unk <> </ <= Été naïve ½ ﬁn ① ％",
    "o\u0323\u0301 e\u0323\u0301 ẹ́ ọ̀ ń ṣ kọ́ ọjọ́",  # Yoruba, composed and decomposed
    "tiếng Việt đặc biệt e\u0302\u0301 o\u031b\u0323",
    "труд тяжело тревога и\u0306 ё",
    "φιλοσοφία α\u0301 ώ",
    "ن\u064e\u0651 ن\u0651\u064e ال\u0651\u064eذي ا\u0653 سلام",  # shadda and fatha in either order
    "שׁ\u05b8לו\u05b9ם ב\u05bc\u05b0 ב\u05b0\u05bc",
    "हिन्दी क\u093c क़ न\u093c",
    "কো ক\u09c7\u09be সৌ স\u09c7\u09d7",
    "தொகை ெ\u0bbe ொ",
    "മലയാളം മ\u0d46\u0d3e",
    "မြန်မာ က\u102d\u102f\u1037 က\u103a\u1037",
    "ภาษาไทย น้ำ กำ ເຂົ້າ",
    "漢字かな か\u3099 ガ ｶﾞ カ\u3099 ＡＢＣ　全角",
    "한국어 하 \u1112\u1161\u11ab ㅎㅏ",
    "ትግርኛ አማርኛ",
)


def random_lines(count: int) -> list[str]:
    """Return lines of one script each, made of words and of compounds."""
    rng = random.Random(5)
    lines = []
    for _ in range(count):
        words = rng.choice(ODD).split()
        line = " ".join("".join(rng.choices(words, k=rng.randint(1, 3))) for _ in range(8))
        lines.append(line + rng.choice([".", "...", "....", " <s>", ""]))
    return lines


def new_language(count: int) -> list[str]:
    """Return lines in two scripts. The first is in none of the other texts."""
    rng = random.Random(9)
    syllables = ("ሀለሐመሠረሰሸቀበ", ["ngi", "mu", "ro", "cha", "lut", "nir", "zo", "qa"])
    words = ["".join(rng.choices(rng.choice(syllables), k=rng.randint(2, 4))) for _ in range(80)]
    return [" ".join(rng.choices(words, k=7)) for _ in range(count)]


def folder_of(root: Path, texts: dict[str, list[str]]) -> Corpora:
    """Write files of lines and return their corpora."""
    for name, lines in texts.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    return Corpora(root)


def trim_to(vocabulary: Vocabulary, corpora: Corpora, size: int | None = None) -> Vocabulary:
    """Keep what the corpora use."""
    lines = (line for language in corpora.languages for line in corpora.lines(language))
    return trim(vocabulary, vocabulary.count_tokens(lines), size)
