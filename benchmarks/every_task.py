"""Every task that a data folder has something for, with one model after the other, and one page about all of them.

    python benchmarks/every_task.py DATA OUT MODEL... [--steps 100] [--only xnli,udpos]

Tasks that need no training are measured as they are, the others fine-tuned for a few steps at a high rate and scored
in every language: to see every path work, not to rank models. What is finished is not done again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import crossling as xl
from crossling.benchmarks.sets import SETS
from crossling.errors import BadInput

FREE = ("tatoeba", "bucc2018", "word-alignment")


def main() -> None:
    asked = _arguments()
    told: list[dict[str, object]] = []
    for model in asked.models:
        home = asked.out / Path(model).name
        for task in asked.only or (*FREE, *SETS):
            started = time.monotonic()
            try:
                rows = _measured(model, task, asked.data, home, asked.steps)
            except BadInput as error:
                print(f"{Path(model).name} {task}: {error}", flush=True)
                continue
            told.append(_summary(model, task, rows, time.monotonic() - started))
            print(json.dumps(told[-1]), flush=True)
    xl.report([asked.out / Path(model).name for model in asked.models], asked.out / "report.html")
    (asked.out / "tasks.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _measured(model: str, task: str, data: Path, home: Path, steps: int) -> list[dict[str, object]]:
    if task in FREE:
        return xl.evaluate(xl.load(model), [task], data, home)
    overrides = {"steps": steps, "checkpoint_every": steps, "lr": 5e-4, "length": 128, "log_every": steps}
    return xl.finetune(model, task, data, home / task, **overrides)


def _summary(model: str, task: str, rows: list[dict[str, object]], seconds: float) -> dict[str, object]:
    measures = sorted({(str(row.get("protocol")), str(row["metric"])) for row in rows})
    means = {}
    for protocol, metric in measures:
        values = [float(row["value"]) for row in rows if (row.get("protocol"), row["metric"]) == (protocol, metric)]  # type: ignore[arg-type]
        means[f"{protocol}/{metric}"] = round(sum(values) / len(values), 1)
    languages = len({row["language"] for row in rows})
    return {"model": Path(model).name, "task": task, "languages": languages, "mean": means, "seconds": round(seconds)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only", type=lambda names: names.split(","), help="these tasks, for a process of its own")
    return parser.parse_args()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
