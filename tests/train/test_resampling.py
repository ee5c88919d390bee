"""Resampled bitext: by the loss of each group, the same after a resume, and unchanged with rho = 0."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from crossling.core.errors import BadInput, Interrupted
from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.recipes.network import build_network
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.sampling import GroupLosses, best_response
from crossling.train import resampling
from crossling.train.resampling import RESAMPLING_FILE, Resampling, read_resampling_log

from .run_helpers import assert_same_run, before_step, crash, rows, saved, without_times
from .worlds import in_processes, trained

FEW = 256  # tokens of each group, fewer than in real runs
DRO = ["dro.times=2", "dro.rho=0.1", "dro.floor=0.1", "steps=8"]


@pytest.fixture(scope="module", autouse=True)
def small() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "TOKENS", FEW)
        yield


@pytest.fixture(scope="module")
def robust(full_recipe: Recipe) -> Recipe:
    """Return a recipe that is resampled after steps 3 and 5 of 8, with a queue that evaluation must not change."""
    recipe = full_recipe.set(DRO)
    assert recipe.xlco is not None
    assert recipe.xlco.queue
    return recipe


@pytest.fixture(scope="module")
def uninterrupted(robust: Recipe, shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    pretrain(robust, shards, out)
    return out


def resampling_of(recipe: Recipe, shards: Shards, run: Path) -> Resampling:
    batches = Batches(shards, recipe.objectives, recipe.sampling, seed=recipe.seed, micro_tokens=recipe.micro_tokens)
    assert recipe.dro is not None
    return Resampling(recipe.dro, batches, recipe.objectives, steps=recipe.steps, run=run)


def test_probabilities_are_the_best_response_to_the_running_means(uninterrupted: Path) -> None:
    first, *later = read_resampling_log(uninterrupted)
    assert first["step"] == 0
    assert sum(first["probabilities"].values()) == pytest.approx(1)
    assert [row["step"] for row in later] == [3, 5, 8]
    means = GroupLosses(resampling.NEWEST_WEIGHT, min_losses=1)
    for row in later:
        means = means.update(row["losses"])
        assert row["means"] == means.means
        assert row["probabilities"] == best_response(first["probabilities"], means.means, 0.1, floor=0.1)
        assert row["probabilities"] != first["probabilities"]


def test_the_loss_of_a_group_is_the_weighted_sum_of_means(uninterrupted: Path) -> None:
    for row in read_resampling_log(uninterrupted)[1:]:
        assert set(row["terms"]) == {"tlm", "trtd", "xlco"}
        for group, loss in row["losses"].items():
            terms = {term: of[group] for term, of in row["terms"].items()}
            assert loss == pytest.approx(terms["tlm"] + 50 * terms["trtd"] + 0.5 * terms["xlco"])


def test_the_evaluated_loss_is_that_of_the_group(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    net = build_network(robust, shards.vocabulary_size)
    acting = resampling_of(robust, shards, tmp_path)
    acting.resample(3, net)
    found = acting.rows[-1]["terms"]
    for name, number in acting.evaluated.items():
        [(task, batch)] = [
            each
            for each in acting.batches.single_group(number, acting.objectives, resampling.SEED)[0].micro_batches
            if each[0] == "trtd"
        ]
        net.eval()
        with torch.no_grad():
            loss = acting.objectives[task].loss(net, batch)["trtd"] / acting.objectives[task].counts(batch)["trtd"]
        assert found["trtd"][name] == pytest.approx(float(loss), rel=1e-5)
    assert len({*found["trtd"].values()}) == len(acting.evaluated) > 2


def test_every_evaluation_reads_other_examples(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    net, acting = build_network(robust, shards.vocabulary_size), resampling_of(robust, shards, tmp_path)
    acting.resample(3, net)
    acting.resample(5, net)
    one, other = (row["losses"] for row in acting.rows[1:])
    assert all(one[group] != other[group] for group in one)


def test_small_groups_keep_their_probabilities(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    acting = resampling_of(robust, shards, tmp_path)
    acting.resample(3, build_network(robust, shards.vocabulary_size))
    few = {name for name, pairs in acting.rows[0]["pairs"].items() if pairs < resampling.MIN_PAIRS}
    assert few
    assert {*acting.rows[-1]["losses"]} == {*acting.initial} - few
    assert all(
        (acting.rows[-1]["probabilities"][name] == probability) == (name in few)
        for name, probability in acting.initial.items()
    )


def test_later_data_are_sampled_with_the_new_probabilities(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    acting = resampling_of(robust, shards, tmp_path)
    plain = resampling_of(robust, shards, tmp_path).batches
    acting.resample(3, build_network(robust, shards.vocabulary_size))
    ends = [batches.samplers[name].ends_G for name in ("trtd", "xlco") for batches in (acting.batches, plain)]
    assert ends[0] == ends[2] != ends[1] == ends[3]
    assert acting.batches.samplers["mrtd"] is not None
    assert acting.batches.samplers["mrtd"].ends_G == plain.samplers["mrtd"].ends_G


def test_rho_0_only_evaluates(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    """Evaluation changes neither the queue nor any random number."""
    pretrain(robust.set(["dro=off"]), shards, tmp_path / "plain")
    assert not (tmp_path / "plain" / RESAMPLING_FILE).exists()
    pretrain(robust.set(["dro.rho=0"]), shards, tmp_path / "measured")
    assert_same_run(tmp_path / "plain", tmp_path / "measured", 8)
    first, *later = read_resampling_log(tmp_path / "measured")
    assert len(later) == 3
    assert all(row["probabilities"] == first["probabilities"] and row["losses"] for row in later)


def test_resampling_changes_the_run(robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path) -> None:
    pretrain(robust.set(["dro=off"]), shards, tmp_path / "plain")
    same = [
        one == other for one, other in zip(without_times(uninterrupted), without_times(tmp_path / "plain"), strict=True)
    ]
    assert same[0]  # step 2, before the first resampling
    assert not any(same[1:])


@pytest.mark.parametrize("step", [3, 4, 6])
def test_resume_gives_the_same_samples(
    step: int, robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    """One of the stops is at a step that resamples."""
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, step, lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Interrupted):
            pretrain(robust, shards, out)
    assert saved(out)[-1] == step
    pretrain(robust, shards, out)
    assert_same_run(uninterrupted, out, 8)
    assert read_resampling_log(out) == read_resampling_log(uninterrupted)


def test_evaluations_after_the_checkpoint_are_repeated_after_a_crash(
    robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 6, crash)
        with pytest.raises(RuntimeError, match="went down"):
            pretrain(robust, shards, out)
    assert saved(out) == [3]
    assert len(read_resampling_log(out)) == 3
    pretrain(robust, shards, out)
    assert_same_run(uninterrupted, out, 8)
    assert read_resampling_log(out) == read_resampling_log(uninterrupted)


def test_loader_workers_change_nothing(robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path) -> None:
    pretrain(robust, shards, tmp_path / "run", workers=1)
    assert_same_run(uninterrupted, tmp_path / "run", 8)


def test_an_example_counts_once_for_any_world_size(
    robust: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resampling, "TOKENS", 60)
    net, acting = build_network(robust, shards.vocabulary_size).eval(), resampling_of(robust, shards, tmp_path)
    task, number = acting.objectives["trtd"], next(iter(acting.evaluated.values()))
    assert 1 < task.examples_per_step(acting.batches.groups["trtd"][number].mean_length) < 5

    def loss_and_rows(processes: int) -> tuple[float, int]:
        loss, count = 0.0, 0
        for acting.batches.rank in range(processes):
            acting.batches.world_size = processes
            work, counted = acting._read("trtd", number)
            assert len(work.micro_batches) == 1  # otherwise other processes would wait
            if counted:
                [(_, batch)] = work.micro_batches
                loss, count = loss + float(task.loss(net, batch)["trtd"]), count + work.counts["trtd"]
        return loss, count

    with torch.no_grad():
        alone = loss_and_rows(1)
        for processes in (2, 3, 5, 8):
            assert loss_and_rows(processes) == pytest.approx(alone, rel=1e-5)


def trained_with_few(shards: Path, out: Path, recipe: Recipe, tokens: int) -> None:
    resampling.TOKENS = tokens
    trained(shards, out, {"run": recipe})


@pytest.mark.parametrize(("how", "tokens"), [("ddp", FEW), ("fsdp", FEW), ("ddp", 1), ("fsdp", 1)])
def test_two_processes_sample_the_same_as_one(
    how: str, tokens: int, robust: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one token there are more processes than examples of a group."""
    monkeypatch.setattr(resampling, "TOKENS", tokens)
    recipe = robust.set(["model.dropout=0", "xlco.queue=0", "xlco.momentum=0", "xlco.mixup=false", f"parallel={how}"])
    trained_with_few(shards.path, tmp_path / "one", recipe, tokens)
    in_processes(2, trained_with_few, shards.path, tmp_path / "two", recipe, tokens)
    one, two = (read_resampling_log(tmp_path / name / "run") for name in ("one", "two"))
    assert len(one) == len(two) == 4
    for left, right in zip(one[1:], two[1:], strict=True):
        assert left["probabilities"] == pytest.approx(right["probabilities"], rel=1e-3)
        assert left["losses"] == pytest.approx(right["losses"], rel=1e-4)
    losses = [[row["loss"] for row in rows(tmp_path / name / "run")] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_losses_of_a_baseline_are_subtracted(
    robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    acting = resampling_of(robust.set([f"dro.baseline={uninterrupted}"]), shards, tmp_path)
    assert acting.baseline == read_resampling_log(uninterrupted)[-1]["means"]
    acting.resample(3, build_network(robust, shards.vocabulary_size))
    row = acting.rows[-1]
    assert row["probabilities"] == best_response(acting.initial, row["means"], 0.1, floor=0.1, baseline=acting.baseline)
    assert row["probabilities"] != best_response(acting.initial, row["means"], 0.1, floor=0.1)


@pytest.mark.parametrize("after", ["removed", "changed"])
def test_a_resumed_run_keeps_its_baseline(
    after: str, robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    log = (uninterrupted / RESAMPLING_FILE).read_text()
    (plain / RESAMPLING_FILE).write_text(log)
    recipe = robust.set([f"dro.baseline={plain}"])
    pretrain(recipe, shards, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 2, lambda: signal.raise_signal(signal.SIGTERM))  # before the first evaluation
        with pytest.raises(Interrupted):
            pretrain(recipe, shards, tmp_path / "run")
    (plain / RESAMPLING_FILE).unlink()
    if after == "changed":
        rows = [json.loads(line) for line in log.splitlines()]
        rows[-1]["means"] = {name: 9.0 * number for number, name in enumerate(rows[-1]["means"])}
        (plain / RESAMPLING_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    pretrain(recipe, shards, tmp_path / "run")
    assert_same_run(tmp_path / "whole", tmp_path / "run", 8)
    assert read_resampling_log(tmp_path / "run") == read_resampling_log(tmp_path / "whole")
    assert read_resampling_log(tmp_path / "run")[0]["baseline"] == read_resampling_log(uninterrupted)[-1]["means"]


def test_an_invalid_baseline_is_an_error_and_creates_no_run(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    changed = [
        {"format": 2, "step": 0, "probabilities": {"x": 1.0}, "pairs": {"x": 9}},
        {"step": 3, "probabilities": {"x": 1.0}, "means": {"x": 2.0}},
    ]
    (tmp_path / "other" / RESAMPLING_FILE).write_text("".join(json.dumps(row) + "\n" for row in changed))
    for baseline, expected in (("nothing", "Train it with dro.rho=0"), ("other", "none of these corpora")):
        with pytest.raises(BadInput, match=expected):
            pretrain(robust.set([f"dro.baseline={tmp_path / baseline}"]), shards, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "content",
    ["{", "[]\n", "", '{"format": 2}\n', '{"format": 2, "probabilities": {}, "pairs": {}}\n{"step": 3}\n'],
)
def test_a_damaged_log_is_an_error(content: str, tmp_path: Path) -> None:
    (tmp_path / RESAMPLING_FILE).write_text(content)
    with pytest.raises(BadInput, match="damaged"):
        read_resampling_log(tmp_path)


@pytest.mark.parametrize("version", ["", '"format": 1, ', '"format": "x", '])
def test_a_log_of_another_version_is_an_error(version: str, tmp_path: Path) -> None:
    (tmp_path / RESAMPLING_FILE).write_text(f'{{{version}"step": 0, "probabilities": {{}}, "pairs": {{}}}}\n')
    with pytest.raises(BadInput, match=r"format version .*, expected 2\. Train the run again"):
        read_resampling_log(tmp_path)


def test_a_group_at_probability_0_is_still_evaluated(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    """It can come back when its loss is no longer the lowest."""
    acting = resampling_of(robust.set(["dro.rho=100", "dro.floor=0"]), shards, tmp_path)
    net = build_network(robust, shards.vocabulary_size)
    acting.resample(3, net)
    unsampled = {name for name in acting.evaluated if acting.rows[-1]["probabilities"][name] == 0}
    assert len(unsampled) == len(acting.evaluated) - 1
    trtd = acting.batches.samplers["trtd"]
    assert trtd is not None
    names = [group.name for group in acting.batches.groups["trtd"]]
    assert not {names[group] for step in range(3, 8) for group in trtd[step][0]} & unsampled
    acting.resample(5, net)
    assert {*acting.rows[-1]["losses"]} == {*acting.evaluated}


def test_every_resampling_but_the_last_evaluation_changes_the_run(
    robust: Recipe, shards: Shards, tmp_path: Path
) -> None:
    """XY-LENT resamples ten times throughout the training: eleven parts of the run, and losses at the end."""
    acting = resampling_of(robust.set(["dro=off", "dro=on", "steps=110"]), shards, tmp_path)
    assert acting.due_steps == {10 * time for time in range(1, 12)}


def test_next_step_of_a_change(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    acting = resampling_of(robust, shards, tmp_path)
    assert [acting.next_step(step) for step in range(9)] == [3, 3, 3, 5, 5, 8, 8, 8, 8]
