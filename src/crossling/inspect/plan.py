"""All that can be said of a run before it starts, as one value; the tables and the page only show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossling.data.shards import Shards
from crossling.inspect import draws
from crossling.inspect.cost import Load, flops_per_token, network, parameters
from crossling.inspect.draws import Drawn, spelled
from crossling.recipe import Recipe
from crossling.sampling import Pair


@dataclass(frozen=True)
class Plan:
    recipe: Recipe
    parameters: dict[str, int]  # by part
    flops_per_token: dict[str, float]
    loads: dict[str, Load]  # by objective
    text: Drawn[str] | None
    pairs: Drawn[Pair] | None  # under the rule of the recipe; also none where that rule cannot be had
    rules: dict[str, Drawn[Pair] | str]  # under every rule, or why not

    @property
    def tokens_per_step(self) -> float:
        """On average, where text and pairs take turns."""
        of = {name: self.recipe.turns(objective.stream) for name, objective in self.recipe.objectives.items()}
        return sum(load.tokens * of[name] for name, load in self.loads.items()) / self.recipe.steps

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
            "examples_per_step": {name: load.examples for name, load in self.loads.items()},
            "counts": {s: {spelled(key): n for key, n in drawn.counts.items()} for s, drawn in there.items()},
            "rates": {stream: drawn.dump()["rates"] for stream, drawn in there.items()},
            "epochs": {stream: drawn.dump()["epochs"] for stream, drawn in there.items()},
            "rules": {
                rule: {"cannot": drawn} if isinstance(drawn, str) else drawn.dump()
                for rule, drawn in self.rules.items()
            },
        }


def plan(recipe: Recipe, shards: Shards) -> Plan:
    """What the recipe would do with the shards."""
    recipe.check()
    text, rules = draws.text(recipe, shards), draws.pairs_by_rule(recipe, shards)
    rule = recipe.sampling.pair_rule
    strict, relaxed = rules.get(rule), rules.get(f"{rule} relaxed")
    pairs = strict if isinstance(strict, Drawn) else relaxed
    assert pairs is None or isinstance(pairs, Drawn)  # relaxed, every rule can be had
    loads = {**(text.loads if text else {}), **(pairs.loads if pairs else {})}
    net = network(recipe, shards.vocabulary_size)
    return Plan(
        recipe,
        parameters(net),
        flops_per_token(recipe, net, loads),
        {name: loads[name] for name in recipe.objectives},
        text,
        pairs if pairs is strict or recipe.sampling.relax else None,
        rules,
    )
