"""Shards by their manifest alone, and a small recipe."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from crossling.planning.plan_page import DOWNSTREAM
from crossling.recipes import xlm_e
from crossling.recipes.recipe import Recipe
from crossling.sampling import Pair

WORKED = {("de", "en"): 800, ("en", "sw"): 40, ("en", "ta"): 60, ("de", "sw"): 10, ("de", "ta"): 20, ("sw", "ta"): 2}
STAR = {pair: n for pair, n in WORKED.items() if "en" in pair}
TEXT = {"en": 1_000_000, "de": 400_000, "sw": 30_000}


def shards_of(counts: dict[Pair, int], text: dict[str, int] | None = None) -> Any:
    """Return shards by their manifest: sentences of ten tokens, documents of a hundred sentences."""
    pairs = {
        f"opus.{a}-{b}": {"languages": [a, b], "pairs": n, "tokens": [10 * n, 10 * n]} for (a, b), n in counts.items()
    }
    entries = {
        language: {"tokens": n, "sentences": n // 10, "documents": max(1, n // 1000)}
        for language, n in (TEXT if text is None else text).items()
    }
    bitexts = [SimpleNamespace(corpus=f"opus.{a}-{b}", languages=(a, b), pairs=n) for (a, b), n in counts.items()]
    manifest = {"text": entries, "pairs": pairs, "multi": {}}
    return SimpleNamespace(path=Path("shards"), manifest=manifest, bitexts=bitexts, vocabulary_size=1000)


def hundred_languages() -> tuple[dict[Pair, int], dict[str, int]]:
    """Return sentence pairs and tokens of 100 languages of very different sizes, with all 4,950 pairs."""
    rng = np.random.default_rng(0)
    languages = sorted([*DOWNSTREAM, *(f"x{i:02}" for i in range(79))])
    size = dict(zip(languages, rng.normal(0, 1.5, len(languages)), strict=True))
    pairs = {(a, b): 50 + int(np.exp(8 + size[a] + size[b])) for a, b in combinations(languages, 2)}
    return pairs, {code: int(np.exp(13 + each)) for code, each in size.items()}


def recipe(*assignments: str) -> Recipe:
    return xlm_e("tiny").set(["steps=100", "sampling.pair_alpha=0.2", *assignments])
