"""Fine-tune sentence vectors with crossling and with Sentence Transformers: the same data, model, loss and budget.

    python experiments/embedding.py [--pairs de-lt] [--steps 38] [--seeds 1] [--results experiments/results]

CROSSLING_DATA names the folder with `pretrain/`. The pairs are those of Tatoeba, 500 of which are the dev set. The
model is the bundled one, which does not know Lithuanian. Three ways are compared: Sentence Transformers' trainer with
the multiple negatives ranking loss, crossling with the same loss, and crossling with mined hard negatives. All are
scored at the last step, by the same function. Needs the package `accelerate`. Writes DATE-embedding.json.
"""

from __future__ import annotations

import argparse
import lzma
import os
import random
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import crossling as xl
from crossling import bundled
from crossling.core.files import write_json
from crossling.core.hardware import cpu_name
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePairs, read_sentence_pairs
from crossling.finetune.sentence_vectors.vector_scores import score_pairs

DEV_PAIRS, BATCH, LR, WARMUP = 500, 64, 2e-4, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", default="de-lt")
    parser.add_argument("--steps", type=int, default=38)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--systems", nargs="*", default=[*SYSTEMS], choices=[*SYSTEMS])
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    root = Path(os.environ["CROSSLING_DATA"]) / "pretrain" / "pairs"
    with TemporaryDirectory() as folder:
        train, dev = write_files(root, options.pairs, Path(folder))
        pairs = read_sentence_pairs(dev)
        rows: list[dict[str, Any]] = [{"system": "before training", **score(bundled.folder(), pairs)}]
        for seed in range(options.seeds):
            for system in options.systems:
                started = time.perf_counter()
                out = SYSTEMS[system](train, dev, Path(folder) / f"{system}-{seed}", options.steps, seed)
                seconds = round(time.perf_counter() - started, 1)
                rows.append({"system": system, "seed": seed, "seconds": seconds, **score(out, pairs)})
                print(rows[-1], flush=True)
    settings = {"pairs": options.pairs, "steps": options.steps, "batch": BATCH, "lr": LR, "dev": DEV_PAIRS}
    command = f"python experiments/embedding.py --pairs {options.pairs} --steps {options.steps} --seeds {options.seeds}"
    file = options.results / f"{date.today()}-embedding.json"
    write_json(file, {"device": cpu_name(), "command": command, "settings": settings, "rows": rows})
    print(file)


def write_files(root: Path, pair: str, folder: Path) -> tuple[Path, Path]:
    """Write training and dev pairs. No text of the dev set is in the training set."""
    first, second = pair.split("-")
    files = [root / f"tatoeba.{pair}.{code}.xz" for code in (second, first)]
    sides = [lzma.decompress(file.read_bytes()).decode().split("\n") for file in files]
    rows = [(one.strip(), other.strip()) for one, other in zip(*sides, strict=True) if one.strip() and other.strip()]
    random.Random(0).shuffle(rows)
    dev = rows[:DEV_PAIRS]
    known = {text for row in dev for text in row}
    train = [row for row in rows[DEV_PAIRS:] if known.isdisjoint(row)]
    written = folder / f"train.{pair}.tsv", folder / f"dev.{pair}.tsv"
    for file, own in zip(written, (train, dev), strict=True):
        file.write_text("".join(f"{one}\t{other}\n" for one, other in [("query", "answer"), *own]), encoding="utf-8")
    return written


def score(model: Path, pairs: SentencePairs) -> dict[str, Any]:
    """Return the scores of both directions."""
    found = score_pairs(xl.load(model), pairs)
    return {f"{each.direction} {name}": round(value, 1) for each in found for name, value in each.values.items()}


def train_crossling(train: Path, dev: Path, out: Path, steps: int, seed: int, negatives: int = 0) -> Path:
    """Train with crossling."""
    options = {"batch": BATCH, "lr": LR, "warmup": WARMUP, "steps": steps, "checkpoint_every": steps, "seed": seed}
    options |= {"hard_negatives": negatives}
    xl.finetune("bundled", type="embedding", train=train, dev=dev, out=out, **options)  # type: ignore[arg-type]
    return out


def train_with_negatives(train: Path, dev: Path, out: Path, steps: int, seed: int) -> Path:
    """Train with one mined hard negative for each pair."""
    return train_crossling(train, dev, out, steps, seed, negatives=1)


def train_library(train: Path, _: Path, out: Path, steps: int, seed: int) -> Path:
    """Train with Sentence Transformers."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.training_args import BatchSamplers

    model = SentenceTransformer(str(bundled.folder()), device="cpu")
    rows = read_sentence_pairs(train).rows
    data = Dataset.from_dict({"anchor": [row.anchor for row in rows], "positive": [row.positive for row in rows]})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(out),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        learning_rate=LR,
        warmup_steps=round(WARMUP * steps),
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        seed=seed,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=data, loss=MultipleNegativesRankingLoss(model)
    ).train()
    model.save(str(out / "model"))
    return out / "model"


SYSTEMS: dict[str, Callable[[Path, Path, Path, int, int], Path]] = {
    "Sentence Transformers": train_library,
    "crossling": train_crossling,
    "crossling, hard negatives": train_with_negatives,
}


if __name__ == "__main__":
    main()
