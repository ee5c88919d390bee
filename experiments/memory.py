"""Compare the predictions of `crossling plan` with measured training steps: memory and speed.

    python experiments/memory.py [--sizes small,base,large] [--batches 32,64] [--results experiments/results]
    python experiments/memory.py --recipes all --sizes base --batches 64

Trains XLM-E on text (random tokens in full-length rows), or whole recipes, with one micro-batch of each objective per
step, with and without gradient checkpointing (GC). Prints a table and writes DATE-memory.json. Copy its `runs` on text
to src/crossling/planning/measured.json to predict training time from them.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers

import crossling
from crossling.bench.train_timing import measure_speed, random_loads, scale_recipe
from crossling.bench.workload import BenchSetup
from crossling.core.files import write_json
from crossling.core.hardware import ACCELERATORS, get_accelerator, local_accelerator
from crossling.planning.estimate import estimate_run
from crossling.recipes import RECIPES, get_recipe, xlm_e
from crossling.recipes.network import build_meta_network, flops_per_token

TEXT = "text"  # XLM-E on text alone


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="small,base,large")
    parser.add_argument("--batches", default="32,64", help="sequences per step")
    parser.add_argument("--recipes", help="names of recipes, or `all` [default: XLM-E on text]")
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    arguments = parser.parse_args()
    header = f"{'recipe':8} {'size':6} {'tokens':>7} {'GC':3}  {'GiB':>6} {'predicted':>9}"
    print(f"{header}  {'tokens/s':>10} {'predicted':>10}  MFU")
    runs = []
    names = {None: [TEXT], "all": [*RECIPES]}.get(arguments.recipes) or arguments.recipes.split(",")
    batches = [int(batch) for batch in arguments.batches.split(",")]
    for size, name in product(arguments.sizes.split(","), names):
        for row in _measure(name, size, batches):
            runs.append(row)
            peak = "-" if row["peak_gib"] is None else f"{row['peak_gib']:.1f}"
            print(
                f"{name:8} {size:6} {row['micro_tokens']:>7,} {'yes' if row['gradient_checkpointing'] else 'no':3}",
                f" {peak:>6} {row['predicted_gib']:>9.1f}",
                f" {row['tokens_per_second']:>10,.0f} {row['predicted_tokens_per_second']:>10,.0f}",
                f" {row['mfu']:.3f}",
                flush=True,
            )
    results = {
        "date": f"{date.today()}",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        "versions": {
            "python": platform.python_version(),
            "crossling": crossling.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "command": shlex.join(["python", *sys.argv]),
        "what": "mfu is relative to the vendor's peak; predicted with the measured.json of that date",
        "runs": runs,
    }
    file = arguments.results / f"{date.today()}-memory.json"
    write_json(file, results)
    print(file)


def _measure(name: str, size: str, batches: list[int]) -> Iterator[dict[str, Any]]:
    at = replace(BenchSetup.of(size), warmup=3, times=5)
    accelerator = get_accelerator()
    gpu = next((key for key, each in ACCELERATORS.items() if each.name == accelerator.name), "")
    for batch, gradient_checkpointing in product(batches, (False, True)):
        whole = xlm_e(size).replace(trtd=None) if name == TEXT else get_recipe(name, size)
        recipe = scale_recipe(whole, at, batch).replace(gradient_checkpointing=gradient_checkpointing)
        speed = at.try_measure(f"{name} {size}, batch {batch}", measure_speed, recipe, at)
        if speed is None:  # out of memory, most likely
            continue
        net, loads = build_meta_network(recipe, at.vocabulary), random_loads(recipe, at)
        predicted = estimate_run(recipe, net, loads, accelerator)
        flops = flops_per_token(recipe, net, loads)["full"]
        yield {
            "date": f"{date.today()}",
            "gpu": gpu if local_accelerator() else "none",
            "recipe": recipe.name,
            "what": f"{name} {size}, {at.length} tokens a row, {at.vocabulary:,} subwords; {speed.path}",
            "width": recipe.model.width,
            "micro_tokens": batch * at.length,  # one micro-batch of each objective per step
            "gradient_checkpointing": gradient_checkpointing,
            "flops_per_token": flops,
            "tokens_per_second": speed.value,
            "peak_gib": speed.peak_gib,
            "mfu": speed.value * flops / accelerator.peak_flops,
            "predicted_gib": predicted.memory.gib,
            "predicted_tokens_per_second": predicted.tokens_per_second,
        }


if __name__ == "__main__":
    main()
