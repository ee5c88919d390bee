"""Every sentence is written once, whole or not at all; who does which part of the work leaves no trace."""

from __future__ import annotations

import errno
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as proto

from crossling.corpora.corpus import Corpora
from crossling.data import encode as module
from crossling.data import unit as unit_module
from crossling.data.column import Column
from crossling.data.encode import encode, encode_share
from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.tasks import Share
from crossling.vocabulary.vocabulary import EOS, Vocabulary

from .made import FILES, HOLES, SYLLABLES, Stopped, content, decoded, failing, leftovers, line, lines, put, state


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two rows, and several slices of every unit but the smallest."""
    monkeypatch.setattr(module, "SLICE_BYTES", 100)
    monkeypatch.setattr(unit_module, "ROWS_AT_ONCE", 2)


# ---- what is written is what was read ---------------------------------------------------------------------


def test_text_comes_back(made: Shards, words: Path) -> None:
    assert set(made.text) == {"en", "sw"}
    assert decoded(made.text["en"], words) == lines(0, 10)
    assert decoded(made.text["sw"], words) == lines(100, 7)
    assert np.load(made.path / "text/en/documents.npy").tolist() == [0, 5, 8, 10]
    assert np.load(made.path / "text/sw/documents.npy").tolist() == [0, 7]


def test_pairs_come_back(made: Shards, words: Path) -> None:
    by_name = {bitext.corpus: bitext for bitext in made.bitexts if bitext.corpus != "bible"}
    assert set(by_name) == {"en-sw", "news.en-sw"}
    for name, english, swahili, count in (("en-sw", 200, 300, 9), ("news.en-sw", 400, 500, 6)):
        bitext = by_name[name]
        assert bitext.languages == ("en", "sw")
        assert bitext.pairs == count
        assert [decoded(side, words) for side in bitext.sides] == [lines(english, count), lines(swahili, count)]


def test_multi_way_sets_come_back(made: Shards, words: Path) -> None:
    bible = [bitext for bitext in made.bitexts if bitext.corpus == "bible"]
    assert [bitext.languages for bitext in bible] == [*combinations(HOLES, 2)]
    for bitext in bible:
        for language, side in zip(bitext.languages, bitext.sides, strict=True):
            assert decoded(side, words) == FILES[f"multi/bible/{language}.txt"]


def test_languages_without_a_common_row_are_no_pair(tmp_path: Path, words: Path) -> None:
    files = {
        "multi/set/de.txt": [line(1), "", ""],
        "multi/set/en.txt": [line(2), line(3), ""],
        "multi/set/sw.txt": ["", line(4), ""],
    }
    made = encode(Corpora(put(tmp_path / "corpora", files)), words, tmp_path / "shards")
    assert {bitext.languages: bitext.pairs for bitext in made.bitexts} == {("de", "en"): 1, ("en", "sw"): 1}


def test_manifest_counts(made: Shards, words: Path) -> None:
    vocabulary = Vocabulary.load(words)
    text = made.manifest["text"]["en"]
    tokens = sum(len(ids) + 1 for ids in vocabulary.encode(lines(0, 10)))
    assert (text["sentences"], text["documents"], text["tokens"]) == (10, 3, tokens)
    news = made.manifest["pairs"]["news.en-sw"]
    sides = [sum(len(ids) + 1 for ids in vocabulary.encode(lines(start, 6))) for start in (400, 500)]
    assert (news["languages"], news["pairs"], news["tokens"]) == (["en", "sw"], 6, sides)
    bible = made.manifest["multi"]["bible"]
    assert bible["rows"] == 10
    assert {language: (entry["rows"], entry["filled"]) for language, entry in bible["languages"].items()} == {
        language: (10, 10 - len(holes)) for language, holes in HOLES.items()
    }
    assert bible["pairs"] == [[a, b, len(set(range(10)) - HOLES[a] - HOLES[b])] for a, b in combinations(HOLES, 2)]
    assert made.vocabulary_size == vocabulary.size
    assert made.manifest["vocabulary"]["fingerprint"] == vocabulary.fingerprint


def test_vocabulary_travels_with_the_shards(made: Shards, words: Path) -> None:
    assert content(made.vocabulary_path) == content(words)


@pytest.mark.usefixtures("sliced")
def test_what_is_left_out_is_counted_once(tmp_path: Path, words: Path) -> None:
    """By the reader, and by us; also where several slices have read it."""
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
    made = encode(Corpora(put(tmp_path / "corpora", files)), words, tmp_path / "shards")
    entry = made.manifest["pairs"]["en-sw"]
    assert entry["pairs"] == 11
    assert entry["dropped"] == {"not two columns": 2, "empty side": 1, "malformed utf-8": 1, "no tokens": 2}


def test_lines_that_come_to_nothing_are_no_pairs(tmp_path: Path, words: Path) -> None:
    """A line of invisible characters is filled, and has no ids."""
    files = {"pairs/en-sw.tsv": ["ba\tde", "\u200b\tde", "gi\t\u200b", "ko\tlu"]}
    made = encode(Corpora(put(tmp_path / "corpora", files)), words, tmp_path / "shards")
    [bitext] = made.bitexts
    assert bitext.pairs == 2
    assert [decoded(side, words) for side in bitext.sides] == [["ba", "ko"], ["de", "lu"]]


def test_lines_that_come_to_nothing_are_no_sentences(tmp_path: Path, words: Path) -> None:
    files = {"text/en.txt": ["\u200b", "ba", "\u200b", "de", "", "\u200b", "", "gi", "\u200b"]}
    made = encode(Corpora(put(tmp_path / "corpora", files)), words, tmp_path / "shards")
    assert decoded(made.text["en"], words) == ["ba", "de", "gi"]
    assert np.load(made.path / "text/en/documents.npy").tolist() == [0, 2, 3]
    entry = made.manifest["text"]["en"]
    assert (entry["sentences"], entry["documents"], entry["dropped"]) == (3, 2, {"no tokens": 4})


def test_lines_that_come_to_nothing_are_holes_of_a_multi_way_set(tmp_path: Path, words: Path) -> None:
    files = {"multi/set/de.txt": ["ba", "\u200b", "de"], "multi/set/en.txt": ["gi", "ko", "lu"]}
    made = encode(Corpora(put(tmp_path / "corpora", files)), words, tmp_path / "shards")
    [bitext] = made.bitexts
    assert [bitext.row(i) for i in range(bitext.pairs)] == [0, 2]
    assert decoded(bitext.sides[0], words) == ["ba", "", "de"]
    assert made.manifest["multi"]["set"]["languages"]["de"]["dropped"] == {}


@pytest.mark.parametrize("slice_bytes", [1, 1 << 30])
def test_corpora_that_come_to_nothing_are_empty(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch, slice_bytes: int
) -> None:
    monkeypatch.setattr(module, "SLICE_BYTES", slice_bytes)
    made = encode(Corpora(put(tmp_path / "corpora", {"text/en.txt": ["\u200b"]})), words, tmp_path / "shards")
    assert made.manifest["text"]["en"]["tokens"] == 0
    assert len(made.text["en"].tokens) == len(made.text["en"]) == 0
    assert made.verify() == []


@pytest.mark.parametrize(("size", "kind"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
@pytest.mark.parametrize("slice_bytes", [10, 1 << 30])
def test_ids_have_the_bits_they_need(
    words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, kind: type, slice_bytes: int
) -> None:
    monkeypatch.setattr(module, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(unit_module, "ROWS_AT_ONCE", 1)
    files = {
        "text/en.txt": ["ba de", f"x{size - 2} ba"],
        "pairs/en-sw.tsv": ["ba\tde", f"gi\tx{size - 2}"],
        "multi/set/de.txt": ["ba", "de"],
        "multi/set/en.txt": ["ba", f"x{size - 2}"],
    }
    made = encode(
        Corpora(put(tmp_path / "corpora", files)), enlarged(words, size, tmp_path / "vocab"), tmp_path / "out"
    )
    assert made.vocabulary_size == size
    sides = [made.text["en"], *(bitext.sides[1] for bitext in made.bitexts)]
    assert all(size - 2 in side[1].tolist() and side[1][-1] == EOS for side in sides)
    assert all(side.tokens.dtype == kind for side in sides)


def enlarged(vocabulary: Path, size: int, out: Path) -> Path:
    """With pieces that are named by their ids, up to the one before <mask>."""
    model = proto.ModelProto()
    model.ParseFromString((vocabulary / "sentencepiece.model").read_bytes())
    mask = model.pieces.pop()
    for number in range(len(model.pieces), size - 1):
        model.pieces.add(piece=f"\u2581x{number}", score=-1.0)
    model.pieces.append(mask)
    put(out, {"sentencepiece.model": model.SerializeToString()})
    return out


def test_corpora_never_share_a_folder(tmp_path: Path, words: Path) -> None:
    files = {
        "pairs/en-sw.tsv": ["ba\tde"],
        "pairs/en-sw.en-sw.tsv": ["gi\tko", "lu\tma"],
        "pairs/x.en-sw.tsv": ["ba\tba"],
    }
    made = encode(Corpora(put(tmp_path / "corpora", files)), words, tmp_path / "shards")
    assert sorted(bitext.pairs for bitext in made.bitexts) == [1, 1, 2]


# ---- multi-way sets ----------------------------------------------------------------------------------------

CODES = [f"q{a}{b}" for a in "abc" for b in "abcdefghij"]  # for private use


def multi_way(root: Path, languages: Sequence[str], vocabulary: Path) -> Shards:
    files = {f"multi/set/{language}.txt": lines(0, 20) for language in languages}
    return encode(Corpora(put(root / "corpora", files)), vocabulary, root / "shards")


def test_a_multi_way_set_is_stored_once_for_each_language(tmp_path: Path, words: Path) -> None:
    large, small = multi_way(tmp_path / "large", CODES, words), multi_way(tmp_path / "small", CODES[:10], words)
    assert len(large.bitexts) == 30 * 29 // 2 == 435
    assert len(small.bitexts) == 45
    for shards, languages in ((large, CODES), (small, CODES[:10])):
        folder = shards.path / "multi" / "set"
        assert sorted(place.name for place in folder.iterdir()) == languages
        assert all({*content(place)} == {"tokens.npy", "offsets.npy", "entry.json"} for place in folder.iterdir())
    sizes = [sum(map(len, content(shards.path / "multi").values())) for shards in (large, small)]
    assert sizes[0] == 3 * sizes[1]


def test_pairs_that_another_collection_gives_first_are_left_out(source: Path, words: Path, tmp_path: Path) -> None:
    everything = encode(Corpora(source), words, tmp_path / "everything")
    some = encode(Corpora(source, priority=["news", "bible"]), words, tmp_path / "some")
    assert [(b.corpus, b.languages) for b in some.bitexts] == [
        ("news.en-sw", ("en", "sw")),
        *(("bible", pair) for pair in combinations(HOLES, 2) if pair != ("en", "sw")),
    ]
    assert some.fingerprint != everything.fingerprint
    arrays = {name: data for name, data in content(some.path / "multi").items() if not name.endswith("left-out.json")}
    assert arrays == content(everything.path / "multi")
    # Of what is there, another priority is settled anew; what is appended leaves it.
    added = Corpora(put(tmp_path / "added", {"text/zu.txt": lines(0, 4)}))
    more = encode(added, words, some.path, append=True)
    assert [b.languages for b in more.bitexts] == [b.languages for b in some.bitexts]
    again = encode(Corpora(source), words, some.path, append=True)
    assert len(again.bitexts) == len(everything.bitexts)


LINE = st.lists(st.sampled_from(SYLLABLES), max_size=6).map("".join)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(st.tuples(LINE, LINE, LINE), min_size=1, max_size=12).filter(
        lambda rows: all(any(row[side] for row in rows) for side in range(3))
    ),
    at_once=st.integers(1, 5),
    slice_bytes=st.integers(5, 100),
)
def test_any_multi_way_set_comes_back(
    words: Path,
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    at_once: int,
    slice_bytes: int,
) -> None:
    root = tmp_path_factory.mktemp("any")
    columns = dict(zip(("de", "en", "sw"), zip(*rows, strict=True), strict=True))
    put(root / "corpora", {f"multi/set/{language}.txt": list(column) for language, column in columns.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_module, "ROWS_AT_ONCE", at_once)
        patch.setattr(module, "SLICE_BYTES", slice_bytes)
        made = encode(Corpora(root / "corpora"), words, root / "shards")
    found = {bitext.languages: bitext for bitext in made.bitexts}
    for a, b in combinations(columns, 2):
        both = [i for i, (one, other) in enumerate(zip(columns[a], columns[b], strict=True)) if one and other]
        assert ((a, b) in found) == bool(both)
        if both:
            assert [found[a, b].row(i) for i in range(found[a, b].pairs)] == both
            assert decoded(found[a, b].sides[0], words) == list(columns[a])
            assert decoded(found[a, b].sides[1], words) == list(columns[b])


def test_unequal_multi_way_files_are_refused(source: Path, words: Path, tmp_path: Path) -> None:
    put(source, {"multi/bible/en.txt": lines(0, 11)})
    sentence = r"^multi/bible: translations need the same number of lines, but de has 10, en has 11, sw has 10.*: align"
    with pytest.raises(BadInput, match=sentence):
        encode(Corpora(source), words, tmp_path / "shards")
    assert leftovers(tmp_path / "shards") == []
    assert not (tmp_path / "shards" / "manifest.json").exists()
    put(source, {"multi/bible/en.txt": FILES["multi/bible/en.txt"]})
    assert encode(Corpora(source), words, tmp_path / "shards").verify() == []


# ---- who does what -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slice_bytes", "rows", "joined"),
    [(1 << 30, 1, 0), (120, 3, 7), (90, 4096, 7), (20, 2, 8), (1, 1, 8)],
)
def test_any_slices_write_the_same_bytes(
    made: Shards,
    source: Path,
    words: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slice_bytes: int,
    rows: int,
    joined: int,
) -> None:
    monkeypatch.setattr(module, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(unit_module, "ROWS_AT_ONCE", rows)
    monkeypatch.setattr(module, "MOST_SLICES", 7)
    joins = noted(monkeypatch, module, "join")
    again = encode(Corpora(source), words, tmp_path / "shards")
    assert len(joins) == joined
    assert content(again.path) == content(made.path)
    assert again.manifest == made.manifest
    assert leftovers(again.path) == []


def noted(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[tuple[Any, ...]]:
    """The arguments of every call from now on."""
    calls: list[tuple[Any, ...]] = []
    call = getattr(where, name)

    def wrapped(*arguments: Any) -> Any:
        calls.append(arguments)
        return call(*arguments)

    monkeypatch.setattr(where, name, wrapped)
    return calls


def test_two_processes_write_the_same_bytes(made: Shards, source: Path, words: Path, tmp_path: Path) -> None:
    encode(Corpora(source), words, tmp_path / "shards", workers=2)
    assert content(tmp_path / "shards") == content(made.path)


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("order", [*permutations((1, 2, 3))])
def test_shares_in_any_order_write_the_same_bytes(
    made: Shards, source: Path, words: Path, tmp_path: Path, order: tuple[int, ...]
) -> None:
    out = tmp_path / "shards"
    for number in order:
        assert not (out / "manifest.json").exists()
        last = encode_share(Corpora(source), words, out, Share(number, 3))
        assert (last is not None) == (number == order[-1])
    assert last is not None
    assert last.manifest == made.manifest
    assert content(out) == content(made.path)
    assert leftovers(out) == []


def test_more_shares_than_tasks(made: Shards, source: Path, words: Path, tmp_path: Path) -> None:
    found = [encode_share(Corpora(source), words, tmp_path / "shards", Share(number, 11)) for number in range(1, 12)]
    assert [shards is not None for shards in found] == [False] * 7 + [True] * 4  # there are eight tasks
    assert content(tmp_path / "shards") == content(made.path)


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("after", [0, 1, 4, 9])
def test_a_share_that_was_stopped_is_done_again_alone(
    made: Shards, source: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    out, corpora = tmp_path / "shards", Corpora(source)
    encode_share(corpora, words, out, Share(1, 3))
    calls = noted(monkeypatch, Vocabulary, "encode")
    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "encode", failing(Vocabulary.encode, after, Stopped()))
        with pytest.raises(Stopped):
            encode_share(corpora, words, out, Share(2, 3))
    encoded = [rows for _, rows in calls]
    assert len(encoded) == after
    assert encode_share(corpora, words, out, Share(3, 3)) is None
    assert not (out / "manifest.json").exists()
    assert leftovers(out) == [out / ".parts"]
    calls.clear()
    assert encode_share(corpora, words, out, Share(2, 3)) is not None
    again = [rows for _, rows in calls if rows in encoded]
    assert len(again) <= 3  # only the slice that was being written
    assert content(out) == content(made.path)
    assert leftovers(out) == []


WORDS = st.integers(0, 30).map(lambda number: line(number).encode())
# Empty, no UTF-8, no tokens, or text.
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
    at_once=st.integers(1, 12),
    shares=st.integers(1, 4).flatmap(lambda of: st.permutations([Share(i + 1, of) for i in range(of)])),
)
def test_any_corpora_in_any_slices_and_shares_give_the_same_bytes(
    words: Path,
    tmp_path_factory: pytest.TempPathFactory,
    text: list[bytes],
    rows: list[bytes],
    columns: tuple[list[bytes], list[bytes]],
    slice_bytes: int,
    at_once: int,
    shares: list[Share],
) -> None:
    root = tmp_path_factory.mktemp("any")
    height = max(map(len, columns))
    files = {"text/en.txt": [*text, b"ba"], "pairs/en-sw.tsv": [*rows, b"ba\tde"]}
    for language, column in zip(("de", "en"), columns, strict=True):
        files[f"multi/set/{language}.txt"] = [*column, *[b""] * (height - len(column)), b"ba"]
    corpora = Corpora(put(root / "corpora", {name: b"\n".join([*these, b""]) for name, these in files.items()}))
    whole = encode(corpora, words, root / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE_BYTES", slice_bytes)
        patch.setattr(unit_module, "ROWS_AT_ONCE", at_once)
        found = [encode_share(corpora, words, root / "shares", share) for share in shares]
    assert [shards is not None for shards in found] == [False] * (len(shares) - 1) + [True]
    assert content(root / "shares") == content(whole.path)
    assert leftovers(root / "shares") == []


def test_what_was_damaged_is_made_again(made: Shards, source: Path, words: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    encode(Corpora(source), words, out)
    file = out / "text" / "en" / "tokens.npy"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(bytes(raw))
    encode(Corpora(source), words, out)
    assert content(out) == content(made.path)


def test_a_share_waits_for_the_one_that_puts_the_slices_together(source: Path, words: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    put(out, {".joining": b""})
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(out / ".joining")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        assert encode_share(Corpora(source), words, out, Share(1, 1)) is None
        assert not (out / "manifest.json").exists()
        other.kill()
    # A share that was killed holds nothing up, though its lock file is still there.
    assert (out / ".joining").exists()
    assert encode_share(Corpora(source), words, out, Share(1, 1)) is not None
    assert not (out / ".joining").exists()


@pytest.mark.usefixtures("sliced")
def test_locks_and_scraps_of_what_was_killed_are_in_nobodys_way(
    made: Shards, source: Path, words: Path, tmp_path: Path
) -> None:
    out = tmp_path / "shards"
    scraps = [
        "text/.sw.abcdefgh/tokens.npy",
        "multi/bible/.de.12345678/offsets.npy",
        ".parts/text/en/1-of-9/blocks.npy",
    ]
    put(out, {".joining": b"", **dict.fromkeys(scraps, b"")})
    again = encode(Corpora(source), words, out)
    assert content(again.path) == content(made.path)
    assert leftovers(out) == []


# ---- starting again --------------------------------------------------------------------------------------


def rewritten(shards: Path, before: dict[str, tuple[int, int]]) -> set[str]:
    after = state(shards)
    return {str(Path(name).parent) for name in after if after[name] != before.get(name)} - {".", "vocab"}


def test_finished_parts_are_not_written_again(source: Path, words: Path, tmp_path: Path) -> None:
    first = encode(Corpora(source), words, tmp_path / "shards")
    before = state(tmp_path / "shards")
    again = encode(Corpora(source), words, tmp_path / "shards")
    assert rewritten(tmp_path / "shards", before) == set()
    assert again.manifest == first.manifest


@pytest.mark.parametrize("slice_bytes", [120, 1 << 30])
@pytest.mark.parametrize(
    ("changed", "folder"),
    [("text/sw.txt", "text/sw"), ("pairs/news.en-sw.sw", "pairs/news.en-sw"), ("multi/bible/de.txt", "multi/bible/de")],
)
def test_only_changed_sources_are_encoded_again(
    source: Path,
    words: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: str,
    folder: str,
    slice_bytes: int,
) -> None:
    monkeypatch.setattr(module, "SLICE_BYTES", slice_bytes)
    first = encode(Corpora(source), words, tmp_path / "shards")
    before = state(tmp_path / "shards")
    put(source, {changed: [*FILES[changed][:-1], line(9999)]})
    again = encode(Corpora(source), words, tmp_path / "shards")
    assert rewritten(tmp_path / "shards", before) == {folder}
    assert again.fingerprint != first.fingerprint
    assert content(again.path) == content(encode(Corpora(source), words, tmp_path / "fresh").path)


@pytest.mark.parametrize("slice_bytes", [120, 1 << 30])
def test_shares_take_up_changed_sources(
    source: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_bytes: int
) -> None:
    """A share that finds everything there, but some of it of older sources, is not the last."""
    monkeypatch.setattr(module, "SLICE_BYTES", slice_bytes)
    out = tmp_path / "shards"
    encode(Corpora(source), words, out)
    for name in ("text/sw.txt", "multi/bible/de.txt"):
        put(source, {name: [*reversed(FILES[name])]})
    found = [encode_share(Corpora(source), words, out, Share(number, 5)) for number in range(1, 6)]
    assert found[0] is None
    assert found[-1] is not None
    assert content(out) == content(encode(Corpora(source), words, tmp_path / "fresh").path)


@pytest.mark.usefixtures("sliced")
def test_slices_of_other_sources_are_not_joined(
    made: Shards, source: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped with all slices of a change that was then taken back."""
    out = tmp_path / "shards"
    encode(Corpora(source), words, out)
    put(source, {"text/sw.txt": [*reversed(FILES["text/sw.txt"])]})
    with monkeypatch.context() as patch:
        patch.setattr(module, "join", failing(module.join, 0, Stopped()))
        with pytest.raises(Stopped):
            encode(Corpora(source), words, out)
    assert (out / ".parts/text/sw").exists()
    put(source, {"text/sw.txt": FILES["text/sw.txt"]})
    assert content(encode(Corpora(source), words, out).path) == content(made.path)


