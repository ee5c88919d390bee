"""Shards hold every sentence once, whole or not at all, and say so when they do not."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.corpora.corpus import Corpora
from crossling.data import shards as module
from crossling.data.shards import Sentences, Shards, encode
from crossling.errors import BadInput
from crossling.vocabulary.vocabulary import EOS, Vocabulary

SYLLABLES = ["ba", "de", "gi", "ko", "lu", "ma", "ne", "pi", "ro", "su", "ta", "ve"]


def line(number: int) -> str:
    """Words that tell the number, and no other number has."""
    draw = random.Random(number)
    digits = "".join(SYLLABLES[int(digit)] for digit in str(number))
    return " ".join([digits, *("".join(draw.choices(SYLLABLES, k=3)) for _ in range(draw.randint(0, 7)))])


def lines(start: int, count: int) -> list[str]:
    return [line(number) for number in range(start, start + count)]


HOLES = {"de": {1, 2}, "en": {2, 5}, "sw": {0, 2}, "zu": set(range(8))}  # rows that a language lacks; zu has 8 and 9
FILES: dict[str, list[str]] = {
    "text/en.txt": [*lines(0, 5), "", *lines(5, 3), "", "", *lines(8, 2)],
    "text/sw.txt": lines(100, 7),
    "pairs/en-sw.tsv": [f"{line(200 + i)}\t{line(300 + i)}" for i in range(9)],
    "pairs/news.en-sw.en": lines(400, 6),
    "pairs/news.en-sw.sw": lines(500, 6),
    **{
        f"multi/bible/{language}.txt": ["" if row in holes else line(1000 * (i + 1) + row) for row in range(10)]
        for i, (language, holes) in enumerate(HOLES.items())
    },
}


def put(root: Path, files: dict[str, list[str]]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    return root


def trained(root: Path, size: int) -> Path:
    put(root / "corpora", {"text/en.txt": lines(0, 400)})
    Vocabulary.train(Corpora(root / "corpora"), size, threads=1).save(root / "vocab")
    return root / "vocab"


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("words"), 80)


@pytest.fixture(scope="session")
def other_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("other_words"), 70)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return put(tmp_path / "corpora", FILES)


@pytest.fixture(scope="session")
def made(words: Path, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    root = tmp_path_factory.mktemp("made")
    return encode(Corpora(put(root / "corpora", FILES)), words, root / "shards")


def decoded(sentences: Sentences, vocabulary: Path) -> list[str]:
    pieces = Vocabulary.load(vocabulary).pieces
    found = []
    for index in range(len(sentences)):
        ids = sentences[index].tolist()
        assert not ids or (ids[-1] == EOS and EOS not in ids[:-1] and len(ids) > 1)
        found.append(pieces.decode(ids[:-1]))
    return found


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """What tells whether a file was written again."""
    stats = {str(file.relative_to(folder)): file.stat() for file in folder.rglob("*") if file.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def leftovers(folder: Path) -> list[Path]:
    """Temporary neighbours, raw ids, and folders of shards without their last file."""
    names = [file for file in folder.rglob("*") if file.name.startswith(".") or file.name.endswith("raw")]
    halves = [part for kind in ("text", "pairs", "multi") for part in (folder / kind).glob("*")]
    return names + [part for part in halves if not (part / "entry.json").is_file()]


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
        assert bitext.rows.tolist() == list(range(count))
        assert [decoded(side, words) for side in bitext.sides] == [lines(english, count), lines(swahili, count)]


def test_multi_way_sets_give_every_pair_of_languages(made: Shards, words: Path) -> None:
    found = {bitext.languages: bitext for bitext in made.bitexts if bitext.corpus == "bible"}
    rows = {pair: sorted(set(range(10)) - HOLES[pair[0]] - HOLES[pair[1]]) for pair in combinations(HOLES, 2)}
    assert {pair: bitext.rows.tolist() for pair, bitext in found.items()} == rows
    assert {pair: bitext.pairs for pair, bitext in found.items()} == {pair: len(these) for pair, these in rows.items()}
    for (a, b), bitext in found.items():
        for language, side in zip((a, b), bitext.sides, strict=True):
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
    assert made.manifest["pairs"]["news.en-sw"]["pairs"] == 6
    bible = made.manifest["multi"]["bible"]
    assert bible["rows"] == 10
    assert {language: entry["rows"] for language, entry in bible["languages"].items()} == {
        language: 10 - len(holes) for language, holes in HOLES.items()
    }
    assert made.vocabulary_size == vocabulary.size
    assert made.manifest["vocabulary"]["fingerprint"] == vocabulary.fingerprint


def test_vocabulary_travels_with_the_shards(made: Shards, words: Path) -> None:
    assert content(made.vocabulary_path) == content(words)


def test_what_is_left_out_is_counted(tmp_path: Path, words: Path) -> None:
    put(tmp_path / "corpora", {"pairs/en-sw.tsv": ["ba\tde", "ba", "\tde", "ba\tde\tgi", "gi\tko"]})
    file = tmp_path / "corpora/pairs/en-sw.tsv"
    file.write_bytes(file.read_bytes() + b"\xff\tba\n")
    made = encode(Corpora(tmp_path / "corpora"), words, tmp_path / "shards")
    entry = made.manifest["pairs"]["en-sw"]
    assert entry["pairs"] == 2
    assert entry["dropped"] == {"not two columns": 2, "empty side": 1, "malformed utf-8": 1}


def test_lines_that_come_to_nothing_are_no_pairs(tmp_path: Path, words: Path) -> None:
    """A line of invisible characters is filled, and has no ids."""
    files = {"pairs/en-sw.tsv": ["ba\tde", "\u200b\tde", "gi\t\u200b", "ko\tlu"]}
    made = encode(Corpora(put(tmp_path / "corpora", files)), words, tmp_path / "shards")
    [bitext] = made.bitexts
    assert bitext.pairs == 2
    assert bitext.rows.tolist() == [0, 3]


def test_corpora_that_come_to_nothing_are_empty(tmp_path: Path, words: Path) -> None:
    made = encode(Corpora(put(tmp_path / "corpora", {"text/en.txt": ["\u200b"]})), words, tmp_path / "shards")
    assert made.manifest["text"]["en"]["tokens"] == 0
    assert len(made.text["en"].tokens) == 0


LINE = st.lists(st.sampled_from(SYLLABLES), max_size=6).map("".join)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(LINE, LINE, LINE), min_size=1, max_size=12).filter(
        lambda rows: all(any(row[side] for row in rows) for side in range(3))
    ),
    at_once=st.integers(1, 5),
)
def test_any_multi_way_set_comes_back(
    words: Path, tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, ...]], at_once: int
) -> None:
    root = tmp_path_factory.mktemp("any")
    columns = dict(zip(("de", "en", "sw"), zip(*rows, strict=True), strict=True))
    put(root / "corpora", {f"multi/set/{language}.txt": list(column) for language, column in columns.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LINES_AT_ONCE", at_once)
        patch.setattr(module, "ROWS_AT_ONCE", at_once)
        made = encode(Corpora(root / "corpora"), words, root / "shards")
        found = {bitext.languages: bitext for bitext in made.bitexts}
    for a, b in combinations(columns, 2):
        both = [i for i, (one, other) in enumerate(zip(columns[a], columns[b], strict=True)) if one and other]
        assert ((a, b) in found) == bool(both)
        if both:
            assert found[a, b].rows.tolist() == both
            assert found[a, b].pairs == len(both)
            assert decoded(found[a, b].sides[0], words) == list(columns[a])
            assert decoded(found[a, b].sides[1], words) == list(columns[b])


@pytest.mark.parametrize(("size", "kind"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_ids_have_the_bits_they_need(
    source: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, kind: type
) -> None:
    monkeypatch.setattr(Vocabulary, "size", property(lambda _: size))
    monkeypatch.setattr(Vocabulary, "encode", lambda _, lines: [[size - 1] if line else [] for line in lines])
    made = encode(Corpora(source), words, tmp_path / "shards")
    assert made.text["en"].tokens.dtype == kind
    assert made.text["en"][0].tolist() == [size - 1, EOS]
    assert made.text["en"][0].dtype == np.int64


def test_shards_are_mapped_not_read(made: Shards) -> None:
    assert isinstance(made.text["en"].tokens, np.memmap)


# ---- corpora of one name ---------------------------------------------------------------------------------


def test_corpora_never_share_a_folder(tmp_path: Path, words: Path) -> None:
    files = {
        "pairs/en-sw.tsv": ["ba\tde"],
        "pairs/en-sw.en-sw.tsv": ["gi\tko", "lu\tma"],
        "pairs/x.en-sw.tsv": ["ba\tba"],
    }
    made = encode(Corpora(put(tmp_path / "corpora", files)), words, tmp_path / "shards")
    assert sorted(bitext.pairs for bitext in made.bitexts) == [1, 1, 2]


def test_corpora_have_numbers_of_their_own(made: Shards) -> None:
    numbers: dict[str, set[int]] = {}
    for bitext in made.bitexts:
        numbers.setdefault(bitext.corpus, set()).add(bitext.number)
    assert all(len(these) == 1 for these in numbers.values())
    assert len(set.union(*numbers.values())) == 3


# ---- starting again --------------------------------------------------------------------------------------


def test_finished_parts_are_not_written_again(source: Path, words: Path, tmp_path: Path) -> None:
    first = encode(Corpora(source), words, tmp_path / "shards")
    before = {kind: state(tmp_path / "shards" / kind) for kind in ("text", "pairs", "multi")}
    again = encode(Corpora(source), words, tmp_path / "shards")
    assert {kind: state(tmp_path / "shards" / kind) for kind in before} == before
    assert again.manifest == first.manifest


def rewritten(shards: Path, before: dict[str, tuple[int, int]]) -> set[str]:
    after = state(shards)
    return {str(Path(name).parent) for name in after if after[name] != before.get(name)} - {".", "vocab"}


@pytest.mark.parametrize(
    ("changed", "folder"),
    [("text/sw.txt", "text/sw"), ("pairs/news.en-sw.sw", "pairs/news.en-sw"), ("multi/bible/de.txt", "multi/bible")],
)
def test_only_changed_sources_are_encoded_again(
    source: Path, words: Path, tmp_path: Path, changed: str, folder: str
) -> None:
    first = encode(Corpora(source), words, tmp_path / "shards")
    before = state(tmp_path / "shards")
    content = [*FILES[changed]]
    content[-1] = line(9999)
    put(source, {changed: content})
    again = encode(Corpora(source), words, tmp_path / "shards")
    assert rewritten(tmp_path / "shards", before) == {folder}
    assert again.fingerprint != first.fingerprint
    assert again.fingerprint == encode(Corpora(source), words, tmp_path / "fresh").fingerprint


def test_renamed_language_is_encoded_again(source: Path, words: Path, tmp_path: Path) -> None:
    encode(Corpora(source), words, tmp_path / "shards")
    (source / "multi/bible/zu.txt").rename(source / "multi/bible/xh.txt")
    again = encode(Corpora(source), words, tmp_path / "shards")
    assert set(again.manifest["multi"]["bible"]["languages"]) == {"de", "en", "sw", "xh"}
    assert len([bitext for bitext in again.bitexts if "xh" in bitext.languages]) == 3


def test_line_moved_from_one_side_to_the_other_is_encoded_again(tmp_path: Path, words: Path) -> None:
    source = put(tmp_path / "corpora", {"multi/set/de.txt": ["ba", "", "de"], "multi/set/en.txt": ["", "gi", "ko"]})
    encode(Corpora(source), words, tmp_path / "shards")
    (source / "multi/set/de.txt").write_text("ba\n\n", encoding="utf-8")
    (source / "multi/set/en.txt").write_text("de\n\ngi\nko\n", encoding="utf-8")
    with pytest.raises(BadInput, match="same number of lines"):
        encode(Corpora(source), words, tmp_path / "shards")


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


def test_removed_corpora_are_gone(source: Path, words: Path, tmp_path: Path) -> None:
    encode(Corpora(source), words, tmp_path / "shards")
    (source / "pairs/en-sw.tsv").unlink()
    again = encode(Corpora(source), words, tmp_path / "shards")
    assert "en-sw" not in {bitext.corpus for bitext in again.bitexts}


# ---- interrupted ----------------------------------------------------------------------------------------


class Stopped(BaseException):
    """Like KeyboardInterrupt: no Exception."""


def failing(call: Callable[..., Any], after: int, error: BaseException) -> Callable[..., Any]:
    calls = iter(range(after))

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise error
        return call(*arguments, **options)

    return wrapped


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


@pytest.mark.parametrize("after", range(0, 12, 4))
def test_full_disk_leaves_nothing_half(
    made: Shards, source: Path, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    out = tmp_path / "shards"
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", failing(np.save, after, OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            encode(Corpora(source), words, out)
    assert leftovers(out) == []
    assert not (out / "manifest.json").exists()
    encode(Corpora(source), words, out)
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


# ---- several processes ------------------------------------------------------------------------------------


def test_two_processes_write_the_same_bytes(made: Shards, source: Path, words: Path, tmp_path: Path) -> None:
    encode(Corpora(source), words, tmp_path / "shards", workers=2)
    assert content(tmp_path / "shards") == content(made.path)


# ---- what cannot be used ----------------------------------------------------------------------------------


def test_unequal_multi_way_files_are_refused(source: Path, words: Path, tmp_path: Path) -> None:
    put(source, {"multi/bible/en.txt": lines(0, 11)})
    with pytest.raises(BadInput, match=r"same number of lines, but .*de.txt has 10, .*en.txt has 11"):
        encode(Corpora(source), words, tmp_path / "shards")
    assert leftovers(tmp_path / "shards") == []
    assert not (tmp_path / "shards" / "manifest.json").exists()


@pytest.mark.parametrize("name", ["", "nowhere", "corpora"])
def test_folders_that_are_no_shards_are_refused(source: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"no shards here \(expected manifest.json\); make them with crossling encode"):
        Shards.open(source.parent / name)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "7", '"manifest"', "{}", '{"format": 1}', '{"format": 2}', "\x00\x01"]
)
def test_damaged_manifests_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match="damaged or of another version; make these shards again"):
        Shards.open(tmp_path)


def test_manifest_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(BadInput, match="damaged"):
        Shards.open(tmp_path)


def test_manifests_of_other_versions_are_refused(made: Shards, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(made.manifest | {"format": 99}), encoding="utf-8")
    with pytest.raises(BadInput, match="another version"):
        Shards.open(tmp_path)


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "other"])
@pytest.mark.parametrize("file", ["text/en/tokens.npy", "pairs/en-sw/sw.offsets.npy", "multi/bible/de.tokens.npy"])
def test_damaged_arrays_are_refused(source: Path, words: Path, tmp_path: Path, file: str, damage: str) -> None:
    made = encode(Corpora(source), words, tmp_path / "shards")
    array = made.path / file
    raw = array.read_bytes()
    array.unlink()
    if damage != "gone":
        array.write_bytes({"empty": b"", "cut": raw[:-3], "other": b"this is no array\n" * 20}[damage])
    with pytest.raises(BadInput, match=rf"{file} .*cannot be read .*make these shards again with crossling encode"):
        _ = made.text if file.startswith("text") else made.bitexts


@pytest.mark.parametrize("place", ["text/xh", "pairs/mine", "multi/mine", "vocab"])
def test_shards_are_never_written_over_anything_else(
    place: str, corpora_folder: Path, vocabulary_folder: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "out" / place / "precious.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="give another -o folder"):
        encode(Corpora(corpora_folder), vocabulary_folder, tmp_path / "out")
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [precious]


def test_what_was_cut_off_or_lost_is_made_again(source: Path, words: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = content(encode(Corpora(source), words, out).path)
    tokens = sorted(out.rglob("*tokens.npy"))
    tokens[0].write_bytes(tokens[0].read_bytes()[:-5])
    tokens[-1].unlink()
    assert content(encode(Corpora(source), words, out).path) == whole


def test_shards_without_their_vocabulary_are_refused(source: Path, words: Path, tmp_path: Path) -> None:
    made = encode(Corpora(source), words, tmp_path / "out")
    (made.vocabulary_path / "sentencepiece.model").unlink()
    with pytest.raises(BadInput, match="make these shards again"):
        Shards.open(made.path)
