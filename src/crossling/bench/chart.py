"""How the cost of a step grows, as one picture: tokens a second and memory, by what is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossling.evaluate import charts
from crossling.evaluate.charts import LineChart, Series, line_chart
from crossling.templates import templates

FIGURES = {"ours": "tokens/s", "peak_gib": "peak GiB"}
COLUMNS = ("length", "vocabulary", "batch", "layers")


def growth_chart(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """An SVG of the rows of the bench `growth`; none without two of a kind."""
    points: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for row in rows:
        if row.get("bench") == "growth":
            what, _, value = row["name"].rpartition(" ")
            points.setdefault(what, []).append((float(value.replace(",", "")), row))
    lines: list[list[LineChart]] = []
    for key, name in FIGURES.items():
        line = []
        for what in COLUMNS:
            known = sorted((value, float(row[key])) for value, row in points.get(what, []) if row.get(key) is not None)
            if len(known) > 1:
                line.append(line_chart(f"{name} by {what}", what, [Series(name, 0, known)], percent=True))
        if line:
            lines.append(line)
    if not lines:
        return None
    environment = templates(Path(__file__).parent)
    return environment.get_template("growth.svg.jinja").render(lines=lines, chart=charts, title=24)
