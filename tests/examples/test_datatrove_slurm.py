"""The example examples/datatrove_slurm.py: tasks on one machine, and what is submitted to Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.corpora.corpus import Corpora
from crossling.data.tokenize import tokenize
from crossling.vocabulary.build_vocabulary import vocab
from tests.load_script import load_script

pytest.importorskip("datatrove")

SBATCH = """#!/bin/bash
echo $(grep -o 'array=.*\\|job-name=.*' "${{@: -1}}") "${{@:2:$#-2}}" >> {file}
echo Submitted batch job $(wc -l < {file})
"""


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    (tmp_path / "corpora/text").mkdir(parents=True)
    for name in ("en", "sw"):
        lines = [f"{name} has {number} and {number % 7}" for number in range(60)]
        (tmp_path / f"corpora/text/{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / "corpora"


def test_tasks_on_one_machine_write_the_shards(corpora: Path, tmp_path: Path) -> None:
    script = load_script("examples/datatrove_slurm.py")
    script.main([str(corpora), "-o", str(tmp_path / "work"), "--size", "40", "--tasks", "2", "--local"])
    vocab(corpora, tmp_path / "vocab", size=40, workers=1)
    shards = tokenize(Corpora(corpora), tmp_path / "vocab", tmp_path / "shards")
    manifest = (tmp_path / "work/shards/manifest.json").read_text(encoding="utf-8")
    assert manifest == (shards.path / "manifest.json").read_text(encoding="utf-8")


def test_slurm_gets_an_array_for_each_command(corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sbatch").write_text(SBATCH.format(file=tmp_path / "submitted"))
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    load_script("examples/datatrove_slurm.py").main([str(corpora), "-o", str(tmp_path / "work"), "--size", "40"])
    submitted = (tmp_path / "submitted").read_text()
    jobs = [line for line in submitted.splitlines() if "array=0-63" in line]
    assert len(jobs) == 2, submitted
    assert "job-name=vocab" in jobs[0]
    assert "job-name=tokenize" in jobs[1]
    assert "--dependency=afterok:1" in jobs[1]
