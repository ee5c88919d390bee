"""Shards are read as they were written, a little at a time, and say so when they cannot be."""

from __future__ import annotations

import json
import pickle
import shutil
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.data import shards as module
from crossling.data.shards import Bitext, Sentences, Shards
from crossling.errors import BadInput

from .made import HOLES


@pytest.fixture
def copy(made: Shards, tmp_path: Path) -> Shards:
    """Shards to be damaged."""
    shutil.copytree(made.path, tmp_path / "copy")
    return Shards.open(tmp_path / "copy")


def side(filled: list[bool]) -> Sentences:
    offsets = np.cumsum([0, *(2 * there for there in filled)])
    return Sentences(np.arange(offsets[-1]), offsets)


# ---- sentences -----------------------------------------------------------------------------------------------


def test_a_sentence_is_a_piece_of_the_tokens_that_cannot_be_written_to(made: Shards) -> None:
    text = made.text["en"]
    sentence = text[1]
    assert sentence.tolist() == text.tokens[text.offsets[1] : text.offsets[2]].tolist()
    assert np.shares_memory(sentence, text.tokens)
    with pytest.raises(ValueError, match="read-only"):
        sentence[0] = 7


def test_sentences_travel_by_their_path(made: Shards) -> None:
    """To another process, which maps the files too, however large they are."""
    for sentences in (made.text["en"], *(side for bitext in made.bitexts for side in bitext.sides)):
        sent = pickle.dumps(sentences)
        assert len(sent) < 300 + len(str(made.path))
        back = pickle.loads(sent)
        assert (back.folder, back.prefix) == (sentences.folder, sentences.prefix)
        for part in ("tokens", "offsets", "documents"):
            one, other = getattr(sentences, part), getattr(back, part)
            assert (one is None) == (other is None)
            assert one is None or (one.dtype == other.dtype and one.tolist() == other.tolist())


def test_sentences_without_a_path_travel_whole() -> None:
    sentences = Sentences(np.arange(5), np.array([0, 2, 5]), np.array([0, 2]))
    back = pickle.loads(pickle.dumps(sentences))
    assert [back.tokens.tolist(), back.offsets.tolist(), back.documents.tolist()] == [
        [0, 1, 2, 3, 4],
        [0, 2, 5],
        [0, 2],
    ]


def test_bitexts_travel_too(made: Shards) -> None:
    for bitext in made.bitexts:
        bitext.row(0)  # with what it has looked up already
        back = pickle.loads(pickle.dumps(bitext))
        assert (back.corpus, back.languages, back.pairs, back.number) == (
            bitext.corpus,
            bitext.languages,
            bitext.pairs,
            bitext.number,
        )
        assert [back.row(i) for i in range(back.pairs)] == [bitext.row(i) for i in range(bitext.pairs)]


@given(filled=st.lists(st.booleans(), max_size=30), start=st.integers(0, 35), size=st.integers(0, 35))
def test_filled_tells_which_sentences_are_there(filled: list[bool], start: int, size: int) -> None:
    sentences = side(filled)
    assert len(sentences) == len(filled)
    assert sentences.filled().tolist() == filled
    assert sentences.filled(start).tolist() == filled[start:]
    assert sentences.filled(start, start + size).tolist() == filled[start : start + size]


