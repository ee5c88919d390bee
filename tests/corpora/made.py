"""Corpora written by hand, in every format and compression."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from hypothesis import strategies as st

from crossling.corpora.corpus import Corpora

pyarrow = pytest.importorskip("pyarrow")
zstandard = pytest.importorskip("zstandard")

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def put(root: Path, files: dict[str, Any]) -> Path:
    """Writes files, each packed as its name says."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content.encode() if isinstance(content, str) else content
        path.write_bytes(PACK.get(path.suffix, bytes)(raw))
    return root


@contextmanager
def corpora_of(files: dict[str, Any]) -> Iterator[Corpora]:
    """For property tests: a folder of its own for every example."""
    with tempfile.TemporaryDirectory() as folder:
        yield Corpora(put(Path(folder), files))


@contextmanager
def allowed(error: type[Exception], naming: str = "") -> Iterator[None]:
    """Garbage may be read or refused, in one line that names it; nothing else."""
    try:
        yield
    except error as refused:
        told = str(refused)
        if naming not in told or "\n" in told:
            raise AssertionError(told) from refused


# ---- formats ------------------------------------------------------------------------------------------


def jsonl(rows: Sequence[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def parquet(rows: Sequence[dict[str, Any]], **settings: Any) -> bytes:
    from pyarrow.parquet import write_table

    stream = io.BytesIO()
    write_table(pyarrow.Table.from_pylist(list(rows)), stream, **settings)
    return stream.getvalue()


def tmx(units: Sequence[Sequence[tuple[str, str]]], attribute: str = "xml:lang") -> bytes:
    """Each unit a list of (language, text), in the dress OPUS gives it."""
    body = "".join(
        "    <tu>\n"
        + "".join(f'      <tuv {attribute}="{code}"><seg>{escape(text)}</seg></tuv>\n' for code, text in unit)
        + "    </tu>\n"
        for unit in units
    )
    return f"""<?xml version="1.0" encoding="UTF-8" ?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header creationdate="Fri Nov 13 08:13:19 2026" srclang="en" adminlang="en" o-tmf="unknown" segtype="sentence"
    creationtool="made" creationtoolversion="1" datatype="PlainText" />
  <body>
{body}  </body>
</tmx>
""".encode()


# ---- text ------------------------------------------------------------------------------------------

CONTROL = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
# What comes back as it is. The first character of a file may be a mark of the order of bytes, and XML has no U+FFFE.
readable = any_text.map(
    lambda text: text.replace("\ufeff", "").replace("\ufffe", "").replace("\uffff", "").translate(CONTROL).strip()
).filter(bool)
