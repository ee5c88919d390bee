"""Parallel text that anything that learns can learn: each word has its own translation, at its own place."""

from __future__ import annotations

import random
from pathlib import Path

from transfer.toys import WORDS

OTHER = dict(zip(WORDS, [*WORDS[5:], *WORDS[:5]], strict=True))  # the word in the other language


def translated(sentence: str) -> str:
    return " ".join(OTHER[word] for word in sentence.split())


def write_parallel(folder: Path, splits: dict[str, int], languages: tuple[str, str] = ("en", "de")) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in splits.items():
        rng = random.Random(split)
        sentences = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 5))) for _ in range(size)]
        for language, text in zip(languages, (sentences, map(translated, sentences)), strict=True):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return folder
