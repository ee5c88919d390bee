"""Tests of whole calls: files of every kind in, corpora and a report out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora
from crossling.ingest import ingest as module
from crossling.ingest.ingest import ingest
from tests.corpora.sample_files import jsonl, parquet, put, tmx

from .office_files import docx, xlsx

PAIRS = [("One & two.", "Moja na mbili."), ("A café", "Mkahawa")]
ROWS = [["en", "sw"], *map(list, PAIRS)]
FILES: dict[str, Any] = {
    "a.csv": '\ufeffid;English;Kiswahili\r\n1;"One\n&amp; two.";Moja na mbili.\r\n2;"A caf&eacute;";Mkahawa\r\n',
    "b.en-sw.tsv": "One & two.\tMoja na mbili.\rA café\tMkahawa\r".encode("utf-16"),
    "c.xlsx": xlsx({"Notes": [["Nothing here"]], "Text": [["", *ROWS[0]], *(["", *row] for row in ROWS[1:])]}),
    "d.docx": docx("A title", ROWS),
    "e.jsonl": jsonl([{"translation": {"en": left, "sw": right}} for left, right in PAIRS]),
    "f.parquet": parquet([{"n": 1, "eng_Latn": left, "swh_Latn": right} for left, right in PAIRS]),
    "g.tmx": tmx([[("en-US", left), ("sw", right)] for left, right in PAIRS]),
    "h.en": "One & two.\nA café\n".encode("cp1252"),
    "h.sw": "Moja na mbili.\r\nMkahawa",
    "i.en-sw.txt": "One & two. ||| Moja na mbili.\nA café ||| Mkahawa\n",
    "j.en-sw.csv.gz": "One & two.,Moja na mbili.\nA café,Mkahawa\n",
}


def written(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "ingest.json"
    }


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("h.")])
def test_every_kind_of_file_gives_the_same_pairs(tmp_path: Path, name: str) -> None:
    put(tmp_path, {name: FILES[name]})
    report = ingest(tmp_path / name, tmp_path / "out", pair="en-sw" if name == "d.docx" else None)
    [corpus] = Corpora(tmp_path / "out").pairs
    assert (list(corpus.rows()), corpus.label) == (PAIRS, f"{name[0]}.en-sw")
    for entry in report["files"]:
        assert entry["read"] == entry["written"] + sum(entry["skipped"].values())
    assert json.loads((tmp_path / "out" / "ingest.json").read_text(encoding="utf-8")) == report


def test_a_messy_folder_is_read_as_far_as_possible(tmp_path: Path) -> None:
    stray = {"photo.png": b"\x89PNG\0", "README.md": "x", "old.doc": b"\xd0\xcf", "bad.docx": b"PK", "x.txt": "one"}
    put(tmp_path / "in", FILES | stray | {"copy/a.csv": FILES["a.csv"], "sw.txt": "Habari\n\n \nNjema\rSana\n"})
    report = ingest(tmp_path / "in", tmp_path / "out")
    corpora = Corpora(tmp_path / "out")
    assert {corpus.label for corpus in corpora.pairs} == {f"{letter}.en-sw" for letter in "abcdefghij"}
    assert all(list(corpus.rows()) == PAIRS for corpus in corpora.pairs)
    assert [*corpora.text[0].documents()] == [["Habari"], ["Njema", "Sana"]]
    skipped = {Path(file).name: reason for file, reason in report["skipped files"].items()}
    assert sorted(skipped) == ["README.md", "a.csv", "bad.docx", "old.doc", "photo.png", "x.txt"]
    assert skipped["old.doc"].endswith("Save it as .docx")
    assert "same content as" in skipped["a.csv"]
    assert "no language in its name" in skipped["x.txt"]
    changed = {Path(entry["files"][0]).name: entry["changed"] for entry in report["files"]}
    assert changed["a.csv"] == {"HTML entities": 2}


def test_text_of_one_language_from_several_files(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "a.docx": docx("Sentensi ya kwanza.", [["Jedwali", "la\nmaneno"]]),
            "b.csv": 'id,text\n1,"mstari\nwa pili"\n2,\n',
            "c.txt": "\ufeffyai\n\ufeffndizi\n",
            "d.jsonl": jsonl([{"text": "moja\nmbili"}, {"text": 3}]),
            "e.xlsx": xlsx({"s": [["embe"], ["nanasi"]]}),
        },
    )
    files = [tmp_path / name for name in ("a.docx", "b.csv", "c.txt", "d.jsonl", "e.xlsx")]
    report = ingest(files, tmp_path / "out", language="swh")
    assert written(tmp_path / "out") == {
        "text/sw.txt": "Sentensi ya kwanza.\nJedwali\nla\nmaneno\n\nmstari\nwa pili\n\nyai\nndizi\n\nmoja\nmbili\n\n"
        "embe\nnanasi\n"
    }
    reasons = [entry["skipped"] for entry in report["files"]]
    assert reasons == [{}, {"no text": 1, "header": 1}, {}, {"no text": 1}, {}]


def test_two_text_files_are_the_sides_of_a_pair(tmp_path: Path) -> None:
    put(tmp_path, {"book1.txt": "a\nb\n", "book2.txt": "x\n\n", "n.sw": "x\n", "n.en": "a\n", "m.en": "a\nb\n"})
    ingest([tmp_path / "book1.txt", tmp_path / "book2.txt"], tmp_path / "out", pair="en-sw")
    ingest([tmp_path / "n.sw", tmp_path / "n.en"], tmp_path / "named", pair="en-sw")
    assert written(tmp_path / "out") == {"pairs/book.en-sw.tsv": "a\tx\n"}
    assert written(tmp_path / "named") == {"pairs/n.en-sw.tsv": "a\tx\n"}
    with pytest.raises(BadInput, match=r"m.en has 2, .*n.sw has 1"):
        ingest([tmp_path / "m.en", tmp_path / "n.sw"], tmp_path / "other", pair="en-sw")
    with pytest.raises(BadInput, match="its name has the language sw, expected fr"):
        ingest([tmp_path / "m.en", tmp_path / "n.sw"], tmp_path / "other", pair="en-fr")
    assert not (tmp_path / "other").exists()


def test_sides_of_another_length_are_text(tmp_path: Path) -> None:
    put(tmp_path / "in", {"wiki.en": "a\nb\n", "wiki.sw": "x\n"})
    report = ingest(tmp_path / "in", tmp_path / "out")
    assert written(tmp_path / "out") == {"text/en.txt": "a\nb\n", "text/sw.txt": "x\n"}
    assert "wiki.sw has 1" in report["notes"][0]


def test_a_stray_carriage_return_does_not_shift_a_side(tmp_path: Path) -> None:
    put(tmp_path, {"a.en": "one\rmore\ntwo\n", "a.sw": "moja\nmbili\rzaidi\n"})
    ingest([tmp_path / "a.en", tmp_path / "a.sw"], tmp_path / "out", pair="en-sw")
    assert written(tmp_path / "out")["pairs/a.en-sw.tsv"] == "one more\tmoja\ntwo\tmbili zaidi\n"


def test_more_than_two_languages_are_a_multiway_corpus(tmp_path: Path) -> None:
    put(
        tmp_path,
        {"words.csv": "en,sw,fr\none,moja,un\ntwo,,deux\nthree,,\n", "t.de": "a\n", "t.en": "b\n", "t.fr": "c"},
    )
    ingest(tmp_path / "words.csv", tmp_path / "out")
    files = {"en": "one\ntwo\n", "sw": "moja\n\n", "fr": "un\ndeux\n"}
    assert written(tmp_path / "out") == {f"multi/words/{language}.txt": text for language, text in files.items()}
    ingest([tmp_path / f"t.{language}" for language in ("de", "en", "fr")], tmp_path / "t")
    assert Corpora(tmp_path / "t").multi[0].languages == ("de", "en", "fr")


def test_a_later_call_adds_and_a_repeated_call_changes_nothing(tmp_path: Path) -> None:
    put(tmp_path, {"a.sw": "moja\n", "b.sw": "mbili\n", "en-sw.csv": "one,moja\n", "sub/en-sw.csv": "two,mbili\n"})
    out = tmp_path / "out"
    ingest(tmp_path / "a.sw", out)
    first = ingest([tmp_path / "b.sw", tmp_path / "en-sw.csv", tmp_path / "sub"], out)
    expected = {
        "pairs/en-sw.tsv": "one\tmoja\n",
        "pairs/part-2.en-sw.tsv": "two\tmbili\n",
        "text/sw.txt": "moja\n\nmbili\n",
    }
    assert written(out) == expected
    assert [Path(entry["files"][0]).name for entry in first["files"]] == ["a.sw", "b.sw", "en-sw.csv", "en-sw.csv"]
    assert ingest([tmp_path / "b.sw", tmp_path / "a.sw"], out)["files"] == first["files"]
    assert written(out) == expected
    with pytest.raises(BadInput, match="in the output with other options"):
        ingest(tmp_path / "en-sw.csv", out, pair="en-fr")
    (tmp_path / "a.sw").write_text("moja!\n", encoding="utf-8")
    with pytest.raises(BadInput, match="changed since"):
        ingest(tmp_path / "a.sw", out)
    assert written(out) == expected


def test_an_input_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"in/a.sw": "moja\n", "in/b.sw.gz": "mbili\n" * 50_000, "in/c.sw": "tatu\n"})
    whole = (tmp_path / "in/b.sw.gz").read_bytes()
    ingest(tmp_path / "in/a.sw", tmp_path / "out")
    before = written(tmp_path / "out")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_json", crash)
        with pytest.raises(KeyboardInterrupt):
            ingest(tmp_path / "in", tmp_path / "out")
    assert written(tmp_path / "out") == before
    (tmp_path / "in/b.sw.gz").write_bytes(whole[:-20])
    report = ingest(tmp_path / "in", tmp_path / "out")
    assert written(tmp_path / "out") == {"text/sw.txt": "moja\n\ntatu\n"}
    assert "truncated or damaged" in report["skipped files"][str(tmp_path / "in/b.sw.gz")]


def test_a_sheet_that_fails_removes_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"in/a.xlsx": xlsx({"s": ROWS, "t": ROWS}), "in/b.en-sw.csv": "one,moja\n"})
    write = module._RowCounts.write
    calls: list[int] = []

    def fail(self: Any, reading: Any, handles: Any) -> None:
        write(self, reading, handles)
        calls.append(1)
        if len(calls) == 2:
            raise BadInput("damaged. Fix it.")

    monkeypatch.setattr(module._RowCounts, "write", fail)
    report = ingest(tmp_path / "in", tmp_path / "out")
    assert written(tmp_path / "out") == {"pairs/b.en-sw.tsv": "one\tmoja\n"}
    assert [len(report["files"]), *report["skipped files"].values()] == [1, "damaged. Fix it."]


@pytest.mark.parametrize(
    ("files", "options", "expected"),
    [
        ({"a.txt": "x"}, {}, "no language in its name"),
        ({"a.txt": "x\ty\n"}, {"language": "sw"}, "columns separated by tabs"),
        ({"a.txt": "x"}, {"pair": "en-sw"}, "Give the other side"),
        ({"a.pdf": "x"}, {}, "unknown kind of file. Copy its text into a .txt file."),
        ({"a.csv": "x,y\n"}, {"language": "sw", "pair": "en-sw"}, "both are given"),
        ({"a.csv": ""}, {"pair": "en-sw"}, "no rows of a table"),
        ({"a.sw": "\n \n"}, {}, "no text to write"),
        ({"a.docx": docx("one")}, {"pair": "en-sw"}, "no table"),
        ({"a.jsonl": "1\n"}, {"language": "sw"}, "no row with named columns"),
        ({"a.jsonl": '{"x": "y"}\n'}, {"language": "sw"}, "1 columns"),
        ({"a.tmx": tmx([[("en", "a"), ("fr", "b"), ("sw", "c")]])}, {}, "languages en, fr, sw, expected two"),
        ({"a.xlsx": xlsx({"s": [["a", "b", "c"]]})}, {"pair": "en-sw"}, "sheet 's': 3 columns"),
        ({"a.sw": "x"}, {"encoding": "utf-99"}, "unknown"),
        ({"a.sw": b"\xff\xfeabc\0"}, {"language": "xx"}, "not a language code"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    tmp_path: Path, files: dict[str, Any], options: dict[str, str], expected: str
) -> None:
    put(tmp_path, files)
    with pytest.raises(BadInput, match=expected) as refused:
        ingest([tmp_path / name for name in files], tmp_path / "out", **options)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_other_outputs_are_refused(tmp_path: Path) -> None:
    put(
        tmp_path, {"a.sw": "x", "full/b": "y", "odd/ingest.json": "{}", "new/ingest.json": '{"format": 9, "files": []}'}
    )
    for folder, expected in (("full", "not empty"), ("odd", "not a report"), ("new", "format version 9")):
        with pytest.raises(BadInput, match=expected):
            ingest(tmp_path / "a.sw", tmp_path / folder)
    with pytest.raises(BadInput, match="no such file"):
        ingest(tmp_path / "absent", tmp_path / "out")


cells = st.text(st.sampled_from('ab,;"\t |é&\r\n\ufffd\0'), max_size=6)


@settings(max_examples=60)
@given(
    st.lists(st.lists(cells, min_size=1, max_size=4), max_size=8),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["csv", "tsv"]),
)
def test_a_pair_that_comes_out_was_a_row_and_all_others_are_counted(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], delimiter: str, end: str, ending: str
) -> None:
    """Both cells of a row end with its number, in files that no writer of CSV would write."""
    folder = tmp_path_factory.mktemp("rows")
    marked = [[f"{cell}{number}" for cell in row] for number, row in enumerate(rows)]
    text = "".join(delimiter.join(cell.replace("\n", " ").replace("\r", " ") for cell in row) + end for row in marked)
    file = folder / f"en-sw.{ending}"
    file.write_text(f"one{delimiter}moja{end}{text}", encoding="utf-8", newline="")
    try:
        report = ingest(file, folder / "out")
    except BadInput as refused:
        assert "\n" not in str(refused)  # noqa: PT017
        return
    [entry] = report["files"]
    assert entry["read"] == entry["written"] + sum(entry["skipped"].values())
    pairs = [line.split("\t") for line in (folder / "out/pairs/en-sw.tsv").read_text(encoding="utf-8").splitlines()]
    assert len(pairs) == entry["written"]
    for left, right in pairs[1:]:
        if '"' not in text:
            assert left[-1] == right[-1]


side_ends = st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1, max_size=3)


@settings(max_examples=60)
@given(st.integers(1, 9), side_ends, side_ends, st.sets(st.integers(0, 8)), st.booleans())
def test_lines_of_two_sides_never_shift(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    left_ends: list[str],
    right_ends: list[str],
    strays: set[int],
    is_glued: bool,
) -> None:
    """Lines may end in different ways, and have carriage returns within them."""
    folder = tmp_path_factory.mktemp("sides")
    files = [folder / "a.en", folder / "a.sw"]
    for file, ends in zip(files, (left_ends, right_ends), strict=True):
        stray = "\r" if is_glued and file.suffix == ".sw" else " "
        lines = [f"{n}{stray if n in strays else ' '}x {n}{ends[n % len(ends)]}" for n in range(count)]
        file.write_bytes("".join(lines).encode())
    try:
        report = ingest(files, folder / "out", pair="en-sw")
    except BadInput as refused:
        assert "the same number of lines" in str(refused)  # noqa: PT017
        return
    [entry] = report["files"]
    rows = (folder / "out/pairs/a.en-sw.tsv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == entry["written"] == entry["read"]
    for row in rows:
        left, right = row.split("\t")
        assert {*left.replace("x", "").split()} == {*right.replace("x", "").split()}
