"""Pairs and triplets of sentences of the user, with negatives or scores, from tables and JSON Lines.

| columns | headers |
|---|---|
| anchor | anchor, query, question, sentence1, source, text1, premise |
| positive | positive, answer, document, passage, context, sentence2, target, text2, response |
| negatives, several | negative, negatives, hard_negative, neg, also with a number |
| score of similarity | score, similarity, similarity_score, label |

Other headers belong to columns that are not read, or are two languages. Without a header the first column is the
anchor and the second the positive. A third column has scores if all its cells are numbers, else negatives.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import xxhash

from crossling.core.errors import BadInput
from crossling.corpora.records import MAX_ROW_BYTES, read_parquet
from crossling.corpora.text_files import COMPRESSION_SUFFIX, SkipReason
from crossling.finetune.own_tables import TEXT_ENDINGS, read_rows, usable_line
from crossling.ingest.encodings import decoded_lines, detect_encoding
from crossling.ingest.language_hints import guess_header, header_role
from crossling.ingest.office import read_workbook

ROLES = {
    "anchor": {"anchor", "query", "question", "sentence1", "sentence_1", "source", "text1", "premise", "src"},
    "positive": {
        *("positive", "answer", "document", "passage", "context", "sentence2", "sentence_2", "target", "text2", "pos"),
        *("response", "hypothesis", "tgt"),
    },
    "score": {"score", "similarity", "similarity_score", "label", "gold"},
}
NEGATIVE = re.compile(r"(hard_?)?neg(ative)?s?(_?\d+)?")
RECORD_ENDINGS = ("jsonl", "ndjson", "parquet")
SAMPLE = 100  # rows that decide whether a column has numbers

Record = dict[str, Any]  # role, or a name of its own, to a text, a number or a list of texts


@dataclass(frozen=True)
class SentencePair:
    """One row: two texts that belong together, texts that do not belong to the anchor, and a score."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    score: float | None = None


@dataclass(frozen=True)
class SentencePairs:
    """The rows of a file.

    Attributes:
        rows: All rows.
        skipped: Rows without one of the texts.
    """

    rows: list[SentencePair] = field(repr=False)
    skipped: int = 0

    @property
    def is_scored(self) -> bool:
        """True if the rows have scores of similarity."""
        return self.rows[0].score is not None

    @property
    def fingerprint(self) -> str:
        """Hash of all rows."""
        digest = xxhash.xxh3_64()
        for row in self.rows:
            digest.update(json.dumps([row.anchor, row.positive, row.negatives, row.score]).encode())
        return digest.hexdigest()


def read_sentence_pairs(file: Path, columns: Sequence[str | int] = ()) -> SentencePairs:
    """Read the pairs of a file.

    Args:
        file: TSV, CSV, text with tabs, JSON Lines, Parquet or xlsx. A list in a JSON row gives several texts.
        columns: Names or numbers (from 1) of the columns: anchor, positive, and then the score or negatives.
            [default: by the header]

    Raises:
        BadInput: If the file cannot be read, or its columns are not certain.
    """
    if not file.is_file():
        raise BadInput(f"{file}: no such file. Give a file with pairs of texts.")
    ending = COMPRESSION_SUFFIX.sub("", file.name).rpartition(".")[2].lower()
    if ending not in (*TEXT_ENDINGS, *RECORD_ENDINGS, "xlsx"):
        kinds = ", ".join(f".{each}" for each in (*TEXT_ENDINGS, *RECORD_ENDINGS, "xlsx"))
        raise BadInput(f"{file}: unknown kind of file. Expected {kinds}.")
    records = _read_records(file, ending) if ending in RECORD_ENDINGS else _read_table(file, ending, columns)
    rows: list[SentencePair] = []
    skipped = 0
    for number, record in enumerate(_with_roles(records, columns, file), start=1):
        found = _make_pairs(record, f"{file}: row {number}")
        rows += found
        skipped += not found
    if not rows:
        raise BadInput(f"{file}: no pairs of texts. Give two columns, an anchor and a positive.")
    if any((row.score is None) != (rows[0].score is None) for row in rows):
        raise BadInput(f"{file}: some rows have a score and others none. Give all rows one, or omit the column.")
    return SentencePairs(rows, skipped)


def find_role(name: str) -> str | None:
    """Return the role of a column by its name: anchor, positive, negative or score."""
    key = name.strip().lstrip("\ufeff").casefold().replace(" ", "_").replace("-", "_")
    if NEGATIVE.fullmatch(key):
        return "negative"
    return next((role for role, names in ROLES.items() if key in names), None)


# ---- files -----------------------------------------------------------------------------------------------------


def _read_records(file: Path, ending: str) -> Iterator[Record]:
    if ending == "parquet":
        for number, row in enumerate(read_parquet(file, lambda _: True), start=1):
            yield dict(_usable(row, f"{file}: row {number}"))
        return
    lines = decoded_lines(file, detect_encoding(file), most=MAX_ROW_BYTES)
    for number, line in enumerate((usable_line(each, file) for each in lines), start=1):
        if line.strip():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                raise BadInput(f"{file}: line {number}: not a JSON object. Write one object on each line.")
            yield record


