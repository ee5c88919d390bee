"""Shards are mapped as they were written, and damaged or older ones are refused."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.data import shards as module
from crossling.data.shards import Shards, TokenizedBitext, TokenizedSentences

from .small_corpora import EMPTY_ROWS


@pytest.fixture
def copy(small_shards: Shards, tmp_path: Path) -> Shards:
    """Shards to be damaged."""
    shutil.copytree(small_shards.path, tmp_path / "copy")
    return Shards.open(tmp_path / "copy")


def side(filled: list[bool]) -> TokenizedSentences:
    offsets = np.cumsum([0, *(2 * there for there in filled)])
    return TokenizedSentences(np.arange(offsets[-1]), offsets)


# ---- sentences -----------------------------------------------------------------------------------------------


def test_a_sentence_is_a_read_only_view_of_the_tokens(small_shards: Shards) -> None:
    text = small_shards.text["en"]
    sentence = text[1]
    assert sentence.tolist() == text.tokens[text.offsets[1] : text.offsets[2]].tolist()
    assert np.shares_memory(sentence, text.tokens)
    with pytest.raises(ValueError, match="read-only"):
        sentence[0] = 7


def test_sentences_are_pickled_by_their_path(small_shards: Shards) -> None:
    """Another process maps the files again."""
    for sentences in (small_shards.text["en"], *(side for bitext in small_shards.bitexts for side in bitext.sides)):
        sent = pickle.dumps(sentences)
        assert len(sent) < 300 + len(str(small_shards.path))
        back = pickle.loads(sent)
        assert (back.folder, back.prefix) == (sentences.folder, sentences.prefix)
        for part in ("tokens", "offsets", "documents"):
            one, other = getattr(sentences, part), getattr(back, part)
            assert (one is None) == (other is None)
            assert one is None or (one.dtype == other.dtype and one.tolist() == other.tolist())


def test_sentences_without_a_path_are_pickled_with_their_arrays() -> None:
    sentences = TokenizedSentences(np.arange(5), np.array([0, 2, 5]), np.array([0, 2]))
    back = pickle.loads(pickle.dumps(sentences))
    assert [back.tokens.tolist(), back.offsets.tolist(), back.documents.tolist()] == [
        [0, 1, 2, 3, 4],
        [0, 2, 5],
        [0, 2],
    ]


def test_bitexts_can_be_pickled(small_shards: Shards) -> None:
    for bitext in small_shards.bitexts:
        bitext.row(0)  # fills its cache
        back = pickle.loads(pickle.dumps(bitext))
        assert (back.corpus, back.languages, back.pairs, back.corpus_id) == (
            bitext.corpus,
            bitext.languages,
            bitext.pairs,
            bitext.corpus_id,
        )
        assert [back.row(i) for i in range(back.pairs)] == [bitext.row(i) for i in range(bitext.pairs)]


@given(filled=st.lists(st.booleans(), max_size=30), start=st.integers(0, 35), size=st.integers(0, 35))
def test_presence_is_a_mask_of_sentences_that_are_not_empty(filled: list[bool], start: int, size: int) -> None:
    sentences = side(filled)
    assert len(sentences) == len(filled)
    assert sentences.presence().tolist() == filled
    assert sentences.presence(start).tolist() == filled[start:]
    assert sentences.presence(start, start + size).tolist() == filled[start : start + size]


# ---- bitexts -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(rows=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60), block_rows=st.integers(1, 70))
def test_pairs_are_the_rows_that_both_sides_have(rows: list[tuple[bool, bool]], block_rows: int) -> None:
    both = [row for row, filled in enumerate(rows) if all(filled)]
    sides = side([left for left, _ in rows]), side([right for _, right in rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROWS_PER_BLOCK", block_rows)
        bitext = TokenizedBitext(corpus="set", languages=("en", "sw"), sides=sides, pairs=len(both), corpus_id=0)
        assert [bitext.row(index) for index in range(len(both))] == both


def test_rows_without_gaps_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenizedSentences, "presence", None)
    sides = side([True] * 9), side([True] * 9)
    bitext = TokenizedBitext(corpus="pairs", languages=("en", "sw"), sides=sides, pairs=9, corpus_id=0)
    assert [bitext.row(index) for index in range(9)] == [*range(9)]


def test_multiway_corpora_give_every_pair_of_languages(small_shards: Shards) -> None:
    found = {bitext.languages: bitext for bitext in small_shards.bitexts if bitext.corpus == "bible"}
    rows = {
        pair: sorted(set(range(10)) - EMPTY_ROWS[pair[0]] - EMPTY_ROWS[pair[1]]) for pair in combinations(EMPTY_ROWS, 2)
    }
    assert {pair: [bitext.row(i) for i in range(bitext.pairs)] for pair, bitext in found.items()} == rows


def test_a_language_of_a_multiway_corpus_is_opened_once(small_shards: Shards) -> None:
    bible = [bitext for bitext in small_shards.bitexts if bitext.corpus == "bible"]
    sides = {(language, id(side)) for b in bible for language, side in zip(b.languages, b.sides, strict=True)}
    assert len(sides) == len(EMPTY_ROWS)


def test_each_corpus_has_its_own_id(small_shards: Shards) -> None:
    numbers: dict[str, set[int]] = {}
    for bitext in small_shards.bitexts:
        numbers.setdefault(bitext.corpus, set()).add(bitext.corpus_id)
    assert all(len(these) == 1 for these in numbers.values())
    assert len(set.union(*numbers.values())) == len(numbers) == 3


# ---- entries and checksums ---------------------------------------------------------------------------------------


def test_entries_have_the_names_of_the_folders(small_shards: Shards) -> None:
    places = {file.parent.relative_to(small_shards.path).as_posix() for file in small_shards.path.rglob("entry.json")}
    assert set(small_shards.entries()) == places
    assert places == {
        "text/en",
        "text/sw",
        "pairs/en-sw",
        "pairs/news.en-sw",
        *(f"multi/bible/{x}" for x in EMPTY_ROWS),
    }


def test_entries_have_sizes_and_checksums(small_shards: Shards) -> None:
    for place, entry in small_shards.entries().items():
        files = {file.name: file.read_bytes() for file in (small_shards.path / place).glob("*.npy")}
        assert entry["files"] == {
            name: {"bytes": len(raw), "xxh3": xxhash.xxh3_128_hexdigest(raw)} for name, raw in files.items()
        }


def test_verify_accepts_intact_shards(small_shards: Shards) -> None:
    assert small_shards.verify() == []


@pytest.mark.parametrize("damage", ["flipped", "gone", "cut", "longer", "a folder"])
@pytest.mark.parametrize(
    "name",
    ["text/en/documents.npy", "pairs/en-sw/sw.tokens.npy", "multi/bible/zu/offsets.npy", "multi/bible/en/tokens.npy"],
)
def test_verify_finds_a_damaged_file(copy: Shards, name: str, damage: str) -> None:
    file = copy.path / name
    raw = bytearray(file.read_bytes())
    file.unlink()
    match damage:
        case "flipped":
            raw[-1] ^= 0x10
            file.write_bytes(raw)
        case "cut":
            file.write_bytes(raw[:-1])
        case "longer":
            file.write_bytes(raw + b"\0")
        case "a folder":
            file.mkdir()
    assert copy.verify() == [file]


def test_verify_finds_all_damaged_files(copy: Shards) -> None:
    files = sorted(copy.path.rglob("*.npy"))
    for file in files:
        file.write_bytes(file.read_bytes()[:-2])
    assert sorted(copy.verify()) == files


def test_verify_ignores_cached_blocks(copy: Shards) -> None:
    from crossling.data.example_groups import block_starts

    block_starts(copy.text["en"], 16)
    assert (copy.path / "text/en/blocks-16.npy").exists()
    assert copy.verify() == []


# ---- damaged shards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "nowhere", "corpora"])
def test_folders_without_shards_are_refused(source: Path, name: str) -> None:
    with pytest.raises(
        BadInput, match=r"no shards found \(no manifest\.json.*\)\. Create them with crossling tokenize"
    ):
        Shards.open(source.parent / name)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"manifest"', "{}", '{"format": 2}', "\x00\x01"])
def test_damaged_manifests_are_refused(copy: Shards, text: str) -> None:
    (copy.path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"these shards are damaged\. Create them again with crossling tokenize"):
        Shards.open(copy.path)


def test_a_manifest_that_is_not_utf8_is_refused(copy: Shards) -> None:
    (copy.path / "manifest.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(BadInput, match="damaged"):
        Shards.open(copy.path)


@pytest.mark.parametrize("number", [1, 99, "2", None, [2]])
def test_shards_of_another_format_are_refused(copy: Shards, number: object) -> None:
    (copy.path / "manifest.json").write_text(json.dumps(copy.manifest | {"format": number}), encoding="utf-8")
    expected = f"format version {number!r}, expected 2. Create them again with crossling tokenize"
    with pytest.raises(BadInput, match=re.escape(expected)):
        Shards.open(copy.path)


@pytest.mark.parametrize("report", ["{}", '{"format": 1}', '{"format": "3"}', "[]"])
def test_shards_with_a_vocabulary_of_another_format_are_refused(copy: Shards, report: str) -> None:
    (copy.vocabulary_path / "vocab.json").write_text(report, encoding="utf-8")
    with pytest.raises(BadInput, match=r"vocab\.json: .*\. Create the shards again with crossling tokenize\.$"):
        Shards.open(copy.path)


def test_shards_without_their_vocabulary_are_refused(copy: Shards) -> None:
    (copy.vocabulary_path / "sentencepiece.model").unlink()
    with pytest.raises(BadInput, match="Create them again"):
        Shards.open(copy.path)


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "other"])
@pytest.mark.parametrize(
    "name",
    ["text/en/tokens.npy", "text/en/documents.npy", "pairs/en-sw/sw.offsets.npy", "multi/bible/de/tokens.npy"],
)
def test_damaged_arrays_are_refused(copy: Shards, name: str, damage: str) -> None:
    array = copy.path / name
    raw = array.read_bytes()
    array.unlink()
    if damage != "gone":
        array.write_bytes({"empty": b"", "cut": raw[:-3], "other": b"this is no array\n" * 20}[damage])
    with pytest.raises(
        BadInput, match=rf"{name}: cannot read the array \(.*Create the shards again with crossling tokenize"
    ):
        _ = copy.text if name.startswith("text") else copy.bitexts
