"""What text becomes before it is cut into pieces: NFKC, to SentencePiece as to `tokenizers`.

`tokenizers` computes NFKC. SentencePiece has a list of rules instead, and applies from left to right the longest that
fits; in its own list (nmt_nfkc) combining marks stay in the order in which they were typed, and of the ways to write a
letter with two marks only some are there. Arabic, Hebrew, Burmese, Vietnamese and Yoruba text has many of the others.
Here the list is completed: with every letter that takes a mark and one mark more, with every two marks of a script in
the wrong order, and with whatever else the corpora hold, in all the ways to write it.

No rule that is added changes text in NFKC: a part of such text is in NFKC itself, and what a rule replaces is not.
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

NAME = "crossling_nfkc"  # of the rules, in the model: tells vocabularies that read NFKC from those of others
_NFKC, _NFKD, _NFC, _NFD = (
    form().normalize_str for form in (normalizers.NFKC, normalizers.NFKD, normalizers.NFC, normalizers.NFD)
)
_PLANES = range(1, 0x20000)  # no mark and no letter that takes one lies beyond
_SURROGATES, _SYLLABLES = range(0xD800, 0xE000), range(0xAC00, 0xD7A4)
_JAMO = "".join(map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))))
MOST_MARKS = 4  # of a cluster whose every way to be written becomes a rule: 24 orders
# What is a space to SentencePiece's list, beside what is one to NFKC.
_SPACES = "\u1680\u200b\u200c\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd"


def nfkc(line: str) -> str:
    # By `tokenizers` itself: it and Python know different versions of Unicode.
    return line if unicodedata.is_normalized("NFKC", line) else _NFKC(line)


def odd_clusters(line: str) -> set[str]:
    """The letters with their marks that SentencePiece would not bring to NFKC by the rules that are always there."""
    if unicodedata.is_normalized("NFKC", line) or _standard().normalize(line) == _target(line):
        return set()
    return _wrong(_standard(), _clusters().findall(line))


def character_map(clusters: Iterable[str] = (), old: bytes | None = None) -> bytes:
    """SentencePiece's compiled list of rules, which holds for `clusters` and for other ways to write them too.

    It has the rules of an `old` one as well.
    """
    normalizer = _standard() if old is None else _loaded(old)
    rules = _rules() if old is None else dict(normalizer.Decompile())
    wrong = sorted(_wrong(normalizer, clusters))
    # Marks alone first, without their letter, so that they count after other letters as well. Where they do not
    # suffice (another rule has taken the letter with its first mark) the whole cluster becomes a rule.
    for start in (1, 0):
        if wrong:
            ways = (way for cluster in wrong for way in _ways_to_write(cluster[start:]))
            rules = rules | {way: _target(way) for way in _wrong(normalizer, ways)}
            normalizer = _compiled(rules)
            wrong = sorted(_wrong(normalizer, wrong))
    return _bytes(normalizer)


def plain_map() -> bytes:
    """SentencePiece's own list, which does as well for text that is in NFKC already, and is there at once."""
    return _bytes(_plain())


def fast_normalizer(character_map: bytes) -> normalizers.Normalizer:
    """The same for `tokenizers`."""
    return normalizers.Sequence(
        [
            # The list in the hands of `tokenizers` composes only short sequences, and loses a mark of some (<o, dot
            # below, acute> becomes <o with dot below>): with NFKC before, only single characters are left, and what
            # it takes for spaces must not come with a mark.
            normalizers.NFKC(),
            normalizers.Replace(Regex(f"[{_SPACES}]"), " "),
            normalizers.Precompiled(character_map),
            # What SentencePiece does to spaces after its rules: fold runs into one, and trim. To spaces only, where
            # `Strip` would take other white space too.
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Replace(Regex(r"\A | \z"), ""),
        ]
    )


# ---- the rules that are always there -------------------------------------------------------------------------


@cache
def _plain() -> SentencePieceNormalizer:
    return SentencePieceNormalizer(rule_name="nmt_nfkc")


