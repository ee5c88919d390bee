"""Canonical language codes, as in the papers: `sw` for `swh`, `SWA` and `swh_Latn`.

- ISO 639-1 if there is such a code, else ISO 639-3 (`ckb`, `quy`) or a collection of ISO 639-5 (`ber`). The private
  codes `qaa` to `qtz` are kept.
- The main member of a macrolanguage is replaced by the macrolanguage (`cmn` by `zh`, `arb` by `ar`). Other members are
  languages of their own (`yue`, `arz`).
- Script and region follow as in BCP 47 (`zh-Hant`, `pt-BR`). Input may use `-` or `_`. The default script of a language
  is removed (`swh_Latn` is `sw`, `zho_Hans` is `zh`, `sr-Cyrl` is `sr`), any other is kept (`sr-Latn`). A region is
  always kept (`zh-CN` is not `zh`), except in pairs of CCAligned (`en_XX-zh_CN` is `en-zh`).

The codes in iso639.txt are those of ISO 639-3 (source: iso639-3.sil.org) with their two-letter equivalents, the
bibliographic codes of ISO 639-2 (`ger`) and the collections of ISO 639-5.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import resources

from crossling.core.errors import BadInput, suggestion

# Main members of macrolanguages, replaced codes, and `ns`, which only CC-100 uses.
_SYNONYMS = {
    "als": "sq", "arb": "ar", "ayr": "ay", "azj": "az", "cmn": "zh", "ekk": "et", "esk": "ik", "gaz": "om", "gug": "gn",
    "ike": "iu", "khk": "mn", "kmr": "ku", "kpv": "kv", "lvs": "lv", "npi": "ne", "ojg": "oj", "ory": "or", "pbt": "ps",
    "pbu": "ps", "pes": "fa", "plt": "mg", "src": "sc", "swh": "sw", "uzn": "uz", "ydd": "yi", "zsm": "ms", "zyb": "za",
    "fil": "tl", "in": "id", "iw": "he", "ji": "yi", "jw": "jv", "mo": "ro", "mol": "ro", "scc": "sr", "scr": "hr",
    "ns": "nso",
}  # fmt: skip

# Scripts other than Latin, each with the languages that are written in it by default.
_SCRIPTS = """
    Arab acm acq aeb ajp apc ar ars ary arz azb bal bgn brh ckb fa glk haz khw ks lrc luz mzn pnb prs ps sd skr ug ur
    | Armn hy hyw | Beng as bn bpy ctg mni rhg syl | Cher chr
    | Cyrl ab ady alt av ba be bg bua bxr ce chm cv dar inh kbd kjh kk koi krc kum kv ky lbe lez mdf mhr mk mn mrj myv
      nog os ru rue sah sr tab tg tt tyv udm uk xal
    | Deva anp awa bgc bho bra brx doi gom hi hne kok mag mai mr ne new sa | Ethi am gez ti tig | Geor ka xmf
    | Grek el grc pnt | Gujr gu | Guru pa | Hans wuu zh | Hant lzh yue | Hang ko | Hebr arc he lad yi | Jpan ja
    | Khmr km | Knda kn tcy | Laoo lo | Mlym ml | Mymr blk ksw mnw my shn | Nkoo nqo | Olck sat | Orya or | Sinh si
    | Syrc syr | Taml ta | Telu te | Tfng tzm zgh | Thaa dv | Thai th | Tibt bo dz
