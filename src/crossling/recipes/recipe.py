"""Recipe: all settings of a pre-training run.

A recipe is a frozen value. A variation states its difference: `xlm_e("base").replace(steps=10_000)` in Python,
`--set steps=10000 --set trtd=off` on the command line.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from crossling.core import settings
from crossling.core.errors import BadInput, suggestion
from crossling.core.settings import AT_LEAST_0, AT_LEAST_1, POSITIVE, SEED
from crossling.data.batches import LENGTH_MULTIPLE
from crossling.model.model_shape import SIZES, ModelShape
from crossling.objectives import (
    CAMLM,
    CATLM,
    MLM,
    MRTD,
    TLM,
    TRTD,
    Denoising,
    Distillation,
    PairDenoising,
    PretrainingObjective,
    XLCo,
)
from crossling.recipes.fp8_settings import fp8_problems
from crossling.recipes.phases import add_phase_setting, is_phase_setting, phase_problems, read_phase_settings
from crossling.recipes.setting_aliases import SETTING_ALIASES
from crossling.sampling import DRO, Sampling
from crossling.train.choices import Parallel, Precision, Reduction
from crossling.train.optimizer import OptimizerSettings
from crossling.train.run_folder import read_description

OBJECTIVES = ("mlm", "tlm", "mrtd", "trtd", "xlco", "ca_mlm", "ca_tlm", "denoising", "pair_denoising", "distillation")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a pre-training run. An objective that is None is off.

    Args:
        name: Name of the recipe.
        model: Architecture of the encoder.
        sampling: Sampling probabilities of languages and language pairs.
        optimizer: AdamW or Muon, learning-rate schedule, weight decay and gradient clipping.
        lr: Peak learning rate.
        steps: Number of optimizer steps.
        mlm: Masked language modelling on text.
        tlm: Translation language modelling: MLM on joined translation pairs.
        mrtd: Multilingual replaced token detection on text, which also trains its generator with MLM.
        trtd: Translation replaced token detection on joined pairs, which also trains its generator with TLM.
        xlco: Cross-lingual contrastive learning on translation pairs.
        ca_mlm: Cross-attention masked language modelling on adjacent segments of text (VECO).
        ca_tlm: Cross-attention masked language modelling on translation pairs (VECO).
        denoising: Reconstruct text from which spans were removed, with a decoder (mBART).
        pair_denoising: Translate a source from which spans were removed, with a decoder (mBART in VECO's Table 5).
        distillation: Copy the sentence vectors of a teacher.
        dro: Resample bitext during the run by the loss of each corpus and language pair.
        reduction: Divide each loss term by its own count (`mean`), or all by the sum of all counts (`token_sum`).
        alternate: Train on text in even steps and on pairs in odd steps, instead of both in each step.
        freeze_steps: Steps in which only new cross-attention is trained, if the run is initialized from a model.
        seed: Seed of weights, sampling, masking and dropout.
        checkpoint_every: Steps between two checkpoints.
        keep_last: Number of latest checkpoints to keep, beside the best ones.
        keep_every: Also save and keep the checkpoint of each step that is a multiple of this number.
        keep_best: Also keep the checkpoint with the best value of this metric: `loss`, a loss term, its accuracy
            (`mlm_accuracy`) or a probe (`probe/retrieval/sw`). Lower is better for losses, higher for all others.
        log_every: Steps between two rows of metrics.
        micro_tokens: Tokens of a micro-batch. It bounds memory and, without dropout, changes no result.
        gradient_checkpointing: Recompute most activations in the backward pass: less memory, more time.
        parallel: On several GPUs: a full copy on each (`ddp`), sharded (`fsdp`), or by the size of the model (`auto`).
        cuda_graphs: On a GPU, replay training steps as CUDA graphs, so that small steps do not wait for the host. Not
            used if the network is sharded.
        precision: Matrix products on a GPU: all in bfloat16 (`bf16`), or those of the linear layers in all blocks in 8
            bits (`fp8`), from an H100 on. Weights stay in float32. A CPU trains in float32 with `bf16`.
        phases: Settings that change during the run, as `key=value@start` separated by spaces: masking rates and
            `sampling.languages`, `text_alpha` and `pair_alpha`. The start is a step, or below 1 a fraction of all
            steps. Also set one by one, as `--set mlm.rate=0.05@0.9`.

    Example:
        >>> recipe = crossling.recipes.xlm_e("small").replace(steps=10_000, lr=1e-3)
        >>> recipe = recipe.set(["trtd=off", "model.dropout=0"])
        >>> recipe.check()
    """

    name: str
    model: ModelShape
    sampling: Sampling
    optimizer: OptimizerSettings
    lr: Annotated[float, POSITIVE]
    steps: Annotated[int, AT_LEAST_1]
    mlm: MLM | None = None
    tlm: TLM | None = None
    mrtd: MRTD | None = None
    trtd: TRTD | None = None
    xlco: XLCo | None = None
    ca_mlm: CAMLM | None = None
    ca_tlm: CATLM | None = None
    denoising: Denoising | None = None
    pair_denoising: PairDenoising | None = None
    distillation: Distillation | None = None
    dro: DRO | None = None
    reduction: Reduction = "mean"
    alternate: bool = False
    freeze_steps: Annotated[int, AT_LEAST_0] = 0
    seed: Annotated[int, SEED] = 0
    checkpoint_every: Annotated[int, AT_LEAST_1] = 1000
    keep_last: Annotated[int, AT_LEAST_1] = 2
    keep_every: Annotated[int | None, AT_LEAST_1] = None
    keep_best: str | None = None
    log_every: Annotated[int, AT_LEAST_1] = 50
    micro_tokens: Annotated[int, AT_LEAST_1] = 65_536
    gradient_checkpointing: bool = False
    parallel: Parallel = "auto"
    cuda_graphs: bool = True
    precision: Precision = "bf16"
    phases: str | None = None

    @property
    def objectives(self) -> dict[str, PretrainingObjective]:
        """The objectives that are on, by name."""
        return {name: getattr(self, name) for name in OBJECTIVES if getattr(self, name) is not None}

    @property
    def has_rtd(self) -> bool:
        """Replaced token detection is on, and with it a generator."""
        return bool(self.mrtd or self.trtd)

    @property
    def has_decoder(self) -> bool:
        """An objective trains a decoder beside the encoder."""
        return bool(self.denoising or self.pair_denoising)

    def stream_steps(self, stream: str) -> int:
        """Return the number of steps that read a stream.

        Args:
            stream: `text`, `pairs` or `sentences`.

        Returns:
            All steps, or half of them if text and pairs alternate.

        Example:
            >>> crossling.recipes.xlm("base").replace(alternate=True, steps=11).stream_steps("text")
            6
        """
        streams = {objective.stream for objective in self.objectives.values()}
        if not self.alternate or stream == "sentences" or not {"text", "pairs"} <= streams:
            return self.steps
        return (self.steps + (stream == "text")) // 2

    def split(self) -> list[Recipe]:
        """Return one recipe for each phase, with its settings and its number of steps.

        Returns:
            The phases in order. A recipe without `phases` is its only one.

        Raises:
            BadInput: A phase setting is not valid, or starts before the first step or after the last one.

        Example:
            >>> recipe = crossling.recipes.xlm_r("base").set(["steps=1000", "mlm.rate=0.3", "mlm.rate=0.15@0.6"])
            >>> [(phase.steps, phase.mlm.rate) for phase in recipe.split()]
            [(600, 0.3), (400, 0.15)]
        """
        later: dict[int, list[str]] = {}
        for setting in read_phase_settings(self.phases):
            step = setting.first_step(self.steps)
            if not 0 < step < self.steps:
                raise BadInput(f"phases: {setting.text} starts at step {step} of {self.steps}. Set another start.")
            if setting.part in OBJECTIVES and getattr(self, setting.part) is None:
                raise BadInput(f"phases: {setting.text} changes {setting.part}, which is off. Omit it.")
            later.setdefault(step, []).append(setting.assignment)
        starts = sorted({0, *later})
        phase, recipes = self.replace(phases=None), []
        for start, end in pairwise([*starts, self.steps]):
            for assignment in later.get(start, ()):
                phase = settings.assign(phase, assignment)
            recipes.append(phase.replace(steps=end - start))
        return recipes

    def replace(self, **changes: Any) -> Recipe:
        """Return a copy with some fields changed.

        Args:
            **changes: New values by field name.

        Returns:
            The changed recipe.

        Raises:
            TypeError: A name is no field. A conventional name is answered with ours.

        Example:
            >>> crossling.recipes.xlm_e("base").replace(steps=10_000).steps
            10000
        """
        names = self.__dataclass_fields__
        for name, value in changes.items():
            if name not in names:
                hint = settings.alias_hint(self, name, str(value), SETTING_ALIASES)
                raise TypeError(f"{name}={value}: {hint or f'there is no {name!r}{suggestion(name, names)}'}")
        return replace(self, **changes)

    def set(self, assignments: Iterable[str]) -> Recipe:
        """Return a copy with `key=value` settings applied in order, as `--set` of the command line does.

        An objective that is turned on takes the batch size and length of those that are or were on. Setting `tokens` of
        an objective resets its `sequences`.

        Args:
            assignments: `steps=100`, `trtd=off`, `xlco=on`, `model.gate=false`.

        Returns:
            The changed recipe.

        Raises:
            BadInput: A key is unknown or a value has the wrong type.

        Example:
            >>> crossling.recipes.xlm_e("base").set(["trtd=off", "mrtd.lambda=25"])
        """
        if isinstance(assignments, str):
            raise BadInput(f"set: found the string {settings.shorten(assignments)!r}. Give a list of settings.")
        recipe, known = self, self.objectives
        for assignment in assignments:
            key = assignment.partition("=")[0]
            part = key.partition(".")[0]
            if is_phase_setting(assignment):
                recipe = recipe.replace(phases=add_phase_setting(recipe.phases, assignment))
                continue
            if "." in key and part in OBJECTIVES and getattr(recipe, part) is None:
                warnings.warn(
                    f"{assignment}: {part} is off in {recipe.name}, and this setting turns it on. Set {part}=on to"
                    f" confirm it, or omit the setting",
                    stacklevel=2,
                )
            if part in OBJECTIVES and getattr(recipe, part) is None and not assignment.endswith("=off"):
                recipe = recipe.replace(**{part: _sized_like(settings.part_type(Recipe, part), known)})
            if key == f"{part}.tokens" and getattr(getattr(recipe, part, None), "sequences", None) is not None:
                recipe = settings.assign(recipe, f"{part}.sequences=none")  # otherwise tokens would have no effect
            recipe = settings.assign(recipe, assignment, SETTING_ALIASES)
            known = known | recipe.objectives
        return recipe

    def check(self) -> None:
        """Raise BadInput if a value is out of its bounds or settings contradict each other.

        Raises:
            BadInput: The message names the setting, the value found and what to change.

        Example:
            >>> crossling.recipes.xlm_e("base").check()
        """
        settings.check_bounds(self, f"recipe {self.name}")
        for phase in self.split()[1:]:
            settings.check_bounds(phase, f"recipe {self.name}: phases")
        problem = next(self._problems(), None)
        if problem:
            raise BadInput(f"recipe {self.name}: {problem}")

    def settings(self) -> Iterator[tuple[str, Any]]:
        """Return every setting with its key as `set` takes it.

        Returns:
            Pairs such as `("model.width", 768)`.

        Example:
            >>> dict(crossling.recipes.xlm_e("base").settings())["model.width"]
            768
        """
        return settings.flatten(self)

    def dump(self) -> dict[str, Any]:
        """Return the recipe as a JSON object.

        Returns:
            Nested dictionaries of all fields.

        Example:
            >>> crossling.recipes.xlm_e("base").dump()["steps"]
            125000
        """
        return asdict(self)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Recipe:
        """Read the recipe of a run from its `recipe.json`.

        Args:
            file: The `recipe.json` of a run folder.

        Returns:
            The recipe of that run.

        Raises:
            BadInput: The file is not readable, not the `recipe.json` of a run, or of another version.

        Example:
            >>> crossling.Recipe.load("runs/xlm_e/recipe.json").steps
            125000
        """
        return settings.from_dict(cls, read_description(Path(file))["recipe"], str(file))

    def as_started(self, run: str | os.PathLike[str]) -> Recipe:
        """Return the recipe without newer defaults that did not exist when a run was started, so that the run resumes.

        Only values that a recipe of this name has by itself are reset. Values that a user has set stay.

        Args:
            run: Run folder, which may not exist.

        Returns:
            The recipe with None for each such setting.

        Raises:
            BadInput: The `recipe.json` of the run is not readable, or of another version.

        Example:
            >>> crossling.recipes.xlm_e("base").as_started("runs/xlm_e").sampling.full_blocks
        """
        file = Path(run) / "recipe.json"
        if not file.is_file():
            return self
        from crossling.recipes import RECIPES, has_size  # it imports this module

        own = dict(self.settings())
        older = dict(settings.without_later_settings(self, read_description(file)["recipe"]).settings())
        sizes = [size for size in SIZES if self.name in RECIPES and has_size(self.name, size)]
        published = [dict(RECIPES[self.name](size).settings()) for size in sizes]
        recipe = self
        for key in own.keys() & older.keys():
            if own[key] != older[key] and any(own[key] == defaults.get(key) for defaults in published):
                recipe = settings.assign(recipe, f"{key}=none")
        return recipe

    def _problems(self) -> Iterator[str]:
        """Yield contradictions between settings, each as a message."""
        if not self.objectives:
            yield f"no objective is on. Set one of {', '.join(OBJECTIVES)}."
        for masked, replaced in (("mlm", "mrtd"), ("tlm", "trtd")):
            if getattr(self, masked) and getattr(self, replaced):
                yield f"{replaced} already trains a generator with {masked}. Turn one of them off."
        for name, objective in self.objectives.items():
            padded = -(-objective.length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
            if padded > self.model.max_length:
                yield (
                    f"{name}.length is {objective.length} (padded to {padded}), more than model.max_length ="
                    f" {self.model.max_length}. Set a shorter {name}.length."
                )
            yield from objective.problems(name)
        if (self.ca_mlm or self.ca_tlm) and not self.model.cross_attention:
            yield "ca_mlm and ca_tlm need cross-attention. Set model.cross_attention=true."
        yield from self.model.problems()
        if self.has_decoder and self.model.cross_attention:
            yield "the decoder has its own cross-attention. Set model.cross_attention=false."
        if self.freeze_steps and not self.model.cross_attention:
            yield "freeze_steps needs cross-attention to train. Set freeze_steps=0 or model.cross_attention=true."
        for phase in self.split():
            yield from phase.sampling.problems()
        layers = {f"{name}.layer": getattr(each, "layer", None) for name, each in self.objectives.items()}
        for key, layer in (*layers.items(), ("model.universal_layer", self.model.universal_layer)):
            if layer is not None and not 0 <= layer <= self.model.layers:
                yield f"{key} is {layer}, the model has layers 0 to {self.model.layers}. Set one of these."
        yield from self.optimizer.problems(self.steps)
        yield from phase_problems(self.phases, self.steps)
        if self.xlco and self.xlco.matryoshka and max(self.xlco.widths(0)) >= self.model.width:
            yield f"xlco.matryoshka is {self.xlco.matryoshka}, and model.width {self.model.width}. Set smaller widths."
        if self.dro and not any(objective.stream == "pairs" for objective in self.objectives.values()):
            yield "dro resamples bitext, and no objective reads any. Set tlm=on or trtd=on."
        if self.dro and self.phases:
            yield "dro chooses the sampling probabilities itself. Set phases=none or dro=off."
        if self.dro and self.dro.times >= self.steps:
            yield f"dro.times is {self.dro.times} and steps only {self.steps}. Set a lower dro.times."
        if self.precision == "fp8":
            yield from fp8_problems(self.model, self.parallel)
        terms = [term for objective in self.objectives.values() for term in objective.loss_weights]
        metrics = ["loss", *terms, *(f"{term}_accuracy" for term in terms)]
        if self.keep_best and self.keep_best not in metrics and not self.keep_best.startswith("probe/"):
            hint = suggestion(self.keep_best, metrics)
            yield f"keep_best is {self.keep_best}, not a metric of this run{hint}"


def _sized_like(cls: Any, others: Mapping[str, Any]) -> PretrainingObjective:
    """Return an objective at the batch size and length of the others, not at those of its paper."""
    sized = [other for other in others.values() if other.tokens is not None]
    closest = min(sized, key=lambda objective: objective.stream != cls.stream, default=None)
    objective: PretrainingObjective = cls.sized_like(closest.tokens, closest.length) if closest else cls()
    return objective
