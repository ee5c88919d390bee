"""Does an audit find damaged bitext? Noise is put into known corpora, and looked for at the ends of the ranking.

    python benchmarks/audit.py -o WORK                                          embedded languages, on a CPU in minutes
    python benchmarks/audit.py -o WORK --corpora CORPORA --pivot en [--vocab VOCAB] --size small --steps 2000    a GPU

A quarter of the corpora (one collection in one language pair each) is damaged, each in one way: wrong lines (they have
each other's translations), many to one (hard to learn), copies, near-duplicates (easy). Two runs of one recipe are
trained on all of them, the same but for `dro.rho`: one draws its corpora anew, the other is plain and only measured. Of
each ranking it is asked how many of the damaged are at the ends: as many as there are of the hard kinds at the top, of
the easy kinds at the bottom. Beside them stands what needs no model: the share of copies and of repeated sides, by
equal ids. What is finished is not done again, and what was stopped goes on: run it until it prints the table. Writes
DATE-audit[-embedded].json into --results.
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
from crossling.audit.ranking import Group
from crossling.babel.noise import Noise, Row, damage
from crossling.disk import new_folder, write_json
from crossling.errors import Interrupted
from crossling.recipe import Recipe
from crossling.recipe.recipe import OBJECTIVES
from crossling.recipes import named
from crossling.train.resampling import read

HARD, EASY = ("wrong", "many_to_one"), ("copies", "near_duplicates")
KINDS = ("wrong", "copies", "many_to_one", "near_duplicates")
LANGUAGES, SENTENCES, LEMMAS = 8, 12_000, 300  # embedded
PIECES = {"tiny": 3000, "small": 32_000}
FAR = 3.0  # deviations: what is as far out is called suspicious
IN_BATCH = [
    *("xlco=on", "xlco.queue=0", "xlco.momentum=0", "xlco.mixup=false", "xlco.normalise=true", "xlco.symmetric=true"),
    *("xlco.pooling=mean", "xlco.temperature=0.05", "xlco.weight=10", "xlco.length=128", "model.norm=pre"),
]
SIZED = {
    "tiny": [
        *("mlm.tokens=512", "tlm.tokens=1024", "xlco.pairs=96", "lr=3e-3", "model.max_length=128", "model.dropout=0"),
        *("log_every=20", "checkpoint_every=50", "micro_tokens=16384"),
    ],
    "small": ["mlm.tokens=16384", "tlm.tokens=32768", "xlco.pairs=1024", "lr=1e-3", "optimizer.warmup=0.05"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--corpora", type=Path, help="real text; embedded languages if not said")
    parser.add_argument("--pivot", default="en", help="of the corpora: only bitext with this language")
    parser.add_argument("--least", type=int, default=500, help="rows of a collection in a language pair")
    parser.add_argument("--vocab", type=Path, help="made of the corpora if not said")
    parser.add_argument("--size", choices=[*SIZED], default="tiny")
    parser.add_argument("--recipe", default="xlm")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--share", type=float, default=0.25, help="of the collections that is damaged")
    parser.add_argument("--rate", type=float, default=0.5, help="of the rows of a damaged one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], dest="differences", help="of training: key=value")
    parser.add_argument("--workers", type=int, default=2, help="that encode")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    asked = parser.parse_args()
    truth, shards = _prepare(asked)
    rankings: dict[str, Sequence[Group]] = {}
    seconds = {}
    for name, rho in (("dro", 0.05), ("plain", 0.0)):
        xl.pretrain(_recipe(asked).set([f"dro.rho={rho}"]), shards, asked.out / name)
        rankings[name] = xl.audit(asked.out / name, shards)
        bill = json.loads((asked.out / name / "cost.json").read_text(encoding="utf-8"))
        seconds[name] = round(bill["seconds"])
    _tell(truth, rankings, seconds, asked)


def _recipe(asked: argparse.Namespace) -> Recipe:
    recipe = named(asked.recipe, asked.size)
    contrast = [] if recipe.xlco else IN_BATCH
    absent = {*OBJECTIVES} - {*recipe.objectives, "xlco"}  # to size what is off would turn it on
    own = [each for each in SIZED[asked.size] if each.partition(".")[0] not in absent]
    return recipe.set([*contrast, *own, f"steps={asked.steps}", f"seed={asked.seed}", "dro=on", *asked.differences])


def _prepare(asked: argparse.Namespace) -> tuple[dict[str, str], xl.Shards]:
    """What was done to which group, and the shards of all."""
    home: Path = asked.out
    noted, corpora = home / "damaged" / "truth.json", home / "damaged" / "corpora"
    if not noted.is_file():
        source = asked.corpora
        if source is None:
            source = xl.babel(home / "babel", LANGUAGES, SENTENCES, seed=asked.seed, lemmas=LEMMAS) / "corpora"
        with new_folder(noted.parent) as folder:
            found = _halves(source) if asked.corpora is None else _collections(source, asked.pivot, asked.least)
            shutil.copytree(source / "text", folder / corpora.name / "text")
            write_json(folder / noted.name, _damaged(dict(found), folder / corpora.name / "pairs", asked))
    if not (home / "shards" / "manifest.json").is_file():
        vocabulary = asked.vocab or home / "vocab"
        if not (vocabulary / "sentencepiece.model").is_file():
            xl.vocab(xl.Corpora(corpora), PIECES[asked.size], vocabulary)
        xl.encode(xl.Corpora(corpora), vocabulary, home / "shards", workers=asked.workers)
    return json.loads(noted.read_text(encoding="utf-8")), xl.Shards.open(home / "shards")


def _halves(corpora: Path) -> Iterator[tuple[str, list[Row]]]:
    """Of each embedded language pair two collections, so that a damaged one has an intact one beside it."""
    for pairs in xl.Corpora(corpora).pairs:
        rows = [*pairs.rows()]
        middle = len(rows) // 2
        for name, half in (("north", rows[:middle]), ("south", rows[middle:])):
            yield f"{name}.{'-'.join(pairs.languages)}", half


def _collections(corpora: Path, pivot: str, least: int) -> Iterator[tuple[str, list[Row]]]:
    """Every collection in every pair with the pivot, which comes first: it has words to edit."""
    found = xl.Corpora(corpora)
    named_rows: list[tuple[str, str, Iterator[Row]]] = []
    for pairs in found.pairs:
        if pivot in pairs.languages:
            turned = pairs.languages[0] != pivot
            other = pairs.languages[0] if turned else pairs.languages[1]
            named_rows.append((pairs.name or "pairs", other, (row[::-1] if turned else row for row in pairs.rows())))
    for multi in found.multi:
        for other in multi.languages:
            if pivot in multi.languages and other != pivot:
                named_rows.append((multi.name, other, zip(multi.lines(pivot), multi.lines(other), strict=True)))
    for name, other, rows in named_rows:
        kept = [(a, b) for a, b in rows if a and b and len(a.split(" ")) > 1]
        if len(kept) >= least:
            yield f"{name.replace('.', '-')}.{pivot}-{other}", kept


def _damaged(groups: Mapping[str, list[Row]], folder: Path, asked: argparse.Namespace) -> dict[str, str]:
    """Writes all of them; says which are damaged, and how."""
    number = max(len(KINDS), round(asked.share * len(groups)) // len(KINDS) * len(KINDS))
    chosen = random.Random(f"{asked.seed}/chosen").sample(sorted(groups), number)
    kinds = {name: KINDS[place % len(KINDS)] for place, name in enumerate(chosen)}
    folder.mkdir()
    for name, rows in groups.items():
        if name in kinds:
            rng = random.Random(f"{asked.seed}/{name}")
            if kinds[name] == "wrong":
                rows = _misaligned(rows, asked.rate, rng)
            else:
                rows, _ = damage(rows, Noise(**{kinds[name]: asked.rate}), rng)
        lines = "".join(f"{a}\t{b}\n" for a, b in rows)
        (folder / f"{name}.tsv").write_text(lines, encoding="utf-8", newline="\n")
    return {f"{name} {name.partition('.')[2]}": kind for name, kind in kinds.items()}  # as groups are named


def _misaligned(rows: Sequence[Row], rate: float, rng: random.Random) -> list[Row]:
    """Some rows have each other's targets: nothing is repeated, so that only their meaning tells."""
    chosen = rng.sample(range(len(rows)), round(rate * len(rows)))
    wrong = [*rows]
    for row, other in zip(chosen, [*chosen[1:], chosen[0]], strict=True):
        wrong[row] = rows[row][0], rows[other][1]
    return wrong


