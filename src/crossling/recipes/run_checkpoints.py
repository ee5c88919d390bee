"""Checkpoints of a run as models, by their path RUN/checkpoints/STEP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput
from crossling.core.folder_kinds import kind_note
from crossling.train.checkpoint import check_checkpoint, latest_valid_checkpoint, list_checkpoints, read_state
from crossling.train.run_folder import CHECKPOINTS


def run_of(model: str | os.PathLike[str]) -> Path | None:
    """Return the run folder of a model: a run, or a path RUN/checkpoints/STEP. None for any other model."""
    path = Path(model)
    if (path / "recipe.json").is_file():
        return path
    folder = path.resolve()
    is_checkpoint = folder.name.isdecimal() and folder.parent.name == CHECKPOINTS
    run = folder.parents[1] if is_checkpoint else None
    return run if run is not None and (run / "recipe.json").is_file() else None


def find_checkpoint(model: Path) -> Path:
    """Return the latest valid checkpoint of a run, or the checkpoint of a path RUN/checkpoints/STEP.

    Raises:
        BadInput: If there is no such checkpoint, or if it is damaged.
    """
    run = run_of(model)
    if run is None or (model / "recipe.json").is_file():
        return latest_valid_checkpoint(model)
    if not model.is_dir():
        steps = ", ".join(path.name for path in list_checkpoints(run / CHECKPOINTS))
        raise BadInput(f"{model}: no such checkpoint. The run has {steps or 'none'}.")
    check_checkpoint(model)
    return model


def select_checkpoints(run: Path, steps: str) -> list[Path]:
    """Return checkpoints of a run.

    Args:
        run: Run folder.
        steps: `all`, or steps separated by commas, such as `1000,2000`.

    Raises:
        BadInput: If it is no run, or has no checkpoint of a step.
    """
    if not (run / "recipe.json").is_file():
        raise BadInput(f"checkpoints={steps}: {run} is no run of crossling pretrain{kind_note(run)}. Give a run.")
    saved = {path.name.lstrip("0") or "0": path for path in list_checkpoints(run / CHECKPOINTS)}
    chosen = [*saved] if steps == "all" else [step.strip().lstrip("0") or "0" for step in steps.split(",")]
    for step in chosen or [steps]:
        if step not in saved:
            raise BadInput(f"checkpoints={steps}: {run} has {', '.join(saved) or 'none'}. Give all, or some of them.")
    return [saved[step] for step in dict.fromkeys(chosen)]


def pretraining_cost(model: Path) -> dict[str, Any]:
    """Return `step` and `flops` of a path RUN/checkpoints/STEP. Empty for any other model, and without such records."""
    if run_of(model) is None or (model / "recipe.json").is_file():
        return {}
    state = read_state(model)
    return {name: state[name] for name in ("step", "flops") if name in state}
