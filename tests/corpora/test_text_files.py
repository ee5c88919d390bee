"""Tests of text files: line ends, compression, size limits, and damaged files."""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from pathlib import Path

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.corpora.text_files import (
    MAX_LINE_BYTES,
    SkipReason,
    TextFile,
    clean_line,
    count_lines,
    is_too_long,
    read_lines,
)

from .sample_files import COMPRESS, allowed


def write(folder: Path, content: bytes, suffix: str = "") -> Path:
    file = folder / f"en.txt{suffix}"
    file.write_bytes(COMPRESS[suffix](content))
    return file


@pytest.mark.parametrize("suffix", COMPRESS)
def test_lines_end_at_line_feeds_only(tmp_path: Path, suffix: str) -> None:
    odd = "\ufeffone\r\n\n x\x00\x0b\x0c\x1c\x85\u2028\u2029\rz\nlast"
    assert list(read_lines(write(tmp_path, odd.encode(), suffix))) == [
        "one\r\n",
        "\n",
        " x\x00\x0b\x0c\x1c\x85\u2028\u2029\rz\n",
        "last",
    ]


def test_lines_that_are_not_utf8_yield_a_reason(tmp_path: Path) -> None:
    raw = b"a\nb\xff\n\xed\xa0\x80\n\xc0\x80\nb\n"
    assert list(read_lines(write(tmp_path, raw))) == [
        "a\n",
        SkipReason.MALFORMED,
        SkipReason.MALFORMED,
        SkipReason.MALFORMED,
        "b\n",
    ]


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff"])
def test_other_encodings_are_refused_by_their_byte_order_mark(tmp_path: Path, mark: bytes) -> None:
    with pytest.raises(BadInput, match=r"en\.txt: UTF-16 or UTF-32 by its first bytes\. Save it as UTF-8"):
        list(read_lines(write(tmp_path, mark + "hello\n".encode("utf-16-le"))))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_lines_up_to_the_limit_are_read(tmp_path: Path, suffix: str) -> None:
    longest, longer = b"a" * MAX_LINE_BYTES, b"b" * (MAX_LINE_BYTES + 1)
    for end in (b"\n", b""):
        file = write(tmp_path, b"\n".join([b"x", longest, longer, b"y", longer * 3, longest]) + end, suffix)
        found = [len(line.rstrip("\n")) if isinstance(line, str) else line for line in read_lines(file)]
        assert found == [1, MAX_LINE_BYTES, SkipReason.TOO_LONG, 1, SkipReason.TOO_LONG, MAX_LINE_BYTES]
        assert count_lines(file) == 6


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("length", [MAX_LINE_BYTES - 3, MAX_LINE_BYTES - 2, MAX_LINE_BYTES, 3 * MAX_LINE_BYTES])
def test_a_long_first_line_with_a_byte_order_mark_is_one_line(tmp_path: Path, suffix: str, length: int) -> None:
    file = write(tmp_path, b"\xef\xbb\xbf" + b"a" * length + b"\nb\n", suffix)
    first, *others = read_lines(file)
    assert others == ["b\n"]
    assert len(first) == length + 1 if isinstance(first, str) else length > MAX_LINE_BYTES - 3
    assert count_lines(file) == 2


