"""What laboratories found, for the repository: docs/results.md and its pictures, and the boards as JSON.

    python benchmarks/publish.py [LAB...]

The board of each LAB goes to benchmarks/results/DATE-lab-NAME.json. docs/results.md and docs/lab-NAME.svg are then made
of the newest board of every name that lies there: nothing in them is written by hand. The README's table is made of the
board of `papers`: its recipes, and those of their variants that found more.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from crossling.disk import new_file
from crossling.laboratory.plan import parse
from crossling.laboratory.results import CURVES, write_results

ROOT = Path(__file__).parent.parent
HEAD = """# Results

What the recipes did when they were put to the test against each other ([how](lab.md)), as `crossling lab` wrote it:
made by `python benchmarks/publish.py`, nothing by hand. Boards with all scores and curves:
[benchmarks/results](../benchmarks/results). Translators and VECO's Table 5: [translation.md](translation.md); which
bitext is damaged: [audit.md](audit.md); speed: [speed.md](speed.md); what was tried on the way: [log.md](log.md).
"""
HEADLINE = "papers"  # the plan of the README's table
ORDER = (HEADLINE, "rosetta")  # what comes first
BEGIN, END = "<!-- made by benchmarks/publish.py -->", "<!-- until here -->"
COLUMNS = {
    "Tatoeba-28 %": ("tatoeba", "accuracy"),
    "AER, 5 pairs": ("word-alignment", "aer"),
    "XNLI %": ("xnli", "accuracy"),
    "POS F1": ("udpos", "f1"),
    "NER F1": ("panx", "f1"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labs", nargs="*", type=Path, metavar="LAB")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the repository")
    asked = parser.parse_args()
    stored = asked.root / "benchmarks" / "results"
    for lab in asked.labs:
        board = json.loads((lab / "lab.json").read_text(encoding="utf-8"))
        if not any(run["state"] == "finished" for run in board["runs"]):
            sys.exit(f"{lab}: no run is finished; run the laboratory first")
        with new_file(stored / f"{board['date']}-lab-{_name(board)}.json") as new:
            new.write_text(json.dumps(board, separators=(",", ":")) + "\n", encoding="utf-8")
    parts = [HEAD]
    for name, board in _boards(stored).items():
        parts.append(_section(name, board, asked.root / "docs"))
        if name == HEADLINE:
            _headline(asked.root / "README.md", board)
    with new_file(asked.root / "docs" / "results.md") as new:
        new.write_text("\n".join(parts), encoding="utf-8")
    print(asked.root / "docs" / "results.md")


def _name(board: Mapping[str, Any]) -> str:
    return Path(re.search(r"crossling lab (\S+)", board["command"])[1]).stem  # type: ignore[index]


def _boards(folder: Path) -> dict[str, Mapping[str, Any]]:
    """The newest of each name: those of ORDER first."""
    newest = {}
    for file in sorted(folder.glob("*-lab-*.json")):  # by date
        board = json.loads(file.read_text(encoding="utf-8"))
        newest[_name(board)] = board
    return {name: newest[name] for name in [*(each for each in ORDER if each in newest), *sorted(newest)]}


def _section(name: str, board: Mapping[str, Any], docs: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="crossling-") as scratch:
        page = write_results(Path(scratch), parse(name, board["plan"], name), board)
        text = page.read_text(encoding="utf-8")
        if (page.parent / CURVES).is_file():
            shutil.copy(page.parent / CURVES, docs / f"lab-{name}.svg")
            text = text.replace(f"({CURVES})", f"(lab-{name}.svg)")
    return re.sub(r"^#", "##", text, flags=re.MULTILINE) + _unfinished(board)


def _unfinished(board: Mapping[str, Any]) -> str:
    left = [f"{run['run']}-{run['seed']}" for run in board["runs"] if run["state"] != "finished"]
    return f"\nNot finished, so that something of it was not measured: {', '.join(left)}.\n" if left else ""


def _headline(readme: Path, board: Mapping[str, Any]) -> None:
    """The README's table, the best at retrieval first: every recipe, and where one of its variants found more, that."""
    told: dict[str, list[Mapping[str, Any]]] = {}
    for run in board["runs"]:
        if run["state"] == "finished":
            told.setdefault(run["run"], []).append(run)
    cells = {run: [_mean(own, *column) for column in COLUMNS.values()] for run, own in told.items()}
    order = sorted(cells, key=lambda run: -(cells[run][0] or 0.0))
    recipe_of = {run: own[0]["recipe"] for run, own in told.items()}
    ahead = {recipe_of[run]: run for run in reversed(order)}  # of each recipe's runs
    shown = [run for run in order if run in (recipe_of[run], ahead[recipe_of[run]])]
    if not shown:
        sys.exit(f"{readme}: no recipe of {HEADLINE} is finished; run the laboratory until one is")
    best = []
    for place, (_, metric) in enumerate(COLUMNS.values()):
        there = [value for run in shown if (value := cells[run][place]) is not None]
        best.append((min if metric == "aer" else max)(there, default=0.0))
    lines = [f"| recipe | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    for run in shown:
        lines.append(f"| `{run}` | {' | '.join(map(_cell, cells[run], best))} |")
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"{readme}: expected {BEGIN!r} and after it {END!r} around the table of results; put them there")
    with new_file(readme) as new:
        new.write_text(f"{before}{begin}\n{chr(10).join(lines)}\n{end}{after}", encoding="utf-8")


def _mean(told: Sequence[Mapping[str, Any]], task: str, metric: str) -> float | None:
    found = [run["scores"][task][metric]["mean"] for run in told if metric in run["scores"].get(task, {})]
    return fmean(found) if found else None


def _cell(value: float | None, best: float) -> str:
    if value is None:
        return "–"
    return f"**{value:.1f}**" if value == best else f"{value:.1f}"


if __name__ == "__main__":
    main()
