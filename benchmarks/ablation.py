"""VECO's Table 5 without mBART: XLM against VECO, on text alone and on text with bitext, all else equal.

    python benchmarks/ablation.py -o WORK [--seeds 2 --pretrain-steps 800 --steps 300 --inference-steps 300]
    python benchmarks/ablation.py -o WORK --size small --corpora CORPORA [--vocab VOCAB] --data DATA \\
        --pairs de-en,en-de --pretrain-steps 4000 --steps 1000 --inference-steps 1000

Four models of one shape are pre-trained on the same shards for the same number of steps: by MLM, MLM+TLM, CA-MLM on
text, and CA-MLM on text and bitext with TLM. Each is fine-tuned for inference (trained in one language, scored in all,
without plugging in) and as one translator of all pairs. Every seed is one of pre-training and of fine-tuning. What is
finished is not done again, and what was stopped goes on: run it until it prints the table. Writes DATE-ablation.json.
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
from translators import arguments, embedded_pairs, prepare, pretrained, tuning

import crossling as xl
from crossling.disk import write_json
from crossling.errors import BadInput, Failed, Interrupted

MODELS: dict[str, tuple[str, tuple[str, ...]]] = {  # the recipe, and what is different in it
    "XLM mono": ("xlm", ("tlm=off",)),
    "XLM mono + bili": ("xlm", ()),
    "VECO mono": ("veco", ("ca_tlm=off", "tlm=off")),
    "VECO mono + bili": ("veco", ()),
}
INFERENCE = {"lr": 5e-4, "batch": 32, "length": 128, "log_every": 50}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.set_defaults(seeds=2, only=",".join(MODELS), looks=5)
    parser.add_argument("--inference-steps", type=int, default=300)
    asked = parser.parse_args()
    home, data, _ = prepare(asked)
    pairs = asked.pairs or ",".join(embedded_pairs(data))
    rows = []
    for seed in range(asked.seed, asked.seed + asked.seeds):
        for name in asked.only.split(","):
            print(f"# {name}, seed {seed}", flush=True)
            rows.append(_row(name, seed, asked, home, data, pairs))
            print(json.dumps(rows[-1]), flush=True)
    _tell(rows, asked)


def _row(name: str, seed: int, asked: argparse.Namespace, home: Path, data: Path, pairs: str) -> dict[str, Any]:
    recipe, less = MODELS[name]
    run = pretrained(recipe, less, asked, home, seed)
    folder = home / "tuned" / Path(run).name
    steps = asked.inference_steps
    plan = {**INFERENCE, "steps": steps, "checkpoint_every": max(1, steps // 5), "seed": seed}
    inference = xl.finetune(run, "xnli", data, folder / "xnli", **plan)
    translation = xl.finetune(run, "translation", data, folder / "mt", pairs=pairs, **tuning(asked, seed))
    scores = {row["language"]: row["value"] for row in inference if row["metric"] == "accuracy"}
    bleu = {f"{row['split']} {row['language']}": row["value"] for row in translation if row["metric"] == "sacrebleu"}
    tokens = json.loads((Path(run) / "cost.json").read_text(encoding="utf-8"))["tokens"]
    return {
        "model": name,
        "seed": seed,
        "tokens": tokens,
        "inference": fmean(scores.values()),
        "inference_by_language": scores,
        "bleu": fmean(bleu.values()),
        "bleu_by_direction": bleu,
    }


def _tell(rows: Sequence[dict[str, Any]], asked: argparse.Namespace) -> None:
    print("| pre-training | tokens | inference, accuracy | translation, sacreBLEU |\n|---|---|---|---|")
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        cells = [_spread([row[measure] for row in own]) for measure in ("inference", "bleu")]
        print(f"| {name} | {own[0]['tokens']:,} | {' | '.join(cells)} |")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU {platform.machine()}"
    file = asked.results / f"{date.today()}-ablation{'' if asked.corpora else '-embedded'}.json"
    told = {"date": str(date.today()), "device": device, "torch": torch.__version__}
    write_json(file, {**told, "command": f"python benchmarks/ablation.py {' '.join(sys.argv[1:])}", "runs": list(rows)})
    print(file)


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        print(f"ablation: {error}", file=sys.stderr)
        sys.exit(2)
    except (Failed, Interrupted) as stopped:
        sys.exit(f"ablation: {stopped}")
