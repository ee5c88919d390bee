"""Recall of `crossling audit` on damaged bitext: known noise is added to corpora and searched for in the rankings.

    python experiments/audit.py -o WORK                            # synthetic languages, on a CPU in minutes
    python experiments/audit.py -o WORK --corpora CORPORA --pivot en [--vocab VOCAB] --size small --steps 2000  # GPU

Damages a quarter of the corpora (a corpus is one collection in one language pair), each in one way. Wrong lines have
each other's translations and, like many-to-one pairs, are hard to learn. Copies and near-duplicates are easy.

Trains two runs of one recipe on all corpora that differ in `dro.rho` only: one resamples its corpora, the other only
measures them. From each ranking, takes as many corpora at the top as have hard noise, and as many at the bottom as have
easy noise. Reports how many of these are damaged. A baseline without a model ranks by the proportion of copies and of
repeated sides, by equal token ids.

Skips finished runs and resumes interrupted ones: call it until it prints the table. Writes
DATE-audit[-synthetic].json into --results.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

import crossling as xl
from crossling.audit.ranking import RankedCorpus
from crossling.core.errors import Interrupted
from crossling.core.files import atomic_folder, write_json
from crossling.recipes import get_recipe
from crossling.recipes.recipe import OBJECTIVES, Recipe
from crossling.synthetic.corpus_files import BitextNoise, Row, add_noise
from crossling.train.resampling import read_resampling_log

HARD, EASY = ("wrong", "many_to_one"), ("copies", "near_duplicates")
KINDS = ("wrong", "copies", "many_to_one", "near_duplicates")
LANGUAGES, SENTENCES, LEMMAS = 8, 12_000, 300  # of synthetic corpora
VOCABULARY_SIZE = {"tiny": 3000, "small": 32_000}
FAR = 3.0  # deviations from which a corpus is suspicious
IN_BATCH = [
    *("xlco=on", "xlco.queue=0", "xlco.momentum=0", "xlco.mixup=false", "xlco.normalize=true", "xlco.symmetric=true"),
    *("xlco.pooling=mean", "xlco.temperature=0.05", "xlco.weight=10", "xlco.length=128", "model.norm=pre"),
]
SIZE_SETTINGS = {
    "tiny": [
        *("mlm.tokens=512", "tlm.tokens=1024", "xlco.pairs=96", "lr=3e-3", "model.max_length=128", "model.dropout=0"),
        *("log_every=20", "checkpoint_every=50", "micro_tokens=16384"),
    ],
    "small": ["mlm.tokens=16384", "tlm.tokens=32768", "xlco.pairs=1024", "lr=1e-3", "optimizer.warmup=0.05"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--corpora", type=Path, help="real text [default: synthetic languages]")
    parser.add_argument("--pivot", default="en", help="use only bitext with this language")
    parser.add_argument("--min-rows", type=int, default=500, help="minimum rows of a corpus")
    parser.add_argument("--vocab", type=Path, help="vocabulary folder [default: train one]")
    parser.add_argument("--size", choices=[*SIZE_SETTINGS], default="tiny")
    parser.add_argument("--recipe", default="xlm")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--share", type=float, default=0.25, help="proportion of damaged corpora")
    parser.add_argument("--proportion", type=float, default=0.5, help="proportion of damaged rows in a damaged corpus")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], dest="differences", help="setting of training, KEY=VALUE")
    parser.add_argument("--workers", type=int, default=2, help="processes that tokenize")
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    truth, shards = _prepare(options)
    rankings: dict[str, Sequence[RankedCorpus]] = {}
    seconds = {}
    for name, rho in (("dro", 0.05), ("plain", 0.0)):
        xl.pretrain(_recipe(options).set([f"dro.rho={rho}"]), shards, options.out / name)
        rankings[name] = xl.audit(options.out / name, shards)
        cost = json.loads((options.out / name / "cost.json").read_text(encoding="utf-8"))
        seconds[name] = round(cost["seconds"])
    _write_results(truth, rankings, seconds, options)


def _recipe(options: argparse.Namespace) -> Recipe:
    recipe = get_recipe(options.recipe, options.size)
    xlco = [] if recipe.xlco else IN_BATCH
    absent = {*OBJECTIVES} - {*recipe.objectives, "xlco"}  # their settings would turn them on
    own = [setting for setting in SIZE_SETTINGS[options.size] if setting.partition(".")[0] not in absent]
    return recipe.set([*xlco, *own, f"steps={options.steps}", f"seed={options.seed}", "dro=on", *options.differences])


def _prepare(options: argparse.Namespace) -> tuple[dict[str, str], xl.Shards]:
    """Return the noise of each damaged corpus, and the shards of all corpora."""
    home: Path = options.out
    record, corpora = home / "damaged" / "truth.json", home / "damaged" / "corpora"
    if not record.is_file():
        source = options.corpora
        if source is None:
            source = xl.synth(home / "synth", LANGUAGES, SENTENCES, seed=options.seed, lemmas=LEMMAS) / "corpora"
        with atomic_folder(record.parent) as folder:
            is_synthetic = options.corpora is None
            groups = _halves(source) if is_synthetic else _collections(source, options.pivot, options.min_rows)
            shutil.copytree(source / "text", folder / corpora.name / "text")
            write_json(folder / record.name, _write_damaged(dict(groups), folder / corpora.name / "pairs", options))
    if not (home / "shards" / "manifest.json").is_file():
        vocabulary = options.vocab or home / "vocab"
        if not (vocabulary / "sentencepiece.model").is_file():
            xl.vocab(corpora, vocabulary, size=VOCABULARY_SIZE[options.size])
        xl.tokenize(corpora, vocabulary, home / "shards", workers=options.workers)
    return json.loads(record.read_text(encoding="utf-8")), xl.Shards.open(home / "shards")


def _halves(corpora: Path) -> Iterator[tuple[str, list[Row]]]:
    """Yield two collections of each synthetic language pair, so that a damaged one has an intact one beside it."""
    for pairs in xl.Corpora(corpora).pairs:
        rows = [*pairs.rows()]
        middle = len(rows) // 2
        for name, half in (("north", rows[:middle]), ("south", rows[middle:])):
            yield f"{name}.{'-'.join(pairs.languages)}", half


def _collections(corpora: Path, pivot: str, min_rows: int) -> Iterator[tuple[str, list[Row]]]:
    """Yield every collection in every pair with the pivot, which comes first: it has words to edit."""
    source = xl.Corpora(corpora)
    named_rows: list[tuple[str, str, Iterator[Row]]] = []
    for pairs in source.pairs:
        if pivot in pairs.languages:
            is_reversed = pairs.languages[0] != pivot
            other = pairs.languages[0] if is_reversed else pairs.languages[1]
            rows = ((b, a) for a, b in pairs.rows()) if is_reversed else pairs.rows()
            named_rows.append((pairs.name or "pairs", other, rows))
    for multi in source.multi:
        for other in multi.languages:
            if pivot in multi.languages and other != pivot:
                named_rows.append((multi.name, other, zip(multi.lines(pivot), multi.lines(other), strict=True)))
    for name, other, rows in named_rows:
        kept = [(a, b) for a, b in rows if a and b and len(a.split(" ")) > 1]
        if len(kept) >= min_rows:
            yield f"{name.replace('.', '-')}.{pivot}-{other}", kept


def _write_damaged(groups: Mapping[str, list[Row]], folder: Path, options: argparse.Namespace) -> dict[str, str]:
    """Write all corpora, and return the noise of each damaged one."""
    number = max(len(KINDS), round(options.share * len(groups)) // len(KINDS) * len(KINDS))
    chosen = random.Random(f"{options.seed}/chosen").sample(sorted(groups), number)
    kinds = {name: KINDS[position % len(KINDS)] for position, name in enumerate(chosen)}
    folder.mkdir()
    for name, rows in groups.items():
        if name in kinds:
            rng = random.Random(f"{options.seed}/{name}")
            if kinds[name] == "wrong":
                rows = _misalign(rows, options.proportion, rng)
            else:
                rows, _ = add_noise(rows, BitextNoise(**{kinds[name]: options.proportion}), rng)
        lines = "".join(f"{a}\t{b}\n" for a, b in rows)
        (folder / f"{name}.tsv").write_text(lines, encoding="utf-8", newline="\n")
    return {f"{name} {name.partition('.')[2]}": kind for name, kind in kinds.items()}  # names of corpora in the ranking


def _misalign(rows: Sequence[Row], proportion: float, rng: random.Random) -> list[Row]:
    """Exchange the targets of some rows. Nothing is repeated, so only the meaning of these rows is wrong."""
    chosen = rng.sample(range(len(rows)), round(proportion * len(rows)))
    wrong = [*rows]
    for row, other in zip(chosen, [*chosen[1:], chosen[0]], strict=True):
        wrong[row] = rows[row][0], rows[other][1]
    return wrong


def _write_results(
    truth: Mapping[str, str],
    rankings: Mapping[str, Sequence[RankedCorpus]],
    seconds: Mapping[str, int],
    options: argparse.Namespace,
) -> None:
    orders = {name: {group.name: group.loss for group in groups} for name, groups in rankings.items()}
    orders["plain, last loss"] = read_resampling_log(options.out / "plain")[-1]["losses"]
    orders["dro, q / p"] = {group.name: group.ratios[-1] for group in rankings["dro"]}
    rows = [{"ranking": name, **_recall_at_ends(order, truth)} for name, order in orders.items()]
    for name, groups in rankings.items():
        far = {group.name for group in groups if abs(group.deviation) > FAR}
        rows.append({"ranking": f"{name}, over {FAR:g} deviations", **_precision_and_recall(far, truth)})
    statistics = {group.name: group.statistics for group in rankings["plain"] if group.statistics}
    for measure, kinds in (("copies", ("copies",)), ("repeats", ("many_to_one", "near_duplicates"))):
        wanted = {name for name, kind in truth.items() if kind in kinds}
        most = sorted(statistics, key=lambda name: -getattr(statistics[name], measure))[: len(wanted)]
        scores = _precision_and_recall({*most}, {name: truth[name] for name in wanted})
        rows.append({"ranking": f"ids alone: {measure}", **scores})
    for row in rows:
        print(json.dumps(row), flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU {platform.machine()}"
    file = options.results / f"{date.today()}-audit{'' if options.corpora else '-synthetic'}.json"
    facts = {"date": str(date.today()), "device": device, "torch": torch.__version__, "seconds": seconds}
    command = " ".join(Path(part).name if Path(part).is_absolute() else part for part in sys.argv[1:])
    sizes = {"corpora": len(rankings["plain"]), "damaged": len(truth), "rate": options.proportion}
    ranked = {name: [[g.name, round(g.deviation, 2), truth.get(g.name)] for g in of] for name, of in rankings.items()}
    command = f"python experiments/audit.py {command}"
    write_json(file, {**facts, "command": command, **sizes, "rows": rows, "ranked": ranked})
    print(file)


def _recall_at_ends(order: Mapping[str, float], truth: Mapping[str, str]) -> dict[str, Any]:
    """Return the recall at both ends of a ranking, which equals the precision, and the ranks of each kind."""
    names = sorted(order, key=lambda name: -order[name])
    hard, easy = ([name for name, kind in truth.items() if kind in kinds] for kinds in (HARD, EASY))
    top, bottom = {*names[: len(hard)]}, {*names[-len(easy) :]}
    ends = len({*truth} & (top | bottom)) / len(truth)
    recalls = {"hard end": len(top & {*hard}) / len(hard), "easy end": len(bottom & {*easy}) / len(easy)}
    ranks = {kind: sorted(1 + names.index(name) for name, of in truth.items() if of == kind) for kind in KINDS}
    return {"both ends": ends, **recalls, "ranks": ranks}


def _precision_and_recall(called: set[str], truth: Mapping[str, str]) -> dict[str, Any]:
    right = called & {*truth}
    recalls = {
        kind: sum(of == kind and name in called for name, of in truth.items()) / [*truth.values()].count(kind)
        for kind in KINDS
        if kind in truth.values()
    }
    return {"precision": len(right) / max(1, len(called)), "recall": len(right) / len(truth), "by kind": recalls}


if __name__ == "__main__":
    try:
        main()
    except Interrupted as stopped:
        sys.exit(f"{stopped}")
