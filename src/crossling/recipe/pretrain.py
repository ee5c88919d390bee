"""A recipe, shards and a folder become a trained network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from crossling.data.batches import Batches
from crossling.data.rates import pair_counts
from crossling.data.shards import Shards
from crossling.errors import Failed
from crossling.objectives import Network
from crossling.recipe.network import build
from crossling.recipe.recipe import Recipe
from crossling.recipe.start import Start
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
    init: Start | None = None,
) -> Network:
    """Trains; resumes when `out` holds a checkpoint. With `init` it begins as that model and takes its shape."""
    if init is not None:
        recipe = init.shape(recipe)
    recipe.check()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batches = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens, recipe.alternate)
    run = Run(out, recipe.dump(), shards.fingerprint, init.names if init else None, _data(shards))
    copy_vocabulary(shards.vocabulary_path, run.path / "vocab")
    schedule = Schedule(
        recipe.steps,
        recipe.lr,
        recipe.seed,
        recipe.log_every,
        recipe.checkpoint_every,
        probe_every,
        recipe.reduction,
        # A module that learned before needs no time of its own.
        recipe.freeze_steps if init and not init.encoder.config.cross_attention else 0,
    )
    if workers is None:  # on a CPU the loader would take the cores from the network
        workers = max(0, min(12, (os.cpu_count() or 1) - 2)) if device.type == "cuda" else 0
    net = build(recipe, shards.vocabulary_size)
    if init is not None and not run.saved:
        init.fill(net, Vocabulary.load(shards.vocabulary_path), recipe.seed)
    if recipe.recompute:
        net.encoder.gradient_checkpointing_enable()
    trainer = Trainer(net, recipe.objectives, batches, recipe.optimizer, schedule, run, device, workers, probe)
    try:
        return trainer.fit()
    except torch.OutOfMemoryError:
        raise Failed(
            f"the {device.type} ran out of memory at step {trainer.step}; give a smaller micro_tokens"
            f" (now {recipe.micro_tokens}), recompute=true or fewer pairs of contrast, and the same command goes on"
        ) from None


def _data(shards: Shards) -> dict[str, Any]:
    """What there was to learn from, for those who have the run and not the shards."""
    return {
        "text": {language: entry["tokens"] for language, entry in shards.manifest["text"].items()},
        "pairs": [[a, b, pairs] for (a, b), pairs in pair_counts(shards).items()],
    }
