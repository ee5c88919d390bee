"""How fast a recipe trains: its operations, over what the cards were measured to reach.

    tokens/s = GPUs x peak x MFU / (FLOPs a token, `full`) x 3/4 where activations are computed again

MFU, the share of the vendor's peak, is measured (measured.json: whole steps of our own trainer) and read at the width
of the encoder: between two measured widths in proportion to the logarithm of the width, outside as at the nearest.
Narrow networks keep a card less busy; depth changes little. Another card is taken to reach the same share of its peak,
and several GPUs to wait for nothing: docs/scaling.md says where that ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path

from crossling.hardware import CARDS, Card
from crossling.recipe import Recipe

FILE = Path(__file__).with_name("measured.json")
RECOMPUTED = 4 / 3  # forwards twice, backwards once: what the card does more than the model asks


@dataclass(frozen=True)
class Measured:
    """One run of the trainer on one card."""

    date: str
    gpu: str  # a name of `hardware.CARDS`
    recipe: str
    width: int
    micro_tokens: int
    recompute: bool
    flops_per_token: float
    tokens_per_second: float
    peak_gib: float | None

    @property
    def mfu(self) -> float:
        return self.tokens_per_second * self.flops_per_token / CARDS[self.gpu].peak


@cache
def measured() -> list[Measured]:
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    return [Measured(**{field.name: row[field.name] for field in fields(Measured)}) for row in rows]


def mfu(recipe: Recipe, runs: Sequence[Measured] | None = None) -> float:
    """Of each width the fastest run, whatever it learned; nothing computed twice."""
    runs = [run for run in (measured() if runs is None else runs) if not run.recompute]
    best: dict[int, float] = {}
    for run in runs:
        best[run.width] = max(best.get(run.width, 0.0), run.mfu)
    points = sorted((math.log(width), share) for width, share in best.items())
    at = math.log(recipe.model.width)
    for (low, first), (high, second) in pairwise(points):
        if low <= at <= high:
            return first + (second - first) * (at - low) / (high - low)
    return points[0][1] if at < points[0][0] else points[-1][1]


def tokens_per_second(recipe: Recipe, flops_per_token: float, card: Card, gpus: int) -> float:
    """Of all GPUs together."""
    done = flops_per_token * (RECOMPUTED if recipe.recompute else 1)
    return gpus * card.peak * mfu(recipe) / done
