"""Everything a run needs to go on exactly where it was: weights, optimizer state, the step. No pickle."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

from crossling.disk import new_folder, write_json
from crossling.errors import BadInput

KEEP = 2


def save(folder: Path, step: int, net: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> Path:
    """Writes `folder/STEP` whole or not at all, then removes all but the newest few and what a crash left half."""
    target = folder / f"{step:07d}"
    with new_folder(target) as new, _disk_errors(target):
        save_model(net, str(new / "model.safetensors"))
        save_file(_optimizer_tensors(net, optimizer), new / "optimizer.safetensors")
        write_json(new / "state.json", {"step": step, **state})
    for old in [*all_steps(folder)[:-KEEP], *folder.glob(".[0-9][0-9][0-9][0-9][0-9][0-9][0-9].*")]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def load(target: Path, net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Puts a checkpoint back into `net` and `optimizer` and returns its state."""
    load_weights(target, net)
    with _readable(target):
        tensors = load_file(target / "optimizer.safetensors")
        state: dict[str, Any] = json.loads((target / "state.json").read_text(encoding="utf-8"))
    for name, parameter in net.named_parameters():
        stored = {key.rpartition("/")[2]: value for key, value in tensors.items() if key.rpartition("/")[0] == name}
        if stored:
            step = stored.pop("step")
            optimizer.state[parameter] = {k: v.to(parameter.device) for k, v in stored.items()}
            # A fused optimizer keeps its step counter on the parameter's device.
            optimizer.state[parameter]["step"] = step.to(parameter.device)
    return state


def load_weights(target: Path, net: nn.Module) -> None:
    with _readable(target):
        load_model(net, target / "model.safetensors")


def all_steps(folder: Path) -> list[Path]:
    """Finished checkpoints, oldest first. Unfinished ones have hidden names."""
    found = [path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir()] if folder.is_dir() else []
    return sorted(found, key=lambda path: int(path.name))


def _optimizer_tensors(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{key}": value.detach().cpu().contiguous()
        for name, parameter in net.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    """A full disk is an OSError here too: safetensors only names its number in a sentence."""
    try:
        yield
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(target)) from None


@contextmanager
def _readable(target: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, FileNotFoundError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(":.")
        raise BadInput(
            f"{target}: this checkpoint is damaged or of another network ({reason});"
            " remove its folder to go on from the one before"
        ) from None
