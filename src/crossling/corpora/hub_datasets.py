"""Hugging Face datasets by reference, streamed row by row. Code of a dataset is never run.

    hf://DATASET[@REVISION][?config=..&split=train&column=text&language=sw]     (or pair=en-fr)

DATASET is a name on the hub (`statmt/cc100`) or a local folder (`hf:///data/cc100`, `hf://./cc100`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote

import xxhash

from crossling.core.errors import BadInput, Failed, Interrupted, import_package, suggestion
from crossling.corpora.languages import canonical_code, parse_pair
from crossling.corpora.records import Record
from crossling.corpora.text_files import TextFile

SYNTAX = "hf://DATASET[@REVISION][?config=..&split=..&column=..&language=..] (or &pair=..)"
OPTIONS = ("config", "split", "column", "language", "pair")
# Formats with rows of text. `datasets` reads many more, and some of them run code.
READABLE = ("arrow", "csv", "json", "parquet", "text")

_REFERENCE = re.compile(r"hf://(?P<dataset>[^@?]+)(?:@(?P<revision>[^?]+))?(?:\?(?P<options>.*))?")


@dataclass(frozen=True, kw_only=True)
class DatasetReference:
    """Source of text: a split of a dataset."""

    format: ClassVar[str] = "hf"  # entry of formats.FORMATS

    text: str  # as written by the user
    dataset: str  # name on the hub, or absolute path of a folder
    revision: str | None = None
    config: str | None = None
    split: str = "train"
    column: str | None = None
    language: str | None = None
    pair: tuple[str, str] | None = None
    file: Path | None = None  # that contains the reference

    def __str__(self) -> str:
        return f"{self.file} ({self.text})" if self.file else self.text

    @classmethod
    def parse(cls, text: str, file: Path | None = None) -> DatasetReference:
        """Parse a reference. A local path is relative to `file`, which contains it, or to the working directory."""
        where = f"{file}: " if file else ""
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise BadInput(f"{where}{text[:200]!r} is not a dataset reference. Write {SYNTAX}.")
        try:
            options = parse_qsl(match["options"] or "", keep_blank_values=True, strict_parsing=bool(match["options"]))
            values = _parse_options(options)
        except ValueError as error:
            raise BadInput(f"{where}{text[:200]}: {error}") from None
        dataset = unquote(match["dataset"])
        if dataset.startswith(("/", "./", "../")):
            dataset = str(((file.parent if file else Path()) / dataset).absolute())
        return cls(text=text, dataset=dataset, revision=match["revision"], file=file, **values)

    @property
    def name(self) -> str:
        """Name of the file with the reference, or the reference."""
        return self.file.name if self.file else self.text

    def size(self) -> int:
        """Return the number of bytes on disk; 0 for a dataset on the hub."""
        return sum(file.size() for file in map(_local_file, self._data_files()) if file) if self._is_local else 0

    def digest(self) -> str:
        """Return a hash of the reference and its current data: local bytes, or the revision on the hub."""
        parts = [self.text]
        for data in self._data_files():
            file = _local_file(data)
            parts.append(f"{file.name} {file.digest()}" if file else data)
        return xxhash.xxh3_128_hexdigest("\n".join(parts).encode())

    def state(self) -> str:
        """Return the digest. Data in a local folder is read for it."""
        return self.digest()

    def records(self, is_wanted: Callable[[str], bool]) -> Iterator[Record]:
        """Yield rows with the wanted columns. If there are none, yield one row with all column names."""
        builder = self._builder()
        with self._readable_errors():
            rows = builder.as_streaming_dataset(split=self.split)
            if rows.column_names:  # else they are unknown before rows are read
                columns = list(filter(is_wanted, rows.column_names))
                rows = rows.select_columns(columns) if columns else [dict.fromkeys(rows.column_names)]
            yield from rows

    @property
    def _is_local(self) -> bool:
        return Path(self.dataset).is_absolute()

    def _data_files(self) -> list[str]:
        """Return local paths, or URLs on the hub, which contain the revision."""
        with self._readable_errors():
            return list(map(str, (self._builder().config.data_files or {}).get(self.split, ())))

    def _builder(self) -> Any:
        datasets = import_package("datasets", self)
        if self._is_local and not Path(self.dataset).is_dir():
            raise BadInput(f"{self}: no such folder {self.dataset}. Check the path.")
        with self._readable_errors():
            builder = datasets.load_dataset_builder(self.dataset, self.config, revision=self.revision)
        module = type(builder).__module__.split(".")
        if module[:2] != ["datasets", "packaged_modules"] or module[2] not in READABLE:
            raise BadInput(f"{self}: no rows of text. Expected files of the types {', '.join(READABLE)}.")
        return builder

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        # `datasets`, its file systems and its parsers raise any type of error.
        try:
            yield
        except (BadInput, Failed, Interrupted):
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise BadInput(f"{self}: cannot be read ({reason}). Check name, config, split and connection.") from None


def _parse_options(options: list[tuple[str, str]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in options:
        if key not in OPTIONS:
            raise BadInput(f"unknown option {key!r}{suggestion(key, OPTIONS)}")
        if key in values or not value:
            raise BadInput(
                f"option {key!r} {'is given twice' if key in values else 'has no value'}. Correct the reference."
            )
        values[key] = {"language": canonical_code, "pair": parse_pair}.get(key, str)(value)
    if "language" in values and "pair" in values:
        raise BadInput("language and pair exclude each other. Give one of them.")
    return values


def _local_file(data: str) -> TextFile | None:
    return None if "://" in data else TextFile(Path(data))
