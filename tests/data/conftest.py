"""Corpora of a few lines, their vocabulary and their shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crossling import disk
from crossling.corpora.corpus import Corpora
from crossling.data.encode import encode
from crossling.data.shards import Shards

from .made import FILES, put, trained


@pytest.fixture(scope="package", autouse=True)
def _no_power_cuts() -> Iterator[None]:
    """Waiting for the disk is most of the time that encoding a few lines takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "_flush", lambda _: None)
        yield


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("words"), 80)


@pytest.fixture(scope="session")
def other_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("other_words"), 70)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return put(tmp_path / "corpora", FILES)


@pytest.fixture(scope="session")
def made(words: Path, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Of FILES, by one process in one go."""
    root = tmp_path_factory.mktemp("made")
    return encode(Corpora(put(root / "corpora", FILES)), words, root / "shards")
