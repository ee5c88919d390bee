"""Run every task of a data folder with each model, and write one report about all of them.

    python experiments/every_task.py DATA OUT MODEL... [--steps 100] [--only xnli,udpos]

Tasks that need no training are evaluated directly. The others are fine-tuned for a few steps at a high learning rate
and scored in every language. This checks that every task works; it does not rank models. Skips finished tasks.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import crossling as xl
from crossling.core.errors import BadInput
from crossling.tasks.registry import DATASETS

UNTUNED = ("tatoeba", "bucc2018", "word-alignment")


def main() -> None:
    options = _arguments()
    summaries: list[dict[str, object]] = []
    for model in options.models:
        home = options.out / Path(model).name
        for task in options.only or (*UNTUNED, *DATASETS):
            started = time.monotonic()
            try:
                rows = _score(model, task, options.data, home, options.steps)
            except BadInput as error:
                print(f"{Path(model).name} {task}: {error}", flush=True)
                continue
            summaries.append(_summary(model, task, rows, time.monotonic() - started))
            print(json.dumps(summaries[-1]), flush=True)
    xl.report([options.out / Path(model).name for model in options.models], options.out / "report.html")
    (options.out / "tasks.json").write_text(json.dumps(summaries, indent=1) + "\n", encoding="utf-8")


def _score(model: str, task: str, data: Path, home: Path, steps: int) -> list[dict[str, object]]:
    if task in UNTUNED:
        return xl.evaluate(xl.load(model), [task], data, home)
    overrides: dict[str, Any] = {
        "steps": steps,
        "checkpoint_every": steps,
        "lr": 5e-4,
        "length": 128,
        "log_every": steps,
    }
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
    parser.add_argument("--only", type=lambda names: names.split(","), help="tasks to run [default: all]")
    return parser.parse_args()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