"""
_DEFAULT_SCRIPT = {
    language: script for script, *languages in map(str.split, _SCRIPTS.split("|")) for language in languages
}

_SCRIPTS_OF_CC100 = {"rom": "Latn", "zaw": "Qaag"}  # hi_rom is romanized Hindi, my_zaw Burmese in Zawgyi encoding
_TAG = re.compile(
    r"(?P<language>[a-z]{2,3})(-(?P<script>[a-z]{4}|rom|zaw))?(-(?P<region>[a-z]{2}|[0-9]{3}))?(?P<variants>(-[a-z0-9]{5,8})*)"
)


def canonical_code(code: str) -> str:
    """Return the canonical code of a language; BadInput if it is unknown."""
    lowered = code.strip().lower().replace("_", "-")
    tag = _TAG.fullmatch(lowered)
    language = _language(tag["language"]) if tag else None
    if tag is None or language is None:
        raise BadInput(f"{code!r} is not a language code of ISO 639 or BCP 47{_suggestion(lowered.split('-')[0])}")
    script = _SCRIPTS_OF_CC100.get(tag["script"] or "", (tag["script"] or "").title())
    if script == _DEFAULT_SCRIPT.get(language, "Latn"):
        script = ""
    subtags = [language, script, (tag["region"] or "").upper(), tag["variants"].lstrip("-")]
    return "-".join(filter(None, subtags))


# In a pair, `-` also separates the two languages. A region is written in capitals (pt-BR-en) or after `_` (pt_br-en).
CODE_IN_PAIR = r"[A-Za-z]{2,3}(?:_[A-Za-z0-9]+|-[A-Za-z]{4}|-[A-Z]{2})*"
MAX_CODE_LENGTH = 40  # characters; all codes are shorter
_PAIR = re.compile(rf"({CODE_IN_PAIR})-({CODE_IN_PAIR})")

# CCAligned has a region in every code, `XX` for several: af_ZA-en_XX. Some of its codes are in no standard.
_CCALIGNED = {
    "az_IR": "azb", "cb_IQ": "ckb", "cx_PH": "ceb", "qa_MM": "shn", "qd_MM": "kac", "sz_PL": "szl", "tz_MA": "zgh",
    "zh_TW": "zh-Hant", "zz_TR": "zza",
}  # fmt: skip


def parse_pair(code: str) -> tuple[str, str]:
    """Return the two languages of a pair such as `en-fr`, in this order. Pairs with `_XX` have CCAligned's codes."""
    match = _PAIR.fullmatch(code)
    if match is None:
        raise BadInput(f"{code!r} is not a language pair. Write two codes separated by -, as in en-fr.")
    codes = match.groups()
    if any(each.endswith("_XX") for each in codes):
        codes = tuple(_CCALIGNED.get(each) or re.sub("_[A-Z]{2}", "", each) for each in codes)
    source, target = map(canonical_code, codes)
    if source == target:
        raise BadInput(f"{code!r} pairs {source} with itself. Give two languages.")
    return source, target


def match_codes(codes: Iterable[str], pair: tuple[str, str]) -> tuple[str | None, str | None]:
    """Return the code of each language of a pair: an exact match, else one with a region (en-US for en)."""
    exact: dict[str, str] = {}
    regional: dict[str, str] = {}
    for code in codes:
        language = find_code(code) if len(code) <= MAX_CODE_LENGTH else None
        if language in pair:
            exact.setdefault(language, code)
        elif language:
            regional.setdefault(without_region(language), code)
    left, right = (exact.get(language) or regional.get(language) for language in pair)
    return left, right


@lru_cache(maxsize=1024)
def find_code(code: str) -> str | None:
    """Return the canonical code of a language, or None if it is unknown."""
    try:
        return canonical_code(code)
    except BadInput:
        return None


def without_region(language: str) -> str:
    """Return language and script, which determine the spelling."""
    language, *subtags = language.split("-")
    return "-".join([language, *(subtag for subtag in subtags[:1] if len(subtag) == 4)])


def _language(code: str) -> str | None:
    if re.fullmatch("q[a-t][a-z]", code):
        return code
    return _codes().get(code)


def _suggestion(code: str) -> str:
    """Suggest a language with a two-letter code first, then any of the other eight thousand."""
    common = [known for known, best in _codes().items() if len(best) == 2]
    return suggestion(code, common) or suggestion(code, _codes())


@cache
def _codes() -> dict[str, str]:
    """Return the canonical code of every known code."""
    table = resources.files("crossling.corpora").joinpath("iso639.txt").read_text(encoding="ascii")
    rows = map(str.split, table.splitlines())  # a three-letter code and, if there is one, its two-letter equivalent
    return {code: row[-1] for row in rows for code in row} | _SYNONYMS


def small_languages(pairs: Mapping[tuple[str, str], int], fewest: int) -> dict[str, int]:
    """Return languages with fewer pairs, and their counts. Repeated, since each removed language takes pairs along."""
    removed: dict[str, int] = {}
    while True:
        counts: Counter[str] = Counter()
        for languages, count in pairs.items():
            if removed.keys().isdisjoint(languages):
                counts.update(dict.fromkeys(languages, count))
        new = {language: count for language, count in counts.items() if count < fewest}
        if not new:
            return removed
        removed |= new
