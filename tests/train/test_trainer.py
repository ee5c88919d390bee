"""A weight means weight x mean, splitting changes nothing, and a run that was stopped is the run that was not."""

from __future__ import annotations

import importlib
import json
import math
import multiprocessing
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from crossling.data.batches import Batch, Batches, Work
from crossling.data.shards import Shards
from crossling.errors import Failed, Interrupted
from crossling.objectives import MRTD, Network
from crossling.progress import Progress
from crossling.recipe import Recipe, build, pretrain
from crossling.train import checkpoint, steady, stored, trainer
from crossling.train.account import Machine
from crossling.train.parallel import Engine
from crossling.train.step import Learner

TIMES = {"seconds", "tokens_per_second", "loader_wait"}


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_times(run: Path) -> list[dict[str, Any]]:
    """Of the steps: what a probe said before the first one belongs to the probe."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows(run) if row["step"]]


def saved(run: Path) -> list[int]:
    return [int(path.name) for path in checkpoint.all_steps(run / "checkpoints")]


def tensors(run: Path, step: int) -> dict[str, Tensor]:
    return stored.tensors(run / "checkpoints" / f"{step:07d}")


def weights(run: Path, step: int) -> dict[str, Tensor]:
    return {name: value for name, value in tensors(run, step).items() if "/" not in name}


def assert_same_run(one: Path, other: Path, step: int) -> None:
    """Weights and optimizer to the bit, and every row of metrics but for the times."""
    left, right = tensors(one, step), tensors(other, step)
    assert left.keys() == right.keys()
    assert any(name.endswith("/exp_avg_sq") for name in left)
    different = [name for name in left if not torch.equal(left[name], right[name])]
    assert different == []
    assert without_times(one) == without_times(other)


def before_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], object]) -> None:
    """`act` when the data of the step (counted from 1) is asked for."""
    original = Batches.__getitem__

    def acting(self: Batches, index: int) -> Work:
        if index == step - 1:
            act()
        return original(self, index)

    monkeypatch.setattr(Batches, "__getitem__", acting)


def crash() -> None:
    raise RuntimeError("the machine went down")


@pytest.fixture(scope="module")
def uninterrupted(full_recipe: Recipe, shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    pretrain(full_recipe, shards, out)
    return out


# ---- what a step is -----------------------------------------------------------------------------------------


def by_hand(recipe: Recipe, shards: Shards) -> tuple[Network, dict[str, float]]:
    """The network with the gradient of its first step, one example of each objective at a time where that may be,
    and the mean of each term."""
    net = build(recipe, shards.vocabulary_size).train()
    batches = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, micro_tokens=1)
    for name, objective in recipe.objectives.items():  # with what would come after the last step
        objective.begin(net, ([*batches.of(name, step)] for step in count(recipe.steps)))
    work = batches[0]
    totals: dict[str, Tensor] = {}
    for name, batch in work.micro:
        for term, value in recipe.objectives[name].loss(net, batch).items():
            totals[term] = totals.get(term, torch.zeros(())) + value
    means = {term: value / work.counts[term] for term, value in totals.items()}
    weights = {"mlm": 1.0, "mrtd": 50.0, "tlm": 1.0, "trtd": 50.0, "xlco": 0.5}
    sum(weights[term] * means[term] for term in weights).backward()  # type: ignore[union-attr]
    return net, {term: value.item() for term, value in means.items()}


def test_a_step_is_adam_on_the_clipped_gradient_of_weights_times_means(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    recipe = full_recipe.set(["model.dropout=0", "steps=1", "optimizer.warmup=4", "optimizer.clip=1.5"])
    net, means = by_hand(recipe, shards)
    norm = math.sqrt(sum(float(p.grad.pow(2).sum()) for p in net.parameters() if p.grad is not None))
    assert norm > 1.5  # or clipping would not be seen

    trained = pretrain(recipe, shards, tmp_path / "run")

    [row] = rows(tmp_path / "run")
    assert row["gradient_norm"] == pytest.approx(norm, rel=1e-4)
    for term, mean in means.items():
        assert row[term] == pytest.approx(mean, rel=1e-5, abs=1e-5), term
    assert row["lr"] == pytest.approx(0.01 / 4)
    # Adam's first step is g / (|g| + epsilon), after decay; both by hand.
    for (name, old), (_, new) in zip(net.named_parameters(), trained.named_parameters(), strict=True):
        if old.grad is None:  # it learns nothing, but the momentum encoder follows
            assert torch.equal(old, new) != name.startswith("parts.key_"), name
            continue
        gradient = old.grad * (1.5 / norm)
        kept = old.detach() * (1 - row["lr"] * (0.01 if old.ndim > 1 else 0.0))
        expected = kept - row["lr"] * gradient / (gradient.abs() + 1e-6)
        # Where the gradient is rounding alone its direction is open, by no more than it weighs against epsilon.
        torch.testing.assert_close(new.detach(), expected, atol=1e-4, rtol=1e-4, msg=name)


def test_the_loss_of_a_row_is_the_sum_of_weights_times_means(uninterrupted: Path) -> None:
    found = rows(uninterrupted)
    assert [row["step"] for row in found] == [2, 4, 6, 7]
    for row in found:
        expected = row["mlm"] + 50 * row["mrtd"] + row["tlm"] + 50 * row["trtd"] + 0.5 * row["xlco"]
        assert row["loss"] == pytest.approx(expected)
        assert 0 <= row["mrtd_accuracy"] <= 1
        assert row["tokens_per_second"] > 0


def test_a_row_is_the_mean_of_the_steps_since_the_last_one(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    pretrain(full_recipe.but(log_every=1), shards, tmp_path / "each")
    each = {row["step"]: row for row in rows(tmp_path / "each")}
    batches = Batches(shards, full_recipe.objectives, full_recipe.sampling, full_recipe.seed, full_recipe.micro_tokens)
    for row in rows(uninterrupted):
        steps = [row["step"]] if row["step"] == 7 else [row["step"] - 1, row["step"]]
        counts = [batches[step - 1].counts["mlm"] for step in steps]
        weighted = sum(each[step]["mlm"] * count for step, count in zip(steps, counts, strict=True))
        assert row["mlm"] == pytest.approx(weighted / sum(counts))
        assert row["gradient_norm"] == pytest.approx(sum(each[s]["gradient_norm"] for s in steps) / len(steps))
        assert row["tokens"] == each[row["step"]]["tokens"]


def test_splitting_into_micro_batches_changes_nothing_but_rounding(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    recipe = full_recipe.set(["model.dropout=0", "steps=4"])
    for name, tokens in (("split", 64), ("whole", 1_000_000)):
        batches = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, tokens)
        assert len(batches[0].micro) == 3 if name == "whole" else len(batches[0].micro) > 6
        pretrain(recipe.but(micro_tokens=tokens), shards, tmp_path / name)
    split, whole = weights(tmp_path / "split", 4), weights(tmp_path / "whole", 4)
    moved = weights(tmp_path / "whole", 3)
    for name in whole:
        torch.testing.assert_close(
            split[name], whole[name], atol=2e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}"
        )
    # The last of the four steps alone moved the weights a hundred times as far as splitting did.
    assert max(float((moved[name] - whole[name]).abs().max()) for name in whole) > 2e-3


def test_training_lowers_the_loss(shards: Shards, small_model: list[str], full_recipe: Recipe, tmp_path: Path) -> None:
    recipe = full_recipe.set(["mrtd=off", "trtd=off", "xlco=off", "mlm.tokens=512", "mlm.length=32", "steps=60"])
    recipe = recipe.set([*small_model, "log_every=5", "model.dropout=0"])
    pretrain(recipe, shards, tmp_path / "run")
    found = rows(tmp_path / "run")
    assert found[0]["mlm"] == pytest.approx(math.log(shards.vocabulary_size), abs=0.3)  # it begins knowing nothing
    assert found[-1]["mlm"] < found[0]["mlm"] - 0.5


def test_another_seed_is_another_run(full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path) -> None:
    pretrain(full_recipe.but(seed=1), shards, tmp_path / "other")
    assert rows(tmp_path / "other")[0]["mlm"] != rows(uninterrupted)[0]["mlm"]


# ---- stopping and going on ----------------------------------------------------------------------------------


def test_the_same_recipe_gives_the_same_run(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    pretrain(full_recipe, shards, tmp_path / "again")
    assert_same_run(uninterrupted, tmp_path / "again", 7)


def test_a_run_goes_on_after_a_crash_as_if_there_was_none(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 6, crash)
        with pytest.raises(RuntimeError, match="went down"):
            pretrain(full_recipe, shards, out)
    assert saved(out) == [3]  # one step after a row of metrics: the next row needs what was summed before
    assert [row["step"] for row in rows(out)] == [2, 4]
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


def test_a_crash_before_the_first_checkpoint_starts_again(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 3, crash)
        with pytest.raises(RuntimeError, match="went down"):
            pretrain(full_recipe, shards, out)
    assert saved(out) == []
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_same_call_goes_on(
    kind: signal.Signals, full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 5, lambda: signal.raise_signal(kind))
        with pytest.raises(Interrupted, match=r"stopped at step 5 of 7, saved in .*; the same command goes on"):
            pretrain(full_recipe, shards, out)
    assert saved(out) == [3, 5]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


def test_a_signal_in_the_last_step_changes_nothing(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_step(monkeypatch, 7, lambda: signal.raise_signal(signal.SIGTERM))
    pretrain(full_recipe, shards, tmp_path / "run")
    assert_same_run(uninterrupted, tmp_path / "run", 7)


def test_a_finished_run_is_left_as_it_is(full_recipe: Recipe, shards: Shards, uninterrupted: Path) -> None:
    before = (uninterrupted / "metrics.jsonl").read_bytes()
    net = pretrain(full_recipe, shards, uninterrupted)
    assert (uninterrupted / "metrics.jsonl").read_bytes() == before
    assert torch.equal(net.encoder.embeddings.tokens.weight, next(
        value for name, value in tensors(uninterrupted, 7).items() if name.endswith("embeddings.tokens.weight")
    ))  # fmt: skip


def test_a_row_that_was_cut_off_is_made_again(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 5, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            pretrain(full_recipe, shards, out)
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "mlm": 5.1, "ml')
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


def test_loader_processes_change_nothing(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    pretrain(full_recipe, shards, tmp_path / "run", workers=2)
    assert_same_run(uninterrupted, tmp_path / "run", 7)


def test_a_signal_to_every_process_of_a_job_still_saves(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def scheduler(_: Network) -> dict[str, float]:
        loaders = multiprocessing.active_children()
        if not loaders:  # before the first step
            return {}
        assert len(loaders) == 2
        # From outside: a loader obeys the process that started it.
        subprocess.run(["kill", "-TERM", *(str(process.pid) for process in loaders)], check=True)
        loaders[0].join(0.3)  # a loader that dies of it would be noticed by now
        signal.raise_signal(signal.SIGTERM)
        return {}

    with pytest.raises(Interrupted):
        pretrain(full_recipe, shards, out, probe=scheduler, probe_every=2, workers=2)
    assert saved(out) == [3]  # what came while a step was made is heard before the next
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


def test_a_full_disk_keeps_the_checkpoint_before(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 6, lambda: patch.setattr(stored, "write", full))
        with pytest.raises(OSError, match="No space"):
            pretrain(full_recipe, shards, out)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["0000003"]
    pretrain(full_recipe, shards, out)
    assert_same_run(uninterrupted, out, 7)


# ---- numbers that are none ----------------------------------------------------------------------------------


def poison(monkeypatch: pytest.MonkeyPatch, factor: float, *steps: int) -> None:
    """The loss of MRTD times `factor` in some steps, counted from 1."""
    original, calls = MRTD.loss, 0

    def poisoned(self: MRTD, net: Network, batch: Batch) -> dict[str, Tensor]:
        nonlocal calls
        sums = original(self, net, batch)
        if self.term == "mrtd":
            calls += 1
            if calls in steps:
                return sums | {"mrtd": sums["mrtd"] * factor}
        return sums

    monkeypatch.setattr(MRTD, "loss", poisoned)


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_a_step_whose_gradient_is_no_number_is_left_out(
    factor: float, full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    """Weights and optimizer stay as they were, to the bit, and the metrics are those of the other steps."""
    out, recipe = tmp_path / "run", full_recipe.set(["xlco=off", "checkpoint_every=1"])
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, factor, 4)
        before_step(patch, 4, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            pretrain(recipe, shards, out)
    before, after = tensors(out, 3), tensors(out, 4)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, factor, 2)  # step 6
        pretrain(recipe, shards, out)
    assert {float(value) for name, value in tensors(out, 7).items() if name.endswith("/step")} == {5.0}
    each = tmp_path / "each"
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, factor, 4, 6)
        pretrain(recipe.but(log_every=1), shards, each)
    assert [row["skipped"] for row in rows(out)] == [0, 1, 2, 2]
    assert [row["skipped"] for row in rows(each)] == [0, 0, 0, 1, 1, 2, 2]
    alone = {row["step"]: row for row in rows(each)}
    assert "loss" not in alone[4]  # nothing was learned in it
    for row, step in zip(rows(out)[1:], (3, 5, 7), strict=True):
        same = row.keys() - {*TIMES, "step", "lr", "tokens", "flops", "skipped"}
        assert {"loss", "mlm", "gradient_norm"} <= same
        assert {name: row[name] for name in same} == {name: alone[step][name] for name in same}


def test_no_state_is_saved_while_steps_are_left_out(
    full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came before may have spoiled the weights."""
    monkeypatch.setattr(checkpoint, "KEEP", 100)
    poison(monkeypatch, math.nan, 3, 4, 6)
    pretrain(full_recipe.but(checkpoint_every=1), shards, tmp_path / "run")
    assert saved(tmp_path / "run") == [1, 2, 5, 7]


