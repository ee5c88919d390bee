"""Pre-train by name: recipe, size, settings, initialization and probes, as the command line takes them.

It comes after `evaluate` in the import order, because probes evaluate the network in training.
`recipes/pretrain.py` trains a `Recipe`.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from crossling.core import progress
from crossling.core.distributed import process_group
from crossling.core.errors import BadInput, suggestion
from crossling.data.shards import Shards
from crossling.evaluate.probes import NamedProbe, Probe, combine_probes, make_loss_probe, make_retrieval_probe
from crossling.objectives import Network
from crossling.recipes import adapt_recipe, can_resume, get_recipe
from crossling.recipes.initialization import AnyInitialModel, load_initial_model
from crossling.recipes.pretrain import pretrain as train_recipe
from crossling.recipes.recipe import Recipe
from crossling.train.run_folder import RunFolder
from crossling.vocabulary.open_vocabulary import open_vocabulary

PathOrName = str | os.PathLike[str]


def pretrain(
    recipe: Recipe | PathOrName,
    shards: Shards | PathOrName,
    out: PathOrName,
    *,
    size: str | None = None,
    set: Sequence[str] = (),
    init: AnyInitialModel | PathOrName | None = None,
    init_generator: PathOrName | None = None,
    resume_from: PathOrName | None = None,
    workers: int | None = None,
    probe: Probe | PathOrName | None = None,
    validate: Shards | PathOrName | None = None,
    probe_every: int | None = None,
    share_device: bool = False,
) -> Network:
    """Pre-train a model. Resumes from the latest checkpoint in `out`.

    Args:
        recipe: Name of a recipe, the `recipe.json` of an earlier run, or a `Recipe`.
        shards: Tokenized data, or its folder.
        out: Run folder for checkpoints, metrics and vocabulary.
        size: Size of the model [default: base, for veco large].
        set: `key=value` settings of the recipe, as `Recipe.set` takes them.
        init: Model to initialize from. The recipe takes its architecture; one given by name also takes its size and a
            lower learning rate for replaced token detection [default: random weights].
        init_generator: Model to initialize the generator from [default: that of `init`, or its first layers].
        resume_from: Checkpoint of another run, `RUN/checkpoints/STEP`, to continue in `out` with optimizer state and
            step. The network and vocabulary must be the same; steps, schedules and data may differ [default: none].
        workers: Data loader processes [default: by the machine].
        probe: Folder of benchmark data to measure retrieval on, or a function of the network that returns metrics.
        validate: Shards to measure losses by language on [default: with `init` those of the run, otherwise none].
        probe_every: Steps between two measurements [default: a tenth of the steps].
        share_device: Let several processes of torchrun use one GPU, over gloo. It is slow, and meant for tests.

    Returns:
        The trained network.

    Raises:
        BadInput: The recipe contradicts itself, the shards, the model or the run in `out`, or another process trains
            in `out`.

    Example:
        >>> crossling.pretrain("xlm_e", "shards", "runs/xlm_e", size="small", set=["trtd=off"])
        >>> recipe = crossling.recipes.xlm_e("small").replace(steps=10_000)
        >>> crossling.pretrain(recipe, "shards", "runs/short", probe="data")
    """
    started = progress.command_started or time.perf_counter()
    out = Path(out)
    with process_group(share_device):
        data = Shards.open(shards) if isinstance(shards, str | os.PathLike) else shards
        probes = [] if probe is None else [_make_probe(probe, data)]
        start = _load_init(recipe, out, init, init_generator, _architecture(recipe, set))
        if start is None and resume_from is None:
            _note_lost_init(recipe)
        chosen = _choose_recipe(recipe, out, start, size, set)
        probes += _loss_probes(chosen, data, validate, is_initialized=start is not None)
        if probe_every and not probes:
            raise BadInput(f"probe_every={probe_every}: nothing to measure. Give probe or validate too.")
        combined = combine_probes(probes) if probes else None
        _check_keep_best(chosen.keep_best or "", combined)
        return train_recipe(
            chosen,
            data,
            out,
            probe=combined,
            probe_every=probe_every or max(1, chosen.steps // 10),
            workers=workers,
            init=start,
            resume_from=resume_from,
            started=started,
        )


def _check_keep_best(metric: str, probe: Probe | None) -> None:
    """Raise BadInput if the probe measures other metrics. Those of a function are known when it is called."""
    metrics = {f"probe/{name}" for name in probe.metrics} if isinstance(probe, NamedProbe) else {metric}
    if metric.startswith("probe/") and metric not in metrics:
        raise BadInput(f"keep_best={metric}: no probe measures it{suggestion(metric, metrics)}")


def _make_probe(probe: Probe | PathOrName, shards: Shards) -> Probe:
    if isinstance(probe, str | os.PathLike):
        return make_retrieval_probe(Path(probe), open_vocabulary(shards.vocabulary_path))
    return probe


def _load_init(
    recipe: Recipe | PathOrName,
    out: Path,
    init: AnyInitialModel | PathOrName | None,
    generator: PathOrName | None,
    architecture: str | None,
) -> AnyInitialModel | str | None:
    """Return the model to initialize from, or only its name if the run in `out` resumes without it."""
    if generator is not None and not isinstance(init, str | os.PathLike):
        raise BadInput(
            f"init_generator={generator}: no model to add it to. Give the name or folder of a model as init."
        )
    if not isinstance(init, str | os.PathLike):
        return init
    name = os.fspath(init)
    is_known = isinstance(recipe, Recipe) or can_resume(out, os.fspath(recipe), name)
    return name if is_known and generator is None else load_initial_model(name, generator, architecture)


def _architecture(recipe: Recipe | PathOrName, assignments: Sequence[str]) -> str | None:
    """Return the setting `model.architecture`, which determines how the model is loaded."""
    values = [each.partition("=")[2] for each in assignments if each.startswith("model.architecture=")]
    return values[-1] if values else recipe.model.architecture if isinstance(recipe, Recipe) else None


def _choose_recipe(
    recipe: Recipe | PathOrName,
    out: Path,
    init: AnyInitialModel | str | None,
    size: str | None,
    assignments: Sequence[str],
) -> Recipe:
    """Return the recipe with its settings, and with the size and learning rate for the model it is initialized from."""
    if isinstance(recipe, Recipe):
        return get_recipe(recipe, size).as_started(out).set(assignments)
    if init is not None and not isinstance(init, str):
        chosen = adapt_recipe(os.fspath(recipe), init, size, ()).as_started(out).set(assignments)
        warnings.warn(f"peak learning rate {chosen.lr:g}", stacklevel=3)
        return chosen
    if init is not None:
        return get_recipe(out / "recipe.json").set(assignments)
    return get_recipe(recipe, size).as_started(out).set(assignments)


def _note_lost_init(recipe: Recipe | PathOrName) -> None:
    """Warn if a recipe is that of a run which was initialized from a model."""
    if isinstance(recipe, Recipe) or Path(recipe).suffix != ".json":
        return
    earlier = RunFolder.read_init_source(Path(recipe).parent)
    if earlier is not None:
        [name, *_] = earlier.models.values()
        warnings.warn(f"that run was initialized from {name}, this one is not", stacklevel=3)


def _loss_probes(
    recipe: Recipe, trained: Shards, validate: Shards | PathOrName | None, *, is_initialized: bool
) -> Iterator[Probe]:
    if validate is None:
        if is_initialized and trained.manifest["text"]:
            yield make_loss_probe(trained, recipe)
        return
    shards = validate if isinstance(validate, Shards) else Shards.open(validate)
    if shards.manifest["vocabulary"] != trained.manifest["vocabulary"]:
        raise BadInput(
            f"validate={shards.path}: these shards have another vocabulary than {trained.path}."
            f" Tokenize them with the vocabulary {trained.vocabulary_path}."
        )
    if not shards.manifest["text"]:
        raise BadInput(f"validate={shards.path}: these shards have no text to measure losses on.")
    yield make_loss_probe(shards, recipe)
