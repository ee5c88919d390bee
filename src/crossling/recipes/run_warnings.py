"""Warnings about settings that are valid but do not suit the data of a run. `plan` and `pretrain` issue them.

A language or language pair that is read hundreds of times is memorized. Muennighoff et al. (2023) found no gain beyond
40 epochs, and BERT had 40. The limit is higher, because small experiments on purpose repeat their text more often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from crossling.core.progress import format_count
from crossling.recipes.recipe import Recipe
from crossling.recipes.sampling_preview import SamplingPreview, format_key
from crossling.sampling import Pair

MAX_EPOCHS = 200  # more are reported
GOOD_EPOCHS = 40
MIN_STEPS = 500  # fewer are no training run: a smaller batch is suggested instead
MIN_BATCH = 1024  # tokens of an objective per step
MAX_WARMUP = 0.5  # of the steps
MAX_LISTED = 6  # languages in a message
LONG_RUN = 100  # steps; shorter runs are tests


def run_warnings(
    recipe: Recipe, text: SamplingPreview[str] | None, pairs: SamplingPreview[Pair] | None
) -> Iterator[str]:
    """Yield one line for each setting that does not suit the run: what was found, and what to set.

    Args:
        recipe: Settings of the run, already checked.
        text: Sampling of text in this run, or None.
        pairs: Sampling of pairs in this run, or None.
    """
    yield from _warmup_warnings(recipe)
    if text is not None:
        yield from _epoch_warnings(recipe, "text", text)
    if pairs is not None:
        yield from _epoch_warnings(recipe, "pairs", pairs)
    if pairs is not None and pairs.skipped:
        number = len(pairs.skipped)
        listed = ", ".join(pairs.skipped[:MAX_LISTED]) + (", ..." if number > MAX_LISTED else "")
        yield (
            f"sampling.min_pairs={recipe.sampling.min_pairs}: no pair of {listed} is used"
            f" ({number} language{'s' if number > 1 else ''}), because the shards have fewer. Set"
            " sampling.min_pairs=none to use them."
        )


def _warmup_warnings(recipe: Recipe) -> Iterator[str]:
    warmup = recipe.optimizer.warmup_steps(recipe.steps)
    if recipe.steps >= LONG_RUN and warmup >= MAX_WARMUP * recipe.steps:
        yield (
            f"optimizer.warmup: {warmup:,} of {recipe.steps:,} steps are warm-up, so the learning rate peaks late."
            " Set optimizer.warmup=0.1 for a tenth of the steps."
        )


def _epoch_warnings(recipe: Recipe, stream: str, preview: SamplingPreview[Any]) -> Iterator[str]:
    """Yield one line if a language or pair of a stream is read too often."""
    repeated = {key: epochs for key, epochs in preview.epochs.items() if epochs > MAX_EPOCHS}
    if not repeated:
        return
    worst = preview.most_repeated
    counted = "tokens" if stream == "text" else "pairs"
    others = f", {len(repeated) - 1} more over {MAX_EPOCHS} times" if len(repeated) > 1 else ""
    yield (
        f"{format_key(worst)}: its {format_count(preview.counts[worst])} {counted} would be read"
        f" {repeated[worst]:,.0f} times in {recipe.steps:,} steps{others}."
        f" {_epoch_fix(recipe, stream, GOOD_EPOCHS / repeated[worst])}{_sampling_fix(recipe, stream, preview)}"
    )


def _epoch_fix(recipe: Recipe, stream: str, factor: float) -> str:
    """Return the steps, and if they are few the batch size, that read `factor` times as much."""
    steps = recipe.steps * factor
    if steps >= MIN_STEPS:
        return f"Set steps={_rounded(steps)} for about {GOOD_EPOCHS} times."
    steps = min(recipe.steps, MIN_STEPS)
    scale = factor * recipe.steps / steps
    settings = {}
    for name, objective in recipe.objectives.items():
        if objective.stream == stream:
            setting = objective.batch_setting
            settings[f"{name}.{setting}"] = (getattr(objective, setting), setting == "tokens")
    least = min((value * scale for value, is_tokens in settings.values() if is_tokens), default=MIN_BATCH)
    if least < MIN_BATCH:
        return "There is too little of it for this run. Add data, or train a smaller size for fewer steps."
    batch = " ".join(f"{name}={max(2, _rounded(value * scale))}" for name, (value, _) in settings.items())
    return f"Set steps={steps} {batch} for about {GOOD_EPOCHS} times."


def _sampling_fix(recipe: Recipe, stream: str, preview: SamplingPreview[Any]) -> str:
    """Return the sampling setting that lowers the probability of the language, if it has one."""
    sampling, worst = recipe.sampling, preview.most_repeated
    in_focus = not sampling.focus_languages.isdisjoint([worst] if isinstance(worst, str) else worst)
    alpha = "text_alpha" if stream == "text" else "pair_alpha"
    if len(preview.counts) == 1:
        return ""
    if in_focus and sampling.replay < 1:
        return f" A higher sampling.replay (now {sampling.replay:g}) reads it less often, too."
    if not in_focus and sampling.focus is not None:
        return f" A lower sampling.replay (now {sampling.replay:g}) reads it less often, too."
    if getattr(sampling, alpha) < 1:
        return f" A higher sampling.{alpha} (now {getattr(sampling, alpha):g}) reads it less often, too."
    return ""


def _rounded(number: float) -> int:
    """Return the number with two significant digits, rounded down."""
    digits = 10 ** max(0, math.floor(math.log10(max(1.0, number))) - 1)
    return max(1, int(number // digits * digits))
