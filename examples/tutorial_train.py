"""From text in five formats to a model on disk: the tutorial "Train on a laptop" in Python.

    python examples/tutorial_train.py -o laptop --steps 300

The script lays files into a corpora folder, cleans them, and trains a vocabulary and a tiny encoder. Then it evaluates
the model on held-out pairs, aligns the words of a pair and exports a Hugging Face folder.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from tutorial_files import HELD_OUT, write_files

import crossling as xl

# Where each file goes. The name gives the languages; the suffix gives the format.
LAYOUT = {
    "english.txt": "text/en.txt",
    "icelandic.txt": "text/is.txt",
    "german.jsonl": "text/de.jsonl",
    "phrases.tsv": "pairs/phrases.en-is.tsv",
    "subtitles.en": "pairs/subtitles.de-en.en",
    "subtitles.de": "pairs/subtitles.de-en.de",
    "memory.tmx": "pairs/memory.de-en.tmx",
}
TEST_LAYOUT = {
    "test.en-de.de": "tatoeba.deu-eng.deu",
    "test.en-de.en": "tatoeba.deu-eng.eng",
    "test.en-is.is": "tatoeba.isl-eng.isl",
    "test.en-is.en": "tatoeba.isl-eng.eng",
}


def lay_out(files: Path, corpora: Path, data: Path) -> None:
    """Copy files into a corpora folder, and the held-out pairs into a benchmark folder."""
    targets = {files / name: corpora / path for name, path in LAYOUT.items()}
    targets |= {files / name: data / "tatoeba" / "v1" / path for name, path in TEST_LAYOUT.items()}
    for source, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def train(corpora: Path, data: Path, out: Path, *, steps: int, vocabulary: int, settings: Sequence[str] = ()) -> Path:
    """Clean, tokenize and pre-train. Return the run.

    Args:
        corpora: Folder with text/ and pairs/.
        data: Benchmark folder whose sentences are removed from the text.
        out: Folder for everything that is written.
        steps: Training steps.
        vocabulary: Vocabulary size.
        settings: Further `key=value` settings of the recipe.
    """
    rules = xl.Rules(length=(2, 1000), duplicates=True, copies=True, language=True, ratio=4.0, against=data)
    xl.clean(corpora, out / "cleaned", rules)
    xl.vocab(out / "cleaned", out / "vocab", size=vocabulary)
    shards = xl.tokenize(out / "cleaned", out / "vocab", out / "shards")
    recipe = xl.recipes.rosetta("tiny").set([f"steps={steps}", "xlco.pairs=128", *settings])
    for pair, epochs in xl.plan(recipe, shards).dump()["epochs"]["pairs"].items():
        print(f"{pair}: {epochs:.1f} epochs")
    xl.pretrain(recipe, shards, out / "run", probe=data)
    return out / "run"


def retrieval(model: xl.Encoder, data: Path, out: Path) -> dict[str, float]:
    """Return the retrieval accuracy of each language at the universal layer, both directions averaged."""
    rows = xl.evaluate(model, "tatoeba", data, out)
    chosen = [row for row in rows if row["protocol"] == "sweep" and row["layer"] == model.universal_layer]
    languages = sorted({row["language"] for row in chosen})
    return {name: fmean(row["value"] for row in chosen if row["language"] == name) for name in languages}


def main() -> None:
    """Run the tutorial and print the scores."""
    parser = argparse.ArgumentParser(description="Train a small model on the shipped text.")
    parser.add_argument("-o", "--out", type=Path, required=True, help="Folder to write.")
    parser.add_argument("--steps", type=int, default=300, help="Training steps. [default: 300]")
    parser.add_argument("--vocabulary", type=int, default=8000, help="Vocabulary size. [default: 8000]")
    parser.add_argument("--limit", type=int, help="Pairs of each language. [default: all]")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help=f"Test pairs. [default: {HELD_OUT}]")
    parser.add_argument("--set", action="append", default=[], help="Setting of the recipe, as lr=1e-3. Repeatable.")
    arguments = parser.parse_args()
    out: Path = arguments.out
    write_files(out / "files", limit=arguments.limit, held_out=arguments.held_out)
    lay_out(out / "files", out / "corpora", out / "data")
    sizes = {"steps": arguments.steps, "vocabulary": arguments.vocabulary}
    run = train(out / "corpora", out / "data", out, **sizes, settings=arguments.set)
    model = xl.load(run)
    for language, accuracy in retrieval(model, out / "data", run).items():
        print(f"{language}: retrieval {accuracy:.1f}%")
    print(model.align("I am reading a book .", "Ich lese ein Buch ."))
    print(f"model in {xl.export(run, out / 'exported', standalone=True)}")


if __name__ == "__main__":
    main()
