"""Warnings of collapse: each sign once, after it has shown for long, and never of what healthy runs do."""

from __future__ import annotations

import json
import math
import signal
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

from crossling.data.batches import Batches, Work
from crossling.data.shards import Shards
from crossling.errors import Interrupted
from crossling.recipe import Recipe, pretrain
from crossling.recipes import veco
from crossling.train import collapse
from crossling.train.collapse import Collapse, most_frequent
from crossling.train.guard import cost_of_guessing

Row = dict[str, float]
PIECES, CANDIDATES = math.log(4000), math.log(2049)
SHARE = 0.08  # of the most frequent piece
WEIGHTS = {"mlm": 1.0, "mrtd": 50.0, "xlco": 1.0}


def shares(term: str) -> float | None:
    return None if term == "xlco" else SHARE


def row(step: int, bound: float = 4.0, accuracy: float = 0.3, ratio: float = 0.8, replaced: float = 0.1) -> Row:
    """Of an MRTD pair: the generator's bound and accuracy, the discriminator's loss in parts of what guessing costs."""
    generator = {"mlm": PIECES - bound, "mlm_bound": bound, "mlm_accuracy": accuracy}
    loss = ratio * cost_of_guessing(replaced) if 0 < replaced < 1 else 0.0
    return {"step": step, **generator, "mrtd": loss, "mrtd_replaced": replaced, "mrtd_accuracy": 1 - replaced}


def contrast(step: int, bound: float) -> Row:
    return {"step": step, "xlco": CANDIDATES - bound, "xlco_bound": bound, "xlco_accuracy": 1.0}


def said(rows: Iterable[Row], watcher: Collapse | None = None, warmup: int = 100) -> list[str]:
    watcher = watcher or Collapse(WEIGHTS, warmup, shares)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for each in rows:
            watcher.watch(each)
    return [str(warning.message) for warning in caught]


def steps(first: int, last: int, every: int = 50) -> range:
    return range(first, last + 1, every)


# ---- what is told -------------------------------------------------------------------------------------------


def test_a_generator_that_knows_no_more_than_frequencies_is_told_once_and_what_chance_is() -> None:
    rows = [row(step, bound=1.5, accuracy=0.079, ratio=1.0) for step in steps(50, 4000)]
    assert said(rows) == [
        "step 2650: mlm has learned nothing from context: it is right at 7.9% of places, the most frequent piece alone"
        " at 8.0%; try a lower lr or a longer optimizer.warmup"
    ]
    assert said(rows, warmup=1000)[0].startswith("step 3550: ")


def test_contrast_whose_keys_are_all_alike_is_told_whatever_its_accuracy() -> None:
    [sentence] = said(contrast(step, 0.01) for step in steps(50, 4000))
    assert sentence.startswith("step 2650: xlco tells no translation from other sentences: its bound on mutual")
    assert "is 0.01 nats, by chance 0, at most 7.63; its keys may be all alike" in sentence


@pytest.mark.parametrize(("form", "best"), [(row, 5.0), (contrast, 5.0), (contrast, 1.0)])
def test_a_network_that_loses_half_of_what_it_knew_is_told(form: Callable[..., Row], best: float) -> None:
    rows = [*(form(step, best) for step in steps(50, 1000)), *(form(step, 0.49 * best) for step in steps(1050, 3000))]
    [sentence] = said(rows)
    assert sentence.startswith("step 1550: ")
    assert f"has lost more than half of what it had learned: {0.49 * best:.2f} nats of {best:.2f}" in sentence


def test_a_discriminator_that_falls_back_to_guessing_is_told() -> None:
    rows = [*(row(step) for step in steps(50, 500)), *(row(step, ratio=1.001) for step in steps(550, 2000))]
    [sentence] = said(rows)
    guessing = cost_of_guessing(0.1)
    assert sentence.startswith("step 1050: mrtd has fallen back to guessing which tokens are replaced: its loss is")
    assert f"{1.001 * guessing:.4g}, where the best constant answer costs {guessing:.4g}; if that stays so" in sentence


