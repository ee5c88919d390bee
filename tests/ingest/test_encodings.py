"""Tests of encodings and line ends of text files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.corpora import text_files
from crossling.corpora.text_files import SkipReason
from crossling.ingest import encodings
from crossling.ingest.encodings import decoded_lines, detect_encoding

FRENCH = "Les élèves français étaient déjà là.\nUne leçon de musique.\n" * 20


def lines(file: Path, **options: object) -> list[str | SkipReason]:
    return list(decoded_lines(file, detect_encoding(file), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        *[("utf-8", "utf-8"), ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16"), ("utf-32", "utf-32")],
        *[("utf-16-le", "utf-16-le"), ("utf-16-be", "utf-16-be"), ("cp1252", "cp1252")],
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_encodings_are_found(tmp_path: Path, codec: str, name: str, suffix: str) -> None:
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(gzip.compress(FRENCH.encode(codec)) if suffix else FRENCH.encode(codec))
    assert detect_encoding(file).name == name
    assert lines(file) == FRENCH.splitlines()


def test_the_code_page_follows_the_language(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("Zażółć gęślą jaźń\n".encode("cp1250") * 30)
    assert detect_encoding(file, languages=["en", "pl"]).name == "cp1250"
    file.write_bytes("Съешь ещё этих мягких булок\n".encode("cp1251"))
    assert detect_encoding(file, languages=["ru"]).name == "cp1251"
    assert detect_encoding(file, "windows-1251").name == "cp1251"
    for languages in ([], ["ru", "pl"]):
        with pytest.raises(BadInput, match="neither UTF-8, UTF-16 nor Windows-1252"):
            detect_encoding(file, languages=languages)


def test_single_damaged_lines_of_utf8_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(FRENCH.encode() + b"dam\xe9\n" + "dernière\n".encode())
    assert detect_encoding(file).name == "utf-8"
    assert lines(file)[-2:] == [SkipReason.MALFORMED, "dernière"]


def test_files_that_are_no_text_and_unknown_codecs_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    with pytest.raises(BadInput, match="this is no text"):
        detect_encoding(file)
    for name in ("cp9999", "base64", "a\0b", ""):
        with pytest.raises(BadInput, match="unknown"):
            detect_encoding(file, name)


@pytest.mark.parametrize(
    ("content", "expected", "line_ends"),
    [
        (b"a\nb\r\nc", ["a", "b", "c"], "LF, CRLF"),
        (b"a\rb\rc\r", ["a", "b", "c"], "CR"),
        (b"a\r\rb\r\r", ["a", "", "b", ""], "CR"),
        (b"a\nb\rc\n", ["a", "b\rc"], "LF, CR"),  # may be within a line
        (b"", [], "none"),
    ],
)
def test_line_ends(tmp_path: Path, content: bytes, expected: list[str], line_ends: str) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(content)
    assert lines(file) == expected
    assert detect_encoding(file).line_ends == line_ends


@given(st.lists(st.text("ab\u00e9"), min_size=1), st.sampled_from(["\n", "\r\n", "\r"]), st.integers(1, 7))
def test_lines_do_not_depend_on_blocks(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], end: str, block: int
) -> None:
    file = tmp_path_factory.mktemp("lines") / "a.txt"
    file.write_bytes("".join(row + end for row in rows).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encodings, "BLOCK_BYTES", block)
        assert lines(file, split_cr=True) == rows


def test_long_lines_are_skipped_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a\n" + "b" * 40 + "\nc\n" + "d" * 9, encoding="utf-8")
    assert lines(file, most=8) == ["a", SkipReason.TOO_LONG, "c", SkipReason.TOO_LONG]
    assert text_files.MAX_LINE_BYTES > 1 << 10
