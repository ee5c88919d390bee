"""A recipe, shards and a folder become a trained network."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from crossling.data.batches import Batches
from crossling.data.rates import pair_counts
from crossling.data.shards import Shards
from crossling.distributed import first_one_then_all, processes, rank, speaks, together
from crossling.errors import BadInput, Failed
from crossling.evaluate.charts import compact
from crossling.hardware import device_name, here
from crossling.model.transformer import CrosslingModel
from crossling.objectives import Network
from crossling.progress import duration, say
from crossling.recipe.cost import Load, flops_per_token
from crossling.recipe.network import build
from crossling.recipe.recipe import Recipe
from crossling.recipe.start import CROSS, Start
from crossling.train.account import Account, Machine
from crossling.train.guard import Guard
from crossling.train.resampling import Resampling
from crossling.train.run import Begun, Run, same_models
from crossling.train.step import Schedule
from crossling.train.trainer import Probe, Trainer
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
    recipe.check()
    frozen = (
        recipe.freeze_steps if begun and CROSS in begun.new else 0
    )  # a module that learned before needs no time of its own
    if frozen >= recipe.steps:
        raise BadInput(
            f"recipe {recipe.name}: freeze_steps is {frozen} and steps only {recipe.steps}, so that nothing but"
            " cross-attention would learn; set a lower freeze_steps"
        )
    with together() as device:
        return _train(recipe, shards, out, probe, probe_every, workers, start, begun, frozen, device)


def _train(
    recipe: Recipe,
    shards: Shards,
    out: Path,
    probe: Probe | None,
    probe_every: int,
    workers: int | None,
    start: Start | None,
    begun: Begun | None,
    frozen: int,
    device: torch.device,
) -> Network:
    """In every process of the run."""
    new = begun.new if begun else []
    batches = Batches(
        shards,
        recipe.objectives,
        recipe.sampling,
        recipe.seed,
        recipe.micro_tokens,
        recipe.alternate,
        rank(),
        processes(),
    )
    resampling = Resampling(recipe.dro, batches, recipe.objectives, recipe.steps, out) if recipe.dro else None
    with first_one_then_all():
        run = Run(out, recipe.dump(), shards.fingerprint, begun, _data(shards, recipe))
        if speaks():
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
    if workers is None:
        workers = _workers(device)
    net = build(recipe, shards.vocabulary_size)
    if start is not None and not run.saved:
        pieces = start.fill(net, Vocabulary.load(shards.vocabulary_path), recipe.seed)
        if speaks():
            warnings.warn(f"begins as {start.name}: {pieces}; new: {', '.join(new) or 'nothing'}", stacklevel=3)
    if recipe.recompute:
        for network in (net.encoder, *net.parts.values()):
            if isinstance(network, CrosslingModel):
                network.gradient_checkpointing_enable()
    loads = {name: Load(batches.draws[name].number, length) for name, length in batches.lengths.items()}
    account = Account(flops_per_token(recipe, net, loads), machine(device))
    try:
        Trainer(
            net,
            recipe.objectives,
            batches,
            recipe.optimizer,
            schedule,
            run,
            device,
            account,
            workers,
            probe,
            Guard(run.checkpoints, recipe.lr) if begun else None,
            _new_parameters(net, new),
            recipe.parallel,
            resampling=resampling,
        ).fit()
    except torch.OutOfMemoryError:
        at_once = (
            recipe.xlco.pairs if recipe.xlco and recipe.xlco.whole else 0
        )  # each other's negatives: never in parts
        raise Failed(
            f"the {device.type} ran out of memory; with --set recompute=true or a smaller micro_tokens"
            f" (now {recipe.micro_tokens}) the same command goes on"
            + (f"; if it does not, a new run with fewer xlco.pairs (now {at_once})" if at_once else "")
        ) from None
    if speaks():
        run.write_cost(account.bill(recipe.steps))
        say(f"trained {recipe.steps:,} steps: {_told(account)}")
    return net


def machine(device: torch.device) -> Machine:
    """All that the processes run on, taken to be alike."""
    card = here() if device.type == "cuda" else None
    name, number = device_name(device), processes()
    if device.type == "cuda":
        name = f"{number} x {name}"
    return Machine(name, number * card.peak if card else None)


def _told(account: Account) -> str:
    """What it cost, in one line."""
    flops, spent = account.flops, account.seconds
    on = [f"{duration(seconds)} on {name}" for name, seconds in spent.items() if seconds]
    mfu = [f"MFU {account.mfu:.2f}"] if account.mfu else []
    cost = f"{flops['paper']:.2e} FLOPs as the paper counts ({flops['full']:.2e} full)"
    return ", ".join([f"{compact(account.tokens)} tokens in {' and '.join(on)}", cost, *mfu])


def _workers(device: torch.device) -> int:
    """Of the loader of one process. On a CPU they would take the cores from the network."""
    if device.type == "cpu":
        return 0
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # processes on this machine
    return max(1, min(12, (os.cpu_count() or 1) // beside - 2))


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


def _new_parameters(net: Network, new: Sequence[str]) -> list[str]:
    """By name."""
    fresh = {parameter for name in new if name in net.parts for parameter in net.parts[name].parameters()}
    if CROSS in new:
        fresh |= {*net.encoder.cross_parameters()}
    return [name for name, parameter in net.named_parameters() if parameter in fresh]


def _data(shards: Shards, recipe: Recipe) -> dict[str, Any]:
    """What there is to learn from, for those who have the run and not the shards."""
    read = {objective.stream for objective in recipe.objectives.values()}
    text = shards.manifest["text"] if "text" in read else {}
    pairs = pair_counts(shards, recipe.sampling.pivot) if "pairs" in read else {}
    return {
        "text": {language: entry["tokens"] for language, entry in text.items()},
        "pairs": [[a, b, count] for (a, b), count in pairs.items()],
    }
