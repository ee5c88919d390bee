"""Runs under torchrun equal a plain run: one process with NCCL, and two that share a GPU over gloo.

On a GPU all recipes run: `CROSSLING_TEST_GPU=1 pytest -n 0 -s tests/train/test_gpu_processes.py`. On CPUs, where
test_parallel.py compares every objective, only one does.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest
import torch

from crossling.data.shards import Shards
from crossling.recipes import RECIPES
from crossling.train.checkpoint import list_checkpoints

from .kill_helpers import LAST, MINUTE, SETTINGS, described
from .process_runs import STEPS, Run, start, torchrun
from .worlds import apart, rows

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
RUNS = {"cpu": ["rosetta"], "cuda": [*RECIPES]}
RESUMED, COMPILED = "rosetta", "xlm_e"
# Of each figure, relative; absolute below 1. FSDP2 gathers all weights of a block in bfloat16, also those of its norms.
TOLERANCE = {"cpu": {"ddp": 1e-5, "fsdp": 1e-5}, "cuda": {"ddp": 2e-3, "fsdp": 2e-2}}
CASES = [
    *(pytest.param("cpu", name, id=f"cpu-{name}") for name in RUNS["cpu"]),
    *(pytest.param("cuda", name, id=f"cuda-{name}", marks=needs_gpu) for name in RUNS["cuda"]),
]
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


@pytest.fixture(autouse=True)
def _print_name(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print each test on a GPU when it ends, with its time."""
    started = time.monotonic()
    yield
    if os.environ.get("CROSSLING_TEST_GPU") == "1":
        print(f"{time.monotonic() - started:6.1f} s  {request.node.name}", flush=True)


@dataclass(eq=False)
class Starts:
    """Runs of one device, each group of which is started once, when a test needs it."""

    device: str
    shards: Shards
    folder: Path

    @cached_property
    def plain(self) -> Path:
        """Runs without torchrun, and one that stops halfway."""
        half = Run(RESUMED, self._out("plain half"), stop=2)
        start(self.device, None, self.shards, [*self._all("plain"), half])
        return self.folder / "plain"

    @cached_property
    def pair(self) -> Path:
        """Runs in two processes, one that stops halfway, and one that resumes the plain half."""
        shutil.copytree(self.plain.with_name("plain half"), self.folder / "plain then pair")
        half = Run(RESUMED, self._out("pair half"), stop=2)
        resumed = Run(RESUMED, self._out("plain then pair"))
        start(self.device, 2, self.shards, [*self._all("pair"), half, resumed])
        return self.folder / "pair"

    @cached_property
    def single(self) -> Path:
        """Runs in one process of torchrun, with DDP and FSDP2, and those that resume the half of two processes."""
        for parallel in ("ddp", "fsdp"):
            shutil.copytree(self.pair.with_name("pair half"), self.folder / f"pair then {parallel}")
        runs = [run for parallel in ("ddp", "fsdp") for run in self._all(parallel)]
        for parallel in ("ddp", "fsdp"):
            runs.append(Run(RESUMED, self._out(f"pair then {parallel}"), [f"parallel={parallel}"]))
        start(self.device, 1, self.shards, runs)
        return self.folder

    def _all(self, name: str) -> list[Run]:
        settings = [f"parallel={name}"] if name in ("ddp", "fsdp") else []
        return [Run(recipe, self._out(f"{name}/{recipe}"), settings) for recipe in RUNS[self.device]]

    def _out(self, name: str) -> str:
        out = self.folder / name
        out.parent.mkdir(parents=True, exist_ok=True)
        return str(out)


@pytest.fixture(scope="module")
def starts(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Starts]:
    return cache(lambda device: Starts(device, shards, tmp_path_factory.mktemp(device)))


def assert_equal_rows(one: Path, other: Path, tolerance: float) -> None:
    found = apart(one, other)
    assert {"loss", "gradient_norm", "tokens", "skipped"} <= found.keys()
    assert (found["tokens"], found["skipped"]) == (0, 0)
    assert max(found.values()) < tolerance, found
    assert len({row["loss"] for row in rows(one)}) == STEPS  # or nothing was learned


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize(("device", "name"), CASES)
def test_one_process_of_torchrun_equals_a_plain_run(
    device: str, name: str, parallel: str, starts: Callable[[str], Starts]
) -> None:
    plain, single = starts(device).plain, starts(device).single
    assert_equal_rows(plain / name, single / parallel / name, TOLERANCE[device][parallel])


