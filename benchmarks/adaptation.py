"""XY-LENT's study of a new domain (Limitations, Tables 6 and 7) in small, on the embedded languages.

    python benchmarks/adaptation.py -o WORK [--steps 3000 --more 1000 --objectives rtd,mlm --seed 0]

A model is trained on the general domain, by replaced token detection or by MLM + TLM on the same pairs. Its training
then goes on with text of another domain in one language: at the original peak rate, at a lowered one, and lowered with
half of all draws from the other languages' general text (replay). What is gained in the new domain, what lost
elsewhere? Losses are of held text that no run trained on; retrieval and alignment are means over all pairs at the layer
that was best before. What is finished is not done again. Writes benchmarks/results/DATE-adaptation.json.
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

from crossling.babel import babel
from crossling.corpora.corpus import Corpora
from crossling.data.encode import encode
from crossling.data.shards import Shards
from crossling.disk import write_json
from crossling.errors import Failed
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.scores import summary
from crossling.load import load
from crossling.probes import losses
from crossling.recipe import Recipe, Start, load_run, pretrain
from crossling.recipe.start import LOWERED
from crossling.recipes import named
from crossling.vocabulary.vocab import vocab

PIECES = 4000
HOME = "qaa"  # the language of the new domain
DOMAINS = ("general", "science")
MASKED = ("mrtd=off", "trtd=off", "mlm=on", "tlm=on")
CONTINUED: dict[str, tuple[str, ...]] = {
    "original rate": (),
    "lowered rate": (f"lr*{LOWERED}",),
    "lowered, replay": (f"lr*{LOWERED}", f"sampling.focus={HOME}", "sampling.replay=0.5"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--more", type=int, default=1000)
    parser.add_argument("--objectives", default="rtd,mlm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], dest="differences", help="for every run")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
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
            "command": f"python benchmarks/adaptation.py {' '.join(sys.argv[1:])}",
            "rows": rows,
        },
    )


def _study(objective: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    out: Path = arguments.out
    kind = MASKED if objective == "mlm" else ()
    recipe = named("xy_lent", "tiny").set(arguments.differences)
    recipe = recipe.set([*kind, f"steps={arguments.steps}", f"seed={arguments.seed}", "log_every=50"])
    base = out / f"{objective}-{arguments.seed}"
    pretrain(recipe, Shards.open(out / "shards" / "general"), base, workers=1)
    before = _measure(base, recipe, out, None)
    rows = [{"objective": objective, "training": "before", "lr": recipe.lr, **_means(before)}]
    _show(rows[0])
    for name, differences in CONTINUED.items():
        changed = recipe.but(trtd=None, tlm=None, steps=arguments.more)
        changed = changed.set([each for each in differences if not each.startswith("lr*")])
        if any(each.startswith("lr*") for each in differences):
            changed = changed.but(lr=LOWERED * recipe.lr)
        run = out / f"{objective}-{name.replace(', ', '-').replace(' ', '-')}-{arguments.seed}"
        shards = Shards.open(out / "shards" / ("replay" if "replay" in name else "special"))
        row: dict[str, Any] = {"objective": objective, "training": name, "lr": changed.lr}
        try:
            pretrain(changed, shards, run, workers=1, init=Start.load(base))
        except Failed as failure:
            row["failed"] = str(failure)
        rows.append(row | _means(_measure(run, changed, out, before)))
        _show(rows[-1])
    return rows


def _prepare(out: Path) -> None:
    """Both domains in one vocabulary. Each text is cut: nine tenths to train on, one tenth held."""
    if (out / "shards" / "held" / "manifest.json").is_file():
        return
    for domain in DOMAINS:
        babel(out / domain, domain=domain)
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
    vocab(Corpora(out / "corpora" / "general"), PIECES, out / "vocab")
    for name in ("general", "special", "replay", "held"):
        encode(Corpora(out / "corpora" / name), out / "vocab", out / "shards" / name)


def _cut(lines: list[str]) -> int:
    return len(lines) * 9 // 10


def _write(corpora: Path, name: str, lines: list[str]) -> None:
    (corpora / "text").mkdir(parents=True, exist_ok=True)
    (corpora / "text" / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _measure(run: Path, recipe: Recipe, out: Path, before: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"losses": losses(Shards.open(out / "shards" / "held"), recipe)(load_run(run))}
    for domain in DOMAINS:
        rows = evaluate(load(run), ["tatoeba", "word-alignment"], out / domain / "data")
        for each in summary(rows):
            layer = before[f"{domain}/{each.task}"][0] if before else each.best_layer
            found[f"{domain}/{each.task}"] = layer, each.by_layer[layer]
    return found


def _means(found: dict[str, Any]) -> dict[str, float]:
    """In the new domain: the language it was learned in. Elsewhere: all other languages."""
    by_place: dict[str, list[float]] = {}
    for key, value in found["losses"].items():
        _, language, term = key.split("/")
        by_place.setdefault(f"{'new' if language == HOME else 'elsewhere'}/{term}", []).append(value)
    measured = {key: value[1] for key, value in found.items() if key != "losses"}
    return {**{key: fmean(values) for key, values in by_place.items()}, **measured}


def _show(row: dict[str, Any]) -> None:
    figures = "  ".join(f"{key} {value:.3g}" for key, value in row.items() if isinstance(value, float))
    print(f"{row['objective']} {row['training']:16} {figures}  {row.get('failed', '')}", flush=True)


if __name__ == "__main__":
    main()
