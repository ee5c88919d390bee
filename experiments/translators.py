"""Compare initializations of a translator: VECO, MLM+TLM, random weights and the paper's control (VECO §6.2, Table 3).

    python experiments/translators.py -o WORK                          # synthetic languages, on a CPU in minutes
    python experiments/translators.py -o WORK --size small --corpora CORPORA [--vocab VOCAB] --data multi30k \\
        --directions de-en,en-de,fr-en,en-fr,cs-en,en-cs --pretrain-steps 4000 --steps 2000      # real text, on a GPU

Pre-trains two models of one shape on the same shards for the same number of steps. Both are trained from scratch or
initialized from one run (--init RUN). --veco RUN and --xlm RUN use finished runs instead.

Then fine-tunes each initialization as one translator of all directions, with equal data, order, learning rate and
steps. They are VECO, MLM+TLM (with new cross-attention), random weights, and the control. The control has random
weights that were first trained on the bitext of the corpora for as many steps. VECO is also fine-tuned in a third of
the steps with its own schedule, since after a third of the long schedule the learning rate is still high.

Dev BLEU is measured during training. Test BLEU uses beam 5. Skips finished runs and resumes interrupted ones: call it
until it prints the table. Writes DATE-translators.json and .svg into --results.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import transformers

import crossling as xl
from crossling.core.errors import BadInput, Failed, Interrupted, suggestion
from crossling.core.files import write_json
from crossling.data.shards import Shards
from crossling.finetune.translation.translator import TRANSLATOR_INFO
from crossling.recipes import get_recipe
from crossling.recipes.recipe import OBJECTIVES, Recipe
from crossling.report.charts import LinePlot, Series, line_chart
from crossling.synthetic import ExampleCounts

VOCABULARY_SIZE = {"tiny": 2000, "small": 32_000}
LANGUAGES, SENTENCES, TRAIN = 2, 10_000, 2000  # of synthetic data
INITS = ("veco", "xlm", "random", "control", "third")
NAMES = {
    "veco": "VECO",
    "xlm": "MLM+TLM",
    "random": "random",
    "control": "control: bitext first",
    "third": "VECO, a third of the steps",
}
# Default settings of pre-training and fine-tuning for each size.
PRETRAIN = {
    "tiny": ["lr=4e-3", "model.max_length=128", "model.norm=pre", "optimizer.matrices=muon"],
    "small": ["lr=3e-3", "model.max_length=256"],
}
TOKENS = {"tiny": 1024, "small": 32_768}  # per objective and step
TUNE: dict[str, dict[str, Any]] = {
    "tiny": {"lr": 2e-3, "tokens": 1024, "steps": 500, "dev_rows": 50},
    "small": {"lr": 5e-4, "tokens": 16_384, "micro_tokens": 65_536, "steps": 2000, "dev_rows": 100, "length": 128},
}


def main() -> None:
    options = make_parser(__doc__ or "").parse_args()
    for init in options.only.split(","):
        if init not in INITS:
            raise BadInput(f"--only {init}: no such initialization{suggestion(init, INITS)}")
    home, data, corpora = prepare(options)
    directions = options.directions or ",".join(pivot_directions(data))
    models = {
        name: getattr(options, name) or pretrain_recipe(name, (), options, home, options.seed)
        for name in ("veco", "xlm")
    }
    rows = []
    for seed in range(options.seed, options.seed + options.seeds):
        for init in options.only.split(","):
            print(f"# {init}, seed {seed}", flush=True)
            folders = {"data": data, "corpora": corpora}
            rows.append(_train_translator(init, seed, options, models=models, directions=directions, **folders))
            print(json.dumps({name: rows[-1][name] for name in ("init", "dev", "test", "seconds")}), flush=True)
    _write_results(rows, models, options)


def make_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of pre-training and fine-tuning."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--size", choices=[*TUNE], default="tiny")
    parser.add_argument("--corpora", type=Path, help="corpora of pre-training [default: synthetic languages]")
    parser.add_argument("--languages", help="languages of pre-training, such as de,en [default: all]")
    parser.add_argument("--vocab", type=Path, help="vocabulary folder [default: train one]")
    parser.add_argument("--data", type=Path, help="folder of parallel text")
    parser.add_argument("--directions", help="such as de-en,en-de [default: all with the first synthetic language]")
    parser.add_argument("--pretrain-steps", type=int, default=800)
    parser.add_argument("--steps", type=int, help="steps of fine-tuning")
    parser.add_argument("--evaluations", type=int, default=20, help="dev evaluations per training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default=",".join(INITS))
    parser.add_argument("--init", help="run on these shards that initializes both models, as XLM-R did for VECO")
    parser.add_argument("--veco", help="run of VECO, in place of a new one")
    parser.add_argument("--xlm", help="run of MLM+TLM, in place of a new one")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="differences",
        help="setting of pre-training, KEY=VALUE; ignored for objectives that a recipe does not have",
    )
    parser.add_argument("--tune", action="append", default=[], help="setting of fine-tuning, KEY=VALUE")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    return parser


def prepare(options: argparse.Namespace) -> tuple[Path, Path, Path]:
    """Return the folders of the shards, the data and the corpora: those given, or synthetic languages."""
    known = {objective for recipe in ("veco", "xlm") for objective in get_recipe(recipe, options.size).objectives}
    for setting in options.differences:
        if (name := setting.partition(".")[0]) in {*OBJECTIVES} - known:
            raise BadInput(f"--set {setting}: veco and xlm have no {name}. Use one of {', '.join(sorted(known))}.")
    home, corpora, data = options.out, options.corpora, options.data
    if corpora is None:
        examples = ExampleCounts(train=TRAIN, dev=200, test=400)
        xl.synth(home / "synth", languages=LANGUAGES, sentences=SENTENCES, examples=examples)
        corpora, data = home / "synth" / "corpora", data or home / "synth" / "data"
    if options.languages:
        corpora = _link_languages(options.languages.split(","), corpora, home / "corpora")
    if data is None:
        raise BadInput("--corpora without --data: there is no parallel text. Add --data FOLDER.")
    if not (home / "shards" / "manifest.json").is_file():
        vocabulary = options.vocab or home / "vocab"
        if not (vocabulary / "sentencepiece.model").is_file():
            xl.vocab(corpora, vocabulary, size=VOCABULARY_SIZE[options.size])
        xl.tokenize(corpora, vocabulary, home / "shards", workers=options.workers)
    return home, data, corpora


def _link_languages(languages: Sequence[str], corpora: Path, out: Path) -> Path:
    """Return a folder of links to the corpora of some languages."""
    wanted = {*languages}
    for file in sorted(corpora.rglob("*.*")):
        codes = {*re.split(r"[.-]", file.name)} & wanted
        if file.is_file() and len(codes) == (2 if file.parent.name == "pairs" else 1):
            link = out / file.relative_to(corpora)
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.symlink_to(file.resolve())
    for folder in (out / "multi").glob("*"):
        if len([*folder.iterdir()]) < 2:
            shutil.rmtree(folder)
    return out


def pivot_directions(data: Path) -> list[str]:
    """Return the directions between the first language and each other."""
    codes = sorted(path.suffix[1:] for path in (data / "translation").glob("train.*"))
    return [direction for code in codes[1:] for direction in (f"{codes[0]}-{code}", f"{code}-{codes[0]}")]


def pretrain_recipe(name: str, changes: Sequence[str], options: argparse.Namespace, home: Path, seed: int) -> str:
    """Pre-train a recipe with changed settings, and return its run folder."""
    recipe = get_recipe(name, options.size).set(
        [
            f"steps={options.pretrain_steps}",
            f"seed={seed}",
            "log_every=50",
            "optimizer.warmup=0.1",
            *PRETRAIN[options.size],
            *changes,
        ]
    )
    recipe = _fit_tokens(recipe, TOKENS[options.size])
    others = {*OBJECTIVES} - {*recipe.objectives}
    recipe = recipe.set(setting for setting in options.differences if setting.partition(".")[0] not in others)
    # Text and pairs alternate in all recipes, as in VECO and XLM, so that all have the same examples at the same steps.
    # As in the recipe, only new cross-attention in a trained model is trained during warm-up.
    frozen = options.pretrain_steps // 10 if options.init and recipe.model.cross_attention else 0
    recipe = recipe.replace(alternate=True, freeze_steps=frozen, checkpoint_every=max(1, options.pretrain_steps // 8))
    run = home / "-".join([name, *(setting.split("=")[0].replace(".", "-") for setting in changes), str(seed)])
    shards = Shards.open(home / "shards")
    xl.pretrain(recipe, shards, run, workers=options.workers, init=options.init)
    return str(run)


def _fit_tokens(recipe: Recipe, tokens: int) -> Recipe:
    """Give every objective `tokens` tokens, in sequences that the model can read."""
    max_length = recipe.model.max_length
    sizes = [f"{name}.tokens={tokens}" for name in recipe.objectives]
    return recipe.set(
        [*sizes, *(f"{name}.length={min(task.length, max_length)}" for name, task in recipe.objectives.items())]
    )


def finetune_settings(options: argparse.Namespace, seed: int, divisor: int = 1) -> dict[str, Any]:
    """Return the settings of every translator, with steps divided by `divisor`."""
    plan: dict[str, Any] = {"log_every": 50, "average": 5, **TUNE[options.size], "seed": seed}
    plan |= {"steps": options.steps} if options.steps else {}
    plan |= dict(setting.split("=", 1) for setting in options.tune)
    plan["steps"] = int(plan["steps"]) // divisor
    return {"checkpoint_every": max(1, int(plan["steps"]) // options.evaluations), **plan}


def _train_translator(
    init: str,
    seed: int,
    options: argparse.Namespace,
    *,
    models: Mapping[str, str],
    directions: str,
    data: Path,
    corpora: Path,
) -> dict[str, Any]:
    plan = finetune_settings(options, seed, 3 if init == "third" else 1)
    started = time.monotonic()
    model = models.get(init, models["veco"])
    if init == "control":
        folder = options.out / "mt" / f"bitext-{seed}"
        first = {**plan, "beam": 1}
        xl.finetune(model, "translation", corpora, folder, directions=directions, from_scratch=True, **first)
        model = str(folder / f"seed-{seed}")
    out = options.out / "mt" / f"{init}-{seed}"
    rows = xl.finetune(model, "translation", data, out, directions=directions, from_scratch=init == "random", **plan)
    [info] = [
        TRANSLATOR_INFO.read(folder)
        for folder in TRANSLATOR_INFO.seed_folders(out)
        if TRANSLATOR_INFO.read(folder).seed == seed
    ]
    cost = json.loads((out / f"seed-{seed}" / "cost.json").read_text(encoding="utf-8"))
    test: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["metric"] == "sacrebleu":
            test.setdefault(row["split"], {})[row["language"]] = row["value"]
    return {
        "init": init,
        "seed": seed,
        "from": info.model,
        "steps": info.steps,
        "tokens": cost["tokens"],
        "seconds": cost["seconds"],
        "wall": time.monotonic() - started,
        "curve": info.curve,
        "averaged_steps": info.averaged_steps,
        "dev": fmean(info.dev.values()),
        "dev_by_direction": info.dev,
        "test": {split: fmean(values.values()) for split, values in test.items()},
        "test_by_direction": test,
        "signature": next(row["signature"] for row in rows if row["metric"] == "sacrebleu"),
        "settings": plan,
    }


def first_step_with(curve: Sequence[Mapping[str, float]], score: float) -> int | None:
    """Return the first evaluated step with at least this dev score."""
    return next((int(point["step"]) for point in curve if point["bleu"] >= score), None)


def _last_metrics(run: Path) -> dict[str, Any]:
    """Return steps, tokens and losses at the end of pre-training."""
    last = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    terms = {name: round(last[name], 3) for name in last if f"{name}_accuracy" in last}
    return {"steps": last["step"], "tokens": last["tokens"], "losses": terms}


def _write_results(rows: Sequence[dict[str, Any]], models: Mapping[str, str], options: argparse.Namespace) -> None:
    """Write results and curves, and print a table.

    It has the steps that each initialization needs for the final dev score of random weights.
    """
    random = {row["seed"]: row["curve"][-1] for row in rows if row["init"] == "random"}
    sets = sorted({split for row in rows for split in row["test"]})
    print(
        "| init | seed | last dev | averaged dev | " + " | ".join(sets) + " | steps to random's last dev | proportion |"
    )
    print("|---|---|---|---|" + "---|" * (len(sets) + 2))
    for row in rows:
        end = random.get(row["seed"])
        row["steps_to_random"] = first_step_with(row["curve"], end["bleu"]) if end and end["bleu"] else None
        needed = row["steps_to_random"]
        row["proportion"] = needed / end["step"] if end and needed is not None else None
        proportion = f"{row['proportion']:.2f}" if needed is not None else ""
        cells = [NAMES[row["init"]], row["seed"], f"{row['curve'][-1]['bleu']:.1f}", f"{row['dev']:.1f}"]
        cells += [f"{row['test'][split]:.1f}" if split in row["test"] else "" for split in sets]
        print(
            "| " + " | ".join(map(str, [*cells, "never" if needed is None else needed, proportion])) + " |", flush=True
        )
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU {platform.machine()}"
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    command = f"python experiments/translators.py {' '.join(sys.argv[1:])}"
    file = _result_file(
        options.results, f"{date.today()}-translators{'' if options.corpora else '-synthetic'}", command
    )
    write_json(
        file,
        {
            "date": str(date.today()),
            "device": device,
            "versions": {**versions, "crossling": xl.__version__},
            "command": command,
            "pretraining": {name: _last_metrics(Path(run)) for name, run in models.items()},
            "runs": list(rows),
        },
    )
    curves = [
        Series(
            f"{NAMES[row['init']]}{'' if options.seeds == 1 else ' ' + str(row['seed'])}",
            number,
            [(point["step"], point["bleu"]) for point in row["curve"]],
        )
        for number, row in enumerate(rows)
    ]
    plot = LinePlot("dev BLEU", "steps", "dev BLEU", curves, from_zero=True)
    chart = line_chart([[plot]], label="Dev BLEU by steps", legend=True, standalone=True)
    file.with_suffix(".svg").write_text(chart, encoding="utf-8")
    print(file)


def _result_file(folder: Path, stem: str, command: str) -> Path:
    """Return the result file of the day that this command wrote, or else a new one."""
    files = (folder / f"{stem}{'' if number == 1 else f'-{number}'}.json" for number in count(1))
    return next(
        file
        for file in files
        if not file.is_file() or json.loads(file.read_text(encoding="utf-8"))["command"] == command
    )


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        print(f"translators: {error}", file=sys.stderr)
        sys.exit(2)
    except (Failed, Interrupted) as stopped:
        sys.exit(f"translators: {stopped}")