def _tell(
    truth: Mapping[str, str],
    rankings: Mapping[str, Sequence[Group]],
    seconds: Mapping[str, int],
    asked: argparse.Namespace,
) -> None:
    orders = {name: {group.name: group.loss for group in groups} for name, groups in rankings.items()}
    orders["plain, last loss"] = read(asked.out / "plain")[-1]["losses"]
    orders["dro, q / p"] = {group.name: group.ratios[-1] for group in rankings["dro"]}
    rows = [{"ranking": name, **_ends(order, truth)} for name, order in orders.items()]
    for name, groups in rankings.items():
        far = {group.name for group in groups if abs(group.deviation) > FAR}
        rows.append({"ranking": f"{name}, over {FAR:g} deviations", **_found(far, truth)})
    looks = {group.name: group.look for group in rankings["plain"] if group.look}
    for fact, kinds in (("copies", ("copies",)), ("repeats", ("many_to_one", "near_duplicates"))):
        wanted = {name for name, kind in truth.items() if kind in kinds}
        most = sorted(looks, key=lambda name: -getattr(looks[name], fact))[: len(wanted)]
        rows.append({"ranking": f"ids alone: {fact}", **_found({*most}, {name: truth[name] for name in wanted})})
    for row in rows:
        print(json.dumps(row), flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU {platform.machine()}"
    file = asked.results / f"{date.today()}-audit{'' if asked.corpora else '-embedded'}.json"
    told = {"date": str(date.today()), "device": device, "torch": torch.__version__, "seconds": seconds}
    command = " ".join(Path(part).name if Path(part).is_absolute() else part for part in sys.argv[1:])
    sizes = {"corpora": len(rankings["plain"]), "damaged": len(truth), "rate": asked.rate}
    ranked = {name: [[g.name, round(g.deviation, 2), truth.get(g.name)] for g in of] for name, of in rankings.items()}
    told |= {"command": f"python benchmarks/audit.py {command}", **sizes, "rows": rows, "ranked": ranked}
    write_json(file, told)
    print(file)


def _ends(order: Mapping[str, float], truth: Mapping[str, str]) -> dict[str, Any]:
    """Of the damaged, the share at the ends: precision and recall are one there, as as many are taken as there are."""
    names = sorted(order, key=lambda name: -order[name])
    hard, easy = ([name for name, kind in truth.items() if kind in kinds] for kinds in (HARD, EASY))
    top, bottom = {*names[: len(hard)]}, {*names[-len(easy) :]}
    ends = len({*truth} & (top | bottom)) / len(truth)
    shares = {"hard end": len(top & {*hard}) / len(hard), "easy end": len(bottom & {*easy}) / len(easy)}
    places = {kind: sorted(1 + names.index(name) for name, of in truth.items() if of == kind) for kind in KINDS}
    return {"both ends": ends, **shares, "places": places}


def _found(called: set[str], truth: Mapping[str, str]) -> dict[str, Any]:
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
