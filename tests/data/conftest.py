"""Corpora of a few lines, their vocabulary and their shards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossling.core import files as disk
from crossling.corpora import source_parts
from crossling.corpora.corpus import Corpora
from crossling.data import shard_writer
from crossling.data.shards import Shards
from crossling.data.tokenize import tokenize

from .small_corpora import FILES, train_vocabulary, write_files


@pytest.fixture(scope="package", autouse=True)
def _no_flush() -> Iterator[None]:
    """Do not flush to disk, which takes most of the time of small corpora."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "_flush", lambda _: None)
        yield


@pytest.fixture(scope="session")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_vocabulary(tmp_path_factory.mktemp("vocab"), 80)


@pytest.fixture(scope="session")
def other_vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_vocabulary(tmp_path_factory.mktemp("other_vocab"), 70)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_files(tmp_path / "corpora", FILES)


@pytest.fixture(scope="session")
def small_shards(vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Return the shards of FILES, from one process without interruptions."""
    root = tmp_path_factory.mktemp("shards")
    return tokenize(Corpora(write_files(root / "corpora", FILES)), vocab, root / "shards")


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two rows, and several slices of every part but the smallest."""
    monkeypatch.setattr(source_parts, "SLICE_BYTES", 100)
    monkeypatch.setattr(shard_writer, "ROWS_PER_BLOCK", 2)


@pytest.fixture(scope="module")
def shards(small_shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Return a copy of the shards: batches write blocks beside the tokens."""
    return Shards.open(shutil.copytree(small_shards.path, tmp_path_factory.mktemp("batches") / "shards"))
