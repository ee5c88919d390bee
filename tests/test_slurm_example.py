"""The Slurm example, with stand-ins for Slurm: what it starts, and when it queues again."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "examples" / "slurm" / "pretrain.sbatch"


def job(folder: Path, srun: str, *arguments: str) -> subprocess.Popen[str]:
    """The batch script, where srun does as told and scontrol writes down what it was asked."""
    programs = {
        "srun": f'echo "$@" > {folder}/started; {srun}',
        "scontrol": f'[ "$1" = show ] && printf "node1\\nnode2\\n" || echo "$@" >> {folder}/asked',
    }
    for name, does in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{does}\n")
        (folder / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8"}
    environment = {**os.environ, **slurm, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.Popen(["bash", SCRIPT, *arguments], env=environment, cwd=folder, text=True)


def test_the_processes_of_all_machines_meet_at_the_first(tmp_path: Path) -> None:
    assert job(tmp_path, "exit 0", "--size", "large", "--set", "steps=10").wait(30) == 0
    started = (tmp_path / "started").read_text()
    assert "torchrun --nnodes=2 --nproc-per-node=8" in started
    assert "--rdzv-id=7-0 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 -m crossling pretrain xlm_e" in started
    assert started.strip().endswith("-o runs/xlm_e-large --size large --set steps=10")
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("status", [1, 2])
def test_a_run_that_fails_does_not_queue_again(tmp_path: Path, status: int) -> None:
    assert job(tmp_path, f"exit {status}").wait(30) == status
    assert not (tmp_path / "asked").exists()


def test_a_run_that_is_stopped_is_waited_for_and_queues_again(tmp_path: Path) -> None:
    assert stopped(tmp_path, f"mkdir -p {tmp_path}/runs/xlm_e-large/checkpoints/0000012; exit 130") == 0
    assert (tmp_path / "asked").read_text() == "requeue 7\n"


def test_a_run_that_could_not_save_does_not_queue_again(tmp_path: Path) -> None:
    assert stopped(tmp_path, "exit 1") == 1
    assert not (tmp_path / "asked").exists()


def stopped(folder: Path, then: str) -> int:
    """The status of a job that is told to stop while it trains."""
    os.mkfifo(folder / "ready")
    running = job(folder, f"trap '{then}' TERM; echo > {folder}/ready; while :; do sleep 0.05; done")
    (folder / "ready").read_text()  # until it is there to be told
    running.send_signal(signal.SIGTERM)
    return running.wait(30)


def test_slurm_is_told_to_give_time_for_saving() -> None:
    asked = [line.split()[1] for line in SCRIPT.read_text().splitlines() if line.startswith("#SBATCH")]
    assert {"--signal=B:TERM@120", "--requeue", "--ntasks-per-node=1"} <= {*asked}