def test_the_length_of_a_line_is_measured_in_bytes() -> None:
    assert not is_too_long("a" * MAX_LINE_BYTES)
    assert is_too_long("a" * (MAX_LINE_BYTES + 1))
    assert not is_too_long("あ" * (MAX_LINE_BYTES // 3))
    assert is_too_long("あ" * (MAX_LINE_BYTES // 3 + 1))


@settings(deadline=None)
@given(st.binary(), st.sampled_from(sorted(COMPRESS)))
def test_the_count_equals_the_number_of_lines_read(content: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), b"x" + content, suffix)  # no byte order mark
        assert count_lines(file) == len(list(read_lines(file))) == len(file_lines(b"x" + content))


def file_lines(content: bytes) -> list[bytes]:
    return content.removesuffix(b"\n").split(b"\n")


@given(st.text())
def test_cleaning_replaces_control_characters_only(text: str) -> None:
    control = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029"}
    assert clean_line(text) == "".join(" " if character in control else character for character in text).strip()
    assert clean_line(clean_line(text)) == clean_line(text)


# ---- damage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["truncated", "last byte", "garbage", "overwritten", "more"])
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str, damage: str) -> None:
    file = write(tmp_path, "\n".join(map(str, range(20_000))).encode(), suffix)
    compressed = file.read_bytes()
    half = len(compressed) // 2
    file.write_bytes(
        {
            "truncated": compressed[:half],
            "last byte": compressed[:-1],
            "garbage": b"plain text\n",
            "overwritten": compressed[:half] + b"\xaa" * half,
            "more": compressed + b"plain text\n",
        }[damage]
    )
    with pytest.raises(BadInput, match=rf"en\.txt{re.escape(suffix)}: truncated or damaged"):
        list(read_lines(file))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@settings(deadline=None)
@given(data=st.data())
def test_no_bytes_crash_a_decompressor(suffix: str, data: st.DataObject) -> None:
    compressed = COMPRESS[suffix](b"one\ntwo\n" * 20)
    at = data.draw(st.integers(0, len(compressed)))
    damaged = compressed[:at] + data.draw(st.binary()) + compressed[data.draw(st.integers(at, len(compressed))) :]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"en.txt{suffix}"
        file.write_bytes(damaged)
        with allowed(BadInput, naming="en.txt"):
            assert len(list(read_lines(file))) == count_lines(file)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_concatenated_compressed_files_are_read(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path, b"a\n", suffix)
    file.write_bytes(file.read_bytes() * 3)
    assert list(read_lines(file)) == ["a\n"] * 3


def test_padding_between_and_after_xz_streams_is_skipped(tmp_path: Path) -> None:
    file = write(tmp_path, b"a\n", ".xz")
    file.write_bytes((file.read_bytes() + bytes(4)) * 2 + bytes(1 << 17) + file.read_bytes() + bytes(1 << 17))
    assert list(read_lines(file)) == ["a\n"] * 3


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_damaged_stream_after_the_first_is_refused(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path, b"a\n", suffix)
    file.write_bytes(file.read_bytes() + b"?" + file.read_bytes()[1:])  # the magic bytes of the second one
    with pytest.raises(BadInput, match=rf"en\.txt{re.escape(suffix)}: truncated or damaged"):
        list(read_lines(file))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    file = TextFile(tmp_path / "en.txt")
    for read in (lambda: list(read_lines(file.path)), lambda: count_lines(file.path), file.size, file.digest):
        with pytest.raises(BadInput, match=r"en\.txt: cannot be opened \(No such file"):
            read()


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, b"a", ".zst")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"en\.txt\.zst: needs the package pyarrow\. .* crossling\[data\]"):
        list(read_lines(file))


# ---- TextFile -----------------------------------------------------------------------------------------


def test_the_digest_depends_on_the_bytes(tmp_path: Path) -> None:
    file = TextFile(write(tmp_path, b"a\n" * 3_000_000))
    assert (file.name, file.format, str(file)) == ("en.txt", "txt", str(tmp_path / "en.txt"))
    assert file.size() == 6_000_000
    assert file.digest() == xxhash.xxh3_128_hexdigest(b"a\n" * 3_000_000)
    file.path.write_bytes(gzip.compress(b"a\n"))
    assert file.digest() == xxhash.xxh3_128_hexdigest(file.path.read_bytes())


@pytest.mark.parametrize(
    ("name", "kind"),
    [("en.txt", "txt"), ("en.jsonl.zst", "jsonl"), ("a.b.en-fr.tmx.gz", "tmx"), ("n.en-fr.fr.xz", "fr")],
)
def test_the_format_of_a_file(name: str, kind: str) -> None:
    assert TextFile(Path("somewhere.gz") / name).format == kind
