"""Slices, shares and processes write the same bytes, and never overwrite foreign files."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.core.jobs import Share
from crossling.core.resumable import file_fingerprint
from crossling.corpora import source_parts
from crossling.corpora.corpus import Corpora
from crossling.corpora.text_files import TextFile
from crossling.data import shard_writer
from crossling.data import tokenize as module
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.vocabulary.text_normalization import default_charsmap
from crossling.vocabulary.vocabulary import Vocabulary

from .small_corpora import (
    Interruption,
    fail_after,
    line,
    read_files,
    record_calls,
    unfinished_files,
    write_files,
)

# ---- slices and shares-------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slice_bytes", "rows", "joined"),
    [(1 << 30, 1, 0), (120, 3, 7), (90, 4096, 7), (20, 2, 8), (5, 1, 8)],
)
def test_any_number_of_slices_writes_the_same_bytes(
    small_shards: Shards,
    source: Path,
    vocab: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slice_bytes: int,
    rows: int,
    joined: int,
) -> None:
    monkeypatch.setattr(source_parts, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(shard_writer, "ROWS_PER_BLOCK", rows)
    joins = record_calls(monkeypatch, module, "join_slices")
    again = tokenize(Corpora(source), vocab, tmp_path / "shards")
    assert len(joins) == joined
    assert read_files(again.path) == read_files(small_shards.path)
    assert again.manifest == small_shards.manifest
    assert unfinished_files(again.path) == []


def test_two_processes_write_the_same_bytes(small_shards: Shards, source: Path, vocab: Path, tmp_path: Path) -> None:
    tokenize(Corpora(source), vocab, tmp_path / "shards", workers=2)
    assert read_files(tmp_path / "shards") == read_files(small_shards.path)


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("order", [*permutations((1, 2, 3))])
def test_shares_in_any_order_write_the_same_bytes(
    small_shards: Shards, source: Path, vocab: Path, tmp_path: Path, order: tuple[int, ...]
) -> None:
    out = tmp_path / "shards"
    for number in order:
        assert not (out / "manifest.json").exists()
        last = tokenize(Corpora(source), vocab, out, share=Share(number, 3))
        assert (last is not None) == (number == order[-1])
    assert last is not None
    assert last.manifest == small_shards.manifest
    assert read_files(out) == read_files(small_shards.path)
    assert unfinished_files(out) == []


def test_more_shares_than_jobs(small_shards: Shards, source: Path, vocab: Path, tmp_path: Path) -> None:
    found = [tokenize(Corpora(source), vocab, tmp_path / "shards", share=Share(number, 11)) for number in range(1, 12)]
    assert [shards is not None for shards in found] == [False] * 7 + [True] * 4  # there are eight jobs
    assert read_files(tmp_path / "shards") == read_files(small_shards.path)


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("after", [0, 1, 4, 9])
def test_only_an_interrupted_share_is_run_again(
    small_shards: Shards,
    source: Path,
    vocab: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
) -> None:
    out, corpora = tmp_path / "shards", Corpora(source)
    tokenize(corpora, vocab, out, share=Share(1, 3))
    calls = record_calls(monkeypatch, Vocabulary, "encode")
    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "encode", fail_after(Vocabulary.encode, after, Interruption()))
        with pytest.raises(Interruption):
            tokenize(corpora, vocab, out, share=Share(2, 3))
    encoded = [rows for _, rows in calls]
    assert len(encoded) == after
    assert tokenize(corpora, vocab, out, share=Share(3, 3)) is None
    assert not (out / "manifest.json").exists()
    assert unfinished_files(out) == [out / ".partial"]
    calls.clear()
    assert tokenize(corpora, vocab, out, share=Share(2, 3)) is not None
    again = [rows for _, rows in calls if rows in encoded]
    assert len(again) <= 3  # only the unfinished slice
    assert read_files(out) == read_files(small_shards.path)
    assert unfinished_files(out) == []


WORDS = st.integers(0, 30).map(lambda number: line(number).encode())
# Empty, invalid UTF-8, without tokens, or text.
LINES = st.lists(st.sampled_from([b"", b"", b"ba \xff", b"\xe2\x80\x8b"]) | WORDS, max_size=30)
ROWS = st.lists(
    st.sampled_from([b"", b"ba", b"\tba", b"ba\t\xff", b"ba\t\xe2\x80\x8b", b"ba\tde\tgi"])
    | st.tuples(WORDS, WORDS).map(b"\t".join),
    max_size=30,
)


@settings(max_examples=20, deadline=None)
@given(
    text=LINES,
    rows=ROWS,
    columns=st.tuples(LINES, LINES),
    slice_bytes=st.integers(20, 2000),
    block_rows=st.integers(1, 12),
    shares=st.integers(1, 4).flatmap(lambda of: st.permutations([Share(i + 1, of) for i in range(of)])),
)
def test_any_corpora_in_any_slices_and_shares_give_the_same_bytes(
    vocab: Path,
    tmp_path_factory: pytest.TempPathFactory,
    text: list[bytes],
    rows: list[bytes],
    columns: tuple[list[bytes], list[bytes]],
    slice_bytes: int,
    block_rows: int,
    shares: list[Share],
) -> None:
    root = tmp_path_factory.mktemp("any")
    height = max(map(len, columns))
    files = {"text/en.txt": [*text, b"ba"], "pairs/en-sw.tsv": [*rows, b"ba\tde"]}
    for language, column in zip(("de", "en"), columns, strict=True):
        files[f"multi/set/{language}.txt"] = [*column, *[b""] * (height - len(column)), b"ba"]
    corpora = Corpora(write_files(root / "corpora", {name: b"\n".join([*these, b""]) for name, these in files.items()}))
    whole = tokenize(corpora, vocab, root / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_parts, "SLICE_BYTES", slice_bytes)
        patch.setattr(shard_writer, "ROWS_PER_BLOCK", block_rows)
        found = [tokenize(corpora, vocab, root / "shares", share=share) for share in shares]
    assert [shards is not None for shards in found] == [False] * (len(shares) - 1) + [True]
    assert read_files(root / "shares") == read_files(whole.path)
    assert unfinished_files(root / "shares") == []


@pytest.mark.usefixtures("sliced")
def test_shares_hash_each_source_once(
    source: Path, vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = record_calls(monkeypatch, TextFile, "digest")
    for number in (2, 3, 1):
        tokenize(Corpora(source), vocab, tmp_path / "shards", share=Share(number, 3))
    files = sorted(file.name for file in source.rglob("*") if file.is_file())
    assert sorted(file.name for (file,) in hashed) == files


def test_a_slice_is_joined_as_soon_as_its_part_is_complete(
    source: Path, vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_parts, "SLICE_BYTES", 180)
    out = tmp_path / "shards"
    assert tokenize(Corpora(source), vocab, out, share=Share(1, 2)) is None
    assert (out / ".partial/text/en/slice-1-of-2/entry.json").exists()
    monkeypatch.setattr(module, "_is_complete", lambda *_: False)  # as if another part were missing
    assert tokenize(Corpora(source), vocab, out, share=Share(2, 2)) is None
    assert (out / "text/en/entry.json").exists()
    assert not (out / ".partial/text/en/slice-1-of-2").exists()


@pytest.mark.parametrize("content", [b"\xff\n" * 60, b"\n" * 60, b"\tb\n" * 60])
def test_sliced_sources_without_text_are_refused(
    content: bytes, vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = Corpora(write_files(tmp_path / "corpora", {"pairs/en-sw.tsv": content}))

    def message(out: str) -> str:
        with pytest.raises(BadInput) as caught:
            tokenize(corpora, vocab, tmp_path / out)
        return str(caught.value)

    whole = message("whole")
    monkeypatch.setattr(source_parts, "SLICE_BYTES", 20)
    assert message("sliced") == whole
    assert "en-sw.tsv: no usable line (" in whole


def test_damaged_arrays_are_written_again(small_shards: Shards, source: Path, vocab: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    tokenize(Corpora(source), vocab, out)
    file = out / "text" / "en" / "tokens.npy"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(bytes(raw))
    tokenize(Corpora(source), vocab, out)
    assert read_files(out) == read_files(small_shards.path)


def test_only_one_share_joins_the_slices(source: Path, vocab: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    write_files(out, {".joining": b""})
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(out / ".joining")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        assert tokenize(Corpora(source), vocab, out, share=Share(1, 1)) is None
        assert not (out / "manifest.json").exists()
        other.kill()
    # The lock of a killed process is free, although its file still exists.
    assert (out / ".joining").exists()
    assert tokenize(Corpora(source), vocab, out, share=Share(1, 1)) is not None
    assert not (out / ".joining").exists()


@pytest.mark.usefixtures("sliced")
def test_files_of_killed_processes_are_removed(small_shards: Shards, source: Path, vocab: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    remains = [
        "text/.sw.abcdefgh/tokens.npy",
        "multi/bible/.de.12345678/offsets.npy",
        ".partial/text/en/1-of-9/blocks.npy",
    ]
    write_files(out, {".joining": b"", **dict.fromkeys(remains, b"")})
    again = tokenize(Corpora(source), vocab, out)
    assert read_files(again.path) == read_files(small_shards.path)
    assert unfinished_files(out) == []


# ---- foreign files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["text/xh", "pairs/mine", "multi/mine/xh", "vocab"])
@pytest.mark.parametrize("append", [False, True])
def test_foreign_folders_are_never_overwritten(
    place: str, source: Path, vocab: Path, tmp_path: Path, append: bool
) -> None:
    write_files(tmp_path / "out" / place, {"precious.txt": ["mine"]})
    before = read_files(tmp_path / "out")
    with pytest.raises(BadInput, match="Give a new or an empty folder"):
        tokenize(Corpora(source), vocab, tmp_path / "out", append=append)
    assert read_files(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["recipe.json", "tokenizer.json", "notes.txt"])
def test_folders_of_other_commands_are_refused(name: str, source: Path, vocab: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "out", {name: ["mine"]})
    with pytest.raises(BadInput, match=rf"out: not empty, and {name} is no output of crossling tokenize"):
        tokenize(Corpora(source), vocab, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [name]


@pytest.mark.parametrize("place", ["text/notes.txt", "multi/notes.txt"])
def test_foreign_files_are_refused(place: str, source: Path, vocab: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "out", {place: ["mine"]})
    with pytest.raises(BadInput, match=rf"{place} is no part of shards. Give a new or an empty folder"):
        tokenize(Corpora(source), vocab, tmp_path / "out")


def test_a_file_as_output_is_refused(source: Path, vocab: Path, tmp_path: Path) -> None:
    write_files(tmp_path, {"out": ["mine"]})
    with pytest.raises(BadInput, match="out: expected a folder, found a file"):
        tokenize(Corpora(source), vocab, tmp_path / "out")


# ---- stored bytes -----------------------------------------------------------------------------------------

STORED_HASHES = {
    "multi/set/de/offsets.npy": "857d1e98b36e405fc4ce857c07d0a9d3",
    "multi/set/de/tokens.npy": "c559c11ece719b43eba959549ac9241c",
    "multi/set/en/offsets.npy": "6f6600f65ee7052856b14ad303b0dfaf",
    "multi/set/en/tokens.npy": "eac817fdf892fbd55edb4305b26d9981",
    "pairs/en-de/de.offsets.npy": "31f4c9181de1f172f8bb92f9aaeb72c9",
    "pairs/en-de/de.tokens.npy": "b9696f23762a199e55e0cb83f4f7af7c",
    "pairs/en-de/en.offsets.npy": "7e43fa8a2794dd8405f231d0e7191a28",
    "pairs/en-de/en.tokens.npy": "2144d29092bd17f2ec4c6848be10aac6",
    "text/de/documents.npy": "aa604886dc0d33850a1d5e017da75f5e",
    "text/de/offsets.npy": "bf925332eb9dc40d6fa924c105d23cc1",
    "text/de/tokens.npy": "c0a73a4e463440b3f4134f88b10a6d3a",
    "text/en/documents.npy": "1149d1604486d08cd720a5ca4ed822ab",
    "text/en/offsets.npy": "2021628ffdbbd69d2013504430de2dd4",
    "text/en/tokens.npy": "bd54e73008ca94f4478695a029e6d7b9",
}


def test_shards_of_fixed_text_have_the_stored_hashes(tmp_path: Path) -> None:
    """The bytes of shards must not change within a format version. Nothing here depends on the CPU."""
    text = {"text/en.txt": ["the cat sat", "on the mat", "", "a new day"], "text/de.txt": ["die katze saß"]}
    pairs = {"pairs/en-de.tsv": ["the cat\tdie katze", "a mat\teine matte", "the cat\tdie katze"]}
    multi = {"multi/set/en.txt": ["one", "", "two"], "multi/set/de.txt": ["eins", "leer", "zwei"]}
    write_files(tmp_path / "corpora", text | pairs | multi)
    letters = sorted({letter for lines in (text | pairs | multi).values() for line in lines for letter in line} - {" "})
    scores = {subword: -1.0 - index / 8 for index, subword in enumerate(["▁the", "▁die", "at", "▁", *letters])}
    Vocabulary.from_scores(scores, default_charsmap()).save(tmp_path / "vocab")
    tokenize(tmp_path / "corpora", tmp_path / "vocab", tmp_path / "shards")
    arrays = sorted((tmp_path / "shards").rglob("*.npy"))
    found = {str(file.relative_to(tmp_path / "shards")): file_fingerprint(file) for file in arrays}
    assert found == STORED_HASHES
