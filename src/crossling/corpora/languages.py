"""One code for one language, the one the papers print: `sw`, whether a file says `swh`, `SWA` or `swh_Latn`.

- ISO 639-1 where there is such a code, else ISO 639-3 (`ckb`, `quy`) or a collection of ISO 639-5 (`ber`);
  the private codes `qaa` to `qtz` stay.
- The member that usually stands for its macrolanguage is that macrolanguage (`cmn` is `zh`, `arb` is `ar`);
  other members are languages of their own (`yue`, `arz`).
- Script and region follow as in BCP 47 (`zh-Hant`, `pt-BR`), joined by `-` or `_` on the way in. A script that is the
  language's usual one says nothing and goes (`swh_Latn` is `sw`, `zho_Hans` is `zh`, `sr-Cyrl` is `sr`, but `sr-Latn`
  stays); a region always stays (`zh-CN` is not `zh`).

The codes in iso639.txt are those of ISO 639-3 (source: iso639-3.sil.org) with their two-letter equals, the
bibliographic codes of ISO 639-2 (`ger`) and the collections of ISO 639-5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import resources

from crossling.errors import BadInput, nearest

# Members that stand for their macrolanguage, names that were replaced, and CC-100's own `ns`.
_SAME = {
    "als": "sq", "arb": "ar", "ayr": "ay", "azj": "az", "cmn": "zh", "ekk": "et", "esk": "ik", "gaz": "om", "gug": "gn",
    "ike": "iu", "khk": "mn", "kmr": "ku", "kpv": "kv", "lvs": "lv", "npi": "ne", "ojg": "oj", "ory": "or", "pbt": "ps",
    "pbu": "ps", "pes": "fa", "plt": "mg", "src": "sc", "swh": "sw", "uzn": "uz", "ydd": "yi", "zsm": "ms", "zyb": "za",
    "fil": "tl", "in": "id", "iw": "he", "ji": "yi", "jw": "jv", "mo": "ro", "mol": "ro", "scc": "sr", "scr": "hr",
    "ns": "nso",
}  # fmt: skip

# How each language is usually written, where that is not Latin.
_USUAL_SCRIPT = {
    language: script
    for script, languages in {
        "Arab": "acm acq aeb ajp apc ar ars ary arz azb bal bgn brh ckb fa glk haz khw ks lrc luz mzn pnb prs ps "
        "sd skr ug ur",
        "Armn": "hy hyw",
        "Beng": "as bn bpy ctg mni rhg syl",
        "Cher": "chr",
        "Cyrl": "ab ady alt av ba be bg bua bxr ce chm cv dar inh kbd kjh kk koi krc kum kv ky lbe lez mdf mhr "
        "mk mn mrj myv nog os ru rue sah sr tab tg tt tyv udm uk xal",
        "Deva": "anp awa bgc bho bra brx doi gom hi hne kok mag mai mr ne new sa",
        "Ethi": "am gez ti tig",
        "Geor": "ka xmf",
        "Grek": "el grc pnt",
        "Gujr": "gu",
        "Guru": "pa",
        "Hans": "wuu zh",
        "Hant": "lzh yue",
        "Hang": "ko",
        "Hebr": "arc he lad yi",
        "Jpan": "ja",
        "Khmr": "km",
        "Knda": "kn tcy",
        "Laoo": "lo",
        "Mlym": "ml",
        "Mymr": "blk ksw mnw my shn",
        "Nkoo": "nqo",
        "Olck": "sat",
        "Orya": "or",
        "Sinh": "si",
        "Syrc": "syr",
        "Taml": "ta",
        "Telu": "te",
        "Tfng": "tzm zgh",
        "Thaa": "dv",
        "Thai": "th",
        "Tibt": "bo dz",
    }.items()
    for language in languages.split()
}

_SCRIPTS_OF_CC100 = {"rom": "Latn", "zaw": "Qaag"}  # hi_rom is romanised Hindi, my_zaw Burmese in the Zawgyi encoding
_TAG = re.compile(
    r"(?P<language>[a-z]{2,3})(-(?P<script>[a-z]{4}|rom|zaw))?(-(?P<region>[a-z]{2}|[0-9]{3}))?(?P<variants>(-[a-z0-9]{5,8})*)"
)


def canonical(code: str) -> str:
    """The papers' code for a language, as the head of this file tells; BadInput for what is no language."""
    lowered = code.strip().lower().replace("_", "-")
    tag = _TAG.fullmatch(lowered)
    language = _language(tag["language"]) if tag else None
    if tag is None or language is None:
        raise BadInput(f"{code!r} is no language code of ISO 639 or BCP 47{_suggestion(lowered.split('-')[0])}")
    script = _SCRIPTS_OF_CC100.get(tag["script"] or "", (tag["script"] or "").title())
    if script == _USUAL_SCRIPT.get(language, "Latn"):
        script = ""
    subtags = [language, script, (tag["region"] or "").upper(), tag["variants"].lstrip("-")]
    return "-".join(filter(None, subtags))


# In a pair, `-` also parts the two languages: there a region is written in capitals (pt-BR-en) or after `_` (pt_br-en).
CODE_IN_PAIR = r"[A-Za-z]{2,3}(?:_[A-Za-z0-9]+|-[A-Za-z]{4}|-[A-Z]{2})*"
LONGEST_CODE = 40  # characters; there are none so long
_PAIR = re.compile(rf"({CODE_IN_PAIR})-({CODE_IN_PAIR})")


def canonical_pair(code: str) -> tuple[str, str]:
    """The two languages of `en-fr`, in their order."""
    match = _PAIR.fullmatch(code)
    if match is None:
        raise BadInput(f"{code!r} is no pair of languages: write two codes with - between them, as in en-fr")
    source, target = canonical(match[1]), canonical(match[2])
    if source == target:
        raise BadInput(f"{code!r} pairs {source} with itself: a pair needs two languages")
    return source, target


def sides(codes: Iterable[str], pair: tuple[str, str]) -> tuple[str | None, str | None]:
    """Which of the codes stand for the two languages: one that says just that, else a region of it (en-US for en)."""
    exact: dict[str, str] = {}
    regional: dict[str, str] = {}
    for code in codes:
        language = _read(code) if len(code) <= LONGEST_CODE else None
        if language in pair:
            exact.setdefault(language, code)
        elif language:
            regional.setdefault(_without_region(language), code)
    left, right = (exact.get(language) or regional.get(language) for language in pair)
    return left, right


@lru_cache(maxsize=1024)
def _read(code: str) -> str | None:
    try:
        return canonical(code)
    except BadInput:
        return None


def _without_region(language: str) -> str:
    """Language and script: what is spelled alike."""
    language, *subtags = language.split("-")
    return "-".join([language, *(subtag for subtag in subtags[:1] if len(subtag) == 4)])


def _language(code: str) -> str | None:
    if re.fullmatch("q[a-t][a-z]", code):
        return code
    return _codes().get(code)


def _suggestion(code: str) -> str:
    """Most likely a language that has a two-letter code was meant; the other eight thousand come second."""
    common = [known for known, best in _codes().items() if len(best) == 2]
    return nearest(code, common) or nearest(code, _codes())


@cache
def _codes() -> dict[str, str]:
    """Every code there is, with the one we use for it."""
    codes: dict[str, str] = {}
    for line in resources.files("crossling.corpora").joinpath("iso639.txt").read_text(encoding="ascii").splitlines():
        three, _, two = line.partition(" ")
        codes[three] = two or three
        if two:
            codes[two] = two
    return codes | _SAME
