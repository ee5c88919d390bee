"""Collectives between the processes that `torchrun` started. All work in a single process as well.

`process_group` initializes `torch.distributed`. Small CPU tensors use a gloo group, which does not wait for any device.
Gradients and keys use the backend of the device.
"""

from __future__ import annotations

import atexit
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from crossling.core.errors import BadInput, Failed, Interrupted
from crossling.core.heartbeat import Heartbeat
from crossling.core.locks import output_lock

# A process that exits closes its connections, which the others notice at once, and one that is lost has no heartbeat.
# So this does not limit the time for which processes may wait for a busy one.
COLLECTIVE_TIMEOUT = timedelta(days=7)
# Time for the process that knows the cause to print it, before the launcher terminates the others.
ERROR_GRACE_SECONDS = 3.0

_cpu_group: dist.ProcessGroup | None = None  # gloo group of small messages. None: the default group.


def rank() -> int:
    """Return the rank of this process, also before the process group is initialized."""
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0")) if _is_launched() else 0


def world_size() -> int:
    """Return the world size of this run."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main_process() -> bool:
    """Return True in the process that writes files and prints (rank 0)."""
    return rank() == 0


def _is_launched() -> bool:
    return "LOCAL_RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def process_group() -> Iterator[torch.device]:
    """Initialize the process group if torchrun started this process, and yield the device of this process.

    The group stays initialized until the process exits.
    """
    device = _own_device()
    if not _is_launched() or dist.is_initialized():
        yield device
        return
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    global _cpu_group
    # After a restart by torchrun the store still holds the keys of the previous attempt. A prefix separates them.
    store, own_rank, world = next(rendezvous("env://"))
    store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=own_rank, world_size=world)
    _cpu_group = dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
    heartbeat = Heartbeat(store, own_rank, world)
    heartbeat.start()
    atexit.register(dist.destroy_process_group)
    atexit.register(heartbeat.stop)  # runs first
    if not is_main_process():
        warnings.simplefilter("ignore")
    try:
        yield device
    except Exception as error:
        if isinstance(error, Interrupted):  # every process, at the same step
            raise error if is_main_process() else Interrupted from None
        atexit.unregister(dist.destroy_process_group)  # it would wait for processes that are gone
        is_lost = _is_connection_error(error)
        if is_lost or not is_main_process():  # an error that every process has is printed once
            time.sleep(ERROR_GRACE_SECONDS)
        if is_lost:
            raise Failed(
                "another process of this run has stopped or does not respond. Its last message is the cause. Run the"
                f" same command again to resume from the last checkpoint. ({str(error).splitlines()[0]})"
            ) from None
        raise


def _own_device() -> torch.device:
    """Return the GPU of this process, or the CPU without any."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    index, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if index >= gpus:
        processes = os.environ.get("LOCAL_WORLD_SIZE", str(index + 1))
        raise BadInput(
            f"torchrun: {processes} processes on a machine with {gpus} GPU{'s' if gpus > 1 else ''}. Set"
            f" --nproc-per-node={gpus}."
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def _is_connection_error(error: Exception) -> bool:
    # gloo raises a plain RuntimeError that only its text identifies.
    is_gloo = type(error) is RuntimeError and any(name in str(error) for name in ("gloo", "NCCL", "onnection"))
    return is_gloo or isinstance(error, dist.DistError)


@contextmanager
def main_process_first() -> Iterator[None]:
    """Run a block in the main process first, then in the others, which find the files it wrote.

    An error of the main process does not stop the others: they meet the same one.
    """
    if dist.is_initialized() and not is_main_process():
        dist.barrier(group=_cpu_group)
    try:
        yield
    finally:
        if dist.is_initialized() and is_main_process():
            dist.barrier(group=_cpu_group)


@contextmanager
def lock_run_output(out: str | os.PathLike[str]) -> Iterator[None]:
    """Lock an output of the whole run, in its main process. See `output_lock`."""
    with output_lock(out) if is_main_process() else nullcontext():
        yield


def all_reduce_sum(values: Tensor) -> Tensor:
    """Sum a CPU tensor over all processes, in place."""
    if dist.is_initialized():
        dist.all_reduce(values, group=_cpu_group)
    return values


def all_gather_rows(rows_N: Tensor) -> tuple[Tensor, int]:
    """Concatenate the rows of all processes in the order of their ranks, with gradient.

    The number of rows may differ between processes.

    Returns:
        The rows of all processes, and the index of the first row of this process.
    """
    # N rows of this process, R rows of all processes
    if world_size() == 1:
        return rows_N, 0
    lengths = [torch.zeros((), dtype=torch.long) for _ in range(world_size())]
    dist.all_gather(lengths, torch.tensor(len(rows_N)), group=_cpu_group)
    counts = [int(length) for length in lengths]
    padded = torch.cat([rows_N, rows_N.new_zeros(max(counts) - len(rows_N), *rows_N.shape[1:])])
    blocks = _AllGather.apply(padded)  # type: ignore[no-untyped-call, unused-ignore]
    rows_R = torch.cat([block[:count] for block, count in zip(blocks, counts, strict=True)])
    return rows_R, sum(counts[: dist.get_rank()])


class _AllGather(torch.autograd.Function):
    """All-gather of equal shapes. The gradient of a tensor is summed over all processes."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:  # noqa: ARG004
        blocks = [torch.empty_like(tensor) for _ in range(world_size())]
        dist.all_gather(blocks, tensor)
        return torch.stack(blocks)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient)
        return gradient[rank()]
