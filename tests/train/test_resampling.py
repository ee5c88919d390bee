"""Bitext drawn anew: by the losses of each group, bit for bit the same after a stop, and plain where rho is 0."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.errors import BadInput, Interrupted
from crossling.recipe import Recipe, build, pretrain
from crossling.sampling import GroupLosses, best_response
from crossling.train import resampling
from crossling.train.resampling import FILE, Resampling, read

from .test_trainer import assert_same_run, before_step, crash, rows, saved, without_times
from .worlds import in_processes, trained

FEW = 256  # tokens of each group; in earnest there are more
DRO = ["dro.times=3", "dro.rho=0.1", "steps=8"]


@pytest.fixture(scope="module", autouse=True)
def small() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "TOKENS", FEW)
        yield


@pytest.fixture(scope="module")
def robust(full_recipe: Recipe) -> Recipe:
    """Drawn anew after steps 3, 5 and 8 of 8; it has a queue of keys that measuring must leave alone."""
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
    batches = Batches(shards, recipe.objectives, recipe.sampling, recipe.seed, recipe.micro_tokens)
    assert recipe.dro is not None
    return Resampling(recipe.dro, batches, recipe.objectives, recipe.steps, run)


# ---- what is drawn ---------------------------------------------------------------------------------------------


def test_rates_are_the_best_response_to_the_running_means(uninterrupted: Path) -> None:
    first, *later = read(uninterrupted)
    assert first["step"] == 0
    assert sum(first["rates"].values()) == pytest.approx(1)
    assert [row["step"] for row in later] == [3, 5, 8]
    means = GroupLosses(resampling.WEIGHT, least=1)
    for row in later:
        means = means.after(row["losses"])
        assert row["means"] == means.means
        assert row["rates"] == best_response(first["rates"], means.means, 0.1, 0.2)
        assert row["rates"] != first["rates"]


def test_the_loss_of_a_group_is_the_sum_of_weights_times_means(uninterrupted: Path) -> None:
    for row in read(uninterrupted)[1:]:
        assert set(row["terms"]) == {"tlm", "trtd", "xlco"}
        for group, loss in row["losses"].items():
            terms = {term: of[group] for term, of in row["terms"].items()}
            assert loss == pytest.approx(terms["tlm"] + 50 * terms["trtd"] + 0.5 * terms["xlco"])


def test_what_is_measured_is_the_loss_on_examples_of_that_group(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    net = build(robust, shards.vocabulary_size)
    acting = resampling_of(robust, shards, tmp_path)
    acting.act(3, net)
    found = acting.rows[-1]["terms"]
    for name, number in acting.measured.items():
        [(task, batch)] = [
            each for each in acting.batches.alone(number, acting.tasks, resampling.SEED)[0].micro if each[0] == "trtd"
        ]
        net.eval()
        with torch.no_grad():
            loss = acting.tasks[task].loss(net, batch)["trtd"] / acting.tasks[task].counts(batch)["trtd"]
        assert found["trtd"][name] == pytest.approx(float(loss), rel=1e-5)
    assert len({*found["trtd"].values()}) == len(acting.measured) > 2


def test_other_examples_are_read_each_time(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    net, acting = build(robust, shards.vocabulary_size), resampling_of(robust, shards, tmp_path)
    acting.act(3, net)
    acting.act(5, net)
    one, other = (row["losses"] for row in acting.rows[1:])
    assert all(one[group] != other[group] for group in one)


def test_groups_of_a_few_pairs_keep_their_rates(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    acting = resampling_of(robust, shards, tmp_path)
    acting.act(3, build(robust, shards.vocabulary_size))
    few = {name for name, pairs in acting.rows[0]["pairs"].items() if pairs < resampling.LEAST}
    assert few
    assert {*acting.rows[-1]["losses"]} == {*acting.first} - few
    assert all((acting.rows[-1]["rates"][name] == rate) == (name in few) for name, rate in acting.first.items())


def test_the_data_after_it_are_drawn_at_the_new_rates(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    acting = resampling_of(robust, shards, tmp_path)
    plain = resampling_of(robust, shards, tmp_path).batches
    acting.act(3, build(robust, shards.vocabulary_size))
    ends = [batches.draws[name].ends_G for name in ("trtd", "xlco") for batches in (acting.batches, plain)]
    assert ends[0] == ends[2] != ends[1] == ends[3]
    assert acting.batches.draws["mrtd"] is not None
    assert acting.batches.draws["mrtd"].ends_G == plain.draws["mrtd"].ends_G


def test_rho_0_is_a_plain_run_that_is_measured(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    """Which also shows that measuring leaves no trace: not in the queue, nor in any random number."""
    pretrain(robust.set(["dro=off"]), shards, tmp_path / "plain")
    assert not (tmp_path / "plain" / FILE).exists()
    pretrain(robust.set(["dro.rho=0"]), shards, tmp_path / "measured")
    assert_same_run(tmp_path / "plain", tmp_path / "measured", 8)
    first, *later = read(tmp_path / "measured")
    assert len(later) == 3
    assert all(row["rates"] == first["rates"] and row["losses"] for row in later)


def test_drawn_anew_is_another_run(robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path) -> None:
    pretrain(robust.set(["dro=off"]), shards, tmp_path / "plain")
    same = [
        one == other for one, other in zip(without_times(uninterrupted), without_times(tmp_path / "plain"), strict=True)
    ]
    assert same[0]  # step 2, before it
    assert not any(same[1:])


# ---- a stop changes nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [3, 4, 6])
def test_a_run_that_was_stopped_draws_the_same(
    step: int, robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    """Also where it is stopped in the step in which it draws anew."""
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, step, lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Interrupted):
            pretrain(robust, shards, out)
    assert saved(out)[-1] == step
    pretrain(robust, shards, out)
    assert_same_run(uninterrupted, out, 8)
    assert read(out) == read(uninterrupted)


def test_after_a_crash_what_comes_after_the_checkpoint_is_measured_again(
    robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 6, crash)
        with pytest.raises(RuntimeError, match="went down"):
            pretrain(robust, shards, out)
    assert saved(out) == [3]
    assert len(read(out)) == 3
    pretrain(robust, shards, out)
    assert_same_run(uninterrupted, out, 8)
    assert read(out) == read(uninterrupted)


def test_loader_processes_change_nothing(robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path) -> None:
    pretrain(robust, shards, tmp_path / "run", workers=1)
    assert_same_run(uninterrupted, tmp_path / "run", 8)


def test_an_example_counts_once_however_many_processes_there_are(
    robust: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resampling, "TOKENS", 60)
    net, acting = build(robust, shards.vocabulary_size).eval(), resampling_of(robust, shards, tmp_path)
    task, number = acting.tasks["trtd"], next(iter(acting.measured.values()))
    assert 1 < task.examples(acting.batches.groups["trtd"][number].mean_length) < 5

    def measured(processes: int) -> tuple[float, int]:
        loss, count = 0.0, 0
        for acting.batches.rank in range(processes):
            acting.batches.processes = processes
            work, counted = acting._read("trtd", number)
            assert len(work.micro) == 1  # or others would wait for what it gathers
            if counted:
                [(_, batch)] = work.micro
                loss, count = loss + float(task.loss(net, batch)["trtd"]), count + work.counts["trtd"]
        return loss, count

    with torch.no_grad():
        alone = measured(1)
        for processes in (2, 3, 5, 8):
            assert measured(processes) == pytest.approx(alone, rel=1e-5)


def trained_with_few(shards: Path, out: Path, recipe: Recipe, tokens: int) -> None:
    resampling.TOKENS = tokens
    trained(shards, out, {"run": recipe})


@pytest.mark.parametrize(("how", "tokens"), [("ddp", FEW), ("fsdp", FEW), ("ddp", 1), ("fsdp", 1)])
def test_two_processes_draw_what_one_draws(
    how: str, tokens: int, robust: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there are more processes than examples of a group."""
    monkeypatch.setattr(resampling, "TOKENS", tokens)
    recipe = robust.set(["model.dropout=0", "xlco.queue=0", "xlco.momentum=0", "xlco.mixup=false", f"parallel={how}"])
    trained_with_few(shards.path, tmp_path / "one", recipe, tokens)
    in_processes(2, trained_with_few, shards.path, tmp_path / "two", recipe, tokens)
    one, two = (read(tmp_path / name / "run") for name in ("one", "two"))
    assert len(one) == len(two) == 4
    for left, right in zip(one[1:], two[1:], strict=True):
        assert left["rates"] == pytest.approx(right["rates"], rel=1e-3)
        assert left["losses"] == pytest.approx(right["losses"], rel=1e-4)
    losses = [[row["loss"] for row in rows(tmp_path / name / "run")] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


# ---- a baseline --------------------------------------------------------------------------------------------------


def test_the_losses_of_a_baseline_are_subtracted(
    robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    acting = resampling_of(robust.set([f"dro.baseline={uninterrupted}"]), shards, tmp_path)
    assert acting.baseline == read(uninterrupted)[-1]["means"]
    acting.act(3, build(robust, shards.vocabulary_size))
    row = acting.rows[-1]
    assert row["rates"] == best_response(acting.first, row["means"], 0.1, 0.2, acting.baseline)
    assert row["rates"] != best_response(acting.first, row["means"], 0.1, 0.2)


@pytest.mark.parametrize("after", ["gone", "gone on"])
def test_a_run_that_goes_on_keeps_the_baseline_it_began_with(
    after: str, robust: Recipe, shards: Shards, uninterrupted: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    measured = (uninterrupted / FILE).read_text()
    (plain / FILE).write_text(measured)
    recipe = robust.set([f"dro.baseline={plain}"])
    pretrain(recipe, shards, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        before_step(patch, 2, lambda: signal.raise_signal(signal.SIGTERM))  # before anything was measured
        with pytest.raises(Interrupted):
            pretrain(recipe, shards, tmp_path / "run")
    (plain / FILE).unlink()
    if after == "gone on":
        rows = [json.loads(line) for line in measured.splitlines()]
        rows[-1]["means"] = {name: 9.0 * number for number, name in enumerate(rows[-1]["means"])}
        (plain / FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    pretrain(recipe, shards, tmp_path / "run")
    assert_same_run(tmp_path / "whole", tmp_path / "run", 8)
    assert read(tmp_path / "run") == read(tmp_path / "whole")
    assert read(tmp_path / "run")[0]["baseline"] == read(uninterrupted)[-1]["means"]


def test_a_baseline_that_is_none_is_one_sentence_and_leaves_no_run(
    robust: Recipe, shards: Shards, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    changed = [
        {"step": 0, "rates": {"x": 1.0}, "pairs": {"x": 9}},
        {"step": 3, "rates": {"x": 1.0}, "means": {"x": 2.0}},
    ]
    (tmp_path / "other" / FILE).write_text("".join(json.dumps(row) + "\n" for row in changed))
    for baseline, expected in (("nothing", "train it with --set dro.rho=0"), ("other", "none of these corpora")):
        with pytest.raises(BadInput, match=expected):
            pretrain(robust.set([f"dro.baseline={tmp_path / baseline}"]), shards, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "content", ["{", "[]\n", "", '{"step": 0}\n', '{"step": 0, "rates": {}, "pairs": {}}\n{"step": 3}\n']
)
def test_a_damaged_file_is_one_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(BadInput, match="damaged"):
        read(tmp_path)


def test_stretches_end_where_rates_change(robust: Recipe, shards: Shards, tmp_path: Path) -> None:
    acting = resampling_of(robust, shards, tmp_path)
    assert [acting.until(step) for step in range(9)] == [3, 3, 3, 5, 5, 8, 8, 8, 8]
