"""The tensors of a checkpoint: which they are, and how they lie on disk.

torch.distributed.checkpoint writes and reads them, in safetensors: each process its own shards, of what all of them
have each tensor by one of them; another number of processes reads them as well. A weight has the name it has in the
network, what Adam keeps of it is NAME/exp_avg, NAME/exp_avg_sq and NAME/step. A tied weight is stored once.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from crossling.disk import new_file
from crossling.errors import BadInput

Group = dist.ProcessGroup | None  # none: alone
ALONE = "torch.distributed is disabled, unavailable or uninitialized"  # DCP warns of it every time


class Copies:
    """Everything there is to save, on the CPU, so that training may go on."""

    def __init__(self) -> None:
        self._stager = BlockingAsyncStager()
        self._form: dict[str, torch.Size] = {}

    def of(self, net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        weights = _weights(net)
        kept = {
            f"{name}/{key}": value
            for name, weight in weights.items()
            for key, value in optimizer.state.get(weight, {}).items()
        }
        found = {name: value.detach() for name, value in {**weights, **kept}.items()}
        form = {name: value.shape for name, value in found.items()}
        if form != self._form:  # a GPU copies to pinned memory, which is slow to make and therefore used again
            self._stager, self._form = BlockingAsyncStager(cache_staged_state_dict=torch.cuda.is_available()), form
        return self._stager.stage(found)


def write(tensors: dict[str, Tensor], folder: Path, rank: int, group: Group) -> Path:
    """Called by all processes of the group; returns what this one has written."""
    file = folder / f"{rank:05d}.safetensors"
    with _plain_errors():
        dcp.save(tensors, storage_writer=_Writer(file), process_group=group, no_dist=group is None)
    return file


class _Writer(dcp.HuggingFaceStorageWriter):
    """torch's own puts a file together in memory twice, and nothing else runs meanwhile: 2.6 s for each GB."""

    def __init__(self, file: Path) -> None:
        super().__init__(str(file.parent), save_distributed=True)
        self.file = file

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        tensors, places = {}, {}
        for item in plan.items:
            tensor, data = planner.resolve_data(item), item.tensor_data
            assert isinstance(tensor, Tensor)  # there is nothing else
            assert data is not None
            tensors[item.index.fqn] = tensor.detach().contiguous()
            places[item.index.fqn] = {"saved_offsets": [*data.chunk.offsets]}
        with new_file(self.file) as new:
            save_file(tensors, new, {"DCP_SHARDING_INFO": json.dumps(places)})  # one key: several are in no fixed order
        done: Future[list[WriteResult]] = Future()
        done.set_result([])
        return done


def load(folder: Path, net: nn.Module, optimizer: torch.optim.Optimizer | None, group: Group) -> None:
    """Puts what is stored into the network and the optimizer, if one is given, of each process of the group."""
    weights, stored = _weights(net), _stored(folder)
    _check(folder, weights, stored)
    found = {name: weight.detach() for name, weight in weights.items()}
    if optimizer is not None:
        for full, tensor in stored.items():
            name, slash, key = full.rpartition("/")
            if slash:
                found[full] = optimizer.state[weights[name]][key] = _room(key, tensor, weights[name])
    _read(folder, found, group)


def tensors(folder: Path) -> dict[str, Tensor]:
    """Everything a checkpoint holds, whole, by the names above."""
    found = {name: torch.empty(value.shape, dtype=value.dtype) for name, value in _stored(folder).items()}
    _read(folder, found, None)
    return found


def _weights(net: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers as they are, each under its first name."""
    first: dict[int, str] = {}
    named = net.state_dict(keep_vars=True)
    return {name: value for name, value in named.items() if first.setdefault(id(value), name) == name}


def _stored(folder: Path) -> dict[str, Tensor]:
    """Shapes and types: tensors without data."""
    metadata = dcp.HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {
        name: torch.empty(value.size, dtype=value.properties.dtype, device="meta")
        for name, value in metadata.items()
        if isinstance(value, TensorStorageMetadata)  # there is nothing else
    }


def _check(folder: Path, weights: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
    """DCP would leave out what the network does not have."""
    ours = {name: tuple(weight.shape) for name, weight in weights.items()}
    theirs = {name: tuple(tensor.shape) for name, tensor in stored.items() if "/" not in name}
    different = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    if different:
        name = different[0]
        raise BadInput(
            f"{folder}: this checkpoint is of another network ({name}: {theirs.get(name, 'nothing')} stored,"
            f" {ours.get(name, 'nothing')} expected); give the recipe it was made with, or another folder"
        )


def _room(key: str, stored: Tensor, weight: Tensor) -> Tensor:
    """To load a tensor of the optimizer into. Adam's moments are sharded as the weight is; a fused one has its counter
    of steps on the weight's device."""
    if key == "step":
        return torch.empty(stored.shape, dtype=stored.dtype, device=weight.device)
    return torch.empty_like(weight, dtype=stored.dtype, requires_grad=False)


def _read(folder: Path, found: dict[str, Tensor], group: Group) -> None:
    with _plain_errors():
        reader = dcp.HuggingFaceStorageReader(str(folder))
        dcp.load(found, storage_reader=reader, process_group=group, no_dist=group is None)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """DCP packs the errors of all processes into one that is not even an Exception; the first one says enough. Of a
    full disk, safetensors only names the number in a sentence."""
    if not any(message is not None and message.pattern == ALONE for _, message, *_ in warnings.filters):
        warnings.filterwarnings("ignore", message=ALONE)  # once: a new filter makes Python say all others again
    try:
        yield
    except dcp.CheckpointException as several:
        error = next(iter(several.failures.values()))[0]
        number = re.search(r"\(os error (\d+)\)", str(error)) if isinstance(error, SafetensorError) else None
        if number is not None:
            error = OSError(int(number[1]), os.strerror(int(number[1])))
        raise error from None
