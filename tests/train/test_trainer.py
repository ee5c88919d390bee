"""Metrics, progress and probes of a run."""

from __future__ import annotations

import importlib
import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from crossling.core.errors import Interrupted
from crossling.core.progress import Progress
from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.objectives import Network
from crossling.recipes.network import build_network
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.train import checkpoint, trainer
from crossling.train.meters import Machine
from crossling.train.parallel import ParallelNetwork
from crossling.train.step import TrainStep

from .run_helpers import before_step, crash, rows, tensors


@pytest.fixture(scope="module")
def uninterrupted(full_recipe: Recipe, shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    pretrain(full_recipe, shards, out)
    return out


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a fake clock: loading takes 3 s, a step 1 s and after step 4 2 s, a save 5 s, a probe 100 s."""
    now = 0.0

    def after(seconds: Callable[[Any], float], act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*arguments: Any) -> Any:
            nonlocal now
            now += seconds(arguments)
            return act(*arguments)

        return acting

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(trainer, "EtaMeter", partial(trainer.EtaMeter, now=lambda: now))
    monkeypatch.setattr(Batches, "__getitem__", after(lambda _: 3.0, Batches.__getitem__))
    monkeypatch.setattr(TrainStep, "run", after(lambda given: 1.0 if given[1] < 4 else 2.0, TrainStep.run))
    monkeypatch.setattr(checkpoint.Checkpoints, "save", after(lambda _: 5.0, checkpoint.Checkpoints.save))
    monkeypatch.setattr(ParallelNetwork, "evaluate", after(lambda _: 100.0, ParallelNetwork.evaluate))


@pytest.mark.usefixtures("clock")
def test_throughput_loader_wait_and_time(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    """Rows at 2, 4, 6 and 7, checkpoints at 3, 6 and 7. Probe time counts as time, but not for the throughput."""
    pretrain(full_recipe, shards, tmp_path / "run", probe=lambda _: {"x": 1.0})
    _, *found = rows(tmp_path / "run")
    seconds = [8.0, 13.0, 10.0, 10.0]  # 2 x (3 + 1), the same and a save, 2 x (3 + 2), 3 + 2 and a save
    assert [row["loader_wait"] for row in found] == [pytest.approx(w) for w in (6 / 8, 6 / 13, 6 / 10, 3 / 10)]
    tokens = [found[0]["tokens"], *(after["tokens"] - before["tokens"] for before, after in pairwise(found))]
    speeds = [t / s for t, s in zip(tokens, seconds, strict=True)]
    assert [row["tokens_per_second"] for row in found] == [pytest.approx(speed) for speed in speeds]
    assert [row["seconds"] for row in found] == [108.0, 121.0, 131.0, 141.0]
    cost = json.loads((tmp_path / "run" / "cost.json").read_text())
    assert cost["seconds"] == 241.0  # with the probe at the end


@pytest.mark.usefixtures("clock")
def test_time_to_the_first_step_is_reported_once(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    recipe = full_recipe.set(["steps=2", "optimizer.warmup=1"])
    with pytest.warns(UserWarning, match="first step") as notes:
        pretrain(recipe, shards, tmp_path / "run", probe=lambda _: {"x": 1.0}, started=-2.0)
    [line] = [str(note.message) for note in notes if "first step" in str(note.message)]
    # 2 s before the call, and 100 s of the first probe
    assert line == "first step after 106.0 s (102.0 s before training, 3.0 s loading data, 1.0 s in the step)"


@pytest.mark.usefixtures("clock")
def test_eta_includes_saves_and_probes_after_a_resume(
    full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: dict[int, float | None] = {}
    monkeypatch.setattr(Progress, "update", lambda _, done, __, eta=None: shown.update({done: eta}))
    recipe, out = full_recipe.replace(steps=24), tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 13, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            pretrain(recipe, shards, out, probe=lambda _: {"x": 1.0}, probe_every=8)
    pretrain(recipe, shards, out, probe=lambda _: {"x": 1.0}, probe_every=8)
    assert shown[1] is None
    assert shown[2] == 22 * 4 + 3 * 100  # nothing was saved yet
    assert shown[9] == pytest.approx(15 * (4 + 5 + 5) / 3 + 2 * 100 + 5 * 5)  # steps have become slower
    assert shown[13] == pytest.approx(11 * (4 + 5 * 4) / 5 + 2 * 100 + 4 * 5)
    assert shown[14] == pytest.approx(10 * 5 + 2 * 100 + 4 * 5)  # by what is seen from here on
    assert shown[23] == pytest.approx(5 + 100 + 5)
    assert shown[24] == 0


def test_a_row_has_flops_and_mfu_of_a_known_gpu(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = importlib.import_module("crossling.recipes.pretrain")
    monkeypatch.setattr(home, "describe_machine", lambda _: Machine("2 x GPU", 1e12))
    pretrain(full_recipe, shards, tmp_path / "run")
    for with_card, without in zip(rows(tmp_path / "run"), rows(uninterrupted), strict=True):
        a_token = with_card["flops"] / with_card["tokens"]
        assert with_card["mfu"] == pytest.approx(a_token * with_card["tokens_per_second"] / 1e12)
        assert "mfu" not in without
        assert with_card["flops"] == without["flops"]


def test_progress_line(full_recipe: Recipe, shards: Shards, capsys: Any, tmp_path: Path) -> None:
    pretrain(full_recipe, shards, tmp_path / "run")
    last, cost = capsys.readouterr().err.splitlines()[-2:]
    row = rows(tmp_path / "run")[-1]
    terms = " ".join(f"{term} {row[term]:.3f}" for term in ("mlm", "mrtd", "tlm", "trtd", "xlco"))
    speed = f"{row['tokens_per_second']:,.0f} tokens/s  {row['loader_wait']:.0%} loading"
    assert last.startswith(f"run 7/7  {terms}  {speed}  in ")
    assert cost.startswith("trained 7 steps: ")


def test_probes_are_called_at_their_interval_and_logged(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    seen: list[Network] = []

    def probe(net: Network) -> dict[str, float]:
        seen.append(net)
        return {"calls": float(len(seen)), "accuracy/qaa": 0.5}

    net = pretrain(full_recipe, shards, tmp_path / "run", probe=probe, probe_every=3)

    found = {row["step"]: row for row in rows(tmp_path / "run")}
    calls = {step: row.get("probe/calls") for step, row in found.items()}
    assert calls == {0: 1.0, 2: None, 3: 2.0, 4: None, 6: 3.0, 7: 4.0}
    assert found[0] == {"step": 0, "probe/calls": 1.0, "probe/accuracy/qaa": 0.5}
    assert found[7]["probe/accuracy/qaa"] == 0.5
    assert all(one is net for one in seen)


def test_a_probe_without_interval_is_called_before_and_after(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    pretrain(full_recipe, shards, tmp_path / "run", probe=lambda _: {"x": 1.0})
    assert [row["step"] for row in rows(tmp_path / "run") if "probe/x" in row] == [0, 7]


def test_a_probe_before_the_first_step_sees_the_initial_network(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    def probe(net: Network) -> dict[str, float]:
        return {"table": net.encoder.embeddings.tokens.weight.abs().sum().item()}

    net = pretrain(full_recipe, shards, tmp_path / "run", probe=probe)
    first, *_, last = [row["probe/table"] for row in rows(tmp_path / "run") if "probe/table" in row]
    assert first == probe(build_network(full_recipe, shards.vocabulary_size))["table"] != last == probe(net)["table"]


@pytest.mark.parametrize("step", [2, 6], ids=["before the first checkpoint", "after it"])
def test_a_resumed_run_has_one_row_before_the_first_step(
    step: int, full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    calls = count()

    def probe(_: Network) -> dict[str, float]:
        return {"x": float(next(calls))}

    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, step, crash)
        with pytest.raises(RuntimeError, match="went down"):
            pretrain(full_recipe, shards, tmp_path / "run", probe=probe)
    pretrain(full_recipe, shards, tmp_path / "run", probe=probe)
    probed = {row["step"]: row["probe/x"] for row in rows(tmp_path / "run") if "probe/x" in row}
    assert [row["step"] for row in rows(tmp_path / "run")] == [0, 2, 4, 6, 7]
    assert probed == ({0: 1.0, 7: 2.0} if step == 2 else {0: 0.0, 7: 1.0})


def test_a_probe_that_changes_modes_and_random_numbers_changes_nothing(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    def careless(net: Network) -> dict[str, float]:
        net.eval()
        torch.manual_seed(99)
        return {"x": float(torch.rand(()))}

    pretrain(full_recipe, shards, tmp_path / "run", probe=careless, probe_every=2)
    left, right = tensors(uninterrupted, 7), tensors(tmp_path / "run", 7)
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_an_objective_of_weight_zero_is_only_logged(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    assert full_recipe.xlco is not None
    recipe = full_recipe.replace(xlco=replace(full_recipe.xlco, weight=0.0), steps=3)
    net, start = pretrain(recipe, shards, tmp_path / "run"), build_network(recipe, shards.vocabulary_size)
    assert rows(tmp_path / "run")[-1]["xlco"] > 0
    moved = (net.parts["projection"].weight - start.parts["projection"].weight).abs().max()
    decayed = 0.011 * 0.01 * start.parts["projection"].weight.abs().max() * 3
    assert moved.item() <= decayed.item()  # by weight decay alone
