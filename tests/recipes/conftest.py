"""Folders of Hugging Face models with the vocabulary of the shards, built once per test process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.known_cpu_speed import _known_cpu_speed  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from crossling.vocabulary.vocabulary import Vocabulary

Folder = Callable[..., Path]


@pytest.fixture(scope="session")
def vocabulary(vocabulary_folder: Path) -> Vocabulary:
    from crossling.vocabulary.vocabulary import Vocabulary

    return Vocabulary.load(vocabulary_folder)


@pytest.fixture(scope="session")
def lines(corpora_folder: Path) -> list[str]:
    from crossling.corpora.corpus import Corpora

    corpora = Corpora(corpora_folder)
    return [line for language in corpora.languages for line in list(corpora.lines(language))[:4]]


@pytest.fixture(scope="session")
def folder(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return the folder of a model with the vocabulary of the shards."""
    from .toy_models import build_model, save_model

    folders: dict[str, Path] = {}

    def folder(family: str, kind: str = "ForMaskedLM", seed: int = 0, **changes: Any) -> Path:
        key = repr((family, kind, seed, changes))
        if key not in folders:
            network = build_model(family, kind, vocabulary.size, seed, **changes)
            folders[key] = save_model(network, vocabulary.tokenizer(), tmp_path_factory.mktemp(family) / "model")
        return folders[key]

    return folder
