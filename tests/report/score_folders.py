"""Invented score folders like those of real runs: all tasks, two models, three seeds, predictions and costs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from crossling.evaluate.retrieval import LISTS
from crossling.report.analysis import LANGUAGES
from crossling.tasks import predictions, scores
from crossling.tasks.predictions import ExamplePrediction
from crossling.tasks.scores import Score

TUNED = {
    "xnli": [("xtreme", "accuracy")],
    "pawsx": [("xtreme", "accuracy")],
    "udpos": [("xtreme", "f1"), ("tokens", "accuracy")],
    "panx": [("xtreme", "f1")],
    "xquad": [("xtreme", "f1"), ("xtreme", "exact_match"), ("characters", "f1")],
    "mlqa": [("xtreme", "f1"), ("xtreme", "exact_match")],
    "tydiqa": [("xtreme", "f1"), ("xtreme", "exact_match")],
}
GLUE = {"cola": "matthews", "sst2": "accuracy", "rte": "accuracy"}
ALIGNED = ("de-en", "en-fr", "en-hi", "ro-en")


def make_folder(place: Path, tasks: tuple[str, ...] = tuple(TUNED), examples: int = 60) -> Path:
    """Write two runs, the second initialized from the first; each with fine-tuned models of three seeds per task."""
    for index, name in enumerate(("base", "continued")):
        home = place / name
        run(home, index, init=str(place / "base") if index else None)
        rng = random.Random(index)
        scores.add_scores(home / "scores.jsonl", training_free(name, 4.0 * index, rng))
        for task in tasks:
            tuned(place / f"{name}-{task}", str(home), task, 2.0 * index, rng, examples)
    return place


def run(home: Path, index: int, init: str | None = None) -> None:
    home.mkdir(parents=True)
    data = {
        "text": {code: 1000 for code in LISTS["tatoeba-36"].split() if code != "yo"} | {"en": 5000},
        "pairs": [["en", code, 100] for code in LISTS["tatoeba-14"].split()],
    }
    described = {"format": 2, "recipe": {"name": "xlm_e", "seed": 7}, "shards": "x", "data": data}
    described["init"] = {"model": init} if init else None
    (home / "recipe.json").write_text(json.dumps(described))
    rows = [{"step": step, "loss": 10 / step, "tokens": step * 1e5, "seconds": step * 2.0} for step in (10, 20, 30)]
    (home / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flops = {"full": 3e19 * (index + 1), "paper": 2e19 * (index + 1)}
    cost = {"steps": 30, "tokens": 3e6, "seconds": 60.0, "machines": {"8 x H200": 60.0}, "flops": flops, "mfu": 0.41}
    (home / "cost.json").write_text(json.dumps(cost))


def training_free(model: str, bonus: float, rng: random.Random) -> list[dict[str, Any]]:
    rows = []
    for layer in range(13):
        height = 60 - (layer - 8) ** 2 + bonus
        for code in LISTS["tatoeba-36"].split():
            for way in ("en-xx", "xx-en"):
                value = max(1.0, min(99.0, height + rng.gauss(0, 12)))
                fields = {"protocol": "sweep", "metric": "accuracy", "pooling": "mean", "examples": 1000}
                rows.append(row(model, "tatoeba", code, value, direction=way, layer=layer, seed=7, **fields))
        for code in ALIGNED:
            value = 90 - height + rng.gauss(0, 4)
            rows.append(row(model, "word-alignment", code, value, layer=layer, protocol="xlm-align-ot", metric="aer"))
    return rows


def tuned(home: Path, model: str, task: str, bonus: float, rng: random.Random, examples: int) -> None:
    """Write a fine-tuned model: scores of all seeds at its root, predictions in a folder for each seed."""
    rows = []
    split = "dev" if task == "tydiqa" else "test"
    for seed in (1, 2, 3):
        for code in LANGUAGES[task]:
            level = 0.75 + bonus / 100 + rng.gauss(0, 0.05)
            right = [int(rng.random() < level) for _ in range(examples)]
            value = 100 * sum(right) / examples
            facts = {"setting": "zero-shot", "seed": seed, "split": split, "selection": "english-dev"}
            facts |= {"trained_on": "mnli-subset" if task == "xnli" else task, "examples": examples}
            facts |= {"low": max(0.0, value - 4), "high": min(100.0, value + 4)}
            for place, (protocol, metric) in enumerate(TUNED[task]):
                less = value * (1 - 0.2 * place)
                result = {"protocol": protocol, "metric": metric, "low": less - 4, "high": less + 4}
                rows.append(row(str(home), task, code, less, **{**facts, **result}))
            label = "/".join(TUNED[task][0])
            found = [ExamplePrediction(str(k), "", {label: _statistics(task, hit)}) for k, hit in enumerate(right)]
            predictions.write_predictions(home / f"seed-{seed}", task=task, split=split, language=code, rows=found)
        facts = {"task": task, "model": model, "setting": "zero-shot", "seed": seed}
        (home / f"seed-{seed}" / "tuned.json").write_text(json.dumps(facts))
    (home / "tuned.json").write_text(json.dumps({"task": task, "model": model}))
    scores.add_scores(home / "scores.jsonl", rows)


def row(model: str, task: str, language: str, value: float, **more: Any) -> dict[str, Any]:
    fields = {"protocol": "xtreme", "metric": "accuracy", "examples": 100}
    return Score(**{"model": model, "task": task, "language": language, "value": value, **fields, **more}).row()


def _statistics(task: str, hit: int) -> list[float]:
    return [hit, 1, 1] if task in ("udpos", "panx") else [hit, 1]
