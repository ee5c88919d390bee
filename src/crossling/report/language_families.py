"""Language families of XTREME's forty languages, in the order of the report's tables."""

from __future__ import annotations

from collections.abc import Iterable

# XTREME's forty languages. Families are sorted by their number of Wikipedia articles as in XY-LENT's Figure 3 (§6.4).
FAMILIES: dict[str, list[str]] = {
    "Germanic": ["af", "de", "en", "nl"],
    "Romance": ["es", "fr", "it", "pt"],
    "Slavic": ["bg", "ru"],
    "Afro-Asiatic": ["ar", "he"],
    "Austro-Asiatic": ["vi"],
    "Japonic": ["ja"],
    "Sino-Tibetan": ["my", "zh"],
    "Uralic": ["et", "fi", "hu"],
    "Austronesian": ["id", "jv", "ms", "tl"],
    "Isolates": ["eu", "ko"],
    "Iranian": ["fa"],
    "Turkic": ["kk", "tr"],
    "Indo-Aryan": ["bn", "hi", "mr", "ur"],
    "Dravidian": ["ml", "ta", "te"],
    "Greek": ["el"],
    "Kartvelian": ["ka"],
    "Kra-Dai": ["th"],
    "Niger-Congo": ["sw", "yo"],
}
_FAMILY = {code: family for family, codes in FAMILIES.items() for code in codes}


def family_order(codes: Iterable[str]) -> list[str]:
    """Sort languages by family. Languages without a known family come last."""
    order = [*FAMILIES]
    return sorted(codes, key=lambda code: (order.index(_FAMILY[code]) if code in _FAMILY else len(order), code))
