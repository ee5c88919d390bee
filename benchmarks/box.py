"""The model that ships, from its text to the folder in the package.

    python benchmarks/box.py corpora PRETRAIN -o CORPORA --against DATA
    python benchmarks/box.py build --run RUN --shards SHARDS --corpora CORPORA --data DATA --layers 5

`corpora` writes the text that may be used (box_text.py); with `--against`, none with a sentence of a benchmark in DATA.

`build` makes sure that a run was trained on CORPORA and nothing else, measures it, writes it in 8 bits with its
tokenizer and its card, measures that, and puts it where `xl.load()` finds it. The commands in between are in the card.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
import transformers
from box_text import SOURCES, TATOEBA, corpora, read, show

import crossling
from crossling import box
from crossling.corpora.corpus import Corpora
from crossling.data.shards import Shards
from crossling.data.unit import Unit, key_of
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput
from crossling.evaluate.cosine import unit
from crossling.evaluate.encode import Encoder
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.files import gold_files, tatoeba_files
from crossling.evaluate.scores import Row
from crossling.export import export
from crossling.export.facts import facts
from crossling.export.folder import FACTS
from crossling.load import load
from crossling.templates import templates
from crossling.vocabulary.report import describe
from crossling.vocabulary.reuse import reuse
from crossling.vocabulary.sample import survey
from crossling.vocabulary.vocabulary import Vocabulary

ALIGNED = ["de-en", "en-fr", "en-hi", "zh-en", "ja-en"]

CALLED = "crossling-box"
LARGEST = 20 * 2**20  # bytes of the whole folder
CARD = 2**16  # of that for what is written once it is measured
COMPARED = 100  # sentences of each language whose vectors before and after are compared


@dataclass(frozen=True)
class Figures:
    """What a model gives on real data, by layer."""

    layer: int  # the universal one, or the last where it is not in the box
    tatoeba: dict[int, float]  # mean of both directions and all languages
    languages: dict[str, float]  # Tatoeba at that layer, mean of both directions
    aer: dict[str, dict[int, float]]  # by pair

    @classmethod
    def of(cls, encoder: Encoder, data: Path, most: int) -> Figures:
        """Up to the layer `most`: what lies above is not in the box."""
        layer = min(encoder.universal_layer, most)
        aligned = [pair for pair in ALIGNED if pair in gold_files(data)]
        rows = evaluate(encoder, ["tatoeba"], data, languages=retrieved(data))
        rows += evaluate(encoder, ["word-alignment"], data, languages=aligned)
        found = [row for row in rows if row["split"] == "test" and row.get("layer", most + 1) <= most]
        swept = [row for row in found if row["task"] == "tatoeba" and row["protocol"] == "sweep"]
        links = [row for row in found if row["task"] == "word-alignment" and row["metric"] == "aer"]
        chosen = [row for row in swept if row["layer"] == layer]
        aer = {pair: [row for row in links if row["language"] == pair] for pair in ALIGNED}
        return cls(
            layer,
            means(swept, "layer"),
            means(chosen, "language"),
            {pair: means(own, "layer") for pair, own in aer.items() if own},
        )

    def table(self) -> dict[str, str]:
        best = max(self.tatoeba, key=self.tatoeba.__getitem__)
        name = f"Tatoeba, {len(self.languages)} languages"
        rows = {
            f"{name}, layer {self.layer}, %": f"{self.tatoeba[self.layer]:.2f}",
            f"{name}, best layer, %": f"{self.tatoeba[best]:.2f} ({best})",
        }
        for pair, values in self.aer.items():
            best = min(values, key=values.__getitem__)
            rows[f"AER {pair}, layer {self.layer}, %"] = f"{values[self.layer]:.2f}"
            rows[f"AER {pair}, best layer, %"] = f"{values[best]:.2f} ({best})"
        return rows


def retrieved(data: Path) -> list[str]:
    """The languages of Tatoeba that are there."""
    pairs = tatoeba_files(data)
    return [code for code in TATOEBA if f"{code}-en" in pairs]


def means(rows: Sequence[Row], key: str) -> dict[Any, float]:
    values: dict[Any, list[float]] = {}
    for row in rows:
        values.setdefault(row[key], []).append(row["value"])
    return {name: fmean(own) for name, own in sorted(values.items())}


def trained_on(run: Path, shards: Shards, corpora: Path) -> dict[str, Any]:
    """What sources.json says of the text of the run; BadInput if the run has seen any other, or not all of it."""
    sources = read_json(corpora / SOURCES, "made by the command corpora")
    if not sources.get("without"):
        raise BadInput(f"{corpora}: sentences of benchmarks may be in it; make it again with --against")
    known = facts(run)
    if known.started_from:
        raise BadInput(
            f"{run}: began as {known.started_from}, whose text {SOURCES} does not know; train without --init"
        )
    if known.shards != shards.fingerprint:
        raise BadInput(
            f"{run}: trained on shards {known.shards}, and {shards.path} is {shards.fingerprint}; give its own"
        )
    found, vocabulary = Corpora(corpora), Vocabulary.load(run / "vocab")
    units = [Unit(f"text/{one.language}", one) for one in found.text]
    units += [Unit(f"pairs/{one.label}", one) for one in found.pairs]
    units += [Unit(f"multi/{one.name}/{code}", one, code) for one in found.multi for code in one.languages]
    told = {
        row["name"] if row["name"].startswith("text/") else f"{row['name']}/{code}"
        for row in sources["kept"]
        for code in row["languages"]
    }
    for place in sorted(told ^ {each.place for each in units}):
        raise BadInput(f"{corpora}: {SOURCES} and the files differ in {place}; make the folder again")
    keys = {each.place: key_of(each, vocabulary) for each in units}  # vocabulary and bytes of the file
    for place, _ in sorted(keys.items() ^ {(place, entry["key"]) for place, entry in shards.units().items()}):
        raise BadInput(f"{shards.path}: {place} was not encoded from {corpora}; encode that, and train on it")
    report = read_json(run / "vocab" / "vocab.json", "made by crossling vocab")
    rows, stored = describe(vocabulary, survey(found).excerpts), report["languages"]  # of the text it was made from
    same = rows.keys() == stored.keys() and all(row.items() <= stored[code].items() for code, row in rows.items())
    if report["made"]["from"] or not same:
        raise BadInput(f"{run}: its vocabulary was not made from {corpora} alone; make one, and train with it")
    return sources


def amounts(shards: Shards) -> dict[str, dict[str, int]]:
    """Of every language: lines of text, and rows of multi-way sets."""
    text = {code: entry["sentences"] for code, entry in shards.manifest["text"].items()}
    rows = Counter[str]()
    for one in shards.manifest["multi"].values():
        rows.update({code: side["filled"] for code, side in one["languages"].items()})
    return {code: {"text": text.get(code, 0), "rows": rows[code]} for code in sorted({*text, *rows})}


def build(run: Path, shards: Path, corpora: Path, data: Path, out: Path, layers: int | None) -> dict[str, Any]:
    """The run as it ships, put at `out` if it is small enough; what was measured."""
    encoded = Shards.open(shards)
    sources = trained_on(run, encoded, corpora)
    before = load(run)
    layers = before.layers if layers is None else layers
    with new_folder(out) as new, tempfile.TemporaryDirectory(prefix="crossling-") as scratch:
        made = export(run, Path(scratch) / CALLED, precision="int8", layers=layers)
        # tokenizer.json holds the same, and more.
        if reuse_without(made / "sentencepiece.model") != Vocabulary.load(run / "vocab"):
            raise BadInput(f"{run}: its tokenizer.json does not give its vocabulary back; export it again")
        size = _size(made)
        if size + CARD > LARGEST:
            raise BadInput(
                f"{run}: {size / 2**20:.2f} MiB in 8 bits, and the box is for {LARGEST >> 20}; train a smaller"
            )
        start = time.perf_counter()
        after = load(made)
        seconds = time.perf_counter() - start
        figures = [Figures.of(encoder, data, layers) for encoder in (before, after)]
        known = {
            "date": date.today().isoformat(),
            "versions": versions(),
            "commands": commands(run, layers),
            "loading, seconds": round(seconds, 2),
            "cosine": cosine(before, after, data),
            "before": asdict(figures[0]),
            "after": asdict(figures[1]),
            "text": sources,
            "languages": amounts(encoded),
        }
        write_json(made / "box.json", known)
        (made / "README.md").write_text(with_more(made / "README.md", known, figures), encoding="utf-8")
        size = _size(made)
        shutil.copytree(made, new, dirs_exist_ok=True)
    return {**known, "size": size}


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def reuse_without(file: Path) -> Vocabulary:
    """The vocabulary of an export when this file of it is gone."""
    file.unlink()
    known = file.parent / FACTS
    told = read_json(known, "of an export")
    write_json(known, {**told, "files": [name for name in told["files"] if name != file.name]})
    return reuse(file.parent)


def cosine(before: Encoder, after: Encoder, data: Path) -> dict[str, float]:
    """Of the vector of a sentence before with that after, over sentences of all languages."""
    files = tatoeba_files(data)
    texts = [line for code in retrieved(data) for line in read(files[f"{code}-en"][0])[:COMPARED] if line]
    texts += [line for line in read(files[f"{retrieved(data)[0]}-en"][1])[:COMPARED] if line]
    first_ND, second_ND = (unit(encoder.embed(texts, after.universal_layer)) for encoder in (before, after))
    found_N = np.einsum("nd,nd->n", first_ND, second_ND)
    return {"mean": round(float(found_N.mean()), 6), "least": round(float(found_N.min()), 6), "sentences": len(texts)}


def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "crossling": crossling.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def commands(run: Path, layers: int) -> list[str]:
    """From the text to the box."""
    known = facts(run)
    vocabulary = read_json(run / "vocab" / "vocab.json", "made by crossling vocab")["made"]
    given = ["size", "alpha", "characters", "seed", "allocate"]
    if vocabulary["allocate"] == "vocap":
        given.append("beta")
    pieces = " ".join(f"--{name} {vocabulary[name]}" for name in given)
    named = f"{known.recipe['name']} --size {known.size}" if known.size else "recipe.json"
    differences = "".join(f" \\\n    --set {difference}" for difference in known.differences)
    return [
        "python benchmarks/box.py corpora PRETRAIN -o CORPORA --against DATA",
        f"crossling vocab CORPORA {pieces} -o VOCAB",
        "crossling encode CORPORA --vocab VOCAB -o SHARDS",
        f"crossling pretrain {named} --shards SHARDS -o RUN{differences}",
        f"python benchmarks/box.py build --run RUN --shards SHARDS --corpora CORPORA --data DATA --layers {layers}",
    ]


def with_more(card: Path, known: dict[str, Any], figures: Sequence[Figures]) -> str:
    """The card of any export, and what there is to say of this one."""
    text = card.read_text(encoding="utf-8")
    for exported, boxed in (
        ("# license: yours to choose; what the text allows decides", "license: apache-2.0"),
        (f'xl.load("{CALLED}")  # this folder', "xl.load()  # this model"),
        ("after `import crossling`:", "after `import crossling.box`:"),
        (f'from_pretrained("{CALLED}")', "from_pretrained(crossling.box.folder())"),
        (f'SentenceTransformer("{CALLED}")', "SentenceTransformer(str(crossling.box.folder()))"),
        (
            "Nothing has been measured yet.",
            "Retrieval and word alignment, before 8 bits and after: see What 8 bits cost.",
        ),
    ):
        if exported not in text:
            raise BadInput(f"{card}: expected {exported!r} in the card of an export")
        text = text.replace(exported, boxed)
    environment = templates(Path(__file__).parent, markup=False)
    before, after = (each.table() for each in figures)
    more = environment.get_template("box.md.jinja").render(
        known=known, before=before, after=after, layer=figures[1].layer, languages=figures[1].languages
    )
    return f"{text}{more}"


def read_json(file: Path, what: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise BadInput(f"{file}: expected a file {what}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked = parser.add_subparsers(dest="command", required=True)
    one = asked.add_parser("corpora", help="the text that the model may be trained on")
    one.add_argument("pretrain", type=Path)
    one.add_argument("-o", "--out", type=Path, required=True)
    one.add_argument("--against", type=Path, help="folder of benchmarks, whose sentences are taken out")
    two = asked.add_parser("build", help="the folder that ships")
    needed = {
        "run": "trained on the shards",
        "shards": "encoded from the corpora",
        "corpora": "as above",
        "data": "benchmarks to measure on",
    }
    for name, help_ in needed.items():
        two.add_argument(f"--{name}", type=Path, required=True, help=help_)
    two.add_argument("--layers", type=int, help="the last layer that is kept; all if not said")
    two.add_argument("-o", "--out", type=Path, default=box.FOLDER)
    options = parser.parse_args()
    try:
        if options.command == "corpora":
            show(corpora(options.pretrain, options.out, options.against))
            return
        known = build(options.run, options.shards, options.corpora, options.data, options.out, options.layers)
    except BadInput as error:
        parser.exit(2, f"box: {error}\n")
    print((options.out / "README.md").read_text(encoding="utf-8"))
    print(f"{options.out}: {known['size'] / 2**20:.2f} MiB, loaded in {known['loading, seconds']} s")


if __name__ == "__main__":
    main()
