"""Task data of five languages in each domain, generated once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.synthetic import synth
from crossling.synthetic.world import DOMAINS
from tests.shared_folder import make_once

from .task_folder import EXAMPLES, SEED, TaskFolder


@pytest.fixture(scope="session", params=list(DOMAINS))
def tasks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TaskFolder:
    domain = request.param

    def make(out: Path) -> None:
        synth(out, 5, 300, SEED, test_sentences=5, alignment_sentences=5, domain=domain, examples=EXAMPLES)

    return TaskFolder(make_once(tmp_path_factory, f"tasks-{domain}", make), domain)
