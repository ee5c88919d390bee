from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transfer.toys import model_folder

from crossling.finetune.finetune import finetune
from translation.toys import write_parallel

QUICK: dict[str, Any] = {"lr": 5e-3, "tokens": 256, "steps": 60, "checkpoint_every": 20, "dropout": 0.0}


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


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
    finetune(encoder, "translation", data, out, pairs="en-de,de-en", **QUICK)
    return out
