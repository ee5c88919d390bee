"""Adapt the bundled model to Icelandic from messy files: the tutorial "Adapt an encoder" in Python.

    python examples/tutorial_adapt.py -o icelandic --steps 150

The script cleans the files, extends the vocabulary for the new language alone and prints the epochs of the plan. It
trains with replay of German and English, and prints retrieval before and after by language. `adapt_encoder.py` is the
short form for corpora that are clean.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from adapt_encoder import retrieval
from tutorial_files import HELD_OUT, write_messy_files

import crossling as xl

LANGUAGE = "is"
MAX_EPOCHS = 40.0  # reading a small corpus more often than this hardly helps


def lay_out(files: Path, corpora: Path, data: Path) -> None:
    """Copy the messy files into a corpora folder and the held-out pairs into a benchmark folder."""
    tests = data / "tatoeba" / "v1"
    for folder in (corpora / "text", corpora / "pairs", tests):
        folder.mkdir(parents=True, exist_ok=True)
    rows = (files / "spreadsheet.tsv").read_text(encoding="utf-8").split("\n")
    (corpora / "pairs" / "sheet.en-is.tsv").write_text("\n".join(rows[1:]), encoding="utf-8")  # without the header
    shutil.copy(files / "german.tsv", corpora / "pairs" / "en-de.tsv")
    for name, code in (("crawl", "is"), ("english", "en"), ("german", "de")):
        shutil.copy(files / f"{name}.txt", corpora / "text" / f"{code}.txt")
    for code, long_code in (("is", "isl"), ("de", "deu")):
        shutil.copy(files / f"test.en-{code}.en", tests / f"tatoeba.{long_code}-eng.eng")
        shutil.copy(files / f"test.en-{code}.{code}", tests / f"tatoeba.{long_code}-eng.{long_code}")


def prepare(model: str, corpora: Path, data: Path, out: Path, *, new_entries: int) -> xl.Shards:
    """Clean the corpora, extend the vocabulary of the model for the new language, and tokenize."""
    rules = xl.Rules(language=True, copies=True, duplicates=True, near_duplicates=True, against=data)
    xl.clean(corpora, out / "cleaned", rules)
    # New entries are for the new language only: the languages to keep have theirs.
    only = out / "only" / "text"
    only.mkdir(parents=True, exist_ok=True)
    shutil.copy(out / "cleaned" / "text" / f"{LANGUAGE}.txt.gz", only)
    size = xl.vocab(only.parent, out / "old-vocab", from_=model).size
    xl.vocab(only.parent, out / "vocab", size=size + new_entries, from_=model, extend=True)
    return xl.tokenize(out / "cleaned", out / "vocab", out / "shards")


def adapt(model: str, shards: xl.Shards, data: Path, out: Path, *, steps: int, settings: Sequence[str] = ()) -> Path:
    """Continue training with a focus on the new language, and return the run.

    Args:
        model: Model to adapt.
        shards: Text and bitext of the new language and of the languages to keep.
        data: Benchmark folder for retrieval by language while training.
        out: Folder for the run.
        steps: Training steps.
        settings: Further `key=value` settings of the recipe.
    """
    initial = xl.InitialModel.load(model)
    sizes = ("xlco.pairs=64", "mlm.tokens=256", "tlm.tokens=256")
    learning = (f"steps={steps}", f"optimizer.warmup={max(1, steps // 10)}", "lr=1e-3")
    focus = (f"sampling.focus={LANGUAGE}", "sampling.replay=0.3")
    recipe = xl.recipes.adapt_recipe("rosetta", initial, "small", [*sizes, *learning, *focus, *settings])
    for pair, epochs in xl.plan(recipe, shards).dump()["epochs"]["pairs"].items():
        print(f"{pair}: {epochs:.1f} epochs" + (", too many: lower the steps" if epochs > MAX_EPOCHS else ""))
    xl.pretrain(recipe, shards, out / "run", init=initial, probe=data)
    return out / "run"


def main() -> None:
    """Adapt the model, and print retrieval before and after."""
    parser = argparse.ArgumentParser(description="Adapt an encoder to Icelandic.")
    parser.add_argument("-o", "--out", type=Path, required=True, help="Folder to write.")
    parser.add_argument("--model", default="bundled", help="Model to adapt. [default: bundled]")
    parser.add_argument("--steps", type=int, default=150, help="Training steps. [default: 150]")
    parser.add_argument("--new-entries", type=int, default=2000, help="Vocabulary entries to add. [default: 2000]")
    parser.add_argument("--limit", type=int, help="Pairs of each language. [default: all]")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help=f"Test pairs. [default: {HELD_OUT}]")
    parser.add_argument("--set", action="append", default=[], help="Setting of the recipe, as lr=5e-4. Repeatable.")
    arguments = parser.parse_args()
    out: Path = arguments.out
    data = out / "data"
    write_messy_files(out / "files", limit=arguments.limit, held_out=arguments.held_out)
    lay_out(out / "files", out / "corpora", data)
    shards = prepare(arguments.model, out / "corpora", data, out, new_entries=arguments.new_entries)
    run = adapt(arguments.model, shards, data, out, steps=arguments.steps, settings=arguments.set)
    exported = xl.export(run, out / "adapted")
    for language in ("is", "de"):
        before, after = (retrieval(each, data, language) for each in (arguments.model, exported))
        print(f"{language}: retrieval {before:.1f} -> {after:.1f}")
    print(f"model in {exported}")


if __name__ == "__main__":
    main()
