"""What laboratories found, for the repository: docs/results.md and its pictures, and the boards as JSON.

    python benchmarks/publish.py [LAB...]

The board of each LAB goes to benchmarks/results/DATE-lab-NAME.json. docs/results.md and docs/lab-NAME.svg are then made
of the newest board of every name that lies there: nothing in them is written by hand. So is the README's table, of
`papers`: its recipes, and of each the variant that found most; what one seed alone has given is marked.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from crossling.disk import new_file
from crossling.errors import BadInput
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
FIRST = (HEADLINE, "rosetta")  # the others come after them
BEGIN, END = f"<!-- {HEADLINE}: made by benchmarks/publish.py -->", "<!-- until here -->"
COLUMNS = {
    "Tatoeba-28 %": ("tatoeba", "accuracy"),
    "AER, 5 pairs": ("word-alignment", "aer"),
    "XNLI %": ("xnli", "accuracy"),
    "POS F1": ("udpos", "f1"),
    "NER F1": ("panx", "f1"),
    "XQuAD F1": ("xquad", "f1"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labs", nargs="*", type=Path, metavar="LAB")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the repository")
    asked = parser.parse_args()
    try:
        publish(asked.labs, asked.root)
    except BadInput as error:
        parser.exit(2, f"publish: {error}\n")
    print(asked.root / "docs" / "results.md")


def publish(labs: Sequence[Path], root: Path) -> None:
    stored, docs, readme = root / "benchmarks" / "results", root / "docs", root / "README.md"
    given = [_read(lab / "lab.json") for lab in labs]
    for lab, board in zip(labs, given, strict=True):
        if not any(run["state"] == "finished" for run in board["runs"]):
            raise BadInput(f"{lab}: no run is finished; run the laboratory first")
    boards = _newest([*map(_read, sorted(stored.glob("*-lab-*.json"))), *given])
    pages = {name: _page(name, board) for name, board in boards.items()}
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    text = _with_table(readme, text, boards[HEADLINE]) if HEADLINE in boards else text
    for board in given:
        _write(stored / f"{board['date']}-lab-{_name(board)}.json", json.dumps(board, separators=(",", ":")) + "\n")
    for name, (_, curves) in pages.items():
        if curves:
            _write(docs / f"lab-{name}.svg", curves)
    _write(docs / "results.md", "\n".join([HEAD, *(page for page, _ in pages.values())]))
    if text:
        _write(readme, text)


def _read(file: Path) -> dict[str, Any]:
    try:
        board = json.loads(file.read_text(encoding="utf-8"))
        _name(board)
    except (OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{file}: expected the board of a laboratory; give its folder") from None
    return board


def _write(file: Path, text: str) -> None:
    with new_file(file) as new:
        new.write_text(text, encoding="utf-8")


def _name(board: Mapping[str, Any]) -> str:
    return Path(re.search(r"crossling lab (\S+)", board["command"])[1]).stem  # type: ignore[index]


def _newest(boards: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each name, in the order of the page. Of two of one day the later one given."""
    newest = {_name(board): board for board in sorted(boards, key=lambda board: board["date"])}
    return {name: newest[name] for name in [*(each for each in FIRST if each in newest), *sorted(newest)]}


def _page(name: str, board: Mapping[str, Any]) -> tuple[str, str]:
    """The section of a board, and its curves as a picture, if there are any."""
    with tempfile.TemporaryDirectory(prefix="crossling-") as scratch:
        page = write_results(Path(scratch), parse(name, board["plan"], f"board of {name}"), board)
        text, picture = page.read_text(encoding="utf-8"), page.parent / CURVES
        curves = picture.read_text(encoding="utf-8") if picture.is_file() else ""
    text = text.replace(f"({CURVES})", f"(lab-{name}.svg)")
    return re.sub(r"^#", "##", text, flags=re.MULTILINE) + _unfinished(board), curves


def _unfinished(board: Mapping[str, Any]) -> str:
    left = [f"{run['run']}-{run['seed']}" for run in board["runs"] if run["state"] != "finished"]
    return f"\nNot finished, so that something of it was not measured: {', '.join(left)}.\n" if left else ""


def _with_table(readme: Path, text: str, board: Mapping[str, Any]) -> str:
    """The README with the table of the headline's board, the best at retrieval first: every recipe, and where one of
    its variants found more, that."""
    told: dict[str, list[Mapping[str, Any]]] = {}
    for run in board["runs"]:
        told.setdefault(run["run"], []).append(run)
    seeds = {run: [_by_seed(own, *column) for column in COLUMNS.values()] for run, own in told.items()}
    cells = {run: [fmean(found) if found else None for found in own] for run, own in seeds.items()}
    order = sorted((run for run in cells if cells[run][0] is not None), key=lambda run: -(cells[run][0] or 0.0))
    recipe_of = {run: own[0]["recipe"] for run, own in told.items()}
    ahead = {recipe_of[run]: run for run in reversed(order)}  # of each recipe's runs
    shown = [run for run in order if run in (recipe_of[run], ahead[recipe_of[run]])]
    measured = [place for place in range(len(COLUMNS)) if any(cells[run][place] is not None for run in shown)]
    best = {}
    for place in measured:
        most = max(len(seeds[run][place]) for run in shown)  # one lucky seed is not the best
        there = [fmean(seeds[run][place]) for run in shown if len(seeds[run][place]) == most]
        best[place] = (min if [*COLUMNS.values()][place][1] == "aer" else max)(there)
    lines = [f"| recipe | {' | '.join([*COLUMNS][place] for place in measured)} |", f"|---|{'---|' * len(measured)}"]
    for run in shown:
        lines.append(f"| `{run}` | {' | '.join(_cell(seeds[run][place], best[place]) for place in measured)} |")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        expected = f"{BEGIN!r} and after it {END!r}"
        raise BadInput(f"{readme}: expected {expected} around the table of {HEADLINE}; put them there")
    return f"{before}{begin}\n{chr(10).join(lines)}\n{end}{after}"


def _by_seed(told: Sequence[Mapping[str, Any]], task: str, metric: str) -> list[float]:
    return [run["scores"][task][metric]["mean"] for run in told if metric in run["scores"].get(task, {})]


def _cell(seeds: Sequence[float], best: float) -> str:
    if not seeds:
        return "–"
    value = fmean(seeds)
    return (f"**{value:.1f}**" if value == best else f"{value:.1f}") + ("¹" if len(seeds) == 1 else "")


if __name__ == "__main__":
    main()
