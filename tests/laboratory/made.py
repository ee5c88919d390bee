"""A plan that takes seconds, how its runs stand, and curves of numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crossling.laboratory.curve import Point

Lab = Callable[..., dict[str, Any]]
RETRIEVAL = {"task": "tatoeba", "metric": "accuracy"}
WORDS = {"task": "word-alignment", "metric": "aer"}
SMALL = [
    *("model.layers=2", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.generator_layers=1"),
    *("model.max_length=64", "optimizer.warmup=1", "log_every=1", "mlm.tokens=128", "mlm.length=32"),
    *("tlm.tokens=128", "tlm.length=40", "mrtd.tokens=128", "mrtd.length=32"),
]


def plan(**changes: Any) -> dict[str, Any]:
    return {
        "size": "tiny",
        "steps": 4,
        "looks": 2,
        "sentences": 10,
        "set": SMALL,
        "runs": {"text": {"recipe": "xlm_r"}, "pairs": {"recipe": "xlm"}},
        "claims": [{"claim": "XLM: TLM aligns words", "better": "pairs", "worse": "text", **WORDS}],
        **changes,
    }


def written(folder: Path, **changes: Any) -> Path:
    file = folder / "mine.json"
    file.write_text(json.dumps(plan(**changes)), encoding="utf-8")
    return file


def line(
    values: Sequence[float], flops_of_step: float = 1.0, of: Callable[[float], dict[str, float]] | None = None
) -> list[Point]:
    """A curve with a look at every step."""
    languages = of or (lambda value: {"de": value, "fr": value})
    return [
        Point(step, 10 * step, float(step), flops_of_step * step, value, languages(value))
        for step, value in enumerate(values)
    ]


def states(board: dict[str, Any]) -> dict[str, str]:
    return {f"{run['run']}-{run['seed']}": run["state"] for run in board["runs"]}
