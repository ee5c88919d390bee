"""Parallel text that a tiny model can learn: each word has one translation, at the same position."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from crossling.corpora.corpus import MultiwayCorpus
from crossling.finetune.finetune import finetune
from crossling.finetune.translation.parallel_text import Direction, ParallelText

from ..tiny_tasks import WORDS

OTHER = dict(zip(WORDS, [*WORDS[5:], *WORDS[:5]], strict=True))  # translation of each word
QUICK: dict[str, Any] = {"lr": 5e-3, "tokens": 256, "steps": 60, "checkpoint_every": 20, "dropout": 0.0}
SHORT: dict[str, Any] = {**QUICK, "steps": 6, "checkpoint_every": 2, "log_every": 1, "dev_rows": 4, "beam": 1}


def translate_words(sentence: str) -> str:
    return " ".join(OTHER[word] for word in sentence.split())


def write_parallel(folder: Path, splits: dict[str, int], languages: tuple[str, str] = ("en", "de")) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in splits.items():
        rng = random.Random(split)
        sentences = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 5))) for _ in range(size)]
        for language, text in zip(languages, (sentences, map(translate_words, sentences)), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return folder


def train_short(encoder: str | Path, data: Path, out: Path, **changes: Any) -> list[dict[str, Any]]:
    """Train a translator of both directions for a few steps."""
    return finetune(encoder, "translation", data, out, **{"directions": "en-de,de-en", **SHORT, **changes})


def training_rows(text: ParallelText, direction: Direction) -> list[tuple[str, str]]:
    """Return the training rows of a direction in all corpora."""
    rows: list[tuple[str, str]] = []
    for corpus in text.train:
        if isinstance(corpus, MultiwayCorpus):
            sides = zip(corpus.lines(direction.source), corpus.lines(direction.target), strict=True)
            rows += [row for row in sides if all(row)]
        elif {*corpus.languages} == {direction.source, direction.target}:
            order = 1 if corpus.languages[0] == direction.source else -1
            rows += [row[::order] for row in corpus.rows()]  # type: ignore[misc]
    return rows