@pytest.mark.usefixtures("sliced")
def test_sources_that_change_meanwhile_are_told(
    source: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "shards"
    change = {"text/sw.txt": [*reversed(FILES["text/sw.txt"])]}
    run = module.run
    with monkeypatch.context() as patch:
        patch.setattr(module, "run", lambda *arguments: (run(*arguments), put(source, change)))
        with pytest.raises(
            BadInput, match=r"^text/sw: the sources changed while they were encoded; run crossling encode"
        ):
            encode(Corpora(source), words, out)
    again = encode(Corpora(source), words, out)
    assert decoded(again.text["sw"], words) == change["text/sw.txt"]
    assert leftovers(out) == []


def test_line_moved_from_one_side_to_the_other_is_encoded_again(tmp_path: Path, words: Path) -> None:
    source = put(tmp_path / "corpora", {"multi/set/de.txt": ["ba", "", "de"], "multi/set/en.txt": ["", "gi", "ko"]})
    encode(Corpora(source), words, tmp_path / "shards")
    put(source, {"multi/set/de.txt": ["ba", ""], "multi/set/en.txt": ["de", "", "gi", "ko"]})
    with pytest.raises(BadInput, match="same number of lines"):
        encode(Corpora(source), words, tmp_path / "shards")


def test_a_source_of_another_name_is_encoded_again(tmp_path: Path, words: Path) -> None:
    """The name tells the format."""
    source = put(tmp_path / "corpora", {"text/en.txt": ['{"text": "ba"}']})
    encode(Corpora(source), words, tmp_path / "shards")
    (source / "text/en.txt").rename(source / "text/en.jsonl")
    assert decoded(encode(Corpora(source), words, tmp_path / "shards").text["en"], words) == ["ba"]


def test_other_vocabulary_encodes_everything_again(
    source: Path, words: Path, other_words: Path, tmp_path: Path
) -> None:
    first = encode(Corpora(source), words, tmp_path / "shards")
    again = encode(Corpora(source), other_words, tmp_path / "shards")
    assert again.fingerprint != first.fingerprint
    assert decoded(again.text["sw"], other_words) == lines(100, 7)
    assert content(again.vocabulary_path) == content(other_words)


def test_fingerprint_depends_on_content_alone(made: Shards, source: Path, words: Path, tmp_path: Path) -> None:
    assert encode(Corpora(source), words, tmp_path / "elsewhere").fingerprint == made.fingerprint


@pytest.mark.parametrize("gone", ["pairs/en-sw.tsv", "text/sw.txt", "multi/bible/zu.txt"])
def test_removed_corpora_are_never_lost_in_silence(source: Path, words: Path, tmp_path: Path, gone: str) -> None:
    encode(Corpora(source), words, tmp_path / "shards")
    before = content(tmp_path / "shards")
    (source / gone).unlink()
    place = gone.rpartition(".")[0]
    sentence = f"these shards hold {place}, which is not in the corpora; give --append to keep it beside them"
    with pytest.raises(BadInput, match=sentence):
        encode(Corpora(source), words, tmp_path / "shards")
    assert content(tmp_path / "shards") == before
    for file in (tmp_path / "shards" / place).iterdir():
        file.unlink()
    (tmp_path / "shards" / place).rmdir()  # as it says
    again = encode(Corpora(source), words, tmp_path / "shards")
    assert content(again.path) == content(encode(Corpora(source), words, tmp_path / "fresh").path)


def test_what_was_cut_off_or_lost_is_made_again(source: Path, words: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = content(encode(Corpora(source), words, out).path)
    tokens = sorted(out.rglob("*tokens.npy"))
    tokens[0].write_bytes(tokens[0].read_bytes()[:-5])
    tokens[-1].unlink()
    assert content(encode(Corpora(source), words, out).path) == whole


# ---- adding to shards ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("added", "beside"),
    [
        (["text/sw.txt"], []),
        (["pairs/en-sw.tsv"], []),
        (["pairs/news.en-sw.en", "pairs/news.en-sw.sw"], []),
        (["multi/bible/zu.txt"], ["multi/bible/de.txt"]),
        (["multi/bible/de.txt"], ["multi/bible/en.txt", "multi/bible/sw.txt", "multi/bible/zu.txt"]),
        ([name for name in FILES if name.startswith("multi")], []),
    ],
)
@pytest.mark.parametrize("slice_bytes", [120, 1 << 30])
def test_adding_leaves_the_rest_as_it_is_and_gives_what_all_at_once_gives(
    made: Shards,
    words: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    added: list[str],
    beside: list[str],
    slice_bytes: int,
) -> None:
    """A language of text, a bitext, a language of a multi-way set (which takes two to be one), a whole set."""
    monkeypatch.setattr(module, "SLICE_BYTES", slice_bytes)
    out = tmp_path / "shards"
    first = {name: rows for name, rows in FILES.items() if name not in added}
    encode(Corpora(put(tmp_path / "first", first)), words, out)
    before = state(out)
    second = put(tmp_path / "second", {name: FILES[name] for name in [*added, *beside]})
    again = encode(Corpora(second), words, out, append=True)
    after = state(out)
    untouched = [name for name in before if name != "manifest.json" and not name.startswith("vocab/")]
    assert {name: after[name] for name in untouched} == {name: before[name] for name in untouched}
    assert again.manifest == made.manifest
    assert again.fingerprint == made.fingerprint
    assert content(out) == content(made.path)


def test_adding_in_shares(made: Shards, words: Path, tmp_path: Path) -> None:
    out, corpora = tmp_path / "shards", {}
    for kind in ("text", "multi"):
        corpora[kind] = put(tmp_path / kind, {name: rows for name, rows in FILES.items() if name.startswith(kind)})
    pairs = put(tmp_path / "pairs", {name: rows for name, rows in FILES.items() if name.startswith("pairs")})
    encode(Corpora(pairs), words, out)
    for source in corpora.values():
        found = [encode_share(Corpora(source), words, out, Share(i, 2), append=True) for i in (2, 1)]
        assert [shards is not None for shards in found] == [False, True]
    assert content(out) == content(made.path)


def test_what_is_added_again_is_taken_up_anew(source: Path, words: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    encode(Corpora(source), words, out)
    change = put(tmp_path / "change", {"text/sw.txt": lines(700, 4)})
    again = encode(Corpora(change), words, out, append=True)
    assert decoded(again.text["sw"], words) == lines(700, 4)
    assert decoded(again.text["en"], words) == lines(0, 10)
    put(source, {"text/sw.txt": lines(700, 4)})
    assert content(out) == content(encode(Corpora(source), words, tmp_path / "fresh").path)


def test_nothing_is_added_with_another_vocabulary(source: Path, words: Path, other_words: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    encode(Corpora(source), words, out)
    before = content(out)
    added = put(tmp_path / "added", {"text/de.txt": lines(0, 3)})
    with pytest.raises(BadInput, match="multi/bible/de was encoded with another vocabulary; give that one, or another"):
        encode(Corpora(added), other_words, out, append=True)
    assert content(out) == before


def test_a_language_that_does_not_fit_its_multi_way_set_is_told(source: Path, words: Path, tmp_path: Path) -> None:
    out = tmp_path / "shards"
    encode(Corpora(source), words, out)
    added = put(tmp_path / "added", {"multi/bible/fr.txt": lines(0, 9), "multi/bible/it.txt": lines(0, 9)})
    with pytest.raises(BadInput, match=r"same number of lines, but de has 10, .*fr has 9, it has 9, sw has 10"):
        encode(Corpora(added), words, out, append=True)


# ---- interrupted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", range(0, 10, 3))
def test_stopped_while_encoding(
    made: Shards, source: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    out = tmp_path / "shards"
    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "encode", failing(Vocabulary.encode, after, Stopped()))
        with pytest.raises(Stopped):
            encode(Corpora(source), words, out)
    assert leftovers(out) == []
    with pytest.raises(BadInput, match="no shards here"):
        Shards.open(out)
    finished = state(out)
    assert bool(finished) == (after > 0)
    encode(Corpora(source), words, out)
    assert {name: stat for name, stat in state(out).items() if name in finished} == finished
    assert content(out) == content(made.path)


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("after", [0, 40, 80, 120, 160])
def test_full_disk_leaves_nothing_half(
    made: Shards, source: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """While slices are written, and while they are joined."""
    out = tmp_path / "shards"
    with monkeypatch.context() as patch:
        patch.setattr(Column, "add", failing(Column.add, after, OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            encode(Corpora(source), words, out)
    assert leftovers(out) in ([], [out / ".parts"])
    assert not [*(out / ".parts").rglob(".*")]
    assert not (out / "manifest.json").exists()
    encode(Corpora(source), words, out)
    assert content(out) == content(made.path)


@pytest.mark.usefixtures("sliced")
@pytest.mark.parametrize("after", range(7))
def test_stopped_while_joining(
    made: Shards, source: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    out = tmp_path / "shards"
    with monkeypatch.context() as patch:
        patch.setattr(module, "join", failing(module.join, after, Stopped()))
        with pytest.raises(Stopped):
            encode(Corpora(source), words, out)
    assert leftovers(out) == [out / ".parts"]
    calls = noted(monkeypatch, Vocabulary, "encode")
    again = encode_share(Corpora(source), words, out, Share(2, 2))  # any share can be the one that goes on
    assert again is not None
    assert calls == []
    assert content(out) == content(made.path)


def test_stopped_while_encoding_anew_leaves_no_manifest_of_old_shards(
    source: Path, words: Path, other_words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else ids of one vocabulary would be read with another, and nobody would be told."""
    out = tmp_path / "shards"
    encode(Corpora(source), words, out)
    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "encode", failing(Vocabulary.encode, 1, Stopped()))
        with pytest.raises(Stopped):
            encode(Corpora(source), other_words, out)
    with pytest.raises(BadInput, match="no shards here"):
        Shards.open(out)
    assert decoded(encode(Corpora(source), other_words, out).text["sw"], other_words) == lines(100, 7)


@pytest.mark.usefixtures("sliced")
def test_stopped_while_joining_anew_leaves_no_manifest_of_old_shards(
    words: Path, other_words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "shards"
    first = put(tmp_path / "first", {name: FILES[name] for name in ("text/en.txt", "text/sw.txt")})
    encode(Corpora(first), words, out)
    with monkeypatch.context() as patch:
        patch.setattr(module, "join", failing(module.join, 0, Stopped()))
        with pytest.raises(Stopped):
            encode(Corpora(first), other_words, out)
    assert decoded(Shards.open(out).text["sw"], words) == lines(100, 7)  # nothing is changed yet
    with monkeypatch.context() as patch:
        patch.setattr(module, "join", failing(module.join, 1, Stopped()))
        with pytest.raises(Stopped):
            encode(Corpora(first), other_words, out)
    with pytest.raises(BadInput, match="no shards here"):
        Shards.open(out)
    assert decoded(encode(Corpora(first), other_words, out).text["sw"], other_words) == lines(100, 7)


def test_stopped_before_anything_changed_leaves_the_shards(
    source: Path, words: Path, other_words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "shards"
    encode(Corpora(source), words, out)
    before = content(out)
    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "encode", failing(Vocabulary.encode, 0, Stopped()))
        with pytest.raises(Stopped):
            encode(Corpora(source), other_words, out)
    assert content(out) == before


def test_what_cannot_be_read_is_told_and_the_rest_is_kept(source: Path, words: Path, tmp_path: Path) -> None:
    put(source, {"text/sw.txt": b"\xff\n"})
    with pytest.raises(BadInput, match=r"text/sw\.txt: not one usable line"):
        encode(Corpora(source), words, tmp_path / "shards")
    assert leftovers(tmp_path / "shards") == []
    assert (tmp_path / "shards/text/en/entry.json").exists()
    assert not (tmp_path / "shards/manifest.json").exists()


# ---- memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slice_bytes", [1 << 18, 1 << 30])
def test_memory_stays_flat(words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_bytes: int) -> None:
    monkeypatch.setattr(module, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(module, "MOST_SLICES", 3)
    monkeypatch.setattr(unit_module, "ROWS_AT_ONCE", 100)
    monkeypatch.setattr(Vocabulary, "encode", lambda _, lines: [[7] * (len(line) // 2) for line in lines])
    long = "ba de " * 600  # so that a block is larger than the buffers of files

    def peak(name: str, rows: int) -> int:
        files = {
            "text/en.txt": [long, long, long, ""] * rows,
            "pairs/en-sw.tsv": [f"{long}\t{long}"] * rows,
            "multi/set/de.txt": [long] * rows,
            "multi/set/en.txt": [long, ""] * (rows // 2),
        }
        corpora = Corpora(put(tmp_path / name, files))
        del files
        tracemalloc.start()
        encode(corpora, words, tmp_path / f"{name} shards")
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak("first", 10)  # what is set up once
    assert peak("long", 1500) < 1.3 * peak("short", 150)


# ---- what is never written over ----------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["text/xh", "pairs/mine", "multi/mine/xh", "vocab"])
@pytest.mark.parametrize("append", [False, True])
def test_shards_are_never_written_over_anything_else(
    place: str, source: Path, words: Path, tmp_path: Path, append: bool
) -> None:
    put(tmp_path / "out" / place, {"precious.txt": ["mine"]})
    before = content(tmp_path / "out")
    with pytest.raises(BadInput, match="give another -o folder"):
        encode(Corpora(source), words, tmp_path / "out", append=append)
    assert content(tmp_path / "out") == before


@pytest.mark.parametrize("place", ["text/notes.txt", "multi/notes.txt"])
def test_files_among_the_folders_are_told(place: str, source: Path, words: Path, tmp_path: Path) -> None:
    put(tmp_path / "out", {place: ["mine"]})
    with pytest.raises(BadInput, match=rf"{place} is no part of any shards; give another -o folder"):
        encode(Corpora(source), words, tmp_path / "out")


def test_a_file_is_no_place_for_shards(source: Path, words: Path, tmp_path: Path) -> None:
    put(tmp_path, {"out": ["mine"]})
    with pytest.raises(BadInput, match="out: this is a file; give a folder for the shards"):
        encode(Corpora(source), words, tmp_path / "out")
