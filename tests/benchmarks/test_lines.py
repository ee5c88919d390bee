from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.benchmarks.lines import read_json, read_json_lines, read_lines
from crossling.errors import BadInput

Put = Callable[[str, str], Path]


def test_lines_end_at_a_line_feed_and_nowhere_else(put: Put) -> None:
    assert read_lines(put("a.txt", "one\u2028same\r\ntwo\n\nfour\n")) == ["one\u2028same", "two", "", "four"]


def test_a_plain_file_comes_before_its_archive(put: Put) -> None:
    path = put("a.txt.gz", "zipped")
    assert read_lines(path) == ["zipped"]
    put("a.txt", "\ufeffplain")
    assert read_lines(path) == ["plain"]


def test_json(put: Put) -> None:
    assert read_json(put("a.json", '{"a":\n 1}')) == {"a": 1}
    assert list(read_json_lines(put("a.jsonl", '{"a": 1}\n\n{"a": 2}\n'))) == [(1, {"a": 1}), (3, {"a": 2})]


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"a": 1}\n{"a"', "line 2 is no JSON"), ("[1]", "line 1 is no JSON object")],
)
def test_bad_json_lines(put: Put, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        list(read_json_lines(put("a.jsonl", text)))


def test_what_cannot_be_read_is_named(put: Put, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no such file, plain or \.gz"):
        read_lines(tmp_path / "nothing.txt")
    with pytest.raises(BadInput, match="is empty"):
        read_lines(put("empty.txt", "\n"))
    with pytest.raises(BadInput, match="line 2 is no JSON"):
        read_json(put("bad.json", "{\n1"))
    (tmp_path / "latin.txt").write_bytes(b"ab\n\xe4\n")
    with pytest.raises(BadInput, match="line 2 is not UTF-8"):
        read_lines(tmp_path / "latin.txt")
    (tmp_path / "torn.txt.gz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(BadInput, match="fetch the file again"):
        read_lines(tmp_path / "torn.txt")
