"""Benchmark files, plain or gzipped, as lists of lines."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from crossling.errors import BadInput


def read_lines(path: Path) -> list[str]:
    """The lines of `path`, or of `path`.gz where only that lies there.

    Lines end at a line feed and nowhere else: sentences hold U+2028 and the like, on which `splitlines` would lose step
    with the other side.
    """
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
        raise BadInput(f"{path}: the file is empty, expected one sentence a line; fetch the file again")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
