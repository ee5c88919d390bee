"""Pre-train the network of a recipe on shards, into a run folder."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from crossling.core.distributed import (
    is_main_process,
    lock_run_output,
    main_process_first,
    process_group,
    rank,
    world_size,
)
from crossling.core.errors import BadInput, Failed
from crossling.core.hardware import require_fp8
from crossling.core.progress import format_count, format_duration, print_status
from crossling.data.example_sampler import pair_counts, text_counts
from crossling.data.shards import Shards
from crossling.model.encoder_model import CrosslingModel
from crossling.model.model_shape import SIZES
from crossling.model.native_encoder import NativeEncoder
from crossling.objectives import Network
from crossling.recipes.continued_run import copy_checkpoint, find_continued
from crossling.recipes.initial_model import CROSS_ATTENTION
from crossling.recipes.initialization import AnyInitialModel, load_initial_model
from crossling.recipes.network import add_phases, build_network, flops_per_token, make_batches, objective_loads
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_warnings import run_warnings
from crossling.recipes.sampling_preview import preview_pairs, preview_text
from crossling.sampling import Pair
from crossling.train.checkpoint import Retention, list_checkpoints
from crossling.train.health import DiscriminatorGuard
from crossling.train.meters import TrainingCost, describe_machine
from crossling.train.parallel import check_parallel
from crossling.train.resampling import Resampling
from crossling.train.run_folder import CHECKPOINTS, InitSource, RunFolder, same_models
from crossling.train.step import Schedule
from crossling.train.trainer import Probe, Trainer
from crossling.vocabulary.open_vocabulary import open_vocabulary
from crossling.vocabulary.vocabulary import copy_vocabulary


def pretrain(
    recipe: Recipe,
    shards: Shards,
    out: str | os.PathLike[str],
    *,
    probe: Probe | None = None,
    probe_every: int = 0,
    workers: int | None = None,
    init: AnyInitialModel | str | os.PathLike[str] | None = None,
    resume_from: str | os.PathLike[str] | None = None,
    started: float | None = None,
) -> Network:
    """Pre-train a model. Resumes from the latest checkpoint in `out`.

    `crossling.pretrain` (pretraining.py) calls it. It also takes names, settings and folders.

    Args:
        recipe: All settings of the run.
        shards: Tokenized data.
        out: Run folder for checkpoints, metrics and vocabulary.
        probe: Function of the network that returns metrics to log.
        probe_every: Steps between two probes; 0 probes before the first step and at the end.
        workers: Data loader processes [default: by the machine].
        init: Model to initialize from; the recipe takes its architecture [default: random weights].
        resume_from: Checkpoint of another run to continue in `out`, with its optimizer state and step [default: none].
        started: `time.perf_counter()` from which the time to the first step counts [default: now].

    Returns:
        The trained network.

    Raises:
        BadInput: The recipe contradicts itself, the shards or the run in `out`, or another process trains in `out`.
    """
    started = time.perf_counter() if started is None else started
    out = Path(out)
    if init is not None and resume_from is not None:
        raise BadInput(f"resume_from={resume_from}: the checkpoint has all weights. Omit init.")
    recipe, model, source = _prepare_init(recipe, out, init)
    recipe.check()
    # Cross-attention that the model already has was trained before and needs no frozen phase.
    freeze_steps = recipe.freeze_steps if source and CROSS_ATTENTION in source.new else 0
    if probe is None and (recipe.keep_best or "").startswith("probe/"):
        raise BadInput(f"recipe {recipe.name}: keep_best is {recipe.keep_best}, but nothing is probed. Give a probe.")
    if freeze_steps >= recipe.steps:
        raise BadInput(
            f"recipe {recipe.name}: freeze_steps is {freeze_steps} and steps only {recipe.steps}, so only"
            " cross-attention would be trained. Set a lower freeze_steps."
        )
    schedule = Schedule(
        steps=recipe.steps,
        lr=recipe.lr,
        log_every=recipe.log_every,
        checkpoint_every=recipe.checkpoint_every,
        probe_every=probe_every,
        reduction=recipe.reduction,
        freeze_steps=freeze_steps,
    )
    with process_group() as device, lock_run_output(out):
        workers = default_workers(device) if workers is None else workers
        return _train(
            recipe,
            shards,
            out,
            schedule,
            probe=probe,
            workers=workers,
            model=model,
            source=source,
            resume_from=resume_from,
            device=device,
            started=started,
        )


def _train(
    recipe: Recipe,
    shards: Shards,
    out: Path,
    schedule: Schedule,
    *,
    probe: Probe | None,
    workers: int,
    model: AnyInitialModel | None,
    source: InitSource | None,
    resume_from: str | os.PathLike[str] | None,
    device: torch.device,
    started: float,
) -> Network:
    """Train in one process of the run."""
    if recipe.precision == "fp8":
        require_fp8(device)
    check_parallel(recipe.parallel)
    new = source.new if source else []
    uses_graphs = recipe.cuda_graphs and device.type == "cuda"
    with main_process_first():  # it writes the starts of all blocks beside the shards
        batches = make_batches(recipe, shards, rank(), world_size(), has_bucketed_shapes=uses_graphs)
    resampling = Resampling(recipe.dro, batches, recipe.objectives, steps=recipe.steps, run=out) if recipe.dro else None
    with main_process_first():
        run = _open_run(out, recipe, shards, source, resume_from)
    if is_main_process() and not run.has_checkpoint:
        for problem in run_warnings(recipe, preview_text(recipe, shards), preview_pairs(recipe, shards)):
            warnings.warn(problem, stacklevel=4)
        if device.type == "cpu" and recipe.model.width >= SIZES["base"].width:
            warnings.warn(
                "a model of this size takes very long without a GPU. Set size to tiny or small.", stacklevel=4
            )
    net = build_network(recipe, shards.vocabulary_size)
    if model is not None and not run.has_checkpoint:
        summary = model.initialize(net, open_vocabulary(shards.vocabulary_path), recipe.seed)
        if is_main_process():
            modules = ", ".join(new) or "none"
            warnings.warn(f"initialized from {model.name}: {summary}; new modules: {modules}.", stacklevel=3)
    configure_network(net, recipe)
    cost = TrainingCost(flops_per_token(recipe, net, objective_loads(batches)), describe_machine(device))
    try:
        trainer = Trainer(
            net,
            objectives=recipe.objectives,
            batches=add_phases(batches, recipe, shards),
            optimizer=recipe.optimizer,
            schedule=schedule,
            run=run,
            device=device,
            cost=cost,
            workers=workers,
            probe=probe,
            discriminator_guard=DiscriminatorGuard(run.checkpoints, recipe.lr) if source else None,
            unfrozen=_new_parameters(net, new),
            parallel=recipe.parallel,
            resampling=resampling,
            started=started,
            retention=_retention(recipe, Recipe.load(run.path / "recipe.json")),
        )
        trainer.fit()
    except torch.OutOfMemoryError:
        raise Failed(f"{device.type}: out of memory. {_memory_hint(recipe)}") from None
    if is_main_process():
        run.write_cost(cost.summary(recipe.steps))
        result = "no usable model after" if trainer.has_diverged else "trained"
        print_status(f"{result} {recipe.steps:,} steps: {_summarize(cost)}")
    return net


def _open_run(
    out: Path,
    recipe: Recipe,
    shards: Shards,
    source: InitSource | None,
    resume_from: str | os.PathLike[str] | None,
) -> RunFolder:
    """Open the folder of the run. The main process writes its vocabulary, and the checkpoint to continue."""
    is_new = not list_checkpoints(out / CHECKPOINTS)
    checkpoint = find_continued(resume_from, recipe, shards) if resume_from is not None and is_new else None
    if resume_from is not None:
        source = InitSource({"checkpoint": os.fspath(resume_from)}, [])
    run = RunFolder(out, recipe.dump(), shards.fingerprint, init_source=source, data=_data_counts(shards, recipe))
    if is_main_process():
        copy_vocabulary(shards.vocabulary_path, run.path / "vocab")
        if checkpoint is not None:
            copy_checkpoint(checkpoint, out)
    return run


def _retention(recipe: Recipe, started: Recipe) -> Retention:
    """Return which checkpoints to keep: also those that the run was started to keep, if the recipe does not set it."""
    every, best = recipe.keep_every or started.keep_every, recipe.keep_best or started.keep_best
    return Retention(recipe.keep_last, every, best)


def configure_network(net: Network, recipe: Recipe) -> None:
    """Set gradient checkpointing and the precision of all encoders as the recipe requires."""
    for module in (net.encoder, *net.parts.values()):
        if isinstance(module, CrosslingModel):
            if recipe.gradient_checkpointing:
                module.gradient_checkpointing_enable()
            if recipe.precision == "fp8":
                module.enable_fp8()
        elif isinstance(module, NativeEncoder) and recipe.gradient_checkpointing:
            module.model.gradient_checkpointing_enable({"use_reentrant": False})


def _memory_hint(recipe: Recipe) -> str:
    without_graphs = "cuda_graphs=false, " if recipe.cuda_graphs else ""
    hint = f"Resume with {without_graphs}gradient_checkpointing=true or a smaller micro_tokens"
    hint += f" (now {recipe.micro_tokens})."
    if recipe.xlco and recipe.xlco.has_in_batch_negatives:  # which are never split into micro-batches
        hint += f" If that fails, start a new run with fewer xlco.pairs (now {recipe.xlco.pairs})."
    return hint


def _summarize(cost: TrainingCost) -> str:
    """Return tokens, time, FLOPs and MFU in one line."""
    times = [f"{format_duration(seconds)} on {name}" for name, seconds in cost.seconds.items() if seconds]
    mfu = [f"MFU {cost.mfu:.2f}"] if cost.mfu else []
    flops = f"{cost.flops['paper']:.2e} FLOPs as the paper counts ({cost.flops['full']:.2e} full)"
    return ", ".join([f"{format_count(cost.tokens)} tokens in {' and '.join(times)}", flops, *mfu])


def default_workers(device: torch.device) -> int:
    """Return the data loader processes of one training process."""
    if device.type == "cpu":
        return 0  # they would compete with the network for cores
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(12, (os.cpu_count() or 1) // processes - 2))


def _prepare_init(
    recipe: Recipe, out: Path, init: AnyInitialModel | str | os.PathLike[str] | None
) -> tuple[Recipe, AnyInitialModel | None, InitSource | None]:
    """Return the recipe with the architecture of the model, the model if it is needed, and its description."""
    if init is None:
        return recipe, None, None
    if isinstance(init, str | os.PathLike):
        source = RunFolder.read_init_source(out)
        if source is not None and same_models(source.models, {"model": str(init)}):
            # The run resumes from its own checkpoint: the model may be gone.
            return recipe.replace(model=Recipe.load(Path(out) / "recipe.json").model), None, source
        init = load_initial_model(init, architecture=recipe.model.architecture)
    recipe = init.adapt(recipe)
    if init.generator_name and not recipe.has_rtd:
        raise BadInput(f"recipe {recipe.name}: trains no generator, but {init.generator_name} was given. Omit it.")
    return recipe, init, InitSource(init.names, init.new_modules(recipe))


def _new_parameters(net: Network, new: Sequence[str]) -> list[str]:
    """Return the names of all parameters in new modules."""
    parameters = {parameter for name in new if name in net.parts for parameter in net.parts[name].parameters()}
    if CROSS_ATTENTION in new:
        parameters |= {*net.encoder.cross_attention_parameters()}
    return [name for name, parameter in net.named_parameters() if parameter in parameters]


def _data_counts(shards: Shards, recipe: Recipe) -> dict[str, Any]:
    """Return tokens by language and pairs by language pair, for readers of the run who do not have the shards."""
    streams = {objective.stream for objective in recipe.objectives.values()}
    text: dict[str, int] = {}
    pairs: dict[Pair, int] = {}
    for phase in recipe.split():
        text |= text_counts(shards, phase.sampling) if "text" in streams else {}
        pairs |= pair_counts(shards, phase.sampling) if "pairs" in streams else {}
    return {"text": text, "pairs": [[a, b, count] for (a, b), count in pairs.items()]}
