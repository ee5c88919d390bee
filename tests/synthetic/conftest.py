"""Task data of five languages in each domain, generated once for all tests."""

from __future__ import annotations

import pytest

from crossling.synthetic import synth
from crossling.synthetic.world import DOMAINS

from .task_folder import EXAMPLES, SEED, TaskFolder


@pytest.fixture(scope="session", params=list(DOMAINS))
def tasks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TaskFolder:
    folder = tmp_path_factory.mktemp("tasks") / "synth"
    synth(folder, 5, 300, SEED, test_sentences=5, alignment_sentences=5, domain=request.param, examples=EXAMPLES)
    return TaskFolder(folder, request.param)
