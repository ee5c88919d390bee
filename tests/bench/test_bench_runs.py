"""The benchmark of several runs at once adds their throughput. Values are not tested."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest

from crossling.bench import bench, bench_runs
from crossling.bench.bench_runs import train_beside_others
from crossling.bench.bench_step import text_recipe
from crossling.bench.train_timing import TrainingLoop, scale_recipe
from crossling.bench.workload import CPU_SHAPE, BenchSetup, Measurement


@pytest.fixture
def at() -> BenchSetup:
    """Return the smallest setup."""
    shape = replace(CPU_SHAPE, layers=1, width=16, feed_forward=32)
    return replace(BenchSetup.of(), shape=shape, vocabulary=100, length=32, batches=(2,))


def test_rows_add_up_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = []

    def train(_: object, __: object, index: int, among: tuple[int, ...], barrier: Any) -> dict[int, Measurement]:
        barrier.wait()  # all runs are there at the same time
        numbers.append(among)
        return {
            number: Measurement(100.0 - 20 * number, "tokens/s", 0.5, path="plain")
            for number in among
            if index < number
        }

    monkeypatch.setattr(bench_runs, "train_beside_others", train)
    monkeypatch.setattr(bench_runs, "ProcessPoolExecutor", lambda number, **_: ThreadPoolExecutor(number))
    one, two = bench(["runs-at-once"])
    assert (one.name, one.ours, one.peer, one.peak_gib) == ("xlm_e, batch 4, one run", 80.0, None, 0.5)
    assert (two.name, two.ours, two.peer, two.peak_gib) == ("xlm_e, batch 4, 2 runs at once", 120.0, 80.0, 1.0)
    assert two.ratio == 1.5
    assert numbers == [(2, 1)] * 2


def test_fewer_runs_train_while_the_others_wait(at: BenchSetup) -> None:
    recipe, barrier = scale_recipe(text_recipe(), at, 2), Barrier(2, timeout=60)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(train_beside_others, recipe, at, index, (2, 1), barrier) for index in (0, 1)]
        first, second = (run.result() for run in runs)
    assert ({*first}, {*second}) == ({1, 2}, {2})
    for found in (*first.values(), *second.values()):
        assert found.value > 0
        assert (found.unit, found.path, found.peak_gib) == ("tokens/s", "plain torch", None)


def test_a_failed_run_ends_the_others_and_names_the_cause(at: BenchSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, created = scale_recipe(text_recipe(), at, 2), []

    def fail_once(*_: object) -> TrainingLoop:
        created.append(1)
        if len(created) == 1:
            raise MemoryError("no memory")
        return TrainingLoop(*_)

    monkeypatch.setattr(bench_runs, "TrainingLoop", fail_once)
    monkeypatch.setattr(bench_runs, "ProcessPoolExecutor", lambda number, **_: ThreadPoolExecutor(number))
    with pytest.raises(MemoryError, match="no memory"):
        bench_runs._measure_together(recipe, at)
    assert created == [1, 1]


@pytest.mark.soak
def test_runs_are_processes() -> None:
    assert bench_runs.ProcessPoolExecutor is ProcessPoolExecutor
    rows = list(bench(["runs-at-once"]))
    assert [row.name for row in rows] == ["xlm_e, batch 4, one run", "xlm_e, batch 4, 2 runs at once"]
    assert all(row.ours > 0 for row in rows)