@pytest.mark.parametrize(("log_every", "checkpoint_every"), [(1, 1), (100, 1), (3, 2), (2, 100)])
def test_a_few_steps_in_a_row_that_are_left_out_end_the_run(
    log_every: int, checkpoint_every: int, full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    recipe = full_recipe.but(steps=12, log_every=log_every, checkpoint_every=checkpoint_every)
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, math.nan, *range(3, 13))
        with pytest.raises(
            Failed,
            match=r"^5 steps in a row had to be left out by step (7|8|9|12): .* try a lower lr, a longer optimizer",
        ) as caught:
            pretrain(recipe, shards, out)
    assert "\n" not in str(caught.value)
    assert (f"last good state is {out}" in str(caught.value)) == bool(saved(out))
    assert all(step < 7 for step in saved(out))
    for step in saved(out):
        assert all(bool(value.isfinite().all()) for value in tensors(out, step).values())


def test_what_was_left_out_before_a_stop_is_remembered(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    out, recipe = tmp_path / "run", full_recipe.but(steps=12)
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, math.nan, 3, 4, 5)
        before_step(patch, 5, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            pretrain(recipe, shards, out)
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, math.nan, 1, 2)  # steps 6 and 7
        with pytest.raises(Failed, match="5 steps in a row"):
            pretrain(recipe, shards, out)


