"""A recipe: everything that decides a pre-training run.

A recipe is a frozen value. A variation is a visible difference: `xlm_e("base").but(steps=10_000)` in Python,
`--set steps=10000 --set trtd=off` on the command line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from crossling import settings
from crossling.data.batches import MULTIPLE
from crossling.errors import BadInput
from crossling.model.shape import Shape
from crossling.objectives import CAMLM, CATLM, MLM, MRTD, TLM, TRTD, Objective, XLCo
from crossling.sampling import DRO, Sampling
from crossling.train.optimizer import Adam
from crossling.train.parallel import Parallel
from crossling.train.step import Reduction

OBJECTIVES = ("mlm", "tlm", "mrtd", "trtd", "xlco", "ca_mlm", "ca_tlm")

# What the types of the settings leave open, by the last part of the key.
AT_LEAST = {
    **dict.fromkeys(("steps", "checkpoint_every", "log_every", "micro_tokens", "tokens"), 1),
    **dict.fromkeys(("layers", "width", "heads", "feed_forward", "generator_layers", "max_length"), 1),
    **dict.fromkeys(("seed", "warmup", "decay", "lambda", "weight", "init", "freeze_steps", "queue"), 0),
    **{"times": 1, "rho": 0},
    **dict.fromkeys(("sequences", "span"), 1),
    "pairs": 2,  # a lone pair has no negatives
    "length": MULTIPLE,
}
MORE_THAN_0 = ("lr", "generator_rate", "clip", "epsilon", "norm_epsilon", "temperature")
SHARES = ("rate", "keep", "random", "text_alpha", "pair_alpha", "replay", "floor")  # 0 to 1
BELOW_1 = ("dropout", "attention_dropout", "beta1", "beta2", "momentum")  # from 0


@dataclass(frozen=True)
class Recipe:
    name: str
    model: Shape
    sampling: Sampling
    optimizer: Adam
    lr: float  # peak
    steps: int
    # The objectives; none = not used. MRTD and TRTD bring MLM and TLM of their generator along.
    mlm: MLM | None = None
    tlm: TLM | None = None
    mrtd: MRTD | None = None
    trtd: TRTD | None = None
    xlco: XLCo | None = None
    ca_mlm: CAMLM | None = None
    ca_tlm: CATLM | None = None
    dro: DRO | None = None  # bitext is drawn anew as the run goes on, by the losses of each corpus and pair
    reduction: Reduction = "mean"  # of each term by its own count, or token_sum: of all by the sum of their counts
    alternate: bool = False  # text on even steps and pairs on odd ones; else both on each
    freeze_steps: int = 0  # started from a model: for so many steps only its new cross-attention learns
    seed: int = 0
    checkpoint_every: int = 1000
    log_every: int = 50
    micro_tokens: int = 65_536  # computed at once: a matter of memory; without dropout it changes no result
    recompute: bool = False  # activations are computed again on the way back: less memory, more time
    parallel: Parallel = "auto"  # several processes: the network whole in each (ddp) or in shards (fsdp); auto: by size

    @property
    def objectives(self) -> dict[str, Objective]:
        return {name: getattr(self, name) for name in OBJECTIVES if getattr(self, name) is not None}

    def turns(self, stream: str) -> int:
        """On how many of its steps text or pairs are read."""
        if not self.alternate or len({objective.stream for objective in self.objectives.values()}) == 1:
            return self.steps
        return (self.steps + (stream == "text")) // 2

    def but(self, **changes: Any) -> Recipe:
        return replace(self, **changes)

    def set(self, assignments: Iterable[str]) -> Recipe:
        """`key=value` differences, strictly: `steps=100`, `trtd=off`, `xlco=on`, `model.gate=false`."""
        recipe, seen = self, self.objectives
        for assignment in assignments:
            part = assignment.partition("=")[0].partition(".")[0]
            if part in OBJECTIVES and getattr(recipe, part) is None and not assignment.endswith("=off"):
                recipe = recipe.but(**{part: _as_large(settings.part(Recipe, part), seen)})
            recipe = settings.changed(recipe, assignment)
            seen = seen | recipe.objectives
        return recipe

    def check(self) -> None:
        """What the types cannot say."""
        for key, value in self.settings():
            expected = _fault(key.rpartition(".")[2], value)
            if expected:
                raise BadInput(f"recipe {self.name}: {key} must be {expected}, found {value}")
        if not self.objectives:
            raise BadInput(f"recipe {self.name}: no objective is on; set one of {', '.join(OBJECTIVES)}")
        for masked, replaced in (("mlm", "mrtd"), ("tlm", "trtd")):
            if getattr(self, masked) and getattr(self, replaced):
                raise BadInput(
                    f"recipe {self.name}: {replaced} already trains a generator with {masked}; turn one of them off"
                )
        for name, objective in self.objectives.items():
            padded = -(-objective.length // MULTIPLE) * MULTIPLE
            if padded > self.model.max_length:
                raise BadInput(
                    f"recipe {self.name}: {name}.length is {objective.length} (padded {padded}), more than"
                    f" model.max_length = {self.model.max_length}"
                )
            if getattr(objective, "keep", 0) + getattr(objective, "random", 0) > 1:
                raise BadInput(f"recipe {self.name}: {name}.keep and {name}.random are more than 1 together")
        if (self.ca_mlm or self.ca_tlm) and not self.model.cross_attention:
            raise BadInput(
                f"recipe {self.name}: ca_mlm and ca_tlm need cross-attention; set model.cross_attention=true too"
            )
        if self.freeze_steps and not self.model.cross_attention:
            raise BadInput(
                f"recipe {self.name}: without model.cross_attention there is nothing to learn in freeze_steps"
            )
        layers = {
            "xlco.layer": self.xlco.layer if self.xlco else None,
            "model.universal_layer": self.model.universal_layer,
        }
        for key, layer in layers.items():
            if layer is not None and not 0 <= layer <= self.model.layers:
                raise BadInput(f"recipe {self.name}: {key} is {layer}, the model has layers 0 to {self.model.layers}")
        if self.optimizer.warmup_steps(self.steps) >= self.steps > 1:
            raise BadInput(
                f"recipe {self.name}: optimizer.warmup is {self.optimizer.warmup:g} and steps only {self.steps}, so the"
                " rate would never reach its peak; set optimizer.warmup too, for instance 0.1 for a tenth of the steps"
            )
        if self.dro and not any(objective.stream == "pairs" for objective in self.objectives.values()):
            raise BadInput(
                f"recipe {self.name}: dro draws bitext anew, and no objective reads any; set tlm=on or trtd=on"
            )
        if self.dro and self.dro.times > self.steps:
            raise BadInput(
                f"recipe {self.name}: dro.times is {self.dro.times} and steps only {self.steps}; set it lower"
            )
        if self.model.width % self.model.heads:
            raise BadInput(f"recipe {self.name}: model.width must be a multiple of model.heads")

    def settings(self) -> Iterator[tuple[str, Any]]:
        """Every plain setting by its key, as `--set` takes it."""
        return _settings(self)

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def load(cls, file: Path) -> Recipe:
        """The recipe of an earlier run, from its `recipe.json`."""
        try:
            stored = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadInput(f"{file}: not a readable recipe.json ({error})") from None
        if not isinstance(stored, dict) or "recipe" not in stored:
            raise BadInput(f"{file}: expected the recipe.json of a run, with a `recipe` in it")
        return settings.read(cls, stored["recipe"], str(file))


def _as_large(kind: Any, others: Mapping[str, Any]) -> Objective:
    """An objective that was off, at the batch and length of those that are or were on, not at those of the papers."""
    for other in sorted(others.values(), key=lambda objective: objective.stream != kind.stream):
        if hasattr(other, "tokens"):
            if kind is XLCo:
                return XLCo.beside(other.tokens, other.length)
            return replace(kind(), tokens=other.tokens, length=other.length)
    return kind()


def _settings(part: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for field in fields(part):
        key, value = f"{path}{field.name.rstrip('_')}", getattr(part, field.name)
        if is_dataclass(value):
            yield from _settings(value, f"{key}.")
        else:
            yield key, value


def _fault(name: str, value: Any) -> str | None:
    """What the setting called `name` should have been, if it is not."""
    if value is None:
        return None
    if name in AT_LEAST and value < AT_LEAST[name]:
        return f"at least {AT_LEAST[name]}"
    if name == "queue" and value > 2**24:
        return "at most 2^24"
    if name == "seed" and value >= 2**32:
        return "less than 2^32"
    if name in MORE_THAN_0 and value <= 0:
        return "more than 0"
    if name in SHARES and not 0 <= value <= 1:
        return "from 0 to 1"
    if name in BELOW_1 and not 0 <= value < 1:
        return "from 0 to below 1"
    return None
