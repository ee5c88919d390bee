"""The Slurm example with stand-ins for Slurm: the started processes, and when the job is requeued."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "examples" / "slurm" / "pretrain.sbatch"


def job(folder: Path, srun: str, *arguments: str) -> subprocess.Popen[str]:
    """Start the batch script with a given srun and a scontrol that records its requests."""
    programs = {
        "srun": f'echo "$@" > {folder}/started; {srun}',
        "scontrol": f'[ "$1" = show ] && printf "node1\\nnode2\\n" || echo "$@" >> {folder}/requests',
    }
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8"}
    environment = {**os.environ, **slurm, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.Popen(["bash", SCRIPT, *arguments], env=environment, cwd=folder, text=True)


def test_all_machines_rendezvous_at_the_first_one(tmp_path: Path) -> None:
    assert job(tmp_path, "exit 0", "--size", "large", "--set", "steps=10").wait(30) == 0
    started = (tmp_path / "started").read_text()
    assert "torchrun --nnodes=2 --nproc-per-node=8" in started
    assert "--rdzv-id=7-0 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 -m crossling pretrain xlm_e" in started
    assert started.strip().endswith("-o runs/xlm_e-large --size large --set steps=10")
    assert not (tmp_path / "requests").exists()


@pytest.mark.parametrize("status", [1, 2])
def test_a_failed_run_is_not_requeued(tmp_path: Path, status: int) -> None:
    assert job(tmp_path, f"exit {status}").wait(30) == status
    assert not (tmp_path / "requests").exists()


def test_a_stopped_run_saves_and_is_requeued(tmp_path: Path) -> None:
    assert exit_code_after_sigterm(tmp_path, f"mkdir -p {tmp_path}/runs/xlm_e-large/checkpoints/0000012; exit 130") == 0
    assert (tmp_path / "requests").read_text() == "requeue 7\n"


def test_a_run_that_cannot_save_is_not_requeued(tmp_path: Path) -> None:
    assert exit_code_after_sigterm(tmp_path, "exit 1") == 1
    assert not (tmp_path / "requests").exists()


def exit_code_after_sigterm(folder: Path, then: str) -> int:
    """Return the exit code of a job that gets SIGTERM while it trains."""
    os.mkfifo(folder / "ready")
    running = job(folder, f"trap '{then}' TERM; echo > {folder}/ready; while :; do sleep 0.05; done")
    (folder / "ready").read_text()  # blocks until the trap is set
    running.send_signal(signal.SIGTERM)
    return running.wait(30)


def test_slurm_leaves_time_to_save() -> None:
    options = [line.split()[1] for line in SCRIPT.read_text().splitlines() if line.startswith("#SBATCH")]
    assert {"--signal=B:TERM@120", "--requeue", "--ntasks-per-node=1"} <= {*options}


def test_each_job_of_the_array_tokenizes_its_part(tmp_path: Path) -> None:
    program = tmp_path / "crossling"
    program.write_text('#!/bin/bash\necho "$@"\n')
    program.chmod(0o755)
    script = SCRIPT.with_name("tokenize.sbatch")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": "7"}
    printed = subprocess.run(["bash", script, "--append"], env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "tokenize corpora --vocab vocab -o shards --share 7/64 --append"
    assert "#SBATCH --array=1-64" in script.read_text()
