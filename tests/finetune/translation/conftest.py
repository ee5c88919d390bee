from __future__ import annotations

from pathlib import Path

import pytest

from crossling.finetune.finetune import finetune

from ..tiny_tasks import model_folder
from .tiny_parallel import QUICK, write_parallel


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_parallel(tmp_path_factory.mktemp("parallel"), {"train": 800, "dev": 40, "test": 40})


@pytest.fixture(scope="session")
def mt(encoder: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator of both directions."""
    out = tmp_path_factory.mktemp("mt") / "mt"
    finetune(encoder, "translation", data, out, directions="en-de,de-en", **{**QUICK, "steps": 80})
    return out
