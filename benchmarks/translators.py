"""Where should a translator begin? VECO, MLM+TLM, random weights and the paper's control (VECO §6.2, Table 3).

    python benchmarks/translators.py -o WORK                                    embedded languages, on a CPU in minutes
    python benchmarks/translators.py -o WORK --size small --corpora CORPORA [--vocab VOCAB] --data multi30k \\
        --pairs de-en,en-de,fr-en,en-fr,cs-en,en-cs --pretrain-steps 4000 --steps 2000     real text, on a GPU

Two models of one shape are pre-trained on the same shards for the same number of steps, from nothing or both from one
run (--init RUN), unless they are given (--veco RUN, --xlm RUN). Four starts are then trained as one translator of all
directions, with the same data, order, steps and rate: VECO's, MLM+TLM's (with new cross-attention), random weights,
and random weights that were first trained to translate the bitext of the corpora for as many steps. VECO's is trained
once more in a third of the steps, with a schedule of its own: what its curve has after a third was learned at a high
rate still. Dev BLEU is looked at as training goes on; test BLEU is that of beam 5. What is finished is not done again,
and what was stopped goes on: run it until it prints the table. Writes DATE-translators.json and .svg into --results.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import transformers

import crossling as xl
from crossling.babel import Examples
from crossling.data.shards import Shards
from crossling.disk import write_json
from crossling.errors import BadInput, Failed, Interrupted, nearest
from crossling.recipe import Recipe
from crossling.recipe.recipe import OBJECTIVES
from crossling.recipes import named
from crossling.translation.translator import facts, seeds

PIECES = {"tiny": 2000, "small": 32_000}
LANGUAGES, SENTENCES, TRAIN = 2, 10_000, 2000  # embedded
STARTS = ("veco", "xlm", "random", "control", "third")
NAMES = {
    "veco": "VECO",
    "xlm": "MLM+TLM",
    "random": "random",
    "control": "control: bitext first",
    "third": "VECO, a third of the steps",
}
# How a size is pre-trained and trained here, where the arguments do not say otherwise.
PRETRAIN = {
    "tiny": ["lr=4e-3", "model.max_length=128", "model.norm=pre", "optimizer.matrices=muon"],
    "small": ["lr=3e-3", "model.max_length=256"],
}
TOKENS = {"tiny": 1024, "small": 32_768}  # of one task in one step
TUNE: dict[str, dict[str, Any]] = {
    "tiny": {"lr": 2e-3, "tokens": 1024, "steps": 500, "dev_rows": 50},
    "small": {"lr": 5e-4, "tokens": 16_384, "micro_tokens": 65_536, "steps": 2000, "dev_rows": 100, "length": 128},
}


def main() -> None:
    asked = arguments(__doc__ or "").parse_args()
    for start in asked.only.split(","):
        if start not in STARTS:
            raise BadInput(f"--only {start}: no such start{nearest(start, STARTS)}")
    home, data, corpora = prepare(asked)
    pairs = asked.pairs or ",".join(embedded_pairs(data))
    models = {name: getattr(asked, name) or pretrained(name, (), asked, home, asked.seed) for name in ("veco", "xlm")}
    rows = []
    for seed in range(asked.seed, asked.seed + asked.seeds):
        for start in asked.only.split(","):
            print(f"# {start}, seed {seed}", flush=True)
            rows.append(_trained(start, seed, models, data, corpora, pairs, asked))
            print(json.dumps({name: rows[-1][name] for name in ("start", "dev", "test", "seconds")}), flush=True)
    _tell(rows, models, asked)


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--size", choices=[*TUNE], default="tiny")
    parser.add_argument("--corpora", type=Path, help="to pre-train on; embedded languages if not said")
    parser.add_argument("--languages", help="of the corpora, to pre-train on: de,en; all if not said")
    parser.add_argument("--vocab", type=Path, help="made of the corpora if not said")
    parser.add_argument("--data", type=Path, help="parallel text, or benchmark data with such")
    parser.add_argument("--pairs", help="de-en,en-de; of embedded languages all with the pivot, if not said")
    parser.add_argument("--pretrain-steps", type=int, default=800)
    parser.add_argument("--steps", type=int, help="of each translator")
    parser.add_argument("--looks", type=int, default=20, help="at dev, in all of a training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default=",".join(STARTS))
    parser.add_argument(
        "--init", help="both pre-trainings begin as this run, of these shards: the paper's VECO began as XLM-R"
    )
    parser.add_argument("--veco", help="a run to start from, in place of a new one")
    parser.add_argument("--xlm", help="the same of MLM+TLM")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="differences",
        help="of pre-training: key=value; of an objective, where a recipe has it",
    )
    parser.add_argument("--tune", action="append", default=[], help="of the translators: key=value")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    return parser


def prepare(asked: argparse.Namespace) -> tuple[Path, Path, Path]:
    """Where the shards are, the data and the corpora: those given, or embedded languages."""
    known = {objective for recipe in ("veco", "xlm") for objective in named(recipe, asked.size).objectives}
    for each in asked.differences:
        if (part := each.partition(".")[0]) in {*OBJECTIVES} - known:
            raise BadInput(f"--set {each}: neither veco nor xlm has {part}; they have {', '.join(sorted(known))}")
    home, corpora, data = asked.out, asked.corpora, asked.data
    if corpora is None:
        examples = Examples(train=TRAIN, dev=200, test=400)
        xl.babel(home / "babel", languages=LANGUAGES, sentences=SENTENCES, examples=examples)
        corpora, data = home / "babel" / "corpora", data or home / "babel" / "data"
    if asked.languages:
        corpora = _only(asked.languages.split(","), corpora, home / "corpora")
    if data is None:
        raise BadInput("--corpora without --data: give the folder of parallel text too")
    if not (home / "shards" / "manifest.json").is_file():
        vocabulary = asked.vocab or home / "vocab"
        if not (vocabulary / "sentencepiece.model").is_file():
            xl.vocab(xl.Corpora(corpora), PIECES[asked.size], vocabulary)
        xl.encode(xl.Corpora(corpora), vocabulary, home / "shards", workers=asked.workers)
    return home, data, corpora


def _only(languages: Sequence[str], corpora: Path, out: Path) -> Path:
    """The corpora of some languages, by links."""
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


def embedded_pairs(data: Path) -> list[str]:
    """Every language into the pivot and back."""
    codes = sorted(path.suffix[1:] for path in (data / "translation").glob("train.*"))
    return [pair for code in codes[1:] for pair in (f"{codes[0]}-{code}", f"{code}-{codes[0]}")]


def pretrained(name: str, less: Sequence[str], asked: argparse.Namespace, home: Path, seed: int) -> str:
    """A run of a recipe; `less` is what is different in it."""
    recipe = named(name, asked.size).set(
        [
            f"steps={asked.pretrain_steps}",
            f"seed={seed}",
            "log_every=50",
            "optimizer.warmup=0.1",
            *PRETRAIN[asked.size],
            *less,
        ]
    )
    recipe = _fitted(recipe, TOKENS[asked.size])
    others = {*OBJECTIVES} - {*recipe.objectives}
    recipe = recipe.set(each for each in asked.differences if each.partition(".")[0] not in others)
    # Text and pairs take turns in all of them, as in VECO and XLM: the same examples at the same steps. Cross-attention
    # that is plugged into a trained model learns alone through the warm-up, as in the recipe.
    alone = asked.pretrain_steps // 10 if asked.init and recipe.model.cross_attention else 0
    recipe = recipe.but(alternate=True, freeze_steps=alone, checkpoint_every=max(1, asked.pretrain_steps // 8))
    run = home / "-".join([name, *(each.split("=")[0].replace(".", "-") for each in less), str(seed)])
    shards = Shards.open(home / "shards")
    xl.pretrain(recipe, shards, run, workers=asked.workers, init=asked.init)
    return str(run)


def _fitted(recipe: Recipe, tokens: int) -> Recipe:
    """Every task at so many tokens, in sequences no longer than the model has positions."""
    most = recipe.model.max_length
    sizes = [f"{name}.tokens={tokens}" for name in recipe.objectives]
    return recipe.set(
        [*sizes, *(f"{name}.length={min(task.length, most)}" for name, task in recipe.objectives.items())]
    )


def tuning(asked: argparse.Namespace, seed: int, share: int = 1) -> dict[str, Any]:
    """How every translator is trained; or in so many times fewer steps."""
    plan: dict[str, Any] = {"log_every": 50, "average": 5, **TUNE[asked.size], "seed": seed}
    plan |= {"steps": asked.steps} if asked.steps else {}
    plan |= dict(each.split("=", 1) for each in asked.tune)
    plan["steps"] = int(plan["steps"]) // share
    return {"checkpoint_every": max(1, int(plan["steps"]) // asked.looks), **plan}


def _trained(
    start: str,
    seed: int,
    models: Mapping[str, str],
    data: Path,
    corpora: Path,
    pairs: str,
    asked: argparse.Namespace,
) -> dict[str, Any]:
    plan = tuning(asked, seed, 3 if start == "third" else 1)
    began = time.monotonic()
    first: Callable[[], str] = lambda: models.get(start, models["veco"])  # noqa: E731
    if start == "control":
        folder = asked.out / "mt" / f"bitext-{seed}"
        xl.finetune(models["veco"], "translation", corpora, folder, pairs=pairs, random=True, **{**plan, "beam": 1})
        first = lambda: str(folder / f"seed-{seed}")  # noqa: E731
    out = asked.out / "mt" / f"{start}-{seed}"
    rows = xl.finetune(first(), "translation", data, out, pairs=pairs, random=start == "random", **plan)
    [known] = [facts(folder) for folder in seeds(out) if facts(folder).seed == seed]
    cost = json.loads((out / f"seed-{seed}" / "cost.json").read_text(encoding="utf-8"))
    test: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["metric"] == "sacrebleu":
            test.setdefault(row["split"], {})[row["language"]] = row["value"]
    return {
        "start": start,
        "seed": seed,
        "from": known.model,
        "steps": known.steps,
        "tokens": cost["tokens"],
        "seconds": cost["seconds"],
        "wall": time.monotonic() - began,
        "curve": known.curve,
        "states": known.states,
        "dev": fmean(known.dev.values()),
        "dev_by_direction": known.dev,
        "test": {split: fmean(found.values()) for split, found in test.items()},
        "test_by_direction": test,
        "signature": next(row["signature"] for row in rows if row["metric"] == "sacrebleu"),
        "plan": plan,
    }


def reached(curve: Sequence[Mapping[str, float]], score: float) -> int | None:
    """The first step looked at with at least this score."""
    return next((int(point["step"]) for point in curve if point["bleu"] >= score), None)


def _ended(run: Path) -> dict[str, Any]:
    """How a pre-training ended: its losses, and what it had read."""
    last = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    terms = {name: round(last[name], 3) for name in last if f"{name}_accuracy" in last}
    return {"steps": last["step"], "tokens": last["tokens"], "losses": terms}


def _tell(rows: Sequence[dict[str, Any]], models: Mapping[str, str], asked: argparse.Namespace) -> None:
    """The table, the curves, and how many steps each start needs for what random weights reach in all of theirs."""
    random = {row["seed"]: row["curve"][-1] for row in rows if row["start"] == "random"}
    sets = sorted({split for row in rows for split in row["test"]})
    print("| start | seed | dev at the end | kept | " + " | ".join(sets) + " | steps to random's end | share |")
    print("|---|---|---|---|" + "---|" * (len(sets) + 2))
    for row in rows:
        end = random.get(row["seed"])
        row["steps_to_random"] = reached(row["curve"], end["bleu"]) if end and end["bleu"] else None
        needed = row["steps_to_random"]
        row["share"] = needed / end["step"] if end and needed is not None else None
        share = f"{row['share']:.2f}" if needed is not None else ""
        cells = [NAMES[row["start"]], row["seed"], f"{row['curve'][-1]['bleu']:.1f}", f"{row['dev']:.1f}"]
        cells += [f"{row['test'][split]:.1f}" if split in row["test"] else "" for split in sets]
        print("| " + " | ".join(map(str, [*cells, "never" if needed is None else needed, share])) + " |", flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU {platform.machine()}"
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    command = f"python benchmarks/translators.py {' '.join(sys.argv[1:])}"
    name = _free(asked.results, f"{date.today()}-translators{'' if asked.corpora else '-embedded'}", command)
    write_json(
        name,
        {
            "date": str(date.today()),
            "device": device,
            "versions": {**versions, "crossling": xl.__version__},
            "command": command,
            "pretraining": {name: _ended(Path(run)) for name, run in models.items()},
            "runs": list(rows),
        },
    )
    curves = {
        f"{NAMES[row['start']]}{'' if asked.seeds == 1 else ' ' + str(row['seed'])}": [
            (point["step"], point["bleu"]) for point in row["curve"]
        ]
        for row in rows
    }
    name.with_suffix(".svg").write_text(drawn(curves, "steps", "dev BLEU"), encoding="utf-8")
    print(name)


def _free(folder: Path, stem: str, command: str) -> Path:
    """A file of that day; what another command wrote is left alone."""
    files = (folder / f"{stem}{'' if number == 1 else f'-{number}'}.json" for number in count(1))
    ours = (f for f in files if not f.is_file() or json.loads(f.read_text(encoding="utf-8"))["command"] == command)
    return next(ours)


def drawn(curves: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str) -> str:
    """Learning curves as a picture, each with its name at its end."""
    width, height, left, bottom, right, top = 720, 400, 56, 44, 190, 16
    most_x = max(x for points in curves.values() for x, _ in points) or 1
    most_y = 1.05 * max(y for points in curves.values() for _, y in points) or 1

    def place(x: float, y: float) -> tuple[float, float]:
        return left + x / most_x * (width - left - right), height - bottom - y / most_y * (height - bottom - top)

    colours = ("#0b6", "#36c", "#999", "#d70", "#a3c", "#c33")
    dashes = ("", "6 3")
    parts = []
    for tick in range(5):
        x, y = most_x * tick / 4, most_y * tick / 4
        (at_x, _), (_, at_y) = place(x, 0), place(0, y)
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{at_y:.1f}" y2="{at_y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at_y + 4:.1f}" text-anchor="end">{y:.0f}</text>')
        parts.append(f'<text x="{at_x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{x:.0f}</text>')
    ends: list[float] = []
    order = sorted(curves, key=lambda name: -curves[name][-1][1])
    for number, name in enumerate(curves):
        points = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in curves[name])
        colour, dash = colours[number % len(colours)], dashes[number // len(colours) % 2]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
        )
    for name in order:
        x, y = place(*curves[name][-1])
        y = max([y, *(end + 15 for end in ends[-1:])])  # names do not stand on each other
        ends.append(y)
        colour = colours[[*curves].index(name) % len(colours)]
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{name}</text>')
    middle = (left + width - right) / 2
    parts.append(f'<text x="{middle}" y="{height - 6}" text-anchor="middle">{across}</text>')
    parts.append(
        f'<text x="14" y="{height / 2}" text-anchor="middle" transform="rotate(-90 14 {height / 2})">{up}</text>'
    )
    box = f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        print(f"translators: {error}", file=sys.stderr)
        sys.exit(2)
    except (Failed, Interrupted) as stopped:
        sys.exit(f"translators: {stopped}")
