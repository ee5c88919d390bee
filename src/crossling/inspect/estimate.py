"""Memory and days of a recipe on some cards, and of the sizes the papers trained beside what these say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from crossling.hardware import Card
from crossling.inspect.memory import Memory, fitted, memory
from crossling.inspect.pace import tokens_per_second
from crossling.inspect.papers import said
from crossling.objectives import Network
from crossling.recipe import Recipe
from crossling.recipe.cost import Load, flops_per_token, network, parameters, tokens
from crossling.recipe.recipe import OBJECTIVES
from crossling.recipes import RECIPES, has_size

PUBLISHED = ("base", "large", "xl")
Loads = Callable[[Recipe], Mapping[str, Load]]


@dataclass(frozen=True)
class Estimate:
    card: Card
    gpus: int
    memory: Memory  # of each GPU
    tokens_per_second: float  # of all of them
    days: float

    @property
    def cards(self) -> str:
        return f"{self.gpus} x {self.card.name}"

    def dump(self) -> dict[str, Any]:
        return {
            "gpu": self.card.name,
            "gpus": self.gpus,
            "memory_gib": self.memory.gib,
            "fits": self.memory.fits(self.card),
            "sharded": self.memory.sharded,
            "tokens_per_second": self.tokens_per_second,
            "days": self.days,
        }


def estimate(recipe: Recipe, net: Network, loads: Mapping[str, Load], card: Card, gpus: int = 1) -> Estimate:
    speed = tokens_per_second(recipe, flops_per_token(recipe, net, loads)["full"], card, gpus)
    needed = memory(recipe, net, loads, card, gpus)
    return Estimate(card, gpus, needed, speed, tokens(recipe, loads) / speed / 86_400)


@dataclass(frozen=True)
class Published:
    """A size as its paper trained it, on our cards."""

    size: str
    parameters: int
    recipe: Recipe  # computing at once what fits
    estimate: Estimate
    flops: dict[str, float]  # of the whole run, in both conventions
    paper: str  # its hardware, time and operations, as told

    def dump(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "parameters": self.parameters,
            "micro_tokens": self.recipe.micro_tokens,
            "recompute": self.recipe.recompute,
            **self.estimate.dump(),
            "flops": self.flops,
            "paper": self.paper,
        }


def published(recipe: Recipe, loads: Loads, vocabulary: int, card: Card, gpus: int = 1) -> Iterator[Published]:
    """Base, Large and XL of a recipe, with its objectives. Nothing where it has some that the papers' has not."""
    off = dict.fromkeys(name for name in OBJECTIVES if name not in recipe.objectives)
    for size in PUBLISHED:
        if recipe.name not in RECIPES or not has_size(recipe.name, size):
            continue
        own = RECIPES[recipe.name](size).but(**off)
        if {*own.objectives} != {*recipe.objectives}:
            continue
        net, read = network(own, vocabulary), loads(own)
        own = fitted(own, net, read, card, gpus) or own.but(recompute=True, micro_tokens=own.model.max_length)
        flops = {kind: each * tokens(own, read) for kind, each in flops_per_token(own, net, read).items()}
        size_of = sum(parameters(net).values())
        yield Published(size, size_of, own, estimate(own, net, read, card, gpus), flops, said(recipe.name, size))
