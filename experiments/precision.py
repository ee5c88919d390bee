"""Train XLM-E twice with one seed, in bf16 and with the linear layers in fp8, and compare the loss curves.

    python experiments/precision.py --shards FOLDER -o results.json [--size small --steps 1000 --set KEY=VALUE]

Needs a GPU with fp8. Prints loss and speed of both runs and writes every logged row.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from datetime import date
from pathlib import Path
from statistics import mean, median
from typing import Any, get_args

import torch

import crossling
from crossling.core.files import write_json
from crossling.core.hardware import device_name
from crossling.recipes import get_recipe
from crossling.recipes.recipe import Recipe
from crossling.train.choices import Precision

FIGURES = (
    "step",
    "loss",
    "mlm",
    "mrtd",
    "tlm",
    "trtd",
    "gradient_norm",
    "skipped",
    "tokens",
    "tokens_per_second",
)  # of a row
LAST = 0.1  # part of the logged rows over which the final loss is averaged


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--size", default="small")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--set", action="append", default=[], dest="differences", help="setting of both runs")
    arguments = parser.parse_args()
    settings = [f"steps={arguments.steps}", f"checkpoint_every={arguments.steps}", "log_every=10"]
    recipe = get_recipe("xlm_e", arguments.size).set([*settings, *arguments.differences])
    runs = {}
    for precision in get_args(Precision):
        runs[precision] = train(recipe.replace(precision=precision), arguments.shards)
        print(f"{precision}: loss {runs[precision]['loss']:.4f}, {runs[precision]['tokens_per_second']:,.0f} tokens/s")
    loss, speed = (runs["fp8"][key] / runs["bf16"][key] for key in ("loss", "tokens_per_second"))
    print(f"fp8 relative to bf16: loss {loss - 1:+.2%}, speed {speed - 1:+.1%}")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    about = {"date": str(date.today()), "device": device_name(device), "torch": torch.__version__}
    write_json(arguments.output, {**about, "crossling": crossling.__version__, "recipe": recipe.dump(), "runs": runs})


def train(recipe: Recipe, shards: Path) -> dict[str, Any]:
    """Return the logged rows of a run, its final loss and its speed."""
    torch.compiler.reset()
    with tempfile.TemporaryDirectory() as folder:
        crossling.pretrain(recipe, shards, Path(folder) / "run")
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [{name: row[name] for name in FIGURES if name in row} for row in map(json.loads, lines) if "loss" in row]
    last = rows[-max(1, round(LAST * len(rows))) :]
    # The median excludes the first rows, in which modules are compiled.
    speed = median(row["tokens_per_second"] for row in rows)
    return {"loss": mean(row["loss"] for row in last), "tokens_per_second": speed, "rows": rows}


if __name__ == "__main__":
    main()
