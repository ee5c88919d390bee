"""The Slurm example with stand-ins for Slurm: the started processes, and when the job is requeued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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


def write_program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("script", sorted(SCRIPT.parent.iterdir()), ids=lambda script: script.name)
def test_scripts_have_no_syntax_error(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vocab", "vocab corpora -o vocab --workers 1 --share 7/64 --size 9"),
        ("tokenize", "tokenize corpora --vocab vocab -o shards --workers 1 --share 7/64 --size 9"),
    ],
)
def test_each_job_of_the_array_does_its_part(name: str, expected: str, tmp_path: Path) -> None:
    write_program(tmp_path, "crossling", 'echo "$@"')
    script = SCRIPT.with_name(f"{name}.sbatch")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": "7"}
    printed = subprocess.run(
        ["bash", script, "--size", "9"], env=environment, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == expected
    assert "#SBATCH --array=1-64" in script.read_text()


# Runs all jobs of an array at once, the last one first, and prints the number of the job.
SBATCH = """
echo "$@" >> {folder}/submitted
while [[ $1 == --* ]]; do
    [[ $1 == --array=1-* ]] && parts=${{1#--array=1-}}
    [[ $1 == --chdir=* ]] && cd "${{1#--chdir=}}"
    shift
done
for id in $(seq ${{parts:-1}} -1 1); do SLURM_ARRAY_TASK_ID=$id bash "{scripts}/$@" >> {folder}/log 2>&1 || exit; done
wc -l < {folder}/submitted
"""


def test_submitted_jobs_lead_from_text_to_training(tmp_path: Path) -> None:
    write_program(tmp_path, "sbatch", SBATCH.format(folder=tmp_path, scripts=SCRIPT.parent))
    write_program(tmp_path, "crossling", f'exec {sys.executable} -m crossling "$@"')
    write_program(tmp_path, "srun", f'echo "$@" > {tmp_path}/started')
    write_program(tmp_path, "scontrol", "echo node1")
    for name in ("en", "sw"):
        file = tmp_path / "corpora" / "text" / f"{name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(f"{name} has {number} and {number % 7}" for number in range(60)))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PARTS": "2", "SIZE": "40"}
    submit = subprocess.run(
        ["bash", SCRIPT.with_name("submit.sh"), "--partition=cpu"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert submit.stdout == "vocab 1, tokenize 2, pretrain 3\n", (tmp_path / "log").read_text()
    assert (tmp_path / "shards" / "manifest.json").is_file()
    assert "-m crossling pretrain xlm_e --shards shards" in (tmp_path / "started").read_text()
    common = f"--parsable --chdir={tmp_path}"
    assert (tmp_path / "submitted").read_text().splitlines() == [
        f"{common} --array=1-2 --partition=cpu vocab.sbatch --size 40",
        f"{common} --dependency=afterok:1 --array=1-2 --partition=cpu tokenize.sbatch",
        f"{common} --dependency=afterok:2 --partition=cpu pretrain.sbatch",
    ]
