"""Fixtures of the tests that kill runs."""

from __future__ import annotations

from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from crossling.data.shards import Shards
from tests.copied_processes import copying_context

from .kill_helpers import Command, Uninterrupted


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    return copying_context()


@pytest.fixture
def command(context: ForkServerContext, shards: Shards, tmp_path: Path) -> Command:
    return Command(context, shards.path, tmp_path / "run")


@pytest.fixture(scope="module")
def uninterrupted_runs(
    context: ForkServerContext, shards: Shards, tmp_path_factory: pytest.TempPathFactory
) -> Uninterrupted:
    """Return a function that gives the run of some processes that is not killed."""

    @cache
    def of(ranks: int, parallel: str = "ddp") -> Path:
        out = tmp_path_factory.mktemp("runs") / f"{parallel}-of-{ranks}"
        Command(context, shards.path, out, parallel).finish(ranks)
        return out

    return of
