"""Shards have exactly the text of the corpora, and every dropped line is counted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as proto

from crossling.core.errors import BadInput
from crossling.corpora import source_parts
from crossling.corpora.corpus import Corpora
from crossling.data import shard_writer
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.vocabulary.vocabulary import EOS, Vocabulary

from .small_corpora import (
    EMPTY_ROWS,
    FILES,
    SYLLABLES,
    decode,
    line,
    lines,
    read_files,
    unfinished_files,
    write_files,
)

# ---- read_files --------------------------------------------------------------------------------------------------


def test_text_is_restored(small_shards: Shards, vocab: Path) -> None:
    assert set(small_shards.text) == {"en", "sw"}
    assert decode(small_shards.text["en"], vocab) == lines(0, 10)
    assert decode(small_shards.text["sw"], vocab) == lines(100, 7)
    assert np.load(small_shards.path / "text/en/documents.npy").tolist() == [0, 5, 8, 10]
    assert np.load(small_shards.path / "text/sw/documents.npy").tolist() == [0, 7]


def test_pairs_are_restored(small_shards: Shards, vocab: Path) -> None:
    by_name = {bitext.corpus: bitext for bitext in small_shards.bitexts if bitext.corpus != "bible"}
    assert set(by_name) == {"en-sw", "news.en-sw"}
    for name, english, swahili, count in (("en-sw", 200, 300, 9), ("news.en-sw", 400, 500, 6)):
        bitext = by_name[name]
        assert bitext.languages == ("en", "sw")
        assert bitext.pairs == count
        assert [decode(side, vocab) for side in bitext.sides] == [
            lines(english, count),
            lines(swahili, count),
        ]


def test_multiway_corpora_are_restored(small_shards: Shards, vocab: Path) -> None:
    bible = [bitext for bitext in small_shards.bitexts if bitext.corpus == "bible"]
    assert [bitext.languages for bitext in bible] == [*combinations(EMPTY_ROWS, 2)]
    for bitext in bible:
        for language, side in zip(bitext.languages, bitext.sides, strict=True):
            assert decode(side, vocab) == FILES[f"multi/bible/{language}.txt"]


def test_languages_without_a_common_row_give_no_pair(tmp_path: Path, vocab: Path) -> None:
    files = {
        "multi/set/de.txt": [line(1), "", ""],
        "multi/set/en.txt": [line(2), line(3), ""],
        "multi/set/sw.txt": ["", line(4), ""],
    }
    small_shards = tokenize(Corpora(write_files(tmp_path / "corpora", files)), vocab, tmp_path / "shards")
    assert {bitext.languages: bitext.pairs for bitext in small_shards.bitexts} == {("de", "en"): 1, ("en", "sw"): 1}


def test_manifest_has_the_right_counts(small_shards: Shards, vocab: Path) -> None:
    vocabulary = Vocabulary.load(vocab)
    text = small_shards.manifest["text"]["en"]
    tokens = sum(len(ids) + 1 for ids in vocabulary.encode(lines(0, 10)))
    assert (text["sentences"], text["documents"], text["tokens"]) == (10, 3, tokens)
    news = small_shards.manifest["pairs"]["news.en-sw"]
    sides = [sum(len(ids) + 1 for ids in vocabulary.encode(lines(start, 6))) for start in (400, 500)]
    assert (news["languages"], news["pairs"], news["tokens"]) == (["en", "sw"], 6, sides)
    bible = small_shards.manifest["multi"]["bible"]
    assert bible["rows"] == 10
    assert {language: (entry["rows"], entry["filled"]) for language, entry in bible["languages"].items()} == {
        language: (10, 10 - len(holes)) for language, holes in EMPTY_ROWS.items()
    }
    assert bible["pairs"] == [
        [a, b, len(set(range(10)) - EMPTY_ROWS[a] - EMPTY_ROWS[b])] for a, b in combinations(EMPTY_ROWS, 2)
    ]
    assert small_shards.vocabulary_size == vocabulary.size
    assert small_shards.manifest["vocabulary"]["fingerprint"] == vocabulary.fingerprint


def test_vocabulary_is_copied_into_the_shards(small_shards: Shards, vocab: Path) -> None:
    assert read_files(small_shards.vocabulary_path) == read_files(vocab)


@pytest.mark.usefixtures("sliced")
def test_dropped_lines_are_counted_once(tmp_path: Path, vocab: Path) -> None:
    """Lines that the reader drops and lines without tokens, also if several slices read them."""
    rows = [
        "ba\tde",
        "ba",
        "\tde",
        "\u200b\tde",
        "ba\tde\tgi",
        "gi\tko",
        "gi\t\u200b",
        *(f"{x}\tba" for x in lines(0, 9)),
    ]
    files = {"pairs/en-sw.tsv": "\n".join([*rows, ""]).encode() + b"\xff\tba\n"}
    small_shards = tokenize(Corpora(write_files(tmp_path / "corpora", files)), vocab, tmp_path / "shards")
    entry = small_shards.manifest["pairs"]["en-sw"]
    assert entry["pairs"] == 11
    assert entry["dropped"] == {"not two columns": 2, "empty side": 1, "malformed utf-8": 1, "no tokens": 2}


def test_pairs_with_a_side_without_tokens_are_dropped(tmp_path: Path, vocab: Path) -> None:
    """A line of invisible characters is not empty, but has no tokens."""
    files = {"pairs/en-sw.tsv": ["ba\tde", "\u200b\tde", "gi\t\u200b", "ko\tlu"]}
    small_shards = tokenize(Corpora(write_files(tmp_path / "corpora", files)), vocab, tmp_path / "shards")
    [bitext] = small_shards.bitexts
    assert bitext.pairs == 2
    assert [decode(side, vocab) for side in bitext.sides] == [["ba", "ko"], ["de", "lu"]]


def test_sentences_without_tokens_are_dropped(tmp_path: Path, vocab: Path) -> None:
    files = {"text/en.txt": ["\u200b", "ba", "\u200b", "de", "", "\u200b", "", "gi", "\u200b"]}
    small_shards = tokenize(Corpora(write_files(tmp_path / "corpora", files)), vocab, tmp_path / "shards")
    assert decode(small_shards.text["en"], vocab) == ["ba", "de", "gi"]
    assert np.load(small_shards.path / "text/en/documents.npy").tolist() == [0, 2, 3]
    entry = small_shards.manifest["text"]["en"]
    assert (entry["sentences"], entry["documents"], entry["dropped"]) == (3, 2, {"no tokens": 4})


def test_lines_without_tokens_are_empty_rows_of_a_multiway_corpus(tmp_path: Path, vocab: Path) -> None:
    files = {"multi/set/de.txt": ["ba", "\u200b", "de"], "multi/set/en.txt": ["gi", "ko", "lu"]}
    small_shards = tokenize(Corpora(write_files(tmp_path / "corpora", files)), vocab, tmp_path / "shards")
    [bitext] = small_shards.bitexts
    assert [bitext.row(i) for i in range(bitext.pairs)] == [0, 2]
    assert decode(bitext.sides[0], vocab) == ["ba", "", "de"]
    assert small_shards.manifest["multi"]["set"]["languages"]["de"]["dropped"] == {}


@pytest.mark.parametrize("slice_bytes", [1, 1 << 30])
def test_corpora_without_any_token_are_empty(
    tmp_path: Path, vocab: Path, monkeypatch: pytest.MonkeyPatch, slice_bytes: int
) -> None:
    monkeypatch.setattr(source_parts, "SLICE_BYTES", slice_bytes)
    small_shards = tokenize(
        Corpora(write_files(tmp_path / "corpora", {"text/en.txt": ["\u200b"]})), vocab, tmp_path / "shards"
    )
    assert small_shards.manifest["text"]["en"]["tokens"] == 0
    assert len(small_shards.text["en"].tokens) == len(small_shards.text["en"]) == 0
    assert small_shards.verify() == []


@pytest.mark.parametrize(("size", "kind"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
@pytest.mark.parametrize("slice_bytes", [10, 1 << 30])
def test_token_ids_use_16_or_32_bits_by_vocabulary_size(
    vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, kind: type, slice_bytes: int
) -> None:
    monkeypatch.setattr(source_parts, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(shard_writer, "ROWS_PER_BLOCK", 1)
    files = {
        "text/en.txt": ["ba de", f"x{size - 2} ba"],
        "pairs/en-sw.tsv": ["ba\tde", f"gi\tx{size - 2}"],
        "multi/set/de.txt": ["ba", "de"],
        "multi/set/en.txt": ["ba", f"x{size - 2}"],
    }
    small_shards = tokenize(
        Corpora(write_files(tmp_path / "corpora", files)),
        enlarge_vocabulary(vocab, size, tmp_path / "vocab"),
        tmp_path / "out",
    )
    assert small_shards.vocabulary_size == size
    sides = [small_shards.text["en"], *(bitext.sides[1] for bitext in small_shards.bitexts)]
    assert all(size - 2 in side[1].tolist() and side[1][-1] == EOS for side in sides)
    assert all(side.tokens.dtype == kind for side in sides)


def enlarge_vocabulary(vocabulary: Path, size: int, out: Path) -> Path:
    """Add entries that are named by their IDs, up to the one before <mask>."""
    model = proto.ModelProto()
    model.ParseFromString((vocabulary / "sentencepiece.model").read_bytes())
    mask = model.pieces.pop()
    for number in range(len(model.pieces), size - 1):
        model.pieces.add(piece=f"\u2581x{number}", score=-1.0)
    model.pieces.append(mask)
    write_files(out, {"sentencepiece.model": model.SerializeToString()})
    return out


def test_corpora_with_similar_names_have_their_own_folders(tmp_path: Path, vocab: Path) -> None:
    files = {
        "pairs/en-sw.tsv": ["ba\tde"],
        "pairs/en-sw.en-sw.tsv": ["gi\tko", "lu\tma"],
        "pairs/x.en-sw.tsv": ["ba\tba"],
    }
    small_shards = tokenize(Corpora(write_files(tmp_path / "corpora", files)), vocab, tmp_path / "shards")
    assert sorted(bitext.pairs for bitext in small_shards.bitexts) == [1, 1, 2]


# ---- multi-way corpora -------------------------------------------------------------------------------------

CODES = [f"q{a}{b}" for a in "abc" for b in "abcdefghij"]  # for private use


def multi_way(root: Path, languages: Sequence[str], vocabulary: Path) -> Shards:
    files = {f"multi/set/{language}.txt": lines(0, 20) for language in languages}
    return tokenize(Corpora(write_files(root / "corpora", files)), vocabulary, root / "shards")


def test_a_multiway_corpus_is_stored_once_per_language(tmp_path: Path, vocab: Path) -> None:
    large, small = (
        multi_way(tmp_path / "large", CODES, vocab),
        multi_way(tmp_path / "small", CODES[:10], vocab),
    )
    assert len(large.bitexts) == 30 * 29 // 2 == 435
    assert len(small.bitexts) == 45
    for shards, languages in ((large, CODES), (small, CODES[:10])):
        folder = shards.path / "multi" / "set"
        assert sorted(place.name for place in folder.iterdir()) == languages
        assert all({*read_files(place)} == {"tokens.npy", "offsets.npy", "entry.json"} for place in folder.iterdir())
    sizes = [sum(map(len, read_files(shards.path / "multi").values())) for shards in (large, small)]
    assert sizes[0] == 3 * sizes[1]


def test_pairs_of_a_corpus_with_higher_priority_are_excluded(source: Path, vocab: Path, tmp_path: Path) -> None:
    everything = tokenize(Corpora(source), vocab, tmp_path / "everything")
    some = tokenize(Corpora(source, priority=["news", "bible"]), vocab, tmp_path / "some")
    assert [(b.corpus, b.languages) for b in some.bitexts] == [
        ("news.en-sw", ("en", "sw")),
        *(("bible", pair) for pair in combinations(EMPTY_ROWS, 2) if pair != ("en", "sw")),
    ]
    assert some.fingerprint != everything.fingerprint
    arrays = read_files(some.path / "multi")
    assert arrays.pop("bible/excluded-pairs.json")
    assert arrays == read_files(everything.path / "multi")
    # Appending other corpora keeps the excluded pairs. The same corpora with another priority replace them.
    added = Corpora(write_files(tmp_path / "added", {"text/zu.txt": lines(0, 4)}))
    more = tokenize(added, vocab, some.path, append=True)
    assert [b.languages for b in more.bitexts] == [b.languages for b in some.bitexts]
    again = tokenize(Corpora(source), vocab, some.path, append=True)
    assert len(again.bitexts) == len(everything.bitexts)


LINE = st.lists(st.sampled_from(SYLLABLES), max_size=6).map("".join)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(st.tuples(LINE, LINE, LINE), min_size=1, max_size=12).filter(
        lambda rows: all(any(row[side] for row in rows) for side in range(3))
    ),
    block_rows=st.integers(1, 5),
    slice_bytes=st.integers(5, 100),
)
def test_any_multiway_corpus_is_restored(
    vocab: Path,
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    block_rows: int,
    slice_bytes: int,
) -> None:
    root = tmp_path_factory.mktemp("any")
    columns = dict(zip(("de", "en", "sw"), zip(*rows, strict=True), strict=True))
    write_files(root / "corpora", {f"multi/set/{language}.txt": list(column) for language, column in columns.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_writer, "ROWS_PER_BLOCK", block_rows)
        patch.setattr(source_parts, "SLICE_BYTES", slice_bytes)
        small_shards = tokenize(Corpora(root / "corpora"), vocab, root / "shards")
    found = {bitext.languages: bitext for bitext in small_shards.bitexts}
    for a, b in combinations(columns, 2):
        both = [i for i, (one, other) in enumerate(zip(columns[a], columns[b], strict=True)) if one and other]
        assert ((a, b) in found) == bool(both)
        if both:
            assert [found[a, b].row(i) for i in range(found[a, b].pairs)] == both
            assert decode(found[a, b].sides[0], vocab) == list(columns[a])
            assert decode(found[a, b].sides[1], vocab) == list(columns[b])


def test_multiway_files_of_different_lengths_are_refused(source: Path, vocab: Path, tmp_path: Path) -> None:
    write_files(source, {"multi/bible/en.txt": lines(0, 11)})
    message = r"^multi/bible: expected the same number of lines, but de has 10, en has 11, sw has 10.*\. Align"
    with pytest.raises(BadInput, match=message):
        tokenize(Corpora(source), vocab, tmp_path / "shards")
    assert unfinished_files(tmp_path / "shards") == []
    assert not (tmp_path / "shards" / "manifest.json").exists()
    write_files(source, {"multi/bible/en.txt": FILES["multi/bible/en.txt"]})
    assert tokenize(Corpora(source), vocab, tmp_path / "shards").verify() == []


# ---- memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slice_bytes", [1 << 18, 1 << 30])
def test_memory_does_not_grow_with_the_corpora(
    vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_bytes: int
) -> None:
    monkeypatch.setattr(source_parts, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(shard_writer, "ROWS_PER_BLOCK", 100)
    monkeypatch.setattr(Vocabulary, "encode", lambda _, lines: [[7] * (len(line) // 2) for line in lines])
    long = "ba de " * 600  # so that a block is larger than file buffers

    def peak(name: str, rows: int) -> int:
        files = {
            "text/en.txt": [long, long, long, ""] * rows,
            "pairs/en-sw.tsv": [f"{long}\t{long}"] * rows,
            "multi/set/de.txt": [long] * rows,
            "multi/set/en.txt": [long, ""] * (rows // 2),
        }
        corpora = Corpora(write_files(tmp_path / name, files))
        del files
        tracemalloc.start()
        tokenize(corpora, vocab, tmp_path / f"{name} shards")
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak("first", 10)  # initialization
    assert peak("long", 1500) < 1.3 * peak("short", 150)
