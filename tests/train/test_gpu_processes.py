"""Runs under torchrun equal a plain run: one process with NCCL, and two that share a GPU over gloo.

On a GPU all recipes run: `CROSSLING_TEST_GPU=1 pytest -n 0 -s tests/train/test_gpu_processes.py`. On CPUs, where
test_parallel.py compares every objective, only one does.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import pytest
import torch

from crossling.data.shards import Shards
from crossling.recipes import RECIPES

from .kill_helpers import LAST, MINUTE, Command, kill_worker, torchrun
from .process_runs import STEPS, Run, start
from .worlds import apart, rows

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
needs_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the plain run would use the GPU")
RUNS = {"cpu": ["rosetta"], "cuda": [*RECIPES]}
RESUMED, COMPILED = "rosetta", "xlm_e"
# Relative; absolute for figures below 1. On a GPU weights are rounded to bfloat16, for FSDP2 also those of norms.
TOLERANCE = {"cpu": {"ddp": 1e-5, "fsdp": 1e-5}, "cuda": {"ddp": 5e-3, "fsdp": 1e-2}}
GRADIENT_FACTOR = 5  # of the tolerance, for the gradient norm
CASES = [
    *(pytest.param("cpu", name, id=f"cpu-{name}", marks=needs_cpu) for name in RUNS["cpu"]),
    *(pytest.param("cuda", name, id=f"cuda-{name}", marks=needs_gpu) for name in RUNS["cuda"]),
]
DEVICES = [pytest.param("cpu", marks=needs_cpu), pytest.param("cuda", marks=needs_gpu)]


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
    assert found["loss"] < tolerance, found
    assert found["gradient_norm"] < GRADIENT_FACTOR * tolerance, found
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

ALONE = ("--standalone", "--nproc-per-node=2")


@pytest.fixture
def uncompiled(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    return replace(command, options=("--set", "cuda_graphs=false"))


def with_options(command: Command, *options: str) -> Command:
    return replace(command, options=(*command.options, *options))


def refuse(command: Command) -> str:
    """Return the output of two processes that end with an error before they write anything."""
    with torchrun(command, *ALONE) as launcher:
        output, _ = launcher.communicate(timeout=2 * MINUTE)
    assert launcher.returncode != 0
    assert not command.out.exists()
    return output


@needs_gpu
@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="needs one GPU")
def test_two_processes_need_the_option_to_share_a_gpu(uncompiled: Command) -> None:
    assert "torchrun: 2 processes on a machine with 1 GPU. Set --nproc-per-node=1." in refuse(uncompiled)


@needs_gpu
def test_fsdp_on_a_shared_gpu_is_refused(uncompiled: Command) -> None:
    output = refuse(with_options(uncompiled, "--share-device", "--set", "parallel=fsdp"))
    assert "parallel=fsdp: not possible for processes that share a GPU." in output


@needs_gpu
def test_a_killed_process_ends_the_others_and_one_process_resumes(uncompiled: Command) -> None:
    with torchrun(with_options(uncompiled, "--share-device"), *ALONE) as launcher:
        kill_worker(launcher, uncompiled)
        output, _ = launcher.communicate(timeout=MINUTE)
    assert launcher.returncode != 0
    assert "crossling: another process of this run has stopped or does not respond." in output, output
    assert not (uncompiled.out / "checkpoints" / f"{LAST:07d}").exists()
    with torchrun(uncompiled, "--standalone", "--nproc-per-node=1") as launcher:
        output, _ = launcher.communicate(timeout=2 * MINUTE)
    assert launcher.returncode == 0, output
    assert re.search(r"1 process \(ddp\); resumed from step \d+", output), output
    assert [row["step"] for row in rows(uncompiled.out)] == [3, 6, 9, LAST]
