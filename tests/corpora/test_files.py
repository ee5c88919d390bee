"""A line is a line, whatever its bytes; what is packed reads as if it were not; damage is named."""

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

from crossling.corpora.files import LONGEST_LINE, File, Skip, clean, count_lines, lines, too_long
from crossling.errors import BadInput

from .made import PACK, allowed


def write(folder: Path, content: bytes, suffix: str = "") -> Path:
    file = folder / f"en.txt{suffix}"
    file.write_bytes(PACK[suffix](content))
    return file


@pytest.mark.parametrize("suffix", PACK)
def test_lines_end_at_line_feeds_and_nowhere_else(tmp_path: Path, suffix: str) -> None:
    odd = "\ufeffone\r\n\n x\x00\x0b\x0c\x1c\x85\u2028\u2029\rz\nlast"
    assert list(lines(write(tmp_path, odd.encode(), suffix))) == [
        "one\r\n",
        "\n",
        " x\x00\x0b\x0c\x1c\x85\u2028\u2029\rz\n",
        "last",
    ]


def test_lines_that_are_no_utf8_leave_a_reason(tmp_path: Path) -> None:
    raw = b"a\nb\xff\n\xed\xa0\x80\n\xc0\x80\nb\n"
    assert list(lines(write(tmp_path, raw))) == ["a\n", Skip.MALFORMED, Skip.MALFORMED, Skip.MALFORMED, "b\n"]


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff"])
def test_other_encodings_are_told_by_their_mark(tmp_path: Path, mark: bytes) -> None:
    with pytest.raises(BadInput, match=r"en\.txt is UTF-16 or UTF-32 by its first bytes: save it as UTF-8"):
        list(lines(write(tmp_path, mark + "hello\n".encode("utf-16-le"))))


@pytest.mark.parametrize("suffix", PACK)
def test_a_line_may_be_just_so_long(tmp_path: Path, suffix: str) -> None:
    longest, longer = b"a" * LONGEST_LINE, b"b" * (LONGEST_LINE + 1)
    for end in (b"\n", b""):
        file = write(tmp_path, b"\n".join([b"x", longest, longer, b"y", longer * 3, longest]) + end, suffix)
        found = [len(line.rstrip("\n")) if isinstance(line, str) else line for line in lines(file)]
        assert found == [1, LONGEST_LINE, Skip.TOO_LONG, 1, Skip.TOO_LONG, LONGEST_LINE]
        assert count_lines(file) == 6


def test_a_long_line_is_measured_in_bytes() -> None:
    assert not too_long("a" * LONGEST_LINE)
    assert too_long("a" * (LONGEST_LINE + 1))
    assert not too_long("あ" * (LONGEST_LINE // 3))
    assert too_long("あ" * (LONGEST_LINE // 3 + 1))


@settings(deadline=None)
@given(st.binary(), st.sampled_from(sorted(PACK)))
def test_as_many_lines_are_counted_as_are_read(content: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), b"x" + content, suffix)  # no mark in front
        assert count_lines(file) == len(list(lines(file))) == len(file_lines(b"x" + content))


def file_lines(content: bytes) -> list[bytes]:
    return content.removesuffix(b"\n").split(b"\n")


@given(st.text())
def test_clean_text_has_no_control_characters_and_loses_nothing_else(text: str) -> None:
    control = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029"}
    assert clean(text) == "".join(" " if character in control else character for character in text).strip()
    assert clean(clean(text)) == clean(text)


# ---- damage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("harm", ["cut", "last byte", "garbage", "overwritten", "more"])
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str, harm: str) -> None:
    file = write(tmp_path, "\n".join(map(str, range(20_000))).encode(), suffix)
    packed = file.read_bytes()
    half = len(packed) // 2
    file.write_bytes(
        {
            "cut": packed[:half],
            "last byte": packed[:-1],
            "garbage": b"plain text\n",
            "overwritten": packed[:half] + b"\xaa" * half,
            "more": packed + b"plain text\n",
        }[harm]
    )
    if (suffix, harm) == (".xz", "more"):
        pytest.skip("lzma takes no notice of what follows the packed text")
    with pytest.raises(BadInput, match=rf"en\.txt{re.escape(suffix)} is cut short or damaged"):
        list(lines(file))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@settings(deadline=None)
@given(data=st.data())
def test_no_bytes_crash_an_unpacker(suffix: str, data: st.DataObject) -> None:
    packed = PACK[suffix](b"one\ntwo\n" * 20)
    at = data.draw(st.integers(0, len(packed)))
    harmed = packed[:at] + data.draw(st.binary()) + packed[data.draw(st.integers(at, len(packed))) :]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"en.txt{suffix}"
        file.write_bytes(harmed)
        with allowed(BadInput, naming="en.txt"):
            assert len(list(lines(file))) == count_lines(file)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_packed_files_may_be_joined_end_to_end(tmp_path: Path, suffix: str) -> None:
    file = write(tmp_path, b"a\n", suffix)
    file.write_bytes(file.read_bytes() * 3)
    assert list(lines(file)) == ["a\n"] * 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = File(tmp_path / "en.txt")
    for read in (lambda: list(lines(file.path)), lambda: count_lines(file.path), file.size, file.digest):
        with pytest.raises(BadInput, match=r"en\.txt cannot be opened \(No such file"):
            read()


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, b"a", ".zst")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"en\.txt\.zst needs the package pyarrow: pip install crossling\[data\]"):
        list(lines(file))


# ---- sources ------------------------------------------------------------------------------------------


def test_a_source_is_known_by_its_bytes(tmp_path: Path) -> None:
    file = File(write(tmp_path, b"a\n" * 3_000_000))
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
    assert File(Path("somewhere.gz") / name).format == kind