@pytest.mark.parametrize(("device", "name"), CASES)
def test_two_processes_on_one_device_equal_one(device: str, name: str, starts: Callable[[str], Starts]) -> None:
    plain, pair = starts(device).plain, starts(device).pair
    assert_equal_rows(plain / name, pair / name, TOLERANCE[device]["ddp"])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["plain then pair", "pair then ddp", "pair then fsdp"])
def test_a_run_resumes_with_another_world_size(device: str, name: str, starts: Callable[[str], Starts]) -> None:
    plain, folder = starts(device).plain, starts(device).single
    parallel = "fsdp" if "fsdp" in name else "ddp"
    assert_equal_rows(plain / RESUMED, folder / name, TOLERANCE[device][parallel])


@needs_gpu
def test_compiled_runs_equal_a_plain_one(starts: Callable[[str], Starts], tmp_path: Path) -> None:
    """Compiled code rounds in its own way, so the tolerance is that of FSDP2. DDP runs with CUDA graphs."""
    cuda = starts("cuda")
    settings = {"ddp": ["parallel=ddp", "cuda_graphs=true"], "fsdp": ["parallel=fsdp"]}
    start(
        "cuda", 1, cuda.shards, [Run(COMPILED, str(tmp_path / p), each) for p, each in settings.items()], compiled=True
    )
    for parallel in settings:
        assert_equal_rows(cuda.plain / COMPILED, tmp_path / parallel, TOLERANCE["cuda"]["fsdp"])


# ---- command line ---------------------------------------------------------------------------------------------


def pretrain_command(shards: Shards, out: Path, *options: str) -> list[str]:
    settings = [word for setting in (*SETTINGS, "cuda_graphs=false") for word in ("--set", setting)]
    command = ["-m", "crossling", "pretrain", "xlm_e", "--size", "tiny", "--shards", str(shards.path), "-o", str(out)]
    return [*command, *settings, *options]


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TORCHDYNAMO_DISABLE": "1"}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=120)


@needs_gpu
def test_two_processes_need_the_option_to_share_a_gpu(shards: Shards, tmp_path: Path) -> None:
    if torch.cuda.device_count() > 1:
        pytest.skip("two GPUs")
    refused = run_python(*torchrun(2), *pretrain_command(shards, tmp_path / "run"))
    assert refused.returncode != 0
    assert "2 processes on a machine with 1 GPU. Set --nproc-per-node=1." in refused.stderr
    assert not (tmp_path / "run").exists()


@needs_gpu
def test_fsdp_on_a_shared_gpu_is_refused_before_anything_is_written(shards: Shards, tmp_path: Path) -> None:
    command = pretrain_command(shards, tmp_path / "run", "--share-device", "--set", "parallel=fsdp")
    refused = run_python(*torchrun(2), *command)
    assert refused.returncode != 0
    assert "parallel=fsdp: not possible for processes that share a GPU." in refused.stderr
    assert not (tmp_path / "run").exists()


@needs_gpu
def test_a_killed_process_ends_the_others_and_one_process_resumes(shards: Shards, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = pretrain_command(shards, out, "--share-device")
    launcher = subprocess.Popen(
        [sys.executable, *torchrun(2), *command],
        env=os.environ | {"TORCHDYNAMO_DISABLE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        while not list_checkpoints(out / "checkpoints") and launcher.poll() is None:
            time.sleep(0.005)
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(launcher.pid)], capture_output=True, text=True)
        killed_at = time.monotonic()
        os.kill(max(int(line) for line in listed.stdout.split()), signal.SIGKILL)
        output, _ = launcher.communicate(timeout=MINUTE)
    finally:
        launcher.terminate()
        launcher.wait(MINUTE)
    assert time.monotonic() - killed_at < MINUTE
    assert launcher.returncode != 0
    assert "another process of this run has stopped or does not respond." in output, output
    assert not (out / "checkpoints" / f"{LAST:07d}").exists()
    resumed = run_python(*pretrain_command(shards, out))
    assert resumed.returncode == 0, resumed.stderr
    assert re.search(r"resumed from step \d+", resumed.stderr)
    assert [row["step"] for row in described(out)] == [3, 6, 9, LAST, LAST]