@pytest.mark.parametrize("replaced", [0.0, 0.004])
def test_a_generator_that_copies_is_told(replaced: float) -> None:
    [sentence] = said(row(step, bound=8.0, accuracy=0.98, replaced=replaced) for step in steps(50, 2000))
    assert sentence.startswith("step 650: the generator of mrtd is nearly always right, so that only 0.")
    assert sentence.endswith("try fewer model.generator_layers or a higher mrtd.rate")


def test_every_sentence_is_one_and_says_what_to_try() -> None:
    rows = [row(step, bound=8.0) | contrast(step, 6.0) for step in steps(50, 500)]
    rows += [row(step, 1.0, 0.07, 1.0) | contrast(step, 0.0) for step in steps(550, 4000)]
    rows += [row(step, 1.0, 0.07, 1.0, 0.001) for step in steps(4050, 6000)]
    found = said(rows)
    assert len(found) == len({*found}) == 6  # lost and chance of mlm, guessing, lost and chance of xlco, copies
    for sentence in found:
        assert "\n" not in sentence
        assert "try " in sentence or "begin anew with" in sentence


# ---- what is not --------------------------------------------------------------------------------------------

# Rows of runs on the embedded languages, size tiny, 2,048 tokens a task, lr 2e-3: step, then generator's bound and
# accuracy, discriminator's loss in parts of guessing, replaced tokens.
HEALTHY = [
    *((25, 0.19, 0.053, 1.534, 0.134), (50, 0.95, 0.075, 1.007, 0.134), (100, 1.76, 0.096, 1.001, 0.132)),
    *((200, 2.58, 0.110, 1.011, 0.131), (300, 3.08, 0.123, 1.000, 0.128), (375, 3.53, 0.170, 1.002, 0.123)),
]
HEALTHY_CONTRAST = [
    (25, -0.10),
    (50, 2.50),
    (75, 3.39),
    (100, 3.71),
    (125, 3.78),
    (150, 3.69),
    (175, 3.60),
    (425, 4.88),
]


@pytest.mark.parametrize("times", [1, 10, 100])  # the same curve, at the pace of longer runs
def test_healthy_runs_hear_nothing(times: int) -> None:
    assert said((row(times * step, *rest) for step, *rest in HEALTHY), warmup=times * 100) == []
    assert said((contrast(times * step, bound) for step, bound in HEALTHY_CONTRAST), warmup=times * 100) == []


def test_a_jump_that_comes_back_is_no_collapse() -> None:
    worse = {1000, 1050, *range(1400, 1900)}
    rows = [
        row(step, 1.0, 0.05, 1.2, 0.001) if step in worse else row(step) for step in steps(50, 6000) if step != 1900
    ]
    assert said(rows) == []


def test_three_rows_it_takes_however_far_apart() -> None:
    rows = [row(1000), row(2000), *(row(step, 1.0) for step in (3000, 4000, 5000))]
    assert said(rows[:4]) == []
    assert len(said(rows)) == 1


def test_nothing_is_said_of_the_warm_up() -> None:
    rows = [*(row(step, 6.0) for step in steps(50, 1000)), *(row(step, 2.9) for step in steps(1050, 3000))]
    assert len(said(rows)) == 1
    assert said(rows, warmup=1000) == []  # what was known before it is no measure
    assert said((row(step, 0.1, 0.0, 1.5, 0.001) for step in steps(50, 1000)), warmup=1000) == []


def test_a_discriminator_that_never_learned_has_lost_nothing() -> None:
    assert said(row(step, ratio=1.0) for step in steps(50, 6000)) == []


def test_a_small_bound_has_no_half() -> None:
    rows = [*(contrast(step, 0.9) for step in steps(50, 500)), *(contrast(step, 0.1) for step in steps(550, 3000))]
    assert said(rows) == []


def test_a_term_without_weight_only_looks_on() -> None:
    watcher = Collapse({"xlco": 0.0}, 0, shares)
    assert said((contrast(step, 0.0) for step in steps(50, 4000)), watcher) == []


