"""Processes that are copies of one process, which has imported torch and the trainer. Imports would take most time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from typing import Any

# A test process has one server of copies: all tests import the same modules.
MODULES = ("cli", "data.shards", "recipes", "recipes.pretrain", "evaluate.probes", "train.trainer")


def copying_context() -> ForkServerContext:
    """Return a context of `multiprocessing` whose processes are copies."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.train.kill_helpers", *(f"crossling.{module}" for module in MODULES)])
    return context


def start_copies(function: Callable[..., None], arguments: tuple[Any, ...], number: int) -> None:
    """Run `function(rank, *arguments)` in so many processes, and raise the error of one that fails."""
    import torch.multiprocessing

    copying_context()
    torch.multiprocessing.start_processes(function, arguments, nprocs=number, start_method="forkserver")
