"""Domain adaptation of XY-LENT (Limitations, Tables 6 and 7) in small, on synthetic languages.

    python experiments/adaptation.py -o WORK [--steps 3000 --more 1000 --objectives rtd,mlm --seed 0]

Trains a model on the general domain, by replaced token detection (RTD) or by MLM + TLM on the same pairs. Then
continues its training on text of another domain in one language, at the original peak learning rate and at a lower one.
A third run has the lower one and takes half of all samples from the general text of the other languages (replay).

Measures the gain in the new domain and the loss elsewhere. Losses are those of held-out text. Retrieval and alignment
are means over all pairs, at the layer that was best before. Skips finished runs. Writes
experiments/results/DATE-adaptation.json.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from crossling.core.errors import Failed
from crossling.core.files import write_json
from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.probes import make_loss_probe
from crossling.inference.load import load
from crossling.recipes import RTD_LR_FACTOR, get_recipe
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.network import load_run
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.synthetic import synth
from crossling.tasks.scores import summarize_layers
from crossling.vocabulary.build_vocabulary import vocab

VOCABULARY_SIZE = 4000
HOME = "qaa"  # the language of the new domain
DOMAINS = ("general", "science")
MASKED = ("mrtd=off", "trtd=off", "mlm=on", "tlm=on")
CONTINUED: dict[str, tuple[str, ...]] = {
    "original learning rate": (),
    "lower learning rate": (f"lr*{RTD_LR_FACTOR}",),
    "lower learning rate, replay": (f"lr*{RTD_LR_FACTOR}", f"sampling.focus={HOME}", "sampling.replay=0.5"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--more", type=int, default=1000)
    parser.add_argument("--objectives", default="rtd,mlm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], dest="differences", help="setting of every run")
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    arguments = parser.parse_args()
    _prepare(arguments.out)
    rows: list[dict[str, Any]] = []
    for objective in arguments.objectives.split(","):
        rows += [{"seed": arguments.seed, **row} for row in _study(objective, arguments)]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU {platform.machine()}"
    write_json(
        arguments.results / f"{date.today()}-adaptation.json",
        {
            "date": str(date.today()),
            "device": device,
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "command": f"python experiments/adaptation.py {' '.join(sys.argv[1:])}",
            "rows": rows,
        },
    )


def _study(objective: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    out: Path = arguments.out
    masked = MASKED if objective == "mlm" else ()
    recipe = get_recipe("xy_lent", "tiny").set(arguments.differences)
    recipe = recipe.set([*masked, f"steps={arguments.steps}", f"seed={arguments.seed}", "log_every=50"])
    base = out / f"{objective}-{arguments.seed}"
    pretrain(recipe, Shards.open(out / "shards" / "general"), base, workers=1)
    before = _evaluate(base, recipe, out, None)
    rows = [{"objective": objective, "training": "before", "lr": recipe.lr, **_means(before)}]
    _print_row(rows[0])
    for name, differences in CONTINUED.items():
        changed = recipe.replace(trtd=None, tlm=None, steps=arguments.more)
        changed = changed.set([setting for setting in differences if not setting.startswith("lr*")])
        if any(setting.startswith("lr*") for setting in differences):
            changed = changed.replace(lr=RTD_LR_FACTOR * recipe.lr)
        run = out / f"{objective}-{name.replace(', ', '-').replace(' ', '-')}-{arguments.seed}"
        shards = Shards.open(out / "shards" / ("replay" if "replay" in name else "special"))
        row: dict[str, Any] = {"objective": objective, "training": name, "lr": changed.lr}
        try:
            pretrain(changed, shards, run, workers=1, init=InitialModel.load(base))
        except Failed as failure:
            row["failed"] = str(failure)
        rows.append(row | _means(_evaluate(run, changed, out, before)))
        _print_row(rows[-1])
    return rows


def _prepare(out: Path) -> None:
    """Write shards of both domains with one vocabulary. A tenth of each text is held out."""
    if (out / "shards" / "held" / "manifest.json").is_file():
        return
    for domain in DOMAINS:
        synth(out / domain, domain=domain)
    shutil.copytree(out / "general" / "corpora", out / "corpora" / "general", dirs_exist_ok=True)
    for file in sorted((out / "general" / "corpora" / "text").iterdir()):
        general, special = (
            (out / domain / "corpora" / "text" / file.name).read_text(encoding="utf-8").splitlines()
            for domain in DOMAINS
        )
        kept = special if file.stem == HOME else general
        _write(out / "corpora" / "general", file.name, general[: _cut(general)])
        _write(out / "corpora" / "replay", file.name, kept[: _cut(kept)])
        _write(out / "corpora" / "held", file.name, kept[_cut(kept) :])
        if file.stem == HOME:
            _write(out / "corpora" / "special", file.name, kept[: _cut(kept)])
    vocab(Corpora(out / "corpora" / "general"), out / "vocab", size=VOCABULARY_SIZE)
    for name in ("general", "special", "replay", "held"):
        tokenize(Corpora(out / "corpora" / name), out / "vocab", out / "shards" / name)


def _cut(lines: list[str]) -> int:
    return len(lines) * 9 // 10


def _write(corpora: Path, name: str, lines: list[str]) -> None:
    (corpora / "text").mkdir(parents=True, exist_ok=True)
    (corpora / "text" / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _evaluate(run: Path, recipe: Recipe, out: Path, before: dict[str, Any] | None) -> dict[str, Any]:
    results: dict[str, Any] = {"losses": make_loss_probe(Shards.open(out / "shards" / "held"), recipe)(load_run(run))}
    for domain in DOMAINS:
        rows = evaluate(load(run), ["tatoeba", "word-alignment"], out / domain / "data")
        for summary in summarize_layers(rows):
            layer = before[f"{domain}/{summary.task}"][0] if before else summary.best_layer
            results[f"{domain}/{summary.task}"] = layer, summary.by_layer[layer]
    return results


def _means(results: dict[str, Any]) -> dict[str, float]:
    """Return the mean losses of the new domain (language HOME) and elsewhere (all others), and the scores."""
    by_place: dict[str, list[float]] = {}
    for key, value in results["losses"].items():
        _, language, term = key.split("/")
        by_place.setdefault(f"{'new' if language == HOME else 'elsewhere'}/{term}", []).append(value)
    scores = {key: value[1] for key, value in results.items() if key != "losses"}
    return {**{key: fmean(values) for key, values in by_place.items()}, **scores}


def _print_row(row: dict[str, Any]) -> None:
    figures = "  ".join(f"{key} {value:.3g}" for key, value in row.items() if isinstance(value, float))
    print(f"{row['objective']} {row['training']:30} {figures}  {row.get('failed', '')}", flush=True)


if __name__ == "__main__":
    main()
