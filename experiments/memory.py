"""Compare the predictions of `crossling plan` with measured training steps: memory and speed.

    python experiments/memory.py [--sizes small,base,large] [--batches 32,64] [--results experiments/results]

Trains XLM-E on text (random tokens in full-length rows), one micro-batch per step, with and without gradient
checkpointing (GC). Prints a table and writes DATE-memory.json. Copy its `runs` to src/crossling/planning/measured.json
to predict training time from them.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers

import crossling
from crossling.bench.train_timing import measure_speed, scale_recipe
from crossling.bench.workload import BenchSetup
from crossling.core.files import write_json
from crossling.core.hardware import ACCELERATORS, get_accelerator, local_accelerator
from crossling.planning.estimate import estimate_run
from crossling.recipes import xlm_e
from crossling.recipes.network import ObjectiveLoad, build_meta_network, flops_per_token


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="small,base,large")
    parser.add_argument("--batches", default="32,64", help="sequences per step")
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    arguments = parser.parse_args()
    print(f"{'size':6} {'tokens':>7} {'GC':3}  {'GiB':>6} {'predicted':>9}  {'tokens/s':>10} {'predicted':>10}  MFU")
    runs = []
    for size in arguments.sizes.split(","):
        for row in _measure(size, [int(batch) for batch in arguments.batches.split(",")]):
            runs.append(row)
            peak = "-" if row["peak_gib"] is None else f"{row['peak_gib']:.1f}"
            print(
                f"{size:6} {row['micro_tokens']:>7,} {'yes' if row['gradient_checkpointing'] else 'no':3}",
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
        "command": f"python experiments/memory.py --sizes {arguments.sizes} --batches {arguments.batches}",
        "what": "mfu is relative to the vendor's peak; predicted with the measured.json of that date",
        "runs": runs,
    }
    file = arguments.results / f"{date.today()}-memory.json"
    write_json(file, results)
    print(file)


def _measure(size: str, batches: list[int]) -> Iterator[dict[str, Any]]:
    at = replace(BenchSetup.of(size), warmup=3, times=5)
    accelerator = get_accelerator()
    name = next((key for key, each in ACCELERATORS.items() if each.name == accelerator.name), "")
    for batch in batches:
        for gradient_checkpointing in (False, True):
            recipe = scale_recipe(xlm_e(size).replace(trtd=None), at, batch).replace(
                gradient_checkpointing=gradient_checkpointing
            )
            speed = at.try_measure(f"{size}, batch {batch}", measure_speed, recipe, at)
            if speed is None:  # out of memory, most likely
                continue
            net, loads = build_meta_network(recipe, at.vocabulary), {"mrtd": ObjectiveLoad(batch, at.length)}
            predicted = estimate_run(recipe, net, loads, accelerator)
            flops = flops_per_token(recipe, net, loads)["full"]
            yield {
                "date": f"{date.today()}",
                "gpu": name if local_accelerator() else "none",
                "recipe": recipe.name,
                "what": f"{size}, text of {at.length} tokens a row, {at.vocabulary:,} subwords; {speed.path}",
                "width": recipe.model.width,
                "micro_tokens": batch * at.length,  # one micro-batch per step
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
