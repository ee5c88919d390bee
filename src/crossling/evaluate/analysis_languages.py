"""Languages in groups: by family, by what a run has read of them, and before and after it went on training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

# XTREME's forty languages; families by how many Wikipedia articles their languages have together, most first, as in
# XY-LENT's Figure 3 (§6.4).
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
READ = ("text and bitext", "text only", "not seen")


@dataclass(frozen=True)
class Group:
    """Some languages and the mean of their scores."""

    name: str
    languages: list[str]
    value: float


def family_order(codes: Iterable[str]) -> list[str]:
    """Languages by family, those of no known family last."""
    order = [*FAMILIES]
    return sorted(codes, key=lambda code: (order.index(_FAMILY[code]) if code in _FAMILY else len(order), code))


def families(values: Mapping[str, float]) -> list[Group]:
    """Means of the languages of each family that is there (XY-LENT, Figure 3)."""
    return _groups({family: [code for code in codes if code in values] for family, codes in FAMILIES.items()}, values)


def by_what_was_read(values: Mapping[str, float], data: Mapping[str, Any], pivot: str = "en") -> list[Group]:
    """Languages a run has read text and translations of, only text, or nothing.

    `data` is that of the run: `text`, tokens by language, and `pairs`, [language, language, number]. A pair of
    languages (`qaa-qab`) has bitext if there is some between the two; a language alone, if there is some with any.
    Retrieval with English asks for bitext with English, but all bitext a language has helps it.
    """
    text = {code for code, tokens in data.get("text", {}).items() if tokens}
    pairs = {frozenset((first, second)) for first, second, number in data.get("pairs", []) if number}
    paired = {code for pair in pairs for code in pair}
    names: dict[str, list[str]] = {name: [] for name in READ}
    for code in values:
        if code == pivot:
            continue
        parts = code.split("-")
        with_bitext = frozenset(parts) in pairs if len(parts) > 1 else code in paired
        seen = all(part in text or part in paired for part in parts)
        names[READ[0] if with_bitext else READ[1] if seen else READ[2]].append(code)
    return _groups(names, values)


@dataclass(frozen=True)
class Change:
    """One language before and after continued training."""

    language: str
    before: float
    after: float

    @property
    def drop(self) -> float | None:
        """Relative, in percent of what it was (XY-LENT, Table 6)."""
        return 100 * (self.before - self.after) / self.before if self.before else None


def changes(before: Mapping[str, float], after: Mapping[str, float]) -> list[Change]:
    """Of the languages both have; the first is their mean."""
    common = [code for code in before if code in after]
    if not common:
        return []
    each = [Change(code, before[code], after[code]) for code in family_order(common)]
    mean = Change("mean", fmean(change.before for change in each), fmean(change.after for change in each))
    return [mean, *each]


def _groups(names: Mapping[str, list[str]], values: Mapping[str, float]) -> list[Group]:
    return [Group(name, codes, fmean(values[code] for code in codes)) for name, codes in names.items() if codes]
