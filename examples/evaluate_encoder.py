"""Measure how cross-lingual an encoder is: retrieval and word alignment, layer by layer.

    python examples/evaluate_encoder.py --data DATA xlm-roberta-base bundled

DATA holds tatoeba/ and word-alignment/ (docs/reference/datasets.md). Each model is a run, an exported folder, a Hugging
Face encoder or `bundled`.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import crossling as xl

METRICS = {"tatoeba": ("accuracy", "sweep"), "word-alignment": ("aer", None)}


def layer_means(model: str, task: str, data: Path) -> dict[int, float]:
    """Return the mean score of each layer over languages and directions."""
    metric, protocol = METRICS[task]
    scores = defaultdict(list)
    for row in xl.evaluate(xl.load(model), task, data):
        if row["metric"] == metric and protocol in (None, row["protocol"]):
            scores[row["layer"]].append(row["value"])
    return {layer: fmean(values) for layer, values in sorted(scores.items())}


def main() -> None:
    """Print one line per model and task."""
    parser = argparse.ArgumentParser(description="Score encoders layer by layer.")
    parser.add_argument("models", nargs="+", help="Models to compare.")
    parser.add_argument("--data", type=Path, required=True, help="Folder of benchmark data.")
    arguments = parser.parse_args()
    for task in METRICS:
        for model in arguments.models:
            means = layer_means(model, task, arguments.data)
            print(f"{task:15} {model:30} " + " ".join(f"{layer}:{mean:.1f}" for layer, mean in means.items()))


if __name__ == "__main__":
    main()
