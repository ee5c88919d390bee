"""A plan that takes seconds, the states of its runs, and invented learning curves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crossling.lab.lab_plan import FORMAT
from crossling.lab.learning_curve import CurvePoint

RunLab = Callable[..., dict[str, Any]]
RETRIEVAL = {"task": "tatoeba", "metric": "accuracy"}
ALIGNMENT = {"task": "word-alignment", "metric": "aer"}
SMALL = [
    *("model.layers=2", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.generator_layers=1"),
    *("model.max_length=64", "optimizer.warmup=1", "log_every=1", "mlm.tokens=128", "mlm.length=32"),
    *("tlm.tokens=128", "tlm.length=40", "mrtd.tokens=128", "mrtd.length=32"),
]


def tiny_plan(**changes: Any) -> dict[str, Any]:
    return {
        "version": FORMAT,
        "size": "tiny",
        "steps": 4,
        "evaluations": 2,
        "sentences": 10,
        "set": SMALL,
        "runs": {"text": {"recipe": "xlm_r"}, "pairs": {"recipe": "xlm"}},
        "claims": [{"claim": "XLM: TLM aligns words", "better": "pairs", "worse": "text", **ALIGNMENT}],
        **changes,
    }


def write_plan(folder: Path, **changes: Any) -> Path:
    file = folder / "mine.json"
    file.write_text(json.dumps(tiny_plan(**changes)), encoding="utf-8")
    return file


def curve_of(
    values: Sequence[float], flops_of_step: float = 1.0, of: Callable[[float], dict[str, float]] | None = None
) -> list[CurvePoint]:
    """Return a learning curve with a point at every step."""
    languages = of or (lambda value: {"de": value, "fr": value})
    return [
        CurvePoint(step, 10 * step, float(step), flops_of_step * step, value, languages(value))
        for step, value in enumerate(values)
    ]


def states(results: dict[str, Any]) -> dict[str, str]:
    return {f"{run['run']}-{run['seed']}": run["state"] for run in results["runs"]}
