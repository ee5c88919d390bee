"""What the papers printed: their tables as data, `published.json`, to stand beside one's own scores.

The numbers are as printed, also where a paper contradicts itself or another; a note then says so. They are not like for
like with each other or with a run's: selection, seeds and training data differ, and each table says what it says.

A column is `task/metric/language`, with a direction and a layer after it where they matter; the language of an average
is `mean`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "published.json"


@dataclass(frozen=True)
class Printed:
    """One row of a table."""

    paper: str
    table: str
    model: str
    size: str | None
    setting: str
    seeds: str
    protocol: str
    selection: str | None
    source: str | None  # whom the paper has the numbers from
    parameters: int | None
    notes: tuple[str, ...]  # what is odd about it, in whole sentences
    values: dict[str, float]  # by column; what was not printed is absent

    @property
    def name(self) -> str:
        return f"{self.model} {self.size}" if self.size else self.model

    @property
    def place(self) -> str:
        kind = "" if not self.table[0].isdigit() else "Tables " if " and " in self.table else "Table "
        return f"{self.paper}, {kind}{self.table}"

    @property
    def told(self) -> str:
        """How the numbers were got, as far as the paper says."""
        facts = [self.protocol, self.seeds if self.seeds != "not said" else "number of seeds not said"]
        facts += [f"chosen by {self.selection}"] * bool(self.selection) + [f"from {self.source}"] * bool(self.source)
        return "; ".join(facts)

    def languages(self, task: str, metric: str, direction: str | None = None) -> dict[str, float]:
        """Of a table by language; nothing of one of averages. Of a task also its lists of languages (tatoeba-14)."""
        found = {}
        for column, value in self.values.items():
            name, measured, language, *way = (*column.split("/"), "")[:4]
            same = name == task or (name.startswith(f"{task}-") and name[len(task) + 1 :].isdigit())
            if same and measured == metric and not language.startswith("mean") and (way[0] or None) == direction:
                found[language] = value
        return found


@cache
def papers() -> dict[str, str]:
    return dict(_stored()["papers"])


@cache
def printed() -> Sequence[Printed]:
    """Every row of every table, in the order of the papers."""
    notes = _stored()["notes"]
    return tuple(
        Printed(
            table["paper"],
            table["table"],
            row["model"],
            row.get("size"),
            table["setting"],
            table["seeds"],
            table["protocol"],
            row.get("selection", table.get("selection")),
            row.get("source"),
            row.get("parameters"),
            tuple(notes[name] for name in (*row.get("notes", []), *table.get("notes", []))),
            {column: value for column, value in zip(table["columns"], row["values"], strict=True) if value is not None},
        )
        for table in _stored()["tables"]
        for row in table["rows"]
    )


def of_table(paper: str, *tables: str, setting: str | None = None) -> list[Printed]:
    return [row for row in printed() if row.paper == paper and row.table in tables and setting in (None, row.setting)]


@cache
def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return stored
