"""Collectives between the processes that `torchrun` started. All work in a single process as well.

`process_group` initializes `torch.distributed`. Small CPU tensors use a gloo group, which does not wait for any device.
Gradients and keys use the backend of the device: NCCL on a GPU, or gloo if processes share it.
"""

from __future__ import annotations

import atexit
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from threading import Event, current_thread, main_thread
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from crossling.core.errors import BadInput, Failed, Interrupted
from crossling.core.heartbeat import Heartbeat
from crossling.core.locks import output_lock

# A process that exits closes its connections, which the others notice at once, and one that is lost has no heartbeat.
# So this does not limit the time for which processes may wait for a busy one.
COLLECTIVE_TIMEOUT = timedelta(days=7)
# Time for the process that knows the cause to print it, before the launcher terminates the others.
ERROR_GRACE_SECONDS = 3.0
START_SECONDS = 1800.0  # between the starts of the first and the last process; torch's own limit
POLL_SECONDS = 0.02  # between two checks which processes have started
LAUNCHER_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # set by torchrun

_device: torch.device | None = None  # of this process, in a process group
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


def has_shared_gpu() -> bool:
    """Return True if processes share a GPU, and so communicate over gloo."""
    return _device is not None and _device.type == "cuda" and "cuda:gloo" in dist.get_backend_config()


def device_count() -> int:
    """Return the number of devices of this run. Processes may share a GPU."""
    if not has_shared_gpu():
        return world_size()
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return world_size() * min(processes, torch.cuda.device_count()) // processes


def _is_launched() -> bool:
    return os.environ.keys() >= LAUNCHER_VARIABLES


@contextmanager
def process_group(share_device: bool = False) -> Iterator[torch.device]:
    """Initialize the process group if torchrun started this process, and yield the device of this process.

    The group stays initialized until the process exits.

    Args:
        share_device: Let several processes use one GPU, for tests. It has no effect if the group is initialized.
    """
    global _device, _cpu_group
    if dist.is_initialized() or not _is_launched():
        yield _device or _own_device(share_device)
        return
    device = _own_device(share_device)
    store, own_rank, world = next(rendezvous("env://"))
    store = PrefixStore(_join(store, own_rank, world), store)
    dist.init_process_group(_backend(device, share_device), store=store, rank=own_rank, world_size=world)
    _device, _cpu_group = device, dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
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
        if _is_connection_error(error):
            _wait_for_cause()
            raise Failed(
                "another process of this run has stopped or does not respond. Its last message is the cause. Run the"
                f" same command again to resume from the last checkpoint. ({str(error).splitlines()[0]})"
            ) from None
        if not is_main_process():  # an error that every process has is printed once
            time.sleep(ERROR_GRACE_SECONDS)
        raise


def _wait_for_cause() -> None:
    """Wait until the process that knows the cause has printed it, or the launcher sends SIGTERM because it is gone."""
    terminated = Event()
    if current_thread() is main_thread():
        signal.signal(signal.SIGTERM, lambda *_: terminated.set())  # by default it ends this one without a message
    terminated.wait(ERROR_GRACE_SECONDS)


def _join(store: Store, rank: int, world_size: int) -> str:
    """Wait for all processes, and return a name that they and no earlier processes have in common.

    After a restart by torchrun the store has the keys of earlier processes. The number of restarts does not
    distinguish them: it differs between machines, and stays the same when a machine joins or leaves.
    """
    own, end = uuid4().hex, time.monotonic() + START_SECONDS
    if rank != 0:
        store.set(f"started/{rank}", own)
        try:
            name = store.get(f"group of {own}").decode()  # waits
        except dist.DistError:
            raise Failed("torchrun: the main process has not started. Its last message is the cause.") from None
        store.add(f"{name}/joined", 1)
        return name
    while (joined := store.add(f"{own}/joined", 0)) < world_size - 1:
        for other in range(1, world_size):
            if store.check([f"started/{other}"]):  # perhaps by an earlier process, which does not read the answer
                store.set(f"group of {store.get(f'started/{other}').decode()}", own)
        if time.monotonic() > end:
            raise Failed(f"torchrun: only {joined + 1} of {world_size} processes have started. Check the others.")
        time.sleep(POLL_SECONDS)
    return own


def _backend(device: torch.device, share_device: bool) -> str:
    if device.type != "cuda":
        return "gloo"
    return "cpu:gloo,cuda:gloo" if share_device else "cpu:gloo,cuda:nccl"  # NCCL refuses two processes on one GPU


def _own_device(share_device: bool) -> torch.device:
    """Return the GPU of this process, or the CPU without any."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    index, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if share_device:
        index %= gpus
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
