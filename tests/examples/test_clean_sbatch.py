"""The jobs of examples/slurm/clean.sbatch clean a folder together, with a stand-in for Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.load_script import ROOT

SCRIPT = ROOT / "examples" / "slurm" / "clean.sbatch"


def test_the_last_job_of_the_array_writes_the_corpora(tmp_path: Path) -> None:
    (tmp_path / "corpora" / "text").mkdir(parents=True)
    for language in ("de", "en"):
        (tmp_path / "corpora" / "text" / f"{language}.txt").write_text("one\none\ntwo\n")
    program = tmp_path / "crossling"
    program.write_text(f'#!/bin/bash\nexec {sys.executable} -m crossling "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PARTS": "2"}
    for number in (2, 1):
        assert not (tmp_path / "cleaned" / "cleaning.json").exists()
        job = environment | {"SLURM_ARRAY_TASK_ID": f"{number}", "SLURM_CPUS_PER_TASK": "1"}
        subprocess.run(["bash", SCRIPT, "--duplicates"], env=job, cwd=tmp_path, check=True, capture_output=True)
    assert sorted(file.name for file in (tmp_path / "cleaned" / "text").iterdir()) == ["de.txt.gz", "en.txt.gz"]
    assert "#SBATCH --array=1-16" in SCRIPT.read_text()