@pytest.mark.parametrize(("step", "skipped"), [(3, [0] * 7), (6, [0, 0, 0, 0, 0, 1, 1])], ids=["early", "later"])
def test_a_gradient_that_explodes_is_left_out_once_it_is_known_what_is_usual(
    step: int, skipped: list[int], full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steady, "SETTLED", 4)
    poison(monkeypatch, 1e4, step)
    pretrain(full_recipe.but(log_every=1), shards, tmp_path / "run")
    assert [row["skipped"] for row in rows(tmp_path / "run")] == skipped


# ---- what is seen -------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that only passes while data is made, 3 s, a step is taken, 1 s, a network is copied to be saved, 5 s, or is
    probed, 100 s; with a bend after step 4: from then on a step takes 2 s."""
    now = 0.0

    def after(seconds: Callable[[Any], float], act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*arguments: Any) -> Any:
            nonlocal now
            now += seconds(arguments)
            return act(*arguments)

        return acting

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(trainer, "Pace", partial(trainer.Pace, now=lambda: now))
    monkeypatch.setattr(Batches, "__getitem__", after(lambda _: 3.0, Batches.__getitem__))
    monkeypatch.setattr(Learner, "step", after(lambda given: 1.0 if given[1] < 4 else 2.0, Learner.step))
    monkeypatch.setattr(checkpoint.Checkpoints, "save", after(lambda _: 5.0, checkpoint.Checkpoints.save))
    monkeypatch.setattr(Engine, "measure", after(lambda _: 100.0, Engine.measure))


@pytest.mark.usefixtures("clock")
def test_speed_wait_and_time(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    """Rows at 2, 4, 6 and 7, saved at 3, 6 and 7. What a probe takes is in the time, and in no row's speed."""
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
def test_the_time_left_is_right_after_a_stop_and_knows_of_saves_and_probes(
    full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: dict[int, float | None] = {}
    monkeypatch.setattr(Progress, "update", lambda _, done, __, left=None: shown.update({done: left}))
    recipe, out = full_recipe.but(steps=24), tmp_path / "run"
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


def test_a_row_has_what_was_computed_and_a_known_card_the_share_of_its_peak(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = importlib.import_module("crossling.recipe.pretrain")
    monkeypatch.setattr(home, "machine", lambda _: Machine("2 x GPU", 1e12))
    pretrain(full_recipe, shards, tmp_path / "run")
    for with_card, without in zip(rows(tmp_path / "run"), rows(uninterrupted), strict=True):
        a_token = with_card["flops"] / with_card["tokens"]
        assert with_card["mfu"] == pytest.approx(a_token * with_card["tokens_per_second"] / 1e12)
        assert "mfu" not in without
        assert with_card["flops"] == without["flops"]


def test_what_is_shown(full_recipe: Recipe, shards: Shards, capsys: Any, tmp_path: Path) -> None:
    pretrain(full_recipe, shards, tmp_path / "run")
    last, cost = capsys.readouterr().err.splitlines()[-2:]
    row = rows(tmp_path / "run")[-1]
    terms = " ".join(f"{term} {row[term]:.3f}" for term in ("mlm", "mrtd", "tlm", "trtd", "xlco"))
    speed = f"{row['tokens_per_second']:,.0f} tokens/s  {row['loader_wait']:.0%} loading"
    assert last == f"run 7/7  {terms}  {speed}  0 s left"
    assert cost.startswith("trained 7 steps: ")


# ---- probes -------------------------------------------------------------------------------------------------


def test_probes_are_called_when_asked_and_their_values_are_logged(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
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


def test_a_probe_is_called_before_and_after_if_nothing_else_was_asked(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    pretrain(full_recipe, shards, tmp_path / "run", probe=lambda _: {"x": 1.0})
    assert [row["step"] for row in rows(tmp_path / "run") if "probe/x" in row] == [0, 7]


def test_before_the_first_step_a_probe_sees_the_network_as_it_begins(
    full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    def probe(net: Network) -> dict[str, float]:
        return {"table": net.encoder.embeddings.tokens.weight.abs().sum().item()}

    net = pretrain(full_recipe, shards, tmp_path / "run", probe=probe)
    first, *_, last = [row["probe/table"] for row in rows(tmp_path / "run") if "probe/table" in row]
    assert first == probe(build(full_recipe, shards.vocabulary_size))["table"] != last == probe(net)["table"]


@pytest.mark.parametrize("step", [2, 6], ids=["before the first checkpoint", "after it"])
def test_a_run_that_goes_on_has_one_row_before_the_first_step(
    step: int, full_recipe: Recipe, shards: Shards, tmp_path: Path
) -> None:
    asked = count()

    def probe(_: Network) -> dict[str, float]:
        return {"x": float(next(asked))}

    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, step, crash)
        with pytest.raises(RuntimeError, match="went down"):
            pretrain(full_recipe, shards, tmp_path / "run", probe=probe)
    pretrain(full_recipe, shards, tmp_path / "run", probe=probe)
    measured = {row["step"]: row["probe/x"] for row in rows(tmp_path / "run") if "probe/x" in row}
    assert [row["step"] for row in rows(tmp_path / "run")] == [0, 2, 4, 6, 7]
    assert measured == ({0: 1.0, 7: 2.0} if step == 2 else {0: 0.0, 7: 1.0})


def test_what_a_probe_does_to_modes_and_random_numbers_changes_nothing(
    full_recipe: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    def careless(net: Network) -> dict[str, float]:
        net.eval()
        torch.manual_seed(99)
        return {"x": float(torch.rand(()))}

    pretrain(full_recipe, shards, tmp_path / "run", probe=careless, probe_every=2)
    left, right = tensors(uninterrupted, 7), tensors(tmp_path / "run", 7)
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_an_objective_whose_weight_is_zero_is_only_watched(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    assert full_recipe.xlco is not None
    recipe = full_recipe.but(xlco=replace(full_recipe.xlco, weight=0.0), steps=3)
    net, start = pretrain(recipe, shards, tmp_path / "run"), build(recipe, shards.vocabulary_size)
    assert rows(tmp_path / "run")[-1]["xlco"] > 0
    moved = (net.parts["projection"].weight - start.parts["projection"].weight).abs().max()
    decayed = 0.011 * 0.01 * start.parts["projection"].weight.abs().max() * 3
    assert moved.item() <= decayed.item()  # by weight decay alone
