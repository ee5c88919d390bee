"""Mean of the weights of several checkpoints of one network, as a Hugging Face folder.

    w = sum over k of a_k w_k                   w_k: weights of checkpoint k, a_k: its weight, sum over k of a_k = 1

Checkpoints of one run, or of runs that continue one checkpoint, lie close enough for that (Izmailov et al. 2018; mmBERT
merges checkpoints of its decay phase).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from crossling.core.errors import BadInput
from crossling.core.folder_kinds import kind_note
from crossling.core.locks import output_lock
from crossling.export.export_folder import NATIVE, check_export_folder, write_export
from crossling.export.model_card import summarize_run
from crossling.model.native_encoder import NativeEncoder
from crossling.objectives import Network
from crossling.recipes.network import load_run
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_checkpoints import find_checkpoint, run_of
from crossling.vocabulary.open_vocabulary import AnyVocabulary, open_vocabulary


def merge(
    checkpoints: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    weights: Sequence[float] | None = None,
) -> Path:
    """Average the weights of checkpoints of one network, and write the model as `export` does.

    The model card describes the run of the last checkpoint, without its scores.

    Args:
        checkpoints: `RUN/checkpoints/STEP`, or run folders for their latest checkpoints.
        out: Folder to write. It may contain an earlier export.
        weights: Weight of each checkpoint, up to a common factor [default: equal].

    Returns:
        The folder.

    Raises:
        BadInput: A path is no checkpoint, the checkpoints are not of one network and vocabulary, there is not one
            positive weight for each, or `out` has other content.

    Example:
        >>> crossling.merge(["run/checkpoints/0000900", "run/checkpoints/0001000"], "merged")
    """
    paths, out = [Path(path) for path in checkpoints], Path(out)
    check_export_folder(out, "crossling merge")
    fractions = _fractions(paths, weights)
    _check_same_network(paths)
    net = mean_network(paths, fractions)
    merged = [f"{_name(path)} ({fraction:.3g})" for path, fraction in zip(paths, fractions, strict=True)]
    summary = replace(summarize_run(paths[-1]), scores=[], merged=merged)
    family = NATIVE if isinstance(net.encoder, NativeEncoder) else "crossling"
    with output_lock(out):
        write_export(out, net, _vocabulary(paths[0]), summary, family=family)
    return out


def _fractions(paths: Sequence[Path], weights: Sequence[float] | None) -> list[float]:
    if len(paths) < 2:
        raise BadInput(f"merge: found {len(paths)} checkpoint. Give two or more, as RUN/checkpoints/STEP.")
    weights = [1.0] * len(paths) if weights is None else weights
    if len(weights) != len(paths) or not all(0 < weight < math.inf for weight in weights):
        listed = ", ".join(f"{weight:g}" for weight in weights)
        raise BadInput(f"merge: weights are {listed}, expected {len(paths)} positive numbers. Give one per checkpoint.")
    return [weight / sum(weights) for weight in weights]


def _check_same_network(paths: Sequence[Path]) -> None:
    """Raise BadInput if a path is no checkpoint, or has another architecture or vocabulary than the first one."""
    models = []
    for path in paths:
        run = run_of(path)
        if run is None:
            raise BadInput(f"merge: {path} is no run or checkpoint{kind_note(path)}. Give RUN/checkpoints/STEP.")
        models.append((Recipe.load(run / "recipe.json").model, _vocabulary(path).fingerprint))
    for path, (shape, vocabulary) in zip(paths, models, strict=True):
        for name, is_same in (("model", shape == models[0][0]), ("vocabulary", vocabulary == models[0][1])):
            if not is_same:
                raise BadInput(f"merge: {path} has another {name} than {paths[0]}. Give checkpoints of one network.")


@torch.no_grad()
def mean_network(paths: Sequence[Path], fractions: Sequence[float]) -> Network:
    """Return the last network with the mean of all weights. State such as a queue, which no export has, stays its own.

    The sums are in float64, so the order of the checkpoints hardly matters.
    """
    sums: dict[str, Tensor] = {}
    for path, fraction in zip(paths, fractions, strict=True):
        net = load_run(path)
        terms = {name: fraction * value.double() for name, value in net.named_parameters()}
        sums = sums or {name: torch.zeros_like(term) for name, term in terms.items()}
        for name in sorted({*terms, *sums}):
            found, expected = _shape(terms, name), _shape(sums, name)
            if found != expected:
                raise BadInput(
                    f"merge: {name} is {found or 'missing'} in {path}, but {expected or 'missing'} in {paths[0]}. Give"
                    " checkpoints of one network."
                )
            sums[name] += terms[name]
    for name, value in net.named_parameters():
        value.copy_(sums[name])
    return net


def _shape(tensors: dict[str, Tensor], name: str) -> tuple[int, ...] | None:
    return (*tensors[name].shape,) if name in tensors else None


def _vocabulary(path: Path) -> AnyVocabulary:
    return open_vocabulary((run_of(path) or path) / "vocab")


def _name(path: Path) -> str:
    """Return the names of run and step. The folders above mean nothing to others."""
    return f"{(run_of(path) or path).resolve().name} step {int(find_checkpoint(path).name)}"
