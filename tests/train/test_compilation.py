"""Processes that start together run the first call of a function one after the other, and none waits for ever."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from crossling.data.shards import Shards
from crossling.recipes.network import build_network, make_batches
from crossling.recipes.recipe import Recipe
from crossling.train.compilation import MAX_FUNCTIONS, CompilationLock
from crossling.train.parallel import ParallelNetwork
from crossling.train.step import Schedule, TrainStep
from tests.copied_processes import copying_context


def test_a_second_process_waits_until_the_first_has_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = []
    with ExitStack() as first:
        first.enter_context(CompilationLock(tmp_path, "net").first_call("mlm", [2, 8]))

        def finish_first(_: float) -> None:
            events.append("second waits")
            first.close()

        monkeypatch.setattr(time, "sleep", finish_first)
        with CompilationLock(tmp_path, "net").first_call("mlm", [2, 8]):
            events.append("second runs")
            third = CompilationLock(tmp_path, "net")
            with third.first_call("mlm", [2, 8]):  # compiled: the second and the third read the cache at once
                events.append("third runs")
    assert events == ["second waits", "second runs", "third runs"]


@pytest.mark.parametrize("other", [("net", "tlm", [2, 8]), ("net", "mlm", [4, 8]), ("larger net", "mlm", [2, 8])])
def test_other_functions_do_not_wait(
    other: tuple[str, str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits"))
    with CompilationLock(tmp_path, "net").first_call("mlm", [2, 8]):
        description, *function = other
        with CompilationLock(tmp_path, description).first_call(*function):
            pass


def test_a_process_continues_after_the_longest_time_to_wait(tmp_path: Path) -> None:
    with (
        CompilationLock(tmp_path, "net").first_call("mlm"),
        CompilationLock(tmp_path, "net", wait_seconds=0.0).first_call("mlm"),
    ):
        pass


def test_later_calls_and_rare_shapes_take_no_lock(tmp_path: Path) -> None:
    lock = CompilationLock(tmp_path, "net")
    for number in range(MAX_FUNCTIONS + 10):
        for _ in range(2):
            with lock.first_call("mlm", number):
                pass
    assert len([*tmp_path.rglob("*.done")]) == MAX_FUNCTIONS


def test_a_failed_call_leaves_no_marker(tmp_path: Path) -> None:
    with pytest.raises(MemoryError), CompilationLock(tmp_path, "net").first_call("mlm"):
        raise MemoryError
    assert not [*tmp_path.rglob("*.done")]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "crossling").write_text("a file in place of the folder")
    with CompilationLock(tmp_path, "net").first_call("mlm"):
        pass


# ---- in a training step ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_step_locks_each_shape_once_unless_processes_exchange_tensors(
    world_size: int, full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    batches = make_batches(full_recipe, shards)
    net = build_network(full_recipe, shards.vocabulary_size)
    schedule = Schedule(steps=9, lr=0.01, log_every=1, checkpoint_every=9)
    objectives = full_recipe.objectives
    network = ParallelNetwork(net, torch.device("cpu"))
    step = TrainStep(network, objectives=objectives, optimizer=full_recipe.optimizer, schedule=schedule)
    step.compilation = CompilationLock(tmp_path, "net")
    network.world_size = world_size
    shapes = set()
    for name, batch in batches[0].micro_batches:
        step._add_gradient((name, True), {**batch, "loss factors": torch.ones(len(objectives[name].loss_weights))})
        if world_size == 1 or not objectives[name].exchanges_tensors:
            shapes.add((name, *(value.shape for value in batch.values())))
    assert 0 < len(shapes) == len([*tmp_path.rglob("*.done")])
    assert any(objective.exchanges_tensors for objective in objectives.values())


# ---- two processes ----------------------------------------------------------------------------------------------


def die_while_compiling(folder: Path) -> None:
    CompilationLock(folder, "net").first_call("mlm").__enter__()
    os._exit(1)


def compile_unless_cached(folder: Path) -> None:
    with CompilationLock(folder, "net").first_call("mlm"):
        if not (folder / "code").exists():
            with (folder / "compilations").open("a") as file:
                file.write("x")
            (folder / "code").touch()


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    process = copying_context().Process(target=die_while_compiling, args=(tmp_path,))
    process.start()
    process.join()
    with CompilationLock(tmp_path, "net").first_call("mlm"):
        pass
    assert [*tmp_path.rglob("*.done")]


def test_two_processes_compile_once(tmp_path: Path) -> None:
    context = copying_context()
    processes = [context.Process(target=compile_unless_cached, args=(tmp_path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert (tmp_path / "compilations").read_text() == "x"
