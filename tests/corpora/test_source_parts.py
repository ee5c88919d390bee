"""Slices of any size have the rows and documents of the whole part, and each reads its own range of the file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.corpora import source_parts as module
from crossling.corpora.corpus import Corpora
from crossling.corpora.source_parts import SourcePart, source_parts, spans_from_json, spans_to_json
from crossling.corpora.text_files import TextFile

from .sample_files import COMPRESS


def open_parts(root: Path, files: dict[str, bytes]) -> list[SourcePart]:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return source_parts(Corpora(root))


def compress_frames(content: bytes, frame_bytes: int) -> bytes:
    """Compress each part of the text to a frame of its own."""
    starts = range(0, len(content), frame_bytes)
    return b"".join(COMPRESS[".zst"](content[start : start + frame_bytes]) for start in starts)


def read(part: SourcePart) -> tuple[list[list[tuple[str, ...]]], Counter[str]]:
    dropped = Counter[str]()
    return list(part.documents(dropped)), dropped


def read_slices(part: SourcePart) -> tuple[list[list[tuple[str, ...]]], Counter[str]]:
    spans = spans_from_json(json.loads(json.dumps(spans_to_json(part.find_spans()))))
    assert len(spans) == part.slices
    parts = [read(part.slice(index, span)) for index, span in enumerate(spans) if span]
    return [row for rows, _ in parts for row in rows], sum((dropped for _, dropped in parts), Counter())


LINES = st.lists(
    st.sampled_from([b"", b"", b" \r", b"a \xff", b"\xe2\x80\xa8", b"long " * 9])
    | st.integers(0, 999).map(lambda number: f"line {number}".encode()),
    max_size=30,
)
ROWS = st.lists(st.sampled_from([b"a\tb", b"a\tb\tc", b"a", b"", b"\tb", b"a\xff\tb", b"aa bb\tcc"]), max_size=30)
RECORDS = st.lists(
    st.sampled_from(
        [
            b'{"text": "one\\ntwo"}',
            b'{"text": "running\\n"}',
            b'{"text": "running on\\n"}',
            b'{"text": ""}',
            b'{"text": "single"}',
            b'{"other": 1}',
            b"no JSON",
        ]
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(
    text=LINES,
    rows=ROWS,
    records=RECORDS,
    sides=st.lists(st.tuples(st.sampled_from([b"", b"ab", b"a\xff", b"abc def"]), st.sampled_from([b"x", b"", b"yy"]))),
    last=st.sampled_from([b"", b"\n"]),
    target_last=st.sampled_from([b"", b"\n"]),
    slice_bytes=st.integers(5, 200),
    frame_bytes=st.integers(1, 60),
)
def test_slices_have_the_rows_of_the_whole(
    text: list[bytes],
    rows: list[bytes],
    records: list[bytes],
    sides: list[tuple[bytes, bytes]],
    last: bytes,
    target_last: bytes,
    slice_bytes: int,
    frame_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def join(lines: Sequence[bytes]) -> bytes:
        return b"\n".join(lines) + last

    files = {
        "text/en.txt": b"\xef\xbb\xbf" + join([*text, b"end"]),
        "text/de.txt.zst": compress_frames(join([*text, b"end"]), frame_bytes),
        "text/sw.jsonl": join([b'{"text": "first"}', *records]),
        "pairs/en-sw.tsv": join([b"a\tb", *rows]),
        "pairs/x.en-sw.tsv.zst": compress_frames(join([b"a\tb", *rows]), frame_bytes),
        "pairs/moses.en-sw.en": join([*(source for source, _ in sides), b"a"]),
        "pairs/moses.en-sw.sw": b"\n".join([*(target for _, target in sides), b"b"]) + target_last,
        "multi/set/de.txt": join([b"a", *text]),
        "multi/set/fr.txt": join([b"a", *text]),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE_BYTES", slice_bytes)
        for part in open_parts(tmp_path_factory.mktemp("any"), files):
            assert read_slices(part) == read(part), part.name


@pytest.mark.parametrize("name", ["text/en.txt", "text/en.txt.zst"])
def test_a_large_file_has_many_slices_of_equal_size(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"".join(b"line %d of a document\n%s" % (n, b"\n" if n % 5 == 0 else b"") for n in range(4000))
    content = compress_frames(text, 500) if name.endswith(".zst") else text
    monkeypatch.setattr(module, "SLICE_BYTES", len(content) // 50)
    [part] = open_parts(tmp_path, {name: content})
    assert part.slices == 51
    sizes = [sum(map(len, read(part.slice(i, span))[0])) for i, span in enumerate(part.find_spans()) if span]
    assert len(sizes) >= 50
    assert max(sizes) < 1.5 * 4000 / 50


def test_a_slice_reads_its_own_range_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text outside of the range is no text any more."""
    content = b"".join(b"line %04d\n\n" % number for number in range(100))
    monkeypatch.setattr(module, "SLICE_BYTES", 200)
    [part] = open_parts(tmp_path, {"text/en.txt": content})
    spans = part.find_spans()
    assert part.slices == len(spans) == 6
    expected = read(part.slice(3, spans[3]))
    [span] = spans[3]
    assert span
    assert span.end
    start, end = sum(span.start), sum(span.end)
    (tmp_path / "text/en.txt").write_bytes(b"\xff" * start + content[start:end] + b"\xff" * (len(content) - end))
    assert read(part.slice(3, spans[3])) == expected
    assert expected[0][0] == [(content[start : start + 9].decode(),)]


def test_text_without_empty_lines_is_split_at_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_BYTES", 400)
    monkeypatch.setattr(module, "MAX_DOCUMENT_CHARACTERS", 100)
    lines = [f"line {number:03}" for number in range(200)]
    [part] = open_parts(tmp_path, {"text/en.txt": "\n".join(lines).encode()})
    documents, _ = read_slices(part)
    assert [line for document in documents for (line,) in document] == lines
    assert len(documents) == part.slices == 5
    assert max(map(len, documents)) < 60


@pytest.mark.parametrize("name", ["text/en.txt.gz", "text/en.txt.xz", "pairs/en-fr.tmx"])
def test_files_that_cannot_be_entered_in_the_middle_are_one_slice(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE_BYTES", 1)
    [part] = open_parts(tmp_path, {name: b"content"})
    assert part.slices == 1
    assert part.find_spans() == [(None,)]


@pytest.mark.parametrize("side", ["en", "sw"])
def test_sides_of_different_lengths_are_refused(side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_BYTES", 20)
    files = {f"pairs/a.en-sw.{code}": b"line\n" * (9 if code == side else 10) for code in ("en", "sw")}
    [part] = open_parts(tmp_path, files)
    with pytest.raises(BadInput, match=rf"same number of lines, but .*\.{side} has 9"):
        part.find_spans()


def test_the_layout_of_scored_pairs_is_that_of_the_first_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of a later slice may be numbers."""
    monkeypatch.setattr(module, "SLICE_BYTES", 100)
    rows = [b"1.1\ta\tb"] * 120 + [b"1.1\t7\t8"] * 50
    [part] = open_parts(tmp_path, {"pairs/en-fr.tsv": b"\n".join(rows)})
    assert read_slices(part) == read(part)
    assert len(read(part)[0]) == 170


def test_the_state_changes_with_the_file_and_its_reading(tmp_path: Path) -> None:
    file = TextFile(tmp_path / "en-fr.tsv")
    file.path.write_bytes(b"a\tb")
    states = {file.state(), TextFile(file.path, min_score=1.0).state()}
    file.path.write_bytes(b"a\tbc")
    assert len({*states, file.state()}) == 3
