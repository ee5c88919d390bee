"""Files of benchmark results with their environment, and Markdown tables of them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import Any

import torch

from crossling.bench.step_profile import PROFILE_COLUMNS, StepProfile
from crossling.bench.workload import BenchRow
from crossling.core.errors import BadInput
from crossling.core.files import atomic_file, write_json
from crossling.core.hardware import cpu_name, library_versions
from crossling.report.charts import LinePlot, Series, line_chart

LIBRARIES = ("torch", "triton", "transformers", "sentence-transformers", "datasets", "tokenizers", "numpy")
FIGURES = {"ours": "tokens/s", "peak_gib": "peak GiB"}
COLUMNS = ("length", "vocabulary", "batch", "layers")  # of the chart of growth
BEGIN, END = "<!-- figures: written by experiments/speed.py -->", "<!-- end of figures -->"


class BenchResults:
    """A file of results that is complete after each row, so that an interrupted run loses none."""

    def __init__(self, file: Path, command: str, version: str) -> None:
        self.file = file
        self.rows: list[dict[str, Any]] = []
        self.profiles: list[dict[str, Any]] = []
        self.facts = {
            "date": date.today().isoformat(),
            "device": _device(),
            "versions": {"crossling": version, **_versions()},
            "command": command,
        }
        self._write()  # an unwritable path fails before the measurements

    def add(self, row: BenchRow) -> None:
        self.rows.append({name: _rounded(value) for name, value in row.dump().items()})
        self._write()

    def add_profile(self, profile: StepProfile) -> None:
        self.profiles.append(asdict(profile))
        self._write()

    def _write(self) -> None:
        profiles = {"profiles": self.profiles} if self.profiles else {}
        write_json(self.file, {**self.facts, "rows": self.rows, **profiles})
        chart = growth_chart(self.rows)
        if chart:
            with atomic_file(self.file.with_suffix(".svg")) as new:
                new.write_text(chart, encoding="utf-8")


def read_results(file: Path) -> dict[str, Any]:
    try:
        results = json.loads(file.read_text(encoding="utf-8"))
        known = isinstance(results, dict) and all("name" in row for row in results["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file}: cannot be read ({error}). Give a file of crossling bench -o.") from None
    if not known:
        raise BadInput(f"{file}: not a result file. Give a file of crossling bench -o.")
    return results


def results_markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Return one table per benchmark, below its environment."""
    parts = []
    for each in results:
        versions = ", ".join(f"{name} {version}" for name, version in each["versions"].items())
        facts = f"{each['date']}, {each['device']}; {versions}. `{each['command']}`"
        parts.append(fill(facts, 120, break_on_hyphens=False))
        for bench in dict.fromkeys(row.get("bench", "") for row in each["rows"]):
            parts.append(_table(bench, [row for row in each["rows"] if row.get("bench", "") == bench]))
        for profile in map(StepProfile.load, each.get("profiles", [])):
            parts += [fill(f"{profile.title}:", 120), markdown_table([PROFILE_COLUMNS, *profile.cells()])]
    return "\n\n".join(parts) + "\n"


def insert_tables(text: str, tables: str, file: Path) -> str:
    """Put the tables between the marks of a page."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BadInput(f"{file}: no marks for the figures. Add the lines {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}"


def figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(bench: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table without empty columns."""
    columns: dict[str, list[str]] = {
        bench: [f"{row['name']} ({row['unit']})" for row in rows],
        "ours": [figure(row["ours"]) for row in rows],
        "peer": [_peer(row) for row in rows],
        "ratio": [f"{row['ratio']:.2f}" if row.get("ratio") else "" for row in rows],
        "MFU": [f"{row['mfu']:.2f}" if row.get("mfu") else "" for row in rows],
        "host": [f"{row['host']:.2f}" if row.get("host") else "" for row in rows],
        "peak GiB": [figure(row.get("peak_gib")) for row in rows],
        "peer's": [figure(row.get("peer_peak_gib")) for row in rows],
        "path": [row.get("path", "") for row in rows],
    }
    kept = {name: cells for name, cells in columns.items() if any(cells)}
    return markdown_table([[*kept], *map(list, zip(*kept.values(), strict=True))])


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose first row is the header."""
    header, *rest = rows
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rest))


def _peer(row: Mapping[str, Any]) -> str:
    name = row.get("peer_name", "")
    if row.get("peer") is None:
        return name and f"({name})"
    return f"{figure(row['peer'])} ({name})" if name else figure(row["peer"])


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _device() -> str:
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {os.cpu_count()} CPU cores"
    return cpu_name()


def _versions() -> dict[str, str]:
    cuda = {"CUDA": torch.version.cuda} if torch.version.cuda else {}
    return {"python": platform.python_version(), **cuda, **library_versions(LIBRARIES)}


def growth_chart(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return an SVG chart of the rows of the benchmark `growth`, or None if no size has two rows."""
    points: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for row in rows:
        if row.get("bench") == "growth":
            what, _, value = row["name"].rpartition(" ")
            points.setdefault(what, []).append((float(value.replace(",", "")), row))
    panels: dict[str, list[LinePlot]] = {}
    for (key, name), what in product(FIGURES.items(), COLUMNS):
        known = sorted((value, float(row[key])) for value, row in points.get(what, []) if row.get(key) is not None)
        if len(known) > 1:
            plot = LinePlot(f"{name} by {what}", what, name, [Series(name, 0, known)], from_zero=True)
            panels.setdefault(key, []).append(plot)
    return line_chart([*panels.values()], label="Cost of a step by size", standalone=True) if panels else None
