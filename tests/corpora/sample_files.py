"""Functions that write corpora in every format and compression."""

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

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def put(root: Path, files: dict[str, Any]) -> Path:
    """Write files, compressed according to their names."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content.encode() if isinstance(content, str) else content
        path.write_bytes(COMPRESS.get(path.suffix, bytes)(raw))
    return root


@contextmanager
def corpora_of(files: dict[str, Any]) -> Iterator[Corpora]:
    """Yield the corpora of a temporary folder, one for every example of a property test."""
    with tempfile.TemporaryDirectory() as folder:
        yield Corpora(put(Path(folder), files))


@contextmanager
def allowed(error: type[Exception], naming: str = "") -> Iterator[None]:
    """Accept success or an error of one line that contains `naming`."""
    try:
        yield
    except error as refused:
        message = str(refused)
        if naming not in message or "\n" in message:
            raise AssertionError(message) from refused


# ---- formats ------------------------------------------------------------------------------------------


def jsonl(rows: Sequence[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def parquet(rows: Sequence[dict[str, Any]], **settings: Any) -> bytes:
    from pyarrow.parquet import write_table

    stream = io.BytesIO()
    write_table(pyarrow.Table.from_pylist(list(rows)), stream, **settings)
    return stream.getvalue()


def tmx(units: Sequence[Sequence[tuple[str, str]]], attribute: str = "xml:lang") -> bytes:
    """Return translation units, each a list of (language, text), in the form of OPUS."""
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
# Text that the readers return unchanged: no byte order mark, and no U+FFFE, which XML does not have.
readable = any_text.map(
    lambda text: text.replace("\ufeff", "").replace("\ufffe", "").replace("\uffff", "").translate(CONTROL).strip()
).filter(bool)
