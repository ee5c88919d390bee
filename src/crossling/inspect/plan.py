"""All that can be said of a run before it starts, as one value; the tables and the page only show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossling.data.rates import most_paired
from crossling.data.shards import Shards
from crossling.hardware import Card
from crossling.inspect import draws
from crossling.inspect.draws import Drawn, spelled
from crossling.inspect.estimate import Estimate, Published, estimate, published
from crossling.recipe import Recipe
from crossling.recipe.cost import Load, flops_per_token, network, parameters, tokens
from crossling.sampling import MOST, Pair


@dataclass(frozen=True)
class Plan:
    recipe: Recipe
    parameters: dict[str, int]  # by part
    flops_per_token: dict[str, float]
    loads: dict[str, Load]  # by objective
    text: Drawn[str] | None
    pairs: Drawn[Pair] | None  # under the rule of the recipe; also none where that rule cannot be had
    rules: dict[str, Drawn[Pair] | str]  # under every rule, or why not
    estimate: Estimate
    published: list[Published]  # the sizes of the recipe's paper, on the same cards

    @property
    def tokens_per_step(self) -> float:
        """On average, where text and pairs take turns."""
        return tokens(self.recipe, self.loads) / self.recipe.steps

    @property
    def wanted_pairs(self) -> str:
        """Which pairs are used, in words."""
        sampling = self.recipe.sampling
        if sampling.pivot != MOST or self.pairs is None:
            return sampling.wanted_pairs
        return f"{sampling.wanted_pairs}, {most_paired(self.pairs.counts)},"

    def dump(self) -> dict[str, Any]:
        """What `--json` prints."""
        streams: dict[str, Drawn[Any] | None] = {"text": self.text, "pairs": self.pairs}
        there = {stream: drawn for stream, drawn in streams.items() if drawn is not None}
        return {
            "recipe": self.recipe.dump(),
            "parameters": sum(self.parameters.values()),
            "parameters_by_part": self.parameters,
            "flops_per_token": self.flops_per_token,
            "tokens_per_step": self.tokens_per_step,
            **self.estimate.dump(),
            "published": [each.dump() for each in self.published],
            "examples_per_step": {name: load.examples for name, load in self.loads.items()},
            "counts": {s: {spelled(key): n for key, n in drawn.counts.items()} for s, drawn in there.items()},
            "rates": {stream: drawn.dump()["rates"] for stream, drawn in there.items()},
            "epochs": {stream: drawn.dump()["epochs"] for stream, drawn in there.items()},
            "rules": {
                rule: {"cannot": drawn} if isinstance(drawn, str) else drawn.dump()
                for rule, drawn in self.rules.items()
            },
        }


def plan(recipe: Recipe, shards: Shards, card: Card, gpus: int = 1) -> Plan:
    """What the recipe would do with the shards on these cards."""
    recipe.check()
    text, rules = draws.text(recipe, shards), draws.pairs_by_rule(recipe, shards)
    rule = recipe.sampling.pair_rule
    strict, relaxed = rules.get(rule), rules.get(f"{rule} relaxed")
    pairs = strict if isinstance(strict, Drawn) else relaxed
    assert pairs is None or isinstance(pairs, Drawn)  # relaxed, every rule can be had
    loads = {**(text.loads if text else {}), **(pairs.loads if pairs else {})}
    loads = {name: loads[name] for name in recipe.objectives}
    net = network(recipe, shards.vocabulary_size)
    others = published(
        recipe, lambda other: draws.loads(other, shards, text, pairs), shards.vocabulary_size, card, gpus
    )
    return Plan(
        recipe,
        parameters(net),
        flops_per_token(recipe, net, loads),
        loads,
        text,
        pairs if pairs is strict or recipe.sampling.relax else None,
        rules,
        estimate(recipe, net, loads, card, gpus),
        [*others],
    )
