"""A recipe, shards and a folder become a trained network."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from crossling.data.batches import Batches
from crossling.data.rates import pair_counts
from crossling.data.shards import Shards
from crossling.errors import BadInput, Failed
from crossling.model.transformer import CrosslingModel
from crossling.objectives import Network
from crossling.recipe.network import build
from crossling.recipe.recipe import Recipe
from crossling.recipe.start import CROSS, Start
from crossling.train.guard import Guard
from crossling.train.run import Begun, Run, same_models
from crossling.train.trainer import Probe, Schedule, Trainer
from crossling.vocabulary.vocabulary import Vocabulary, copy_vocabulary


def pretrain(
    recipe: Recipe,
    shards: Shards,
    out: Path,
    probe: Probe | None = None,
    probe_every: int = 0,
    workers: int | None = None,
    init: Start | Path | str | None = None,
) -> Network:
    """Trains; resumes when `out` holds a checkpoint. With `init` it begins as that model and takes its shape."""
    recipe, start, begun = _begin(recipe, out, init)
    new = begun.new if begun else []
    recipe.check()
    frozen = recipe.freeze_steps if CROSS in new else 0  # a module that learned before needs no time of its own
    if frozen >= recipe.steps:
        raise BadInput(
            f"recipe {recipe.name}: freeze_steps is {frozen} and steps only {recipe.steps}, so that nothing but"
            " cross-attention would learn; set a lower freeze_steps"
        )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batches = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens, recipe.alternate)
    run = Run(out, recipe.dump(), shards.fingerprint, begun, _data(shards, recipe))
    copy_vocabulary(shards.vocabulary_path, run.path / "vocab")
    schedule = Schedule(
        recipe.steps,
        recipe.lr,
        recipe.seed,
        recipe.log_every,
        recipe.checkpoint_every,
        probe_every,
        recipe.reduction,
        frozen,
    )
    if workers is None:  # on a CPU the loader would take the cores from the network
        workers = max(0, min(12, (os.cpu_count() or 1) - 2)) if device.type == "cuda" else 0
    net = build(recipe, shards.vocabulary_size)
    if start is not None and not run.saved:
        pieces = start.fill(net, Vocabulary.load(shards.vocabulary_path), recipe.seed)
        warnings.warn(f"begins as {start.name}: {pieces}; new: {', '.join(new) or 'nothing'}", stacklevel=2)
    if recipe.recompute:
        for network in (net.encoder, *net.parts.values()):
            if isinstance(network, CrosslingModel):
                network.gradient_checkpointing_enable()
    trainer = Trainer(net, recipe.objectives, batches, recipe.optimizer, schedule, run, device, workers, probe)
    if begun is not None:
        trainer.guard = Guard(run.checkpoints, recipe.lr)
        trainer.first = _new_parameters(net, new)
    try:
        return trainer.fit()
    except torch.OutOfMemoryError:
        raise Failed(
            f"the {device.type} ran out of memory at step {trainer.step}; with --set recompute=true or a smaller"
            f" micro_tokens (now {recipe.micro_tokens}) the same command goes on"
        ) from None


def _begin(recipe: Recipe, out: Path, init: Start | Path | str | None) -> tuple[Recipe, Start | None, Begun | None]:
    """The recipe in the shape of the model, the model where it is needed, and what the run tells of it."""
    if init is None:
        return recipe, None, None
    if not isinstance(init, Start):
        began = Run.began(out)
        if began is not None and same_models(began.models, {"model": str(init)}):
            # It goes on from a state of its own: the model may be gone.
            return recipe.but(model=Recipe.load(Path(out) / "recipe.json").model), None, began
        init = Start.load(init)
    recipe = init.shape(recipe)
    if init.other and not (recipe.mrtd or recipe.trtd):
        raise BadInput(f"recipe {recipe.name} trains no generator; leave --init-generator out")
    return recipe, init, Begun(init.names, init.new(recipe))


def _new_parameters(net: Network, new: Sequence[str]) -> list[nn.Parameter]:
    heads = [parameter for name in new if name in net.parts for parameter in net.parts[name].parameters()]
    return [*net.encoder.cross_parameters(), *heads] if CROSS in new else heads


def _data(shards: Shards, recipe: Recipe) -> dict[str, Any]:
    """What there is to learn from, for those who have the run and not the shards."""
    read = {objective.stream for objective in recipe.objectives.values()}
    text = shards.manifest["text"] if "text" in read else {}
    pairs = pair_counts(shards, recipe.sampling.pivot) if "pairs" in read else {}
    return {
        "text": {language: entry["tokens"] for language, entry in text.items()},
        "pairs": [[a, b, count] for (a, b), count in pairs.items()],
    }
