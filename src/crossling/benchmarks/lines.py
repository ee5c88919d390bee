"""Benchmark files, plain or gzipped, as lines or JSON."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossling.errors import BadInput


def read_lines(path: Path) -> list[str]:
    """The lines of `path`, or of `path`.gz where only that lies there.

    Lines end at a line feed and nowhere else: sentences hold U+2028 and the like, on which `splitlines` would lose step
    with the other side.
    """
    return [line.removesuffix("\r") for line in read_text(path).removesuffix("\n").split("\n")]


def read_json(path: Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: line {error.lineno} is no JSON ({error.msg}); fetch the file again") from None


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with the number of its line; empty lines are passed over."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInput(f"{path}: line {number} is no JSON ({error.msg}); fetch the file again") from None
        if not isinstance(found, dict):
            raise BadInput(f"{path}: line {number} is no JSON object, expected one a line; fetch the file again")
        yield number, found


def read_text(path: Path) -> str:
    """All of `path`, or of `path`.gz where only that lies there; without a byte order mark."""
    zipped = path.with_name(path.name + ".gz")
    try:
        if path.is_file():
            data = path.read_bytes()
        elif zipped.is_file():
            data = gzip.decompress(zipped.read_bytes())
        else:
            raise BadInput(f"{path}: no such file, plain or .gz; check that the benchmark folder is complete")
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path}: line {line} is not UTF-8; convert the file to UTF-8") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read ({error}); fetch the file again") from None
    if not text.strip():
        raise BadInput(f"{path}: the file is empty; fetch the file again")
    return text.removeprefix("\ufeff")