def _read_table(file: Path, ending: str, columns: Sequence[str | int]) -> Iterator[Record]:
    """Yield rows with the names of their columns, or their numbers (from 1) without a header."""
    if ending == "xlsx":
        sheets = read_workbook(file)
        rows = (row for _, sheet in sheets for row in sheet if any(row))
    else:
        rows = (cells for _, cells in read_rows(file))
    sample = list(islice(rows, SAMPLE))
    if not sample:
        return
    names = [cell.strip().lstrip("\ufeff") for cell in sample[0]]
    if _is_header(names, sample[1:], columns):
        sample = sample[1:]
    else:
        names = [str(number) for number in range(1, len(names) + 1)]
        if columns and (unknown := [str(each) for each in columns if str(each) not in names]):
            raise BadInput(f"{file}: no column {unknown[0]!r:.80}. The columns are {', '.join(sample[0])[:160]!r}.")
    for cells in chain(sample, rows):
        yield dict(zip(names, cells, strict=False))


def _is_header(names: Sequence[str], others: Sequence[Sequence[str]], columns: Sequence[str | int]) -> bool:
    """Return whether the first row of a table has the names of its columns."""
    if any(str(column) in names for column in columns):
        return True
    roles = [find_role(name) for name in names]
    if {"anchor", "positive"} <= {*roles} or (len(names) == 2 and all(_names_text(name) for name in names)):
        return True
    # Numbers below a text.
    return len(names) > 2 and bool(others) and _is_number(others[0][-1]) and not _is_number(names[-1])


def _names_text(name: str) -> bool:
    return guess_header(name) is not None or header_role(name) is not None


def _is_number(cell: object) -> bool:
    try:
        float(str(cell).replace(",", "."))
    except ValueError:
        return False
    return True


# ---- rows ------------------------------------------------------------------------------------------------------


def _with_roles(records: Iterator[Record], columns: Sequence[str | int], file: Path) -> Iterator[Record]:
    """Yield rows with the keys `anchor`, `positive`, `score` and `negatives`."""
    sample = list(islice(records, SAMPLE))
    if not sample:
        return
    names = list(dict.fromkeys(name for record in sample for name in record))
    chosen = [_column_name(column, names, file) for column in columns] or names
    roles = [find_role(name) for name in chosen]
    if not {"anchor", "positive"} <= {*roles}:
        if len(chosen) < 2:
            raise BadInput(f"{file}: one column, expected an anchor and a positive. Name them as columns.")
        if not columns and not all(name.isdecimal() for name in names) and len(names) > 2:
            listed = ", ".join(names)[:160]
            raise BadInput(
                f"{file}: columns {listed}. Name those of anchor and positive, such as columns={names[0]},..."
            )
        rest = chosen[2:]
        is_scored = len(rest) == 1 and all(_is_number(record.get(rest[0])) for record in sample)
        roles = ["anchor", "positive", *(["score"] if is_scored else ["negative"] * len(rest))]
    by_role: dict[str, list[str]] = {}
    for name, role in zip(chosen, roles, strict=True):
        by_role.setdefault(role or "", []).append(name)
    for record in chain(sample, records):
        yield {
            **{role: record.get(by_role[role][0]) for role in ("anchor", "positive", "score") if role in by_role},
            "negatives": [record.get(name) for name in by_role.get("negative", ())],
        }


def _column_name(column: str | int, names: Sequence[str], file: Path) -> str:
    if str(column) in names:
        return str(column)
    if str(column).isdecimal() and 1 <= int(column) <= len(names):
        return names[int(column) - 1]
    raise BadInput(f"{file}: no column {str(column)!r:.80}. The columns are {', '.join(names)[:160]}.")


def _make_pairs(record: Record, where: str) -> list[SentencePair]:
    """Return a pair for each positive of a row. None if a text is missing."""
    anchors, positives = _texts(record["anchor"], where), _texts(record["positive"], where)
    negatives = tuple(text for cell in record["negatives"] for text in _texts(cell, where))
    score = None
    if "score" in record:
        if not _is_number(record["score"]):
            raise BadInput(f"{where}: score {record['score']!r:.40}, expected a number. Fix the row.")
        score = float(str(record["score"]).replace(",", "."))
        if not math.isfinite(score):
            raise BadInput(f"{where}: score {record['score']!r:.40}, expected a finite number. Fix the row.")
    return [SentencePair(anchor, positive, negatives, score) for anchor in anchors for positive in positives]


def _texts(cell: object, where: str) -> list[str]:
    cells = cell if isinstance(cell, list) else [] if cell is None else [cell]
    if not all(isinstance(each, str) for each in cells):
        raise BadInput(f"{where}: found {cell!r:.80}, expected a text. Fix the row.")
    return [text for each in cells if (text := " ".join(str(each).split()))]


def _usable(row: Any, where: str) -> Any:
    if isinstance(row, SkipReason):
        raise BadInput(f"{where}: {row.value}. Fix the row.")
    return row