def test_rows_without_a_term_change_nothing() -> None:
    rows = [row(step, 1.5, 0.079) if step % 100 else {"step": step} for step in steps(50, 4000)]
    assert len(said(rows)) == 1


# ---- going on -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", range(0, 60, 7))
def test_a_run_that_goes_on_says_the_same_and_nothing_twice(stop: int) -> None:
    rows = [row(step, 6.0) for step in steps(50, 500)]
    rows += [row(step, 1.0, 0.07, 1.0) for step in steps(550, 3000)]
    before, after = Collapse(WEIGHTS, 100, shares), Collapse(WEIGHTS, 100, shares)
    first = said(rows[:stop], before)
    after.load(json.loads(json.dumps(before.dump())))
    assert first + said(rows[stop:], after) == said(rows)
    assert len(said(rows)) == 3


# ---- chance -------------------------------------------------------------------------------------------------


def test_the_most_frequent_piece_among_the_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collapse, "COUNTED", 5)
    batch = {"ids": torch.zeros(2, 3), "targets": torch.tensor([[9, 9, 9], [7, 5, 7]])}
    batches = [batch | {"masked_at": torch.tensor(places)} for places in ([3, 4], [0, 4, 5], [0, 1, 2])]
    assert most_frequent(iter(batches)) == pytest.approx(2 / 5)  # 7 5 9 5 7; the last batch is not needed
    two = {"x_targets": batch["targets"], "x_masked_at": torch.tensor([3, 5])}
    two |= {"y_targets": batch["targets"], "y_masked_at": torch.tensor([0, 1, 2])}
    assert most_frequent([two]) == pytest.approx(3 / 5)
    assert most_frequent(iter([{"query": torch.zeros(1)}])) is None


def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sign within a few steps; so few tokens are right by chance more or less often."""
    for name, value in {"LONG": 2, "STEPS": 2, "TIMES_CHANCE": 10.0, "COUNTED": 200}.items():
        monkeypatch.setattr(collapse, name, value)


def told_in(recipe: Recipe, shards: Shards, out: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            pretrain(recipe, shards, out)
        except Interrupted:
            pretrain(recipe, shards, out)
    return [str(each.message) for each in caught if str(each.message).startswith("step ")]


def test_in_a_run_that_cannot_learn_every_term_is_told_once_also_when_it_was_stopped(
    full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a rate of next to nothing."""
    soon(monkeypatch)
    recipe = full_recipe.set(["lr=1e-9", "steps=12", "log_every=1", "checkpoint_every=100"])
    whole = told_in(recipe, shards, tmp_path / "whole")
    assert {(sentence.split()[2], "nothing" in sentence) for sentence in whole} >= {("mlm", True), ("tlm", True)}
    assert len({" ".join(sentence.split()[2:6]) for sentence in whole}) == len(whole)
    original = Batches.__getitem__

    def interrupting(self: Batches, step: int) -> Work:
        if step == 8:
            signal.raise_signal(signal.SIGINT)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "__getitem__", interrupting)
        assert told_in(recipe, shards, tmp_path / "stopped") == whole


def test_both_sides_of_cross_attention_have_a_chance(
    small_model: list[str], shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon(monkeypatch)
    lengths = [f"{name}.{what}" for name in ("ca_mlm", "ca_tlm", "tlm") for what in ("length=32", "tokens=128")]
    recipe = veco("tiny").set([*small_model, *lengths, "steps=12", "log_every=2", "lr=1e-9", "optimizer.warmup=1"])
    found = {sentence.split()[2] for sentence in told_in(recipe, shards, tmp_path / "run")}
    sides = {f"ca_{name}_{side}{stream}" for name in ("mlm", "tlm") for side in "xy" for stream in ("", "_cross")}
    assert {*sides, "tlm"} == found


def test_a_healthy_run_hears_nothing_but_its_path(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pretrain(full_recipe, shards, tmp_path / "run")
        pretrain(full_recipe, shards, tmp_path / "run")  # there is nothing left to do
    assert [str(each.message) for each in caught] == ["plain torch, float32, 1 process"]
