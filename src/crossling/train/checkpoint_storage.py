"""Tensors of a checkpoint in safetensors, written and read by torch.distributed.checkpoint (DCP).

Each process writes its own shards. A tensor that all processes have is written by one of them. Any other world size can
read them. A weight has its name in the network. Adam's state of it is NAME/exp_avg, NAME/exp_avg_sq and NAME/step. A
tied weight is stored once.
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

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file

OptionalGroup = dist.ProcessGroup | None  # None: one process
SINGLE_PROCESS_WARNING = "torch.distributed is disabled, unavailable or uninitialized"  # of DCP


class StagedTensors:
    """Copies tensors to the CPU, so that training continues while they are written."""

    def __init__(self) -> None:
        self._stager = BlockingAsyncStager()
        self._shapes: dict[str, torch.Size] = {}

    def copy(self, net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """Return copies of the weights and of the optimizer state."""
        weights = _named_weights(net)
        tensors = {name: weight.detach() for name, weight in weights.items()}
        for name, weight in weights.items():
            tensors |= {f"{name}/{key}": value.detach() for key, value in optimizer.state.get(weight, {}).items()}
        shapes = {name: value.shape for name, value in tensors.items()}
        if shapes != self._shapes:  # pinned memory is slow to allocate and therefore reused
            self._stager = BlockingAsyncStager(cache_staged_state_dict=torch.cuda.is_available())
            self._shapes = shapes
        return self._stager.stage(tensors)


def write_tensors(tensors: dict[str, Tensor], folder: Path, rank: int, group: OptionalGroup) -> Path:
    """Write the tensors of this process and return the file. All processes of the group must call it."""
    file = folder / f"{rank:05d}.safetensors"
    with _plain_errors():
        dcp.save(tensors, storage_writer=_Writer(file), process_group=group, no_dist=group is None)
    return file


class _Writer(dcp.HuggingFaceStorageWriter):
    """Writer that copies no file in memory. That of torch does it twice and blocks all threads, 2.6 s for each GB."""

    def __init__(self, file: Path) -> None:
        super().__init__(str(file.parent), save_distributed=True)
        self.file = file

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        tensors, offsets = {}, {}
        for item in plan.items:
            tensor, data = planner.resolve_data(item), item.tensor_data
            assert isinstance(tensor, Tensor)  # no other kind is saved
            assert data is not None
            tensors[item.index.fqn] = tensor.detach().contiguous()
            offsets[item.index.fqn] = {"saved_offsets": [*data.chunk.offsets]}
        metadata = {"DCP_SHARDING_INFO": json.dumps(offsets)}  # one key: the order of several is not fixed
        with atomic_file(self.file) as new:
            save_file(tensors, new, metadata)
        done: Future[list[WriteResult]] = Future()
        done.set_result([])
        return done


def load_tensors(folder: Path, net: nn.Module, optimizer: torch.optim.Optimizer | None, group: OptionalGroup) -> None:
    """Load a checkpoint into the network, and into the optimizer if given. All processes of the group must call it."""
    weights, stored = _named_weights(net), _stored_shapes(folder)
    _check_shapes(folder, weights, stored)
    tensors = {name: weight.detach() for name, weight in weights.items()}
    if optimizer is not None:
        for full, tensor in stored.items():
            name, slash, key = full.rpartition("/")
            if slash:
                tensors[full] = optimizer.state[weights[name]][key] = _allocate(key, tensor, weights[name])
    _read(folder, tensors, group)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a checkpoint, unsharded, by name."""
    tensors = {name: torch.empty(value.shape, dtype=value.dtype) for name, value in _stored_shapes(folder).items()}
    _read(folder, tensors, None)
    return tensors


def _named_weights(net: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers, each under its first name."""
    first: dict[int, str] = {}
    named = net.state_dict(keep_vars=True)
    return {name: value for name, value in named.items() if first.setdefault(id(value), name) == name}


def _stored_shapes(folder: Path) -> dict[str, Tensor]:
    """Return tensors without data, with the stored shapes and types."""
    metadata = dcp.HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {
        name: torch.empty(value.size, dtype=value.properties.dtype, device="meta")
        for name, value in metadata.items()
        if isinstance(value, TensorStorageMetadata)  # no other kind is saved
    }


def _check_shapes(folder: Path, weights: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
    """Raise BadInput if the network differs. DCP would ignore tensors that the network does not have."""
    ours = {name: tuple(weight.shape) for name, weight in weights.items()}
    theirs = {name: tuple(tensor.shape) for name, tensor in stored.items() if "/" not in name}
    different = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    if different:
        name = different[0]
        raise BadInput(
            f"{folder}: checkpoint of another network. {name} is {theirs.get(name, 'missing')} there, expected"
            f" {ours.get(name, 'no such tensor')}. Use the recipe it was trained with, or another folder."
        )


def _allocate(key: str, stored: Tensor, weight: Tensor) -> Tensor:
    """Return an empty tensor for optimizer state.

    Moments are sharded as the weight is. A fused optimizer has its step counter on the weight's device.
    """
    if key == "step":
        return torch.empty(stored.shape, dtype=stored.dtype, device=weight.device)
    return torch.empty_like(weight, dtype=stored.dtype, requires_grad=False)


def _read(folder: Path, tensors: dict[str, Tensor], group: OptionalGroup) -> None:
    with _plain_errors():
        reader = dcp.HuggingFaceStorageReader(str(folder))
        dcp.load(tensors, storage_reader=reader, process_group=group, no_dist=group is None)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise the first of the errors that DCP collects from all processes.

    DCP's own is not even an Exception. For a full disk, safetensors gives the error number only inside a sentence.
    """
    ignored = [message.pattern for _, message, *_ in warnings.filters if message is not None]
    if SINGLE_PROCESS_WARNING not in ignored:  # a new filter would repeat all other warnings
        warnings.filterwarnings("ignore", message=SINGLE_PROCESS_WARNING)
    try:
        yield
    except dcp.CheckpointException as collected:
        error = next(iter(collected.failures.values()))[0]
        number = re.search(r"\(os error (\d+)\)", str(error)) if isinstance(error, SafetensorError) else None
        if number is not None:
            error = OSError(int(number[1]), os.strerror(int(number[1])))
        raise error from None
