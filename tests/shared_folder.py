"""Folders that one test process makes for all of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def make_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return this process's own copy of a folder that only one process makes.

    Args:
        tmp_path_factory: Fixture of pytest. Its folders of all processes of a test run have the same parent.
        name: Name of the folder, unique among the tests.
        make: Writes the folder. It must give the same content in every process.
    """
    own = tmp_path_factory.mktemp(name) / name
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" not in os.environ:
        make(own)
        return own
    shared = root.parent / "shared" / name
    shared.parent.mkdir(exist_ok=True)
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            making = shared.with_name(f"{name}.making")
            shutil.rmtree(making, ignore_errors=True)
            make(making)
            making.rename(shared)
    shutil.copytree(shared, own)
    return own
