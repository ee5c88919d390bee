"""Masking rates and learning rates that change during a run, and means of checkpoints, on synthetic languages.

    python experiments/schedules.py -o results.json [--steps 400 --seeds 2]

Trains one small model by MLM and TLM for the same steps with each schedule. Scores all of them alike on text that none
was trained on: the MLM loss at a masking rate of 15%, and retrieval of translations. Also scores the mean of the last
three checkpoints, at the end and before the cooldown of WSD. The ten runs took six minutes on one thread of a
busy CPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import crossling as xl
from crossling.core.files import write_json
from crossling.core.hardware import device_name
from crossling.data.shards import Shards
from crossling.evaluate.probes import Probe, combine_probes, make_loss_probe, make_retrieval_probe
from crossling.export.merge_checkpoints import mean_network
from crossling.recipes.network import load_run
from crossling.recipes.recipe import Recipe

SCHEDULES: dict[str, tuple[str, ...]] = {
    "15%, linear": (),
    "22.5%, linear": ("mlm.rate=0.225", "tlm.rate=0.225"),  # as many masked tokens as the next one
    "30-15-5%, linear": tuple(
        f"{name}.rate={value}" for name in ("mlm", "tlm") for value in ("0.3", "0.15@0.6", "0.05@0.9")
    ),
    "15%, cosine": ("optimizer.schedule=cosine",),
    "15%, WSD": ("optimizer.schedule=wsd", "optimizer.cooldown=0.2"),
}
SIZE = ("model.layers=2", "model.width=64", "model.heads=4", "model.feed_forward=256", "model.max_length=64")
BATCH = ("mlm.tokens=1024", "mlm.length=32", "tlm.tokens=1024", "tlm.length=64")
MERGED = 3  # checkpoints, each a twentieth of the steps apart
HELD_OUT = 0.1  # of the lines of each language
LANGUAGES, SENTENCES, VOCABULARY = 4, 3000, 1200


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        languages = xl.synth(Path(work) / "languages", languages=LANGUAGES, sentences=SENTENCES)
        rows = compare(languages, Path(work), arguments.steps, arguments.seeds)
    for row in rows:
        print(
            f"{row['schedule']:18} {row['model']:28} seed {row['seed']}: loss {row['loss']:.3f}, {row['retrieval']:.1f}"
        )
    about = {"date": str(date.today()), "device": device_name(torch.device("cpu")), "torch": torch.__version__}
    write_json(arguments.output, {**about, "crossling": xl.__version__, "steps": arguments.steps, "rows": rows})


def compare(languages: Path, work: Path, steps: int, seeds: int) -> list[dict[str, Any]]:
    """Return one row for each schedule, seed and model: the last checkpoint, a mean, or before the cooldown."""
    train, held_out = split_text(languages / "corpora", work)
    xl.vocab(xl.Corpora(train), work / "vocab", size=VOCABULARY)
    shards, validation = (
        xl.tokenize(xl.Corpora(folder), work / "vocab", work / f"{folder.name}-shards") for folder in (train, held_out)
    )
    base = xl.recipes.xlm("tiny").set([*SIZE, *BATCH, f"steps={steps}", "optimizer.warmup=0.1", "lr=2e-3"])
    base = base.replace(keep_every=max(1, steps // 20), log_every=max(1, steps // 10))
    probe = combine_probes(
        [
            make_loss_probe(validation, base),
            make_retrieval_probe(languages / "data", xl.Vocabulary.load(work / "vocab")),
        ]
    )
    return [
        {"schedule": name, "settings": settings, "seed": seed, **row}
        for seed in range(seeds)
        for name, settings in SCHEDULES.items()
        for row in train_and_score(base.set(settings).replace(seed=seed), shards, work / f"{seed}-{name}", probe)
    ]


def split_text(corpora: Path, work: Path) -> tuple[Path, Path]:
    """Return corpora without the last lines of each language, and corpora of these lines alone."""
    train, held_out = Path(shutil.copytree(corpora, work / "train")), work / "held-out"
    for file in sorted((train / "text").iterdir()):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        end = round(len(lines) * (1 - HELD_OUT))
        (held_out / "text").mkdir(parents=True, exist_ok=True)
        (held_out / "text" / file.name).write_text("".join(lines[end:]), encoding="utf-8")
        file.write_text("".join(lines[:end]), encoding="utf-8")
    return train, held_out


def train_and_score(recipe: Recipe, shards: Shards, run: Path, probe: Probe) -> list[dict[str, Any]]:
    """Return the scores of the last checkpoint, of means of checkpoints, and of those before a cooldown."""
    xl.pretrain(recipe, shards, run)
    seconds = json.loads((run / "cost.json").read_text(encoding="utf-8"))["seconds"]
    kept = [run / "checkpoints" / f"{step:07d}" for step in range(0, recipe.steps + 1, recipe.keep_every or 1)]
    ends = {"the last": kept[-MERGED:]}
    if recipe.optimizer.schedule == "wsd":
        stable = recipe.steps - recipe.optimizer.cooldown_steps(recipe.steps)
        ends["before the cooldown"] = [path for path in kept if int(path.name) <= stable][-MERGED:]
    rows = []
    for name, paths in ends.items():
        for model, chosen in ((name, paths[-1:]), (f"mean of {MERGED}, {name}", paths)):
            rows.append({"model": model, "seconds": seconds, **score(chosen, probe)})
    return rows


def score(checkpoints: Sequence[Path], probe: Probe) -> dict[str, float]:
    """Return the mean MLM loss over languages and the retrieval accuracy of the mean of some checkpoints."""
    net = load_run(checkpoints[0])
    if len(checkpoints) > 1:
        net = mean_network(checkpoints, [1 / len(checkpoints)] * len(checkpoints))
    found = probe(net)
    loss = fmean(value for name, value in found.items() if name.startswith("loss/"))
    return {"loss": loss, "retrieval": found["retrieval"]}


if __name__ == "__main__":
    main()
