"""Fixtures: a corpus of many scripts and its vocabulary, made once per test process."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerFast

from crossling.corpora.corpus import Corpora
from crossling.vocabulary.vocabulary import Vocabulary

from .texts import ODD, folder_of, random_lines


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """Corpora of two languages: one with words of many scripts, and a small one."""
    root = tmp_path_factory.mktemp("scripts")
    return folder_of(root, {"text/en.txt": [*ODD, *random_lines(900)], "text/sw.txt": ["habari ya asubuhi"] * 60})


@pytest.fixture(scope="session")
def vocabulary(scripts: Corpora) -> Vocabulary:
    return Vocabulary.train(scripts, 400, threads=1)


@pytest.fixture(scope="session")
def fast(vocabulary: Vocabulary) -> PreTrainedTokenizerFast:
    return vocabulary.tokenizer()
