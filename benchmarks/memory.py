"""What `crossling inspect` predicts for a step beside what the trainer's own step takes: memory and speed.

    python benchmarks/memory.py [--sizes small,base,large] [--batches 32,64] [--results benchmarks/results]

XLM-E on text (random tokens, rows of the size's length), everything of a step at once, with and without activations
computed again. Prints a table and writes DATE-memory.json, whose `runs` are what src/crossling/inspect/measured.json
holds: copied there, they are what days are predicted from.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

import crossling
from crossling.bench.setting import Setting
from crossling.bench.training import measured, sized
from crossling.disk import write_json
from crossling.hardware import CARDS, card, here
from crossling.inspect.estimate import estimate
from crossling.recipe.cost import Load, flops_per_token, network
from crossling.recipes import xlm_e


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="small,base,large")
    parser.add_argument("--batches", default="32,64", help="sequences of a step")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    print(f"{'size':6} {'tokens':>7} {'again':5}  {'GiB':>6} {'predicted':>9}  {'tokens/s':>10} {'predicted':>10}  MFU")
    runs = []
    for size in arguments.sizes.split(","):
        for row in _runs(size, [int(batch) for batch in arguments.batches.split(",")]):
            runs.append(row)
            peak = "-" if row["peak_gib"] is None else f"{row['peak_gib']:.1f}"
            print(
                f"{size:6} {row['micro_tokens']:>7,} {'yes' if row['recompute'] else 'no':5}",
                f" {peak:>6} {row['predicted_gib']:>9.1f}",
                f" {row['tokens_per_second']:>10,.0f} {row['predicted_tokens_per_second']:>10,.0f}",
                f" {row['mfu']:.3f}",
                flush=True,
            )
    found = {
        "date": f"{date.today()}",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        "versions": {
            "python": platform.python_version(),
            "crossling": crossling.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "command": f"python benchmarks/memory.py --sizes {arguments.sizes} --batches {arguments.batches}",
        "what": "mfu is of the vendor's peak; predicted with the measured.json of the time",
        "runs": runs,
    }
    file = arguments.results / f"{date.today()}-memory.json"
    write_json(file, found)
    print(file)


def _runs(size: str, batches: list[int]) -> Iterator[dict[str, Any]]:
    at = replace(Setting.of(size), warmup=3, times=5)
    where = card()
    name = next((key for key, each in CARDS.items() if each.name == where.name), "")
    for batch in batches:
        for recompute in (False, True):
            recipe = sized(xlm_e(size).but(trtd=None), at, batch).but(recompute=recompute)
            found = at.tried(f"{size}, batch {batch}", partial(measured, recipe, at))
            if found is None:  # too large for this card, most likely
                continue
            net, loads = network(recipe, at.vocabulary), {"mrtd": Load(batch, at.length)}
            predicted = estimate(recipe, net, loads, where)
            flops = flops_per_token(recipe, net, loads)["full"]
            yield {
                "date": f"{date.today()}",
                "gpu": name if here() else "none",
                "recipe": recipe.name,
                "what": f"{size}, text of {at.length} tokens a row, {at.vocabulary:,} pieces; {found.path}",
                "width": recipe.model.width,
                "micro_tokens": batch * at.length,  # all of the step at once
                "recompute": recompute,
                "flops_per_token": flops,
                "tokens_per_second": found.tokens,
                "peak_gib": found.peak_gib,
                "mfu": found.tokens * flops / where.peak,
                "predicted_gib": predicted.memory.gib,
                "predicted_tokens_per_second": predicted.tokens_per_second,
            }


if __name__ == "__main__":
    main()
