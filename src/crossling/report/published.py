"""Published numbers, shown beside the scores of runs: the tables of papers, and public results of MTEB.

They are data (`published.json`). Each row names its paper and table, and where the numbers of a row come from another
place, the source.

Numbers are as printed, also where a paper contradicts itself or another; a note then explains it. They are not directly
comparable with each other or with a run: model selection, seeds and training data differ.

A column is named `task/metric/language`, followed by a direction and a layer where they matter. The language of an
average is `mean`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "published.json"


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One row of a table in a paper, or one model of MTEB's results."""

    paper: str
    table: str
    model: str
    size: str | None
    setting: str
    seeds: str
    protocol: str
    selection: str | None
    evaluation: str | None  # protocol of our score rows that computes the same, if it is not that of the papers
    source: str | None  # origin of the numbers, if not the paper itself
    parameters: int | None
    notes: tuple[str, ...]  # caveats, as complete sentences
    values: dict[str, float]  # by column, without those that were not printed

    @property
    def name(self) -> str:
        """Model and size."""
        return f"{self.model} {self.size}" if self.size else self.model

    @property
    def reference(self) -> str:
        """Paper and table: `XLM-E, Table 1`."""
        kind = "" if not self.table[0].isdigit() else "Tables " if " and " in self.table else "Table "
        return f"{self.paper}, {kind}{self.table}"

    @property
    def description(self) -> str:
        """Protocol, seeds, model selection and origin, as far as the paper reports them."""
        facts = [self.protocol, self.seeds if self.seeds != "not reported" else "number of seeds not reported"]
        facts += [f"selected by {self.selection}"] * bool(self.selection) + [f"from {self.source}"] * bool(self.source)
        return "; ".join(facts)

    def languages(self, task: str, metric: str, direction: str | None = None) -> dict[str, float]:
        """Return the scores by language, including lists of languages (tatoeba-14). Tables of averages have none."""
        scores = {}
        for column, value in self.values.items():
            name, found, language, *way = (*column.split("/"), "")[:4]
            same = name == task or (name.startswith(f"{task}-") and name[len(task) + 1 :].isdigit())
            if same and found == metric and not language.startswith("mean") and (way[0] or None) == direction:
                scores[language] = value
        return scores


@cache
def paper_citations() -> dict[str, str]:
    """Return the citation of every paper by its short name."""
    return dict(_stored()["papers"])


@cache
def published_rows() -> Sequence[PublishedRow]:
    """Return every row of every table, in the order of the papers."""
    notes = _stored()["notes"]
    rows = []
    for table in _stored()["tables"]:
        for row in table["rows"]:
            merged = {**table, **row}
            merged["notes"] = tuple(notes[name] for name in (*row.get("notes", []), *table.get("notes", [])))
            values = zip(table["columns"], row["values"], strict=True)
            merged["values"] = {column: value for column, value in values if value is not None}
            facts: dict[str, Any] = {field.name: merged.get(field.name) for field in fields(PublishedRow)}
            rows.append(PublishedRow(**facts))
    return rows


def published_table(
    paper: str, *tables: str, setting: str | None = None, models: Sequence[str] = ()
) -> list[PublishedRow]:
    """Return the rows of some tables of a paper, optionally of one setting or of some models."""
    rows = [row for row in published_rows() if row.paper == paper and row.table in tables]
    return [row for row in rows if setting in (None, row.setting) and (not models or row.model in models)]


@cache
def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return stored
