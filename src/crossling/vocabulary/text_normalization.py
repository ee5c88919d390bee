"""NFKC normalization of text, identical in SentencePiece and `tokenizers`.

`tokenizers` computes NFKC. SentencePiece has a list of rules instead and applies the longest match from left to right.
Its own list (nmt_nfkc) keeps combining marks in the order in which they were typed. It also lacks many ways to write a
letter with two marks, which are frequent in Arabic, Hebrew, Burmese, Vietnamese and Yoruba.

This module completes the list with rules for:

- every letter that takes a mark, with one mark more,
- every two marks of a script in the wrong order,
- every other cluster of the corpora, in all the ways to write it.

No added rule changes text in NFKC: any part of such text is in NFKC itself, and a rule only replaces text that is not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, permutations

import sentencepiece
from sentencepiece import SentencePieceNormalizer
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import Regex, normalizers

NAME = "crossling_nfkc"  # name of these rules in a model; vocabularies of others have another one
_NFKC, _NFKD, _NFC, _NFD = (
    form().normalize_str for form in (normalizers.NFKC, normalizers.NFKD, normalizers.NFC, normalizers.NFD)
)
_CODE_POINTS = range(1, 0x20000)  # no marks, and no letters that take one, are beyond
_SURROGATES, _SYLLABLES = range(0xD800, 0xE000), range(0xAC00, 0xD7A4)
_JAMO = "".join(map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))))
MAX_MARKS = 4  # of a cluster whose every spelling becomes a rule: 24 orders
# Characters that are spaces to the list of SentencePiece but not to NFKC.
_SPACES = "\u1680\u200b\u200c\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd"


def normalize_nfkc(line: str) -> str:
    """Apply NFKC."""
    # By `tokenizers` itself: it and Python implement different versions of Unicode.
    return line if unicodedata.is_normalized("NFKC", line) else _NFKC(line)


def unnormalized_clusters(line: str) -> set[str]:
    """Return the clusters (letters with marks) of a line that the standard rules do not normalize to NFKC."""
    if unicodedata.is_normalized("NFKC", line) or _standard().normalize(line) == _target(line):
        return set()
    return _not_normalized(_standard(), _clusters().findall(line))


def build_charsmap(clusters: Iterable[str] = (), old: bytes | None = None) -> bytes:
    """Compile SentencePiece's rules for all ways to write the clusters.

    Args:
        clusters: Letters with marks that need rules of their own.
        old: Compiled rules to extend [default: the standard rules].

    Returns:
        The compiled rules.
    """
    normalizer = _standard() if old is None else _load_rules(old)
    rules = _rules() if old is None else dict(normalizer.Decompile())
    wrong = sorted(_not_normalized(normalizer, clusters))
    # First rules for the marks alone, which apply after other letters as well. If another rule matches the letter with
    # its first mark, these do not suffice and the whole cluster becomes a rule.
    for start in (1, 0):
        if wrong:
            spellings = (spelling for cluster in wrong for spelling in _spellings(cluster[start:]))
            rules = rules | {spelling: _target(spelling) for spelling in _not_normalized(normalizer, spellings)}
            normalizer = _compile(rules)
            wrong = sorted(_not_normalized(normalizer, wrong))
    return _charsmap_of(normalizer)


def default_charsmap() -> bytes:
    """Return SentencePiece's own rules, which suffice for text in NFKC and need no compilation."""
    return _charsmap_of(_default())


def fast_normalizer(character_map: bytes) -> normalizers.Normalizer:
    """Return the same normalization for `tokenizers`."""
    return normalizers.Sequence(
        [
            # With these rules `tokenizers` composes only short sequences, and loses a mark of some (<o, dot below,
            # acute> becomes <o with dot below>). NFKC first leaves single characters for it. The characters it treats
            # as spaces must not come with a mark.
            normalizers.NFKC(),
            normalizers.Replace(Regex(f"[{_SPACES}]"), " "),
            normalizers.Precompiled(character_map),
            # As SentencePiece does after its rules: merge runs of spaces, and trim. (`Strip` would remove other white
            # space as well.)
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Replace(Regex(r"\A | \z"), ""),
        ]
    )


# ---- standard rules ------------------------------------------------------------------------------------------