# ---- bitexts -------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(rows=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60), at_once=st.integers(1, 70))
def test_rows_that_both_sides_have_are_numbered_through(rows: list[tuple[bool, bool]], at_once: int) -> None:
    both = [row for row, filled in enumerate(rows) if all(filled)]
    sides = side([left for left, _ in rows]), side([right for _, right in rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROWS_AT_ONCE", at_once)
        bitext = Bitext("set", ("en", "sw"), sides, len(both), 0)
        assert [bitext.row(index) for index in range(len(both))] == both


def test_rows_without_holes_need_no_looking_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sentences, "filled", None)
    bitext = Bitext("pairs", ("en", "sw"), (side([True] * 9), side([True] * 9)), 9, 0)
    assert [bitext.row(index) for index in range(9)] == [*range(9)]


def test_multi_way_sets_give_every_pair_of_languages(made: Shards) -> None:
    found = {bitext.languages: bitext for bitext in made.bitexts if bitext.corpus == "bible"}
    rows = {pair: sorted(set(range(10)) - HOLES[pair[0]] - HOLES[pair[1]]) for pair in combinations(HOLES, 2)}
    assert {pair: [bitext.row(i) for i in range(bitext.pairs)] for pair, bitext in found.items()} == rows


def test_a_side_of_a_multi_way_set_is_opened_once(made: Shards) -> None:
    bible = [bitext for bitext in made.bitexts if bitext.corpus == "bible"]
    sides = {(language, id(side)) for b in bible for language, side in zip(b.languages, b.sides, strict=True)}
    assert len(sides) == len(HOLES)


def test_corpora_have_numbers_of_their_own(made: Shards) -> None:
    numbers: dict[str, set[int]] = {}
    for bitext in made.bitexts:
        numbers.setdefault(bitext.corpus, set()).add(bitext.number)
    assert all(len(these) == 1 for these in numbers.values())
    assert len(set.union(*numbers.values())) == len(numbers) == 3


# ---- what is there, and whether it is whole --------------------------------------------------------------------


def test_units_are_the_folders(made: Shards) -> None:
    places = {file.parent.relative_to(made.path).as_posix() for file in made.path.rglob("entry.json")}
    assert set(made.units()) == places
    assert places == {"text/en", "text/sw", "pairs/en-sw", "pairs/news.en-sw", *(f"multi/bible/{x}" for x in HOLES)}


def test_entries_say_what_the_files_are(made: Shards) -> None:
    for place, entry in made.units().items():
        files = {file.name: file.read_bytes() for file in (made.path / place).glob("*.npy")}
        assert entry["files"] == {
            name: {"bytes": len(raw), "xxh3": xxhash.xxh3_128_hexdigest(raw)} for name, raw in files.items()
        }


def test_whole_shards_are_whole(made: Shards) -> None:
    assert made.verify() == []


@pytest.mark.parametrize("damage", ["flipped", "gone", "cut", "longer", "a folder"])
@pytest.mark.parametrize(
    "name",
    ["text/en/documents.npy", "pairs/en-sw/sw.tokens.npy", "multi/bible/zu/offsets.npy", "multi/bible/en/tokens.npy"],
)
def test_damage_is_found(copy: Shards, name: str, damage: str) -> None:
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


def test_all_damage_is_found(copy: Shards) -> None:
    files = sorted(copy.path.rglob("*.npy"))
    for file in files:
        file.write_bytes(file.read_bytes()[:-2])
    assert sorted(copy.verify()) == files


def test_blocks_that_are_kept_beside_the_tokens_are_no_damage(copy: Shards) -> None:
    from crossling.data.blocks import blocks

    blocks(copy.text["en"], 16)
    assert (copy.path / "text/en/blocks-16.npy").exists()
    assert copy.verify() == []


# ---- what cannot be used -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "nowhere", "corpora"])
def test_folders_that_are_no_shards_are_refused(source: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"no shards here \(expected manifest.json\); make them with crossling encode"):
        Shards.open(source.parent / name)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "7", '"manifest"', "{}", '{"format": 1}', '{"format": 2}', "\x00\x01"]
)
def test_damaged_manifests_are_refused(copy: Shards, text: str) -> None:
    (copy.path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match="damaged or of another version; make these shards again"):
        Shards.open(copy.path)


def test_manifest_that_is_no_text_is_refused(copy: Shards) -> None:
    (copy.path / "manifest.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(BadInput, match="damaged"):
        Shards.open(copy.path)


@pytest.mark.parametrize("number", [1, 99])
def test_manifests_of_other_versions_are_refused(copy: Shards, number: int) -> None:
    (copy.path / "manifest.json").write_text(json.dumps(copy.manifest | {"format": number}), encoding="utf-8")
    with pytest.raises(BadInput, match="another version"):
        Shards.open(copy.path)


def test_shards_without_their_vocabulary_are_refused(copy: Shards) -> None:
    (copy.vocabulary_path / "sentencepiece.model").unlink()
    with pytest.raises(BadInput, match="make these shards again"):
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
    with pytest.raises(BadInput, match=rf"{name} cannot be read \(.*make these shards again with crossling encode"):
        _ = copy.text if name.startswith("text") else copy.bitexts
