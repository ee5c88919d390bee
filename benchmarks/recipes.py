"""Every recipe on the embedded languages, with and without the part that distinguishes it: loss, retrieval, alignment.

    python benchmarks/recipes.py -o WORK [--steps 3000 --tokens 8192 --seeds 0,1 --only infoxlm,veco --set lr=2e-3]

All runs share corpora, vocabulary and the order of data; what is finished is not done again. Prints a table and writes
benchmarks/results/DATE-recipes.json. Retrieval is the mean over all pairs and directions at the best layer.
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
from crossling.babel import babel
from crossling.corpora.corpus import Corpora
from crossling.data.encode import encode
from crossling.data.shards import Shards
from crossling.disk import write_json
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.scores import summary
from crossling.load import load
from crossling.objectives import XLCo
from crossling.recipe import Recipe, pretrain
from crossling.recipe.cost import network, parameters
from crossling.recipes import named
from crossling.vocabulary.vocab import vocab

PIECES = 4000
MASKED = ("mrtd=off", "trtd=off", "mlm=on", "tlm=on")
# What is taken away, and the recipe that is left.
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
        "cosine": ("xlco.normalise=false", "xlco.temperature=0.25"),
        "cosine and means": ("xlco.normalise=false", "xlco.temperature=0.25", "xlco.pooling=cls"),
    },
    "xy_lent": {"X-Y pairs": ("sampling.pivot=qaa", "sampling.pair_rule=alpha"), "RTD": MASKED},
    "veco": {"CA-MLM": ("ca_mlm=off", "ca_tlm=off", "mlm=on")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--tokens", type=int, default=8192, help="of one task in one step")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--only", default=",".join(WITHOUT))
    parser.add_argument("--set", action="append", default=[], dest="differences", help="for every run")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    shards, data = _prepare(arguments.out)
    rows = []
    for name in arguments.only.split(","):
        for part, less in {"": (), **WITHOUT[name]}.items():
            for seed in map(int, arguments.seeds.split(",")):
                common = [f"steps={arguments.steps}", "log_every=50", f"seed={seed}", *arguments.differences]
                sizes = _sizes(named(name, "tiny"), arguments.tokens)
                row = _run(name, part, [*common, *sizes, *less], shards, data, arguments.out)
                rows.append(row)
                print(
                    f"{name:9} {'without ' + part if part else 'as it is':20} seed {seed}",
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
            "command": f"python benchmarks/recipes.py {' '.join(sys.argv[1:])}",
            "what": "six embedded languages (crossling babel, seed 0), 4,000 pieces, size tiny",
            "runs": rows,
        },
    )


def _sizes(recipe: Recipe, tokens: int) -> list[str]:
    """Every task at so many tokens, and contrast as large beside them as it is in the paper."""
    tasks = [f"{name}.tokens={tokens}" for name, task in recipe.objectives.items() if hasattr(task, "tokens")]
    if recipe.xlco is None:
        return tasks
    contrast = XLCo.beside(tokens, recipe.xlco.length)
    return [*tasks, f"xlco.pairs={contrast.pairs}", f"xlco.queue={contrast.queue}"]


def _prepare(out: Path) -> tuple[Shards, Path]:
    if not (out / "shards" / "manifest.json").is_file():
        babel(out / "babel")
        vocab(Corpora(out / "babel" / "corpora"), PIECES, out / "vocab")
        encode(Corpora(out / "babel" / "corpora"), out / "vocab", out / "shards")
    return Shards.open(out / "shards"), out / "babel" / "data"


def _run(name: str, part: str, differences: list[str], shards: Shards, data: Path, out: Path) -> dict[str, Any]:
    recipe = named(name, "tiny").set(differences)
    run = out / f"{name}{'-without-' + part.replace(' ', '-') if part else ''}-{recipe.seed}"
    started = time.monotonic()
    pretrain(recipe, shards, run, workers=1)  # batches are small: one is enough, and leaves cores to other runs
    rows = evaluate(load(run), ["tatoeba", "word-alignment"], data, run)
    best = {found.task: found for found in summary(rows)}
    last = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    terms = {term for objective in recipe.objectives.values() for term in objective.weights}
    return {
        "recipe": name,
        "without": part,
        "set": differences,
        "seed": recipe.seed,
        "parameters": sum(parameters(network(recipe, shards.vocabulary_size)).values()),
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
