"""Build the bundled model, from its training data to the folder in the package.

    python experiments/bundled_model.py corpora PRETRAIN -o CORPORA --against DATA
    python experiments/bundled_model.py build --run RUN --shards SHARDS --corpora CORPORA --data DATA --layers 5

`corpora` writes the training data (bundled_text.py). With `--against`, it has no sentence of a benchmark in DATA.

`build` checks that a run was trained on CORPORA and nothing else, and exports it as int8 with its tokenizer and card.
It measures the model before and after, and writes it to the folder that `xl.load()` uses. The model card has the
commands in between.
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
from bundled_text import SOURCES, TATOEBA, print_sources, read, write_corpora

import crossling
from crossling import bundled
from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder, template_environment, write_json
from crossling.corpora.corpus import Corpora
from crossling.corpora.source_parts import source_parts
from crossling.data.shard_writer import part_key
from crossling.data.shards import Shards
from crossling.evaluate.evaluate import evaluate
from crossling.export import export
from crossling.export.model_card import summarize_run
from crossling.export.model_copy import EXPORT_INFO
from crossling.inference.load import load
from crossling.inference.pooling import normalize_vectors
from crossling.inference.sentence_encoder import Encoder
from crossling.tasks.benchmark_files import find_tatoeba_files, find_word_alignment_files
from crossling.tasks.scores import ScoreRow
from crossling.vocabulary.build_vocabulary import describe_languages
from crossling.vocabulary.reuse_vocabulary import load_vocabulary
from crossling.vocabulary.text_sample import SampleSettings, sample_corpora
from crossling.vocabulary.vocabulary import Vocabulary

ALIGNED = ["de-en", "en-fr", "en-hi", "zh-en", "ja-en"]

NAME = "crossling-bundled"  # of the export
MAX_BYTES = 20 * 2**20  # of the whole folder
CARD_BYTES = 2**16  # reserved for the card and the scores
COMPARED = 100  # sentences of each language whose vectors are compared before and after


@dataclass(frozen=True)
class Scores:
    """Scores of a model on benchmarks, by layer."""

    layer: int  # the universal one, or the last if that is lower
    tatoeba: dict[int, float]  # mean of both directions and all languages
    languages: dict[str, float]  # Tatoeba accuracy at that layer, mean of both directions
    aer: dict[str, dict[int, float]]  # by language pair

    @classmethod
    def measure(cls, encoder: Encoder, data: Path, layers: int) -> Scores:
        """Evaluate the layers up to `layers`, which are those of the bundled model."""
        layer = min(encoder.universal_layer, layers)
        aligned = [pair for pair in ALIGNED if pair in find_word_alignment_files(data)]
        rows = evaluate(encoder, ["tatoeba"], data, languages=tatoeba_languages(data))
        rows += evaluate(encoder, ["word-alignment"], data, languages=aligned)
        tested = [row for row in rows if row["split"] == "test" and row.get("layer", layers + 1) <= layers]
        swept = [row for row in tested if row["task"] == "tatoeba" and row["protocol"] == "sweep"]
        links = [row for row in tested if row["task"] == "word-alignment" and row["metric"] == "aer"]
        chosen = [row for row in swept if row["layer"] == layer]
        aer = {pair: [row for row in links if row["language"] == pair] for pair in ALIGNED}
        return cls(
            layer,
            means(swept, "layer"),
            means(chosen, "language"),
            {pair: means(own, "layer") for pair, own in aer.items() if own},
        )

    def table(self) -> dict[str, str]:
        """Return the rows of the table in the model card."""
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


def tatoeba_languages(data: Path) -> list[str]:
    """Return the languages of Tatoeba in the folder."""
    pairs = find_tatoeba_files(data)
    return [code for code in TATOEBA if f"{code}-en" in pairs]


def means(rows: Sequence[ScoreRow], key: str) -> dict[Any, float]:
    """Return the mean score for each value of a key."""
    values: dict[Any, list[float]] = {}
    for row in rows:
        values.setdefault(row[key], []).append(row["value"])
    return {name: fmean(own) for name, own in sorted(values.items())}


def check_training_data(run: Path, shards: Shards, corpora: Path) -> dict[str, Any]:
    """Return sources.json. Raise BadInput if the run was not trained on exactly this data."""
    sources: dict[str, Any] = read_json(corpora / SOURCES, "the command corpora writes")
    if not sources.get("without"):
        raise BadInput(f"{corpora}: may contain sentences of benchmarks. Write it again with --against.")
    summary = summarize_run(run)
    if summary.started_from:
        raise BadInput(
            f"{run}: initialized from {summary.started_from}, whose training data is unknown. Train without --init."
        )
    if summary.shards != shards.fingerprint:
        raise BadInput(
            f"{run}: trained on shards {summary.shards}, but {shards.path} is {shards.fingerprint}. "
            "Give the shards of the run."
        )
    found, vocabulary = Corpora(corpora), Vocabulary.load(run / "vocab")
    parts = source_parts(found)
    listed = {
        row["name"] if row["name"].startswith("text/") else f"{row['name']}/{code}"
        for row in sources["kept"]
        for code in row["languages"]
    }
    for name in sorted(listed ^ {part.name for part in parts}):
        raise BadInput(f"{corpora}: {SOURCES} and the files differ in {name}. Write the folder again.")
    keys = {part.name: part_key(part, vocabulary) for part in parts}  # hash of vocabulary and file
    for name, _ in sorted(keys.items() ^ {(name, entry["key"]) for name, entry in shards.entries().items()}):
        raise BadInput(f"{shards.path}: {name} was not tokenized from {corpora}. Tokenize that, and train on it.")
    report = read_json(run / "vocab" / "vocab.json", "`crossling vocab` writes")
    with tempfile.TemporaryDirectory() as folder:
        sample = sample_corpora(found, Path(folder), SampleSettings())
    rows, stored = describe_languages(vocabulary, sample.excerpts if sample else {}), report["languages"]
    same = rows.keys() == stored.keys() and all(row.items() <= stored[code].items() for code, row in rows.items())
    if report["settings"]["from"] or not same:
        raise BadInput(f"{run}: its vocabulary was not trained on {corpora} alone. Train one, and a run with it.")
    return sources


def count_lines(shards: Shards) -> dict[str, dict[str, int]]:
    """Return the lines of text and the rows of multi-way corpora of every language."""
    text = {code: entry["sentences"] for code, entry in shards.manifest["text"].items()}
    rows = Counter[str]()
    for corpus in shards.manifest["multi"].values():
        rows.update({code: side["filled"] for code, side in corpus["languages"].items()})
    return {code: {"text": text.get(code, 0), "rows": rows[code]} for code in sorted({*text, *rows})}


def build(run: Path, shards: Path, corpora: Path, data: Path, out: Path, layers: int | None) -> dict[str, Any]:
    """Write the bundled model to `out` if it is small enough, and return its scores and provenance."""
    opened = Shards.open(shards)
    sources = check_training_data(run, opened, corpora)
    before = load(run)
    layers = before.num_layers if layers is None else layers
    with atomic_folder(out) as new, tempfile.TemporaryDirectory(prefix="crossling-") as scratch:
        exported = export(run, Path(scratch) / NAME, precision="int8", layers=layers)
        # The bundled model omits sentencepiece.model, since tokenizer.json is enough.
        if vocabulary_without(exported / "sentencepiece.model") != Vocabulary.load(run / "vocab"):
            raise BadInput(f"{run}: its tokenizer.json differs from its vocabulary. Export it again.")
        size = _size(exported)
        if size + CARD_BYTES > MAX_BYTES:
            raise BadInput(f"{run}: {size / 2**20:.2f} MiB as int8, at most {MAX_BYTES >> 20}. Train a smaller model.")
        start = time.perf_counter()
        after = load(exported)
        seconds = time.perf_counter() - start
        scores = [Scores.measure(encoder, data, layers) for encoder in (before, after)]
        known = {
            "date": date.today().isoformat(),
            "versions": versions(),
            "commands": commands(run, layers),
            "loading, seconds": round(seconds, 2),
            "cosine": cosine(before, after, data),
            "before": asdict(scores[0]),
            "after": asdict(scores[1]),
            "text": sources,
            "languages": count_lines(opened),
        }
        write_json(exported / "provenance.json", known)
        (exported / "README.md").write_text(complete_card(exported / "README.md", known, scores), encoding="utf-8")
        size = _size(exported)
        shutil.copytree(exported, new, dirs_exist_ok=True)
    return {**known, "size": size}


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def vocabulary_without(file: Path) -> Vocabulary:
    """Remove a file of an export, and return the vocabulary of the other files."""
    file.unlink()
    info_file = file.parent / EXPORT_INFO
    info = read_json(info_file, "`crossling export` writes")
    write_json(info_file, {**info, "files": [name for name in info["files"] if name != file.name]})
    return load_vocabulary(file.parent)


def cosine(before: Encoder, after: Encoder, data: Path) -> dict[str, float]:
    """Return the cosine of sentence vectors before and after quantization, over sentences of all languages."""
    files = find_tatoeba_files(data)
    texts = [line for code in tatoeba_languages(data) for line in read(files[f"{code}-en"][0])[:COMPARED] if line]
    texts += [line for line in read(files[f"{tatoeba_languages(data)[0]}-en"][1])[:COMPARED] if line]
    first_ND, second_ND = (
        normalize_vectors(encoder.encode(texts, layer=after.universal_layer)) for encoder in (before, after)
    )
    cosine_N = np.einsum("nd,nd->n", first_ND, second_ND)
    return {"mean": round(float(cosine_N.mean()), 6), "least": round(float(cosine_N.min()), 6), "sentences": len(texts)}


def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "crossling": crossling.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def commands(run: Path, layers: int) -> list[str]:
    """Return the commands from the text to the bundled model."""
    summary = summarize_run(run)
    vocabulary = read_json(run / "vocab" / "vocab.json", "`crossling vocab` writes")["settings"]
    names = ["size", "alpha", "characters", "seed", "allocate"]
    if vocabulary["allocate"] == "vocap":
        names.append("beta")
    vocabulary_options = " ".join(f"--{name} {vocabulary[name]}" for name in names)
    recipe = f"{summary.recipe['name']} --size {summary.size}" if summary.size else "recipe.json"
    differences = "".join(f" \\\n    --set {difference}" for difference in summary.differences)
    return [
        "python experiments/bundled_model.py corpora PRETRAIN -o CORPORA --against DATA",
        f"crossling vocab CORPORA {vocabulary_options} -o VOCAB",
        "crossling tokenize CORPORA --vocab VOCAB -o SHARDS",
        f"crossling pretrain {recipe} --shards SHARDS -o RUN{differences}",
        "python experiments/bundled_model.py build --run RUN --shards SHARDS --corpora CORPORA --data DATA"
        f" --layers {layers}",
    ]


def complete_card(card: Path, known: dict[str, Any], scores: Sequence[Scores]) -> str:
    """Return the model card of the export with license, scores and training data of the bundled model."""
    text = card.read_text(encoding="utf-8")
    for exported, replacement in (
        ("# license: choose one that the training data allows", "license: apache-2.0"),
        (f'xl.load("{NAME}")  # this folder', "xl.load()  # this model"),
        ("after `import crossling`:", "after `import crossling.bundled`:"),
        (f'from_pretrained("{NAME}")', "from_pretrained(crossling.bundled.folder())"),
        (f'SentenceTransformer("{NAME}")', "SentenceTransformer(str(crossling.bundled.folder()))"),
        (
            "No scores yet.",
            "Retrieval and word alignment, before and after quantization: see Cost of quantization.",
        ),
    ):
        if exported not in text:
            raise BadInput(f"{card}: expected {exported!r} in the model card of the export. Adapt this script.")
        text = text.replace(exported, replacement)
    environment = template_environment(Path(__file__).parent, escape=False)
    before, after = (each.table() for each in scores)
    more = environment.get_template("bundled_model.md.jinja").render(
        known=known, before=before, after=after, layer=scores[1].layer, languages=scores[1].languages
    )
    return f"{text}{more}"


def read_json(file: Path, what: str) -> Any:
    """Read a file of JSON. `what` completes the message "expected a file that ..." if it cannot be read."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise BadInput(f"{file}: expected a file that {what}. Give the right folder.") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    selection = commands.add_parser("corpora", help="write the training data")
    selection.add_argument("pretrain", type=Path)
    selection.add_argument("-o", "--out", type=Path, required=True)
    selection.add_argument("--against", type=Path, help="folder of benchmarks, whose sentences are removed")
    building = commands.add_parser("build", help="write the bundled model")
    needed = {
        "run": "run folder of the model",
        "shards": "shards of the corpora",
        "corpora": "training data, written by the command corpora",
        "data": "folder of benchmarks",
    }
    for name, help_ in needed.items():
        building.add_argument(f"--{name}", type=Path, required=True, help=help_)
    building.add_argument("--layers", type=int, help="number of layers to keep [default: all]")
    building.add_argument("-o", "--out", type=Path, default=bundled.FOLDER)
    options = parser.parse_args()
    try:
        if options.command == "corpora":
            print_sources(write_corpora(options.pretrain, options.out, options.against))
            return
        known = build(options.run, options.shards, options.corpora, options.data, options.out, options.layers)
    except BadInput as error:
        parser.exit(2, f"bundled_model: {error}\n")
    print((options.out / "README.md").read_text(encoding="utf-8"))
    print(f"{options.out}: {known['size'] / 2**20:.2f} MiB, loaded in {known['loading, seconds']} s")


if __name__ == "__main__":
    main()
