"""Adapt an encoder to a language with a little text and bitext, and keep the other languages alive.

    python examples/adapt_encoder.py --model xlm-roberta-base --corpora CORPORA --language si --data DATA -o adapted

CORPORA holds text and bitext of the language and of the languages to keep (docs/reference/formats.md). DATA holds
Tatoeba files. The script extends the vocabulary, continues training with contrastive learning and replay, scores
retrieval before and after, and writes a Hugging Face folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

import crossling as xl


def adapt(
    model: str,
    corpora: Path,
    language: str,
    out: Path,
    *,
    steps: int = 1000,
    new_entries: int = 2000,
    settings: tuple[str, ...] = (),
) -> Path:
    """Continue training `model` on `corpora` with a focus on `language`, and return the exported folder.

    Args:
        model: Run, exported folder, Hugging Face encoder, or `bundled`.
        corpora: Text and bitext.
        language: Language to adapt to; the others are replayed.
        out: Folder for vocabulary, shards, run and export.
        steps: Training steps.
        new_entries: Vocabulary entries to add.
        settings: Further `key=value` settings of the recipe.
    """
    source = xl.Corpora(corpora)
    size = xl.vocab(source, out / "old-vocab", from_=model).size
    xl.vocab(source, out / "vocab", size=size + new_entries, from_=model, extend=True)
    shards = xl.tokenize(source, out / "vocab", out / "shards")
    initial = xl.InitialModel.load(model)
    recipe = xl.recipes.adapt_recipe(
        "infoxlm",
        initial,
        assignments=[
            *(f"steps={steps}", "optimizer.warmup=0.1", f"sampling.focus={language}", "sampling.replay=0.3"),
            *settings,
        ],
    )
    xl.pretrain(recipe, shards, out / "run", init=initial)
    return xl.export(out / "run", out / "adapted")


def retrieval(model: str | Path, data: Path, language: str) -> float:
    """Return the Tatoeba accuracy of the universal layer, both directions averaged."""
    encoder = xl.load(model)
    rows = xl.evaluate(encoder, "tatoeba", data, languages=[language])
    return fmean(row["value"] for row in rows if row.get("layer") == encoder.universal_layer)


def main() -> None:
    """Adapt a model and print retrieval before and after."""
    parser = argparse.ArgumentParser(description="Adapt an encoder to a language.")
    parser.add_argument("--model", default="bundled", help="Model to adapt. [default: bundled]")
    parser.add_argument("--corpora", type=Path, required=True, help="Text and bitext.")
    parser.add_argument("--language", required=True, help="Language to adapt to.")
    parser.add_argument("--data", type=Path, required=True, help="Benchmark data with tatoeba/.")
    parser.add_argument("--steps", type=int, default=1000, help="Training steps. [default: 1000]")
    parser.add_argument("-o", "--out", type=Path, required=True, help="Folder to write.")
    arguments = parser.parse_args()
    before = retrieval(arguments.model, arguments.data, arguments.language)
    adapted = adapt(arguments.model, arguments.corpora, arguments.language, arguments.out, steps=arguments.steps)
    after = retrieval(adapted, arguments.data, arguments.language)
    print(f"{arguments.language}: retrieval {before:.1f} -> {after:.1f}, model in {adapted}")


if __name__ == "__main__":
    main()
