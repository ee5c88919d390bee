"""Ablation of every recipe on synthetic languages: loss, retrieval and alignment with and without its main parts.

    python experiments/recipes.py -o WORK [--steps 3000 --tokens 8192 --seeds 0,1 --only infoxlm,veco --set lr=2e-3]

All runs have the same corpora, vocabulary and data order. Skips finished runs. Prints a table and writes
experiments/results/DATE-recipes.json. Retrieval is the mean over all pairs and directions at the best layer.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers

import crossling
from crossling.core.files import write_json
from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.evaluate.evaluate import evaluate
from crossling.inference.load import load
from crossling.objectives import XLCo
from crossling.recipes import get_recipe
from crossling.recipes.network import build_meta_network, count_parameters
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.synthetic import synth
from crossling.tasks.scores import summarize_layers
from crossling.vocabulary.build_vocabulary import vocab

VOCABULARY_SIZE = 4000
MASKED = ("mrtd=off", "trtd=off", "mlm=on", "tlm=on")
# Removed part, and the settings that remove it.
WITHOUT: dict[str, dict[str, tuple[str, ...]]] = {
    "xlm_r": {"training": ("steps=1", "optimizer.warmup=0")},
    "xlm": {"TLM": ("tlm=off",)},
    "xlm_e": {"TRTD": ("trtd=off",), "gate": ("model.gate=false",)},
    "infoxlm": {
        "XLCo": ("xlco=off",),
        "TLM": ("tlm=off",),
        "momentum": ("xlco.momentum=0",),
        "mixup": ("xlco.mixup=false",),
        "universal layer": ("xlco.layer=4",),
        "cosine": ("xlco.normalize=false", "xlco.temperature=0.25"),
        "cosine and means": ("xlco.normalize=false", "xlco.temperature=0.25", "xlco.pooling=cls"),
    },
    "xy_lent": {"X-Y pairs": ("sampling.pivot=qaa", "sampling.pair_rule=alpha"), "RTD": MASKED},
    "veco": {"CA-MLM": ("ca_mlm=off", "ca_tlm=off", "mlm=on")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--tokens", type=int, default=8192, help="tokens per objective and step")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--only", default=",".join(WITHOUT))
    parser.add_argument("--set", action="append", default=[], dest="differences", help="setting of every run")
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    arguments = parser.parse_args()
    shards, data = _prepare(arguments.out)
    rows = []
    for name in arguments.only.split(","):
        for part, changes in {"": (), **WITHOUT[name]}.items():
            for seed in map(int, arguments.seeds.split(",")):
                common = [f"steps={arguments.steps}", "log_every=50", f"seed={seed}", *arguments.differences]
                sizes = _sizes(get_recipe(name, "tiny"), arguments.tokens)
                row = _run(name, part, [*common, *sizes, *changes], shards, data, arguments.out)
                rows.append(row)
                print(
                    f"{name:9} {'without ' + part if part else 'complete':20} seed {seed}",
                    f"{row['parameters']:>11,} parameters  loss {row['loss']:8.3f}",
                    f"retrieval {row['retrieval']:5.1f}%  AER {row['aer']:5.1f}  {row['seconds']:6.0f} s",
                    sep="  ",
                    flush=True,
                )
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU {platform.machine()}"
    write_json(
        arguments.results / f"{date.today()}-recipes.json",
        {
            "date": str(date.today()),
            "device": device,
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "crossling": crossling.__version__,
            },
            "command": f"python experiments/recipes.py {' '.join(sys.argv[1:])}",
            "what": "six synthetic languages (crossling synth, seed 0), 4,000 subwords, size tiny",
            "runs": rows,
        },
    )


def _sizes(recipe: Recipe, tokens: int) -> list[str]:
    """Return settings that give every objective `tokens` tokens, and XLCo its proportion in the paper."""
    settings = [f"{name}.tokens={tokens}" for name, task in recipe.objectives.items() if task.tokens]
    if recipe.xlco is None:
        return settings
    xlco = XLCo.sized_like(tokens, recipe.xlco.length)
    return [*settings, f"xlco.pairs={xlco.pairs}", f"xlco.queue={xlco.queue}"]


def _prepare(out: Path) -> tuple[Shards, Path]:
    if not (out / "shards" / "manifest.json").is_file():
        synth(out / "synth")
        vocab(Corpora(out / "synth" / "corpora"), out / "vocab", size=VOCABULARY_SIZE)
        tokenize(Corpora(out / "synth" / "corpora"), out / "vocab", out / "shards")
    return Shards.open(out / "shards"), out / "synth" / "data"


def _run(name: str, part: str, differences: list[str], shards: Shards, data: Path, out: Path) -> dict[str, Any]:
    recipe = get_recipe(name, "tiny").set(differences)
    run = out / f"{name}{'-without-' + part.replace(' ', '-') if part else ''}-{recipe.seed}"
    started = time.monotonic()
    pretrain(recipe, shards, run, workers=1)  # batches are small: one is enough
    rows = evaluate(load(run), ["tatoeba", "word-alignment"], data, run)
    best = {summary.task: summary for summary in summarize_layers(rows)}
    last = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    terms = {term for objective in recipe.objectives.values() for term in objective.loss_weights}
    return {
        "recipe": name,
        "without": part,
        "set": differences,
        "seed": recipe.seed,
        "parameters": sum(count_parameters(build_meta_network(recipe, shards.vocabulary_size)).values()),
        "loss": last["loss"],
        "terms": {term: last[term] for term in sorted(terms) if term in last},
        "tokens": last["tokens"],
        "seconds": time.monotonic() - started,
        "retrieval": best["tatoeba"].best,
        "retrieval_layer": best["tatoeba"].best_layer,
        "aer": best["word-alignment"].best,
        "aer_layer": best["word-alignment"].best_layer,
    }


if __name__ == "__main__":
    main()
