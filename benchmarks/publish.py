"""What laboratories found, for the repository: docs/results.md and its pictures, and the boards as JSON.

    python benchmarks/publish.py LAB...

A board goes to benchmarks/results/DATE-lab-NAME.json, its curves to docs/lab-NAME.svg. docs/results.md is made of the
tables of all that are given, in this order: nothing in it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

from crossling.disk import new_file
from crossling.laboratory.results import CURVES

ROOT = Path(__file__).parent.parent
HEAD = """# Results

What the recipes did when they were put to the test against each other ([how](lab.md)), as `crossling lab` wrote it:
made by `python benchmarks/publish.py`, nothing by hand. Boards with all scores and curves:
[benchmarks/results](../benchmarks/results). Translators and VECO's Table 5: [translation.md](translation.md); which
bitext is damaged: [audit.md](audit.md); speed: [speed.md](speed.md); what was tried on the way: [log.md](log.md).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labs", nargs="+", type=Path, metavar="LAB")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the repository")
    asked = parser.parse_args()
    parts = [HEAD]
    for lab in asked.labs:
        board = json.loads((lab / "lab.json").read_text(encoding="utf-8"))
        unfinished = [f"{run['run']}-{run['seed']}" for run in board["runs"] if run["state"] != "finished"]
        if unfinished:
            sys.exit(f"{lab}: {', '.join(unfinished)} not finished; run the laboratory until all are")
        name = Path(re.search(r"crossling lab (\S+)", board["command"])[1]).stem  # type: ignore[index]
        stored = asked.root / "benchmarks" / "results" / f"{board['date']}-lab-{name}.json"
        with new_file(stored) as new:
            new.write_text(json.dumps(board, separators=(",", ":")) + "\n", encoding="utf-8")
        text = (lab / "results.md").read_text(encoding="utf-8")
        if (lab / CURVES).is_file():
            shutil.copy(lab / CURVES, asked.root / "docs" / f"lab-{name}.svg")
            text = text.replace(f"({CURVES})", f"(lab-{name}.svg)")
        parts.append(re.sub(r"^#", "##", text, flags=re.MULTILINE))
    with new_file(asked.root / "docs" / "results.md") as new:
        new.write_text("\n".join(parts), encoding="utf-8")
    print(asked.root / "docs" / "results.md")


if __name__ == "__main__":
    main()
