"""The processes of one run, and what they tell each other. A process that is alone hears itself.

`torchrun` starts them; they meet in `together`. Small numbers travel between the hosts (gloo), so that no device is
waited for; gradients and keys travel between the devices.
"""
# N rows of this process, R of all processes

from __future__ import annotations

import atexit
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from crossling.errors import Failed, Interrupted

# A process that dies closes its connections, which is noticed at once; one that hangs, after this. Processes may be
# apart by as long as it takes to compile a network.
PATIENCE = timedelta(seconds=120)
LAST_WORDS = 3.0  # seconds in which the process that knows the reason says it and the launcher ends all others

_hosts: dist.ProcessGroup | None = None  # of small messages; none: the group of everything


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0")) if _launched() else 0


def processes() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def speaks() -> bool:
    """Whether this process is the one that writes, shows and prints."""
    return rank() == 0


def _launched() -> bool:
    return "LOCAL_RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def together() -> Iterator[torch.device]:
    """The device of this process. Within, and from then on, the processes that torchrun started are one run."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if not _launched() or dist.is_initialized():
        yield device
        return
    global _hosts
    # A run that torchrun starts again finds what it wrote before in the same store, and would wait for the dead.
    store, number, world = next(dist.rendezvous("env://"))
    store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=number, world_size=world)
    _hosts = dist.new_group(backend="gloo", timeout=PATIENCE)
    atexit.register(dist.destroy_process_group)
    if not speaks():
        warnings.simplefilter("ignore")
    try:
        yield device
    except Exception as error:
        if isinstance(error, Interrupted):  # all of them, at the same step
            raise error if speaks() else Interrupted from None
        atexit.unregister(dist.destroy_process_group)  # there may be nobody left to take leave of
        lost = _lost(error)
        if lost or not speaks():  # what all have found is said once
            time.sleep(LAST_WORDS)
        if lost:
            raise Failed(
                "another process of this run has ended or does not answer; what it said last is the reason, and the"
                f" same command goes on from the last checkpoint (heard here: {str(error).splitlines()[0]})"
            ) from None
        raise


def _lost(error: Exception) -> bool:
    """Whether a connection failed: gloo has no class of errors for it, only its own name in the text."""
    plain = type(error) is RuntimeError and any(name in str(error) for name in ("gloo", "NCCL", "onnection"))
    return plain or isinstance(error, dist.DistError)


@contextmanager
def first_one_then_all() -> Iterator[None]:
    """What the first process writes here the others find when it is their turn."""
    if dist.is_initialized() and not speaks():
        dist.barrier(group=_hosts)
    yield
    if dist.is_initialized() and speaks():
        dist.barrier(group=_hosts)


def summed(values: Tensor) -> Tensor:
    """The sum over all processes, of a tensor on the host."""
    if dist.is_initialized():
        dist.all_reduce(values, group=_hosts)
    return values


def gathered(rows: Tensor) -> tuple[Tensor, int]:
    """The rows of all processes in the order of their ranks, with gradient, and where ours begin.

    Processes may have different numbers of rows.
    """
    if processes() == 1:
        return rows, 0
    lengths = [torch.zeros((), dtype=torch.long) for _ in range(processes())]
    dist.all_gather(lengths, torch.tensor(len(rows)), group=_hosts)
    counts = [int(length) for length in lengths]
    padded = torch.cat([rows, rows.new_zeros(max(counts) - len(rows), *rows.shape[1:])])
    parts = _Gathered.apply(padded)
    together = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
    return together, sum(counts[: dist.get_rank()])


class _Gathered(torch.autograd.Function):
    """The tensors of all processes; the gradient of ours is the sum of what all of them make of it."""

    @staticmethod
    def forward(ctx: Any, ours: Tensor) -> Tensor:  # noqa: ARG004
        parts = [torch.empty_like(ours) for _ in range(processes())]
        dist.all_gather(parts, ours)
        return torch.stack(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        together = gradients[0].contiguous()
        dist.all_reduce(together)
        return together[rank()]
