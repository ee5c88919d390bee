"""Hugging Face datasets by reference, streamed row by row; a dataset's own code is never run.

    hf://DATASET[@REVISION][?config=..&split=train&column=text&language=sw]     (or pair=en-fr)

DATASET is a name on the Hub (`statmt/cc100`) or a local folder (`hf:///data/cc100`, `hf://./cc100`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import xxhash

from crossling.corpora.files import File
from crossling.corpora.languages import canonical, canonical_pair
from crossling.corpora.records import Record
from crossling.errors import BadInput, Failed, Interrupted, nearest

SYNTAX = "hf://DATASET[@REVISION][?config=..&split=..&column=..&language=..] (or &pair=..)"
OPTIONS = ("config", "split", "column", "language", "pair")
# Formats that hold rows of text; `datasets` reads many more, of which some run code of their own.
READABLE = ("arrow", "csv", "json", "parquet", "text")

_REFERENCE = re.compile(r"hf://(?P<dataset>[^@?]+)(?:@(?P<revision>[^?]+))?(?:\?(?P<options>.*))?")


@dataclass(frozen=True)
class Reference:
    """A split of a dataset as a source of text."""

    text: str  # as it was written
    dataset: str  # a name on the Hub, or the full path of a folder
    revision: str | None = None
    config: str | None = None
    split: str = "train"
    column: str | None = None
    language: str | None = None
    pair: tuple[str, str] | None = None
    file: Path | None = None  # that it was written in

    def __str__(self) -> str:
        return f"{self.file} ({self.text})" if self.file else self.text

    @classmethod
    def parse(cls, text: str, file: Path | None = None) -> Reference:
        """A local path is relative to the file that holds the reference, or to where we are."""
        where = f"{file}: " if file else ""
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise BadInput(f"{where}{text[:200]!r} is no reference to a dataset: write {SYNTAX}")
        try:
            options = parse_qsl(match["options"] or "", keep_blank_values=True, strict_parsing=bool(match["options"]))
            values = _values(options)
        except ValueError as error:
            raise BadInput(f"{where}{text[:200]}: {error}") from None
        dataset = unquote(match["dataset"])
        if dataset.startswith(("/", "./", "../")):
            dataset = str(((file.parent if file else Path()) / dataset).absolute())
        return cls(text, dataset, match["revision"], file=file, **values)

    @property
    def name(self) -> str:
        return self.file.name if self.file else self.text

    def size(self) -> int:
        """Bytes on disk; 0 for what lies on the Hub."""
        return sum(file.size() for file in map(_local, self._data_files()) if file) if self._is_local else 0

    def digest(self) -> str:
        """Of the reference and the data it leads to now: the bytes of a local folder, the revision on the Hub."""
        parts = [self.text]
        for data in self._data_files():
            file = _local(data)
            parts.append(f"{file.name} {file.digest()}" if file else data)
        return xxhash.xxh3_128_hexdigest("\n".join(parts).encode())

    def records(self, wanted: Callable[[str], bool]) -> Iterator[Record]:
        """Rows with the wanted columns; where there are none such, one with the names there are."""
        builder = self._builder()
        with self._told():
            rows = builder.as_streaming_dataset(split=self.split)
            if rows.column_names:  # else they are known only when rows are read
                columns = list(filter(wanted, rows.column_names))
                rows = rows.select_columns(columns) if columns else [dict.fromkeys(rows.column_names)]
            yield from rows

    @property
    def _is_local(self) -> bool:
        return Path(self.dataset).is_absolute()

    def _data_files(self) -> list[str]:
        """Paths, or addresses on the Hub; those have the revision in them."""
        with self._told():
            return list(map(str, (self._builder().config.data_files or {}).get(self.split, ())))

    def _builder(self) -> Any:
        try:
            import datasets
        except ImportError:
            raise BadInput(f"{self} needs the package datasets: pip install crossling[data]") from None
        if self._is_local and not Path(self.dataset).is_dir():
            raise BadInput(f"{self}: there is no folder {self.dataset}")
        with self._told():
            builder = datasets.load_dataset_builder(self.dataset, self.config, revision=self.revision)
        module = type(builder).__module__.split(".")
        if module[:2] != ["datasets", "packaged_modules"] or module[2] not in READABLE:
            raise BadInput(f"{self} holds no rows of text: {', '.join(READABLE)} files are read")
        return builder

    @contextmanager
    def _told(self) -> Iterator[None]:
        """`datasets`, its file systems and its parsers fail in any way they like."""
        try:
            yield
        except (BadInput, Failed, Interrupted):
            raise
        except Exception as error:
            said = " ".join(str(error).split())[:300] or type(error).__name__
            raise BadInput(f"{self} cannot be read ({said}): check name, config, split and connection") from None


def _values(options: list[tuple[str, str]]) -> dict[str, Any]:
    """What the part after the ? says."""
    values: dict[str, Any] = {}
    for key, value in options:
        if key not in OPTIONS:
            raise BadInput(f"there is no option {key!r}{nearest(key, OPTIONS)}")
        if key in values or not value:
            raise BadInput(f"{key} is given {'twice' if key in values else 'without a value'}")
        values[key] = {"language": canonical, "pair": canonical_pair}.get(key, str)(value)
    if "language" in values and "pair" in values:
        raise BadInput("give language or pair, not both")
    return values


def _local(data: str) -> File | None:
    return None if "://" in data else File(Path(data))
