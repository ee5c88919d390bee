"""Table 5 of VECO without mBART: XLM against VECO, on text alone and on text with bitext, all else equal.

    python experiments/ablation.py -o WORK [--seeds 2 --pretrain-steps 800 --steps 300 --nli-steps 300]
    python experiments/ablation.py -o WORK --size small --corpora CORPORA [--vocab VOCAB] --data DATA \\
        --directions de-en,en-de --pretrain-steps 4000 --steps 1000 --nli-steps 1000

Pre-trains four models of one shape on the same shards for the same number of steps: MLM, MLM+TLM, CA-MLM on text, and
CA-MLM on text and bitext with TLM. Fine-tunes each for NLI (trained in one language, scored in all, without plug-in)
and as one translator of all directions. A seed counts for pre-training and fine-tuning.

Skips finished runs and resumes interrupted ones: call it until it prints the table. Writes DATE-ablation.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from translators import finetune_settings, make_parser, pivot_directions, prepare, pretrain_recipe

import crossling as xl
from crossling.core.errors import BadInput, Failed, Interrupted
from crossling.core.files import write_json

MODELS: dict[str, tuple[str, tuple[str, ...]]] = {  # recipe, and settings that differ
    "XLM mono": ("xlm", ("tlm=off",)),
    "XLM mono + bili": ("xlm", ()),
    "VECO mono": ("veco", ("ca_tlm=off", "tlm=off")),
    "VECO mono + bili": ("veco", ()),
}
NLI = {"lr": 5e-4, "batch": 32, "length": 128, "log_every": 50}


def main() -> None:
    parser = make_parser(__doc__ or "")
    parser.set_defaults(seeds=2, only=",".join(MODELS), evaluations=5)
    parser.add_argument("--nli-steps", type=int, default=300, help="steps of fine-tuning for NLI")
    options = parser.parse_args()
    home, data, _ = prepare(options)
    directions = options.directions or ",".join(pivot_directions(data))
    rows = []
    for seed in range(options.seed, options.seed + options.seeds):
        for name in options.only.split(","):
            print(f"# {name}, seed {seed}", flush=True)
            rows.append(_train_and_score(name, seed, options, home, data, directions))
            print(json.dumps(rows[-1]), flush=True)
    _write_results(rows, options)


def _train_and_score(
    name: str, seed: int, options: argparse.Namespace, home: Path, data: Path, directions: str
) -> dict[str, Any]:
    recipe, differences = MODELS[name]
    run = pretrain_recipe(recipe, differences, options, home, seed)
    folder = home / "tuned" / Path(run).name
    steps = options.nli_steps
    settings = {**NLI, "steps": steps, "checkpoint_every": max(1, steps // 5), "seed": seed}
    nli = xl.finetune(run, "xnli", data, folder / "xnli", **settings)
    translation = xl.finetune(
        run, "translation", data, folder / "mt", directions=directions, **finetune_settings(options, seed)
    )
    accuracy = {row["language"]: row["value"] for row in nli if row["metric"] == "accuracy"}
    bleu = {f"{row['split']} {row['language']}": row["value"] for row in translation if row["metric"] == "sacrebleu"}
    tokens = json.loads((Path(run) / "cost.json").read_text(encoding="utf-8"))["tokens"]
    return {
        "model": name,
        "seed": seed,
        "tokens": tokens,
        "nli": fmean(accuracy.values()),
        "nli_by_language": accuracy,
        "bleu": fmean(bleu.values()),
        "bleu_by_direction": bleu,
    }


def _write_results(rows: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    print("| pre-training | tokens | NLI, accuracy | translation, sacreBLEU |\n|---|---|---|---|")
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        cells = [_mean_and_deviation([row[measure] for row in own]) for measure in ("nli", "bleu")]
        print(f"| {name} | {own[0]['tokens']:,} | {' | '.join(cells)} |")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU {platform.machine()}"
    file = options.results / f"{date.today()}-ablation{'' if options.corpora else '-synthetic'}.json"
    facts = {"date": str(date.today()), "device": device, "torch": torch.__version__}
    command = f"python experiments/ablation.py {' '.join(sys.argv[1:])}"
    write_json(file, {**facts, "command": command, "runs": list(rows)})
    print(file)


def _mean_and_deviation(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        print(f"ablation: {error}", file=sys.stderr)
        sys.exit(2)
    except (Failed, Interrupted) as stopped:
        sys.exit(f"ablation: {stopped}")