@cache
def _standard() -> SentencePieceNormalizer:
    return _compiled(_rules())


@cache
def _rules() -> dict[str, str]:
    """SentencePiece's own rules, and those that it lacks for one mark more and for two marks in the wrong order."""
    single = (chr(c) for c in _PLANES if c not in _SURROGATES)
    letters, tails = _letters()
    one_more = sorted(_wrong(_plain(), (letter + mark for letter in letters for mark in tails)))
    pages: dict[int, list[str]] = {}
    for mark in sorted(_marks()):
        pages.setdefault(ord(mark) >> 8, []).append(mark)  # marks of one script lie together
    two = (a + b for page in pages.values() for a in page for b in page)
    lacking = _wrong(_plain(), chain(single, two, *map(_ways_to_write, one_more)))
    return dict(_plain().Decompile()) | {text: _target(text) for text in lacking}


@cache
def _marks() -> frozenset[str]:
    """U+0345, which comes last in the canonical order, and all that moves before it."""
    last = "\u0345"
    moving = (c for c in map(chr, _PLANES) if ord(c) not in _SURROGATES and _NFD(last + c) == _NFD(c) + last)
    return frozenset({last, *moving})


@cache
def _letters() -> tuple[list[str], list[str]]:
    """Letters that are, or become, one with a mark, and what they become one with."""
    parts = {
        c: _NFD(c)
        for c in map(chr, _PLANES)
        if ord(c) not in _SURROGATES and ord(c) not in _SYLLABLES and _NFC(_NFD(c)) == c != _NFD(c)
    }
    letters = {*parts, *(part[0] for part in parts.values())}
    return sorted(letters), sorted({mark for part in parts.values() for mark in part[1:]})


@cache
def _clusters() -> re.Pattern[str]:
    """A character and what may change its place or become one with what stands before it."""
    backward = {*_marks(), *_letters()[1], *_JAMO}
    joining = "".join(re.escape(chr(c)) for c in _PLANES if c not in _SURROGATES and _NFKD(chr(c))[0] in backward)
    return re.compile(f"[^{joining}]?[{joining}]+")


# ---- making rules --------------------------------------------------------------------------------------------


def _target(text: str) -> str:
    return _plain().normalize(_NFKC(text))


def _wrong(normalizer: SentencePieceNormalizer, texts: Iterable[str]) -> set[str]:
    """Those that these rules do not bring to NFKC."""
    listed = list(texts)
    results = normalizer.normalize(listed)
    targets = _plain().normalize(list(map(_NFKC, listed)))
    return {text for text, result, target in zip(listed, results, targets, strict=True) if result != target}


def _compiled(rules: dict[str, str]) -> SentencePieceNormalizer:
    sentencepiece.set_min_log_level(2)  # or it announces each compilation
    return SentencePieceNormalizer(norm_map=sorted(rules.items()))


def _loaded(rules: bytes) -> SentencePieceNormalizer:
    model = proto.ModelProto()
    model.pieces.add(piece="<unk>", type=proto.ModelProto.SentencePiece.UNKNOWN)  # or it is no model
    model.normalizer_spec.precompiled_charsmap = rules
    return SentencePieceNormalizer(model_proto=model)


def _bytes(normalizer: SentencePieceNormalizer) -> bytes:
    spec = proto.NormalizerSpec()
    spec.ParseFromString(normalizer.serialized_normalizer_spec())
    return bytes(spec.precompiled_charsmap)


def _ways_to_write(cluster: str) -> Iterator[str]:
    """The cluster, and its canonical equivalents: marks in any order, the first of them composed with the letter."""
    yield cluster
    parts = _NFD(cluster)
    letter, marks = (parts[:1], parts[1:]) if parts[:1] not in _marks() else ("", parts)
    if len(marks) > MOST_MARKS:
        return
    for order in map("".join, permutations(marks)):
        if _NFD(letter + order) == parts:
            for composed in range(len(order) + 1 if letter else 1):
                head = _NFC(letter + order[:composed])
                if len(head) == len(letter):
                    yield head + order[composed:]
