"""Plan and compare XLM-E and its ablations: the tutorial "Reproduce a paper" in Python.

    python examples/tutorial_paper.py --shards shards --data data -o ablations --size tiny --steps 200

The script prints the cost of the published run on your GPUs. Then it trains the rows of XLM-E's Table 2 at a small size
under one budget, evaluates them, and writes a report beside the published tables. At the paper's own size, run the same
recipes with torchrun, as the tutorial shows.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import crossling as xl

# Rows of XLM-E's Table 2, as differences from the recipe.
ABLATIONS = {
    "xlm_e": (),
    "no-trtd": ("trtd=off",),
    "no-trtd-no-bias": ("trtd=off", "model.relative=false"),
    "mlm-tlm": ("mrtd=off", "trtd=off", "mlm=on", "tlm=on", "model.relative=false"),
}


def print_cost(shards: Path, *, gpus: int, gpu: str) -> None:
    """Print memory and days of the published sizes on these GPUs. Nothing is trained."""
    for published in xl.plan("xlm_e", shards, gpus=gpus, device=gpu).published:
        estimate = published.estimate
        print(f"{published.size}: {estimate.memory.gib:.0f} GiB per GPU, {estimate.days:.1f} days on {gpus} x {gpu}")


def train_ablations(shards: Path, data: Path, out: Path, *, size: str, settings: Sequence[str]) -> list[Path]:
    """Pre-train and evaluate every ablation and return the runs.

    Args:
        shards: Tokenized text and bitext.
        data: Benchmark folder with tatoeba/.
        out: Folder for the runs.
        size: Size of the models.
        settings: `key=value` settings of all runs, such as `steps=200`. Those of objectives that a run lacks are
            not applied.
    """
    runs = []
    for name, difference in ABLATIONS.items():
        recipe = xl.recipes.xlm_e(size).set(list(difference))
        recipe = recipe.set([each for each in settings if applies(recipe, each)])
        xl.pretrain(recipe, shards, out / name)
        xl.evaluate(out / name, "tatoeba", data, out / name)
        runs.append(out / name)
    return runs


def applies(recipe: xl.Recipe, setting: str) -> bool:
    """Return whether a setting is of the run, or of an objective that the recipe has."""
    part, dot, _ = setting.partition("=")[0].partition(".")
    return not dot or part in recipe.objectives or part in ("model", "optimizer", "sampling")


def main() -> None:
    """Print the cost, train the ablations and write the report."""
    parser = argparse.ArgumentParser(description="Plan XLM-E and train its ablations at a small size.")
    parser.add_argument("--shards", type=Path, required=True, help="Folder written by crossling tokenize.")
    parser.add_argument("--data", type=Path, required=True, help="Benchmark data with tatoeba/.")
    parser.add_argument("-o", "--out", type=Path, required=True, help="Folder to write.")
    parser.add_argument("--size", default="tiny", help="Size of the models. [default: tiny]")
    parser.add_argument("--steps", type=int, default=200, help="Training steps. [default: 200]")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of the cost estimate. [default: 8]")
    parser.add_argument("--gpu", default="h100", help="Their kind. [default: h100]")
    parser.add_argument("--set", action="append", default=[], help="Setting of every run, as lr=1e-3. Repeatable.")
    arguments = parser.parse_args()
    print_cost(arguments.shards, gpus=arguments.gpus, gpu=arguments.gpu)
    settings = [f"steps={arguments.steps}", *arguments.set]
    runs = train_ablations(arguments.shards, arguments.data, arguments.out, size=arguments.size, settings=settings)
    print(f"report in {xl.report(runs, arguments.out / 'report.html')}")


if __name__ == "__main__":
    main()
