"""How a data set is usually trained on: one setting, and the settings the papers searched."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product


@dataclass(frozen=True)
class Hyper:
    """One setting of fine-tuning."""

    lr: float
    epochs: float
    batch: int
    length: int  # tokens
    warmup: float = 0.0  # below 1 a share of the steps, from 1 on a number of steps
    weight_decay: float = 0.0
    stride: int = 128  # from here on for question answering: tokens between the starts of two windows on a long text
    query: int = 64  # tokens of the question
    answer: int = 30  # tokens
    n_best: int = 20


@dataclass(frozen=True)
class Grid:
    """What a paper searched; an empty axis is not searched."""

    source: str  # paper and table
    lr: tuple[float, ...]
    epochs: tuple[float, ...] = ()
    batch: tuple[int, ...] = ()
    length: tuple[int, ...] = ()
    warmup: tuple[float, ...] = ()
    weight_decay: tuple[float, ...] = ()

    def points(self, base: Hyper) -> list[Hyper]:
        """Every combination, the rest as in `base`."""
        axes = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "source"}
        searched = {name: values for name, values in axes.items() if values}
        return [replace(base, **dict(zip(searched, point, strict=True))) for point in product(*searched.values())]