@cache
def _default() -> SentencePieceNormalizer:
    return SentencePieceNormalizer(rule_name="nmt_nfkc")


@cache
def _standard() -> SentencePieceNormalizer:
    return _compile(_rules())


@cache
def _rules() -> dict[str, str]:
    """Return SentencePiece's own rules, and those for one mark more and for two marks in the wrong order."""
    letters, tails = _letters()
    one_mark_more = sorted(_not_normalized(_default(), (letter + mark for letter in letters for mark in tails)))
    pages: dict[int, list[str]] = {}
    for mark in sorted(_marks()):
        pages.setdefault(ord(mark) >> 8, []).append(mark)  # marks of one script are close together
    two_marks = (a + b for page in pages.values() for a in page for b in page)
    lacking = _not_normalized(_default(), chain(_characters(), two_marks, *map(_spellings, one_mark_more)))
    return dict(_default().Decompile()) | {text: _target(text) for text in lacking}


def _characters() -> Iterator[str]:
    """Yield all characters that may take a mark or be one."""
    return (chr(c) for c in _CODE_POINTS if c not in _SURROGATES)


@cache
def _marks() -> frozenset[str]:
    """Return U+0345, which is last in the canonical order, and all characters that are ordered before it."""
    last = "\u0345"
    return frozenset({last, *(c for c in _characters() if _NFD(last + c) == _NFD(c) + last)})


@cache
def _letters() -> tuple[list[str], list[str]]:
    """Return the letters that compose with a mark, and the marks they compose with."""
    characters = (c for c in _characters() if ord(c) not in _SYLLABLES)
    parts = {c: _NFD(c) for c in characters if _NFC(_NFD(c)) == c != _NFD(c)}
    letters = {*parts, *(part[0] for part in parts.values())}
    return sorted(letters), sorted({mark for part in parts.values() for mark in part[1:]})


@cache
def _clusters() -> re.Pattern[str]:
    """Match a character with those after it that may be reordered or composed with it."""
    backward = {*_marks(), *_letters()[1], *_JAMO}
    joining = "".join(re.escape(c) for c in _characters() if _NFKD(c)[0] in backward)
    return re.compile(f"[^{joining}]?[{joining}]+")


# ---- compilation ---------------------------------------------------------------------------------------------


def _target(text: str) -> str:
    return str(_default().normalize(_NFKC(text)))


def _not_normalized(normalizer: SentencePieceNormalizer, texts: Iterable[str]) -> set[str]:
    """Return the texts that these rules do not normalize to NFKC."""
    listed = list(texts)
    results = normalizer.normalize(listed)
    targets = _default().normalize(list(map(_NFKC, listed)))
    return {text for text, result, target in zip(listed, results, targets, strict=True) if result != target}


def _compile(rules: dict[str, str]) -> SentencePieceNormalizer:
    sentencepiece.set_min_log_level(2)  # it would log each compilation
    return SentencePieceNormalizer(norm_map=sorted(rules.items()))


def _load_rules(rules: bytes) -> SentencePieceNormalizer:
    model = proto.ModelProto()
    model.pieces.add(piece="<unk>", type=proto.ModelProto.SentencePiece.UNKNOWN)  # required in a model
    model.normalizer_spec.precompiled_charsmap = rules
    return SentencePieceNormalizer(model_proto=model)


def _charsmap_of(normalizer: SentencePieceNormalizer) -> bytes:
    spec = proto.NormalizerSpec()
    spec.ParseFromString(normalizer.serialized_normalizer_spec())
    return bytes(spec.precompiled_charsmap)


def _spellings(cluster: str) -> Iterator[str]:
    """Yield the cluster and its canonical equivalents: marks in any order, the first ones composed with the letter."""
    yield cluster
    parts = _NFD(cluster)
    letter, marks = (parts[:1], parts[1:]) if parts[:1] not in _marks() else ("", parts)
    if len(marks) > MAX_MARKS:
        return
    for order in map("".join, permutations(marks)):
        if _NFD(letter + order) == parts:
            for composed in range(len(order) + 1 if letter else 1):
                head = _NFC(letter + order[:composed])
                if len(head) == len(letter):
                    yield head + order[composed:]
