"""A recipe: everything that decides a pre-training run, and the function that assembles and runs it.

A recipe is a frozen value. A variation is a visible difference: `xlm_e("base").but(steps=10_000)` in Python,
`--set steps=10000 --set trtd=off` on the command line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch

from crossling import settings
from crossling.data.batches import MULTIPLE, Batches
from crossling.data.shards import Shards
from crossling.errors import BadInput, Failed
from crossling.model.shape import Shape
from crossling.model.transformer import CrosslingModel
from crossling.objectives import MLM, MRTD, TLM, TRTD, Network, Objective, XLCo
from crossling.sampling import Sampling
from crossling.train import checkpoint
from crossling.train.optimizer import Adam
from crossling.train.run import Run
from crossling.train.trainer import Probe, Schedule, Trainer
from crossling.vocabulary.vocabulary import Vocabulary, copy_vocabulary

OBJECTIVES = ("mlm", "tlm", "mrtd", "trtd", "xlco")

# What the types of the settings leave open, by the last part of the key.
AT_LEAST = {
    **dict.fromkeys(("steps", "checkpoint_every", "log_every", "micro_tokens", "tokens"), 1),
    **dict.fromkeys(("layers", "width", "heads", "feed_forward", "generator_layers", "max_length"), 1),
    **dict.fromkeys(("seed", "warmup", "decay", "lambda", "weight", "init"), 0),
    "pairs": 2,  # a lone pair has no negatives
    "length": MULTIPLE,
}
MORE_THAN_0 = ("lr", "clip", "epsilon", "temperature")
SHARES = ("rate", "keep", "random", "text_alpha", "pair_alpha")  # 0 to 1
BELOW_1 = ("dropout", "beta1", "beta2")  # from 0


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
    seed: int = 0
    checkpoint_every: int = 1000
    log_every: int = 50
    micro_tokens: int = (
        65_536  # padded tokens computed at once: a matter of memory; without dropout it changes no result
    )

    @property
    def objectives(self) -> dict[str, Objective]:
        return {name: getattr(self, name) for name in OBJECTIVES if getattr(self, name) is not None}

    def but(self, **changes: Any) -> Recipe:
        return replace(self, **changes)

    def set(self, assignments: Iterable[str]) -> Recipe:
        """`key=value` differences, strictly: `steps=100`, `trtd=off`, `xlco=on`, `model.gate=false`."""
        recipe = self
        for assignment in assignments:
            recipe = settings.changed(recipe, assignment)
        return recipe

    def check(self) -> None:
        """What the types cannot say."""
        for key, value in _settings(self):
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
        for name, masking in (("mlm", self.mlm), ("tlm", self.tlm)):
            if masking and masking.keep + masking.random > 1:
                raise BadInput(f"recipe {self.name}: {name}.keep and {name}.random are more than 1 together")
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
        if self.model.width % self.model.heads:
            raise BadInput(f"recipe {self.name}: model.width must be a multiple of model.heads")

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


def _settings(part: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain setting by its key, as `--set` takes it."""
    for field in fields(part):
        key, value = f"{path}{field.name.rstrip('_')}", getattr(part, field.name)
        if is_dataclass(value):
            yield from _settings(value, f"{key}.")
        else:
            yield key, value


def _fault(name: str, value: Any) -> str | None:
    """What the setting called `name` should have been, if it is not."""
    if name in AT_LEAST and value < AT_LEAST[name]:
        return f"at least {AT_LEAST[name]}"
    if name == "seed" and value >= 2**32:
        return "less than 2^32"
    if name in MORE_THAN_0 and value <= 0:
        return "more than 0"
    if name in SHARES and not 0 <= value <= 1:
        return "from 0 to 1"
    if name in BELOW_1 and not 0 <= value < 1:
        return "from 0 to below 1"
    return None


def build(recipe: Recipe, vocabulary_size: int) -> Network:
    """The network of a recipe, with the initial weights its seed gives."""
    torch.manual_seed(recipe.seed)
    encoder = CrosslingModel(recipe.model.config(vocabulary_size))
    parts: dict[str, torch.nn.Module] = {}
    for objective in recipe.objectives.values():
        for name, make in objective.parts(encoder, recipe.model.generator_layers).items():
            if name not in parts:
                parts[name] = make()
    return Network(encoder, parts)


def pretrain(
    recipe: Recipe,
    shards: Shards,
    out: Path,
    probe: Probe | None = None,
    probe_every: int = 0,
    workers: int | None = None,
) -> Network:
    """Trains; resumes when `out` holds a checkpoint."""
    recipe.check()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batches = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens)
    run = Run(out, recipe.dump(), shards.fingerprint)
    copy_vocabulary(shards.vocabulary_path, run.path / "vocab")
    schedule = Schedule(recipe.steps, recipe.lr, recipe.seed, recipe.log_every, recipe.checkpoint_every, probe_every)
    if workers is None:  # on a CPU the loader would take the cores from the network
        workers = max(0, min(12, (os.cpu_count() or 1) - 2)) if device.type == "cuda" else 0
    net = build(recipe, shards.vocabulary_size)
    trainer = Trainer(net, recipe.objectives, batches, recipe.optimizer, schedule, run, device, workers, probe)
    try:
        return trainer.fit()
    except torch.OutOfMemoryError:
        raise Failed(
            f"the {device.type} ran out of memory at step {trainer.step}; give a smaller micro_tokens"
            f" (now {recipe.micro_tokens}), or fewer pairs of contrast, and the same command goes on"
        ) from None


def load_run(path: Path) -> Network:
    """The network of a run, at its newest checkpoint."""
    saved = checkpoint.all_steps(Path(path) / "checkpoints")
    if not saved:
        raise BadInput(f"{path}: this run has no checkpoint yet")
    recipe = Recipe.load(Path(path) / "recipe.json")
    net = build(recipe, Vocabulary.load(Path(path) / "vocab").size)
    checkpoint.load_weights(saved[-1], net)
    return net
