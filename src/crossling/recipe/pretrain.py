"""A recipe, shards and a folder become a trained network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from crossling.data.batches import Batches
from crossling.data.rates import pair_counts
from crossling.data.shards import Shards
from crossling.errors import BadInput, Failed
from crossling.model.transformer import CrosslingModel
from crossling.objectives import Network
from crossling.recipe.network import build
from crossling.recipe.recipe import Recipe
from crossling.recipe.start import Start
from crossling.train.guard import Guard
from crossling.train.run import Run
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
    if isinstance(init, str | Path):
        init = Start.load(init)
    if init is not None:
        recipe = init.shape(recipe)
        if init.other and not (recipe.mrtd or recipe.trtd):
            raise BadInput(f"recipe {recipe.name} trains no generator; leave --init-generator out")
    recipe.check()
    # A module that learned before needs no time of its own.
    frozen = recipe.freeze_steps if init and not init.encoder.config.cross_attention else 0
    if frozen >= recipe.steps:
        raise BadInput(
            f"recipe {recipe.name}: freeze_steps is {frozen} and steps only {recipe.steps}, so that nothing but"
            " cross-attention would learn; set a lower freeze_steps"
        )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batches = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens, recipe.alternate)
    run = Run(out, recipe.dump(), shards.fingerprint, init.names if init else None, _data(shards, recipe))
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
    if init is not None and not run.saved:
        init.fill(net, Vocabulary.load(shards.vocabulary_path), recipe.seed)
    if recipe.recompute:
        for network in (net.encoder, *net.parts.values()):
            if isinstance(network, CrosslingModel):
                network.gradient_checkpointing_enable()
    trainer = Trainer(net, recipe.objectives, batches, recipe.optimizer, schedule, run, device, workers, probe)
    if init is not None:
        trainer.guard = Guard(run.checkpoints, recipe.lr)
        trainer.first = init.new(net) if frozen else []
    try:
        return trainer.fit()
    except torch.OutOfMemoryError:
        raise Failed(
            f"the {device.type} ran out of memory at step {trainer.step}; with --set recompute=true or a smaller"
            f" micro_tokens (now {recipe.micro_tokens}) the same command goes on"
        ) from None


def _data(shards: Shards, recipe: Recipe) -> dict[str, Any]:
    """What there is to learn from, for those who have the run and not the shards."""
    read = {objective.stream for objective in recipe.objectives.values()}
    text = shards.manifest["text"] if "text" in read else {}
    pairs = pair_counts(shards, recipe.sampling.pivot) if "pairs" in read else {}
    return {
        "text": {language: entry["tokens"] for language, entry in text.items()},
        "pairs": [[a, b, count] for (a, b), count in pairs.items()],
    }
