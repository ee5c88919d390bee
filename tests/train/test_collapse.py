"""Warnings of collapse: each sign once, after it has lasted, and never in healthy runs."""

from __future__ import annotations

import json
import math
import signal
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

from crossling.core.errors import Interrupted
from crossling.data.batches import Batches, StepWork
from crossling.data.shards import Shards
from crossling.recipes import veco, xlm_r
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.train import health
from crossling.train.health import CollapseMonitor, guessing_loss, most_frequent_token_share

Row = dict[str, float]
LOG_VOCABULARY, LOG_CANDIDATES = math.log(4000), math.log(2049)
SHARE = 0.08  # frequency of the most frequent token
WEIGHTS = {"mlm": 1.0, "mrtd": 50.0, "xlco": 1.0}


def token_frequency(term: str) -> float | None:
    return None if term == "xlco" else SHARE


def row(step: int, bound: float = 4.0, accuracy: float = 0.3, ratio: float = 0.8, replaced: float = 0.1) -> Row:
    """Return a row of MRTD. `ratio` is the discriminator's loss relative to guessing."""
    generator = {"mlm": LOG_VOCABULARY - bound, "mlm_bound": bound, "mlm_accuracy": accuracy}
    loss = ratio * guessing_loss(replaced) if 0 < replaced < 1 else 0.0
    return {"step": step, **generator, "mrtd": loss, "mrtd_replaced": replaced, "mrtd_accuracy": 1 - replaced}


def contrastive_row(step: int, bound: float) -> Row:
    return {"step": step, "xlco": LOG_CANDIDATES - bound, "xlco_bound": bound, "xlco_accuracy": 1.0}


def messages(rows: Iterable[Row], monitor: CollapseMonitor | None = None, warmup: int = 100) -> list[str]:
    monitor = monitor or CollapseMonitor(WEIGHTS, warmup, token_frequency)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for each in rows:
            monitor.check(each)
    return [str(warning.message) for warning in caught]


def steps(first: int, last: int, every: int = 50) -> range:
    return range(first, last + 1, every)


def test_a_generator_at_chance_gives_one_warning() -> None:
    rows = [row(step, bound=1.5, accuracy=0.079, ratio=1.0) for step in steps(50, 4000)]
    assert messages(rows) == [
        "step 2650: mlm has learned nothing from context. Its accuracy is 7.9%, that of the most frequent token 8.0%."
        " Try a lower lr or a longer optimizer.warmup."
    ]
    assert messages(rows, warmup=1000)[0].startswith("step 3550: ")


def test_contrastive_learning_with_identical_keys_gives_a_warning() -> None:
    [message] = messages(contrastive_row(step, 0.01) for step in steps(50, 4000))
    assert message.startswith(
        "step 2650: xlco does not distinguish translations from other sentences. Its bound on mutual"
    )
    assert "is 0.01 nats, by chance 0, at most 7.63. All keys may be alike." in message


@pytest.mark.parametrize(("form", "best"), [(row, 5.0), (contrastive_row, 5.0), (contrastive_row, 1.0)])
def test_losing_half_of_the_bound_gives_a_warning(form: Callable[..., Row], best: float) -> None:
    rows = [*(form(step, best) for step in steps(50, 1000)), *(form(step, 0.49 * best) for step in steps(1050, 3000))]
    [message] = messages(rows)
    assert message.startswith("step 1550: ")
    assert f"has lost more than half of what it had learned: {0.49 * best:.2f} nats, at best {best:.2f}" in message


@pytest.mark.parametrize(
    ("form", "found"),
    [(lambda step: row(step, bound=-1384.0), "mlm"), (lambda step: contrastive_row(step, -3.0), "xlco")],
)
def test_a_loss_that_stays_above_chance_gives_a_warning(form: Callable[[int], Row], found: str) -> None:
    rows = [form(step) for step in steps(50, 3000)]
    message = messages(rows, warmup=10_000)[0]
    assert message.startswith(f"step 550: {found} has diverged or not started to learn. Its loss is")
    assert f"guessing costs {LOG_VOCABULARY if found == 'mlm' else LOG_CANDIDATES:.4g}. Start again with" in message


def test_a_discriminator_far_above_an_even_guess_gives_a_warning() -> None:
    [message] = messages(row(step, ratio=20.0) for step in steps(50, 3000))
    assert message.startswith("step 550: mrtd has diverged")
    assert "guessing costs 0.6931" in message


@pytest.mark.parametrize(
    ("rows", "warmup", "diverged"),
    [
        ([row(30, -50.0)], 10, True),
        ([row(30, -50.0)], 100, False),  # within the warm-up
        ([row(10, -50.0), row(20, -50.0), row(30, -50.0)], 100, True),
        ([row(10, -50.0), row(20, 1.0), row(30, -0.2)], 10, False),
        ([{"step": 30, "skipped": 30}], 10, True),
    ],
)
def test_a_short_run_that_ends_above_chance_gives_a_warning(rows: list[Row], warmup: int, diverged: bool) -> None:
    monitor = CollapseMonitor(WEIGHTS, warmup, token_frequency)
    assert messages(rows[:-1], monitor) == []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monitor.check(rows[-1], is_last=True)
    assert (len(caught) == 1) == monitor.has_diverged == diverged
    resumed = CollapseMonitor(WEIGHTS, warmup, token_frequency)
    resumed.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    assert resumed.has_diverged == diverged


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_loss_that_is_not_finite_gives_a_warning_at_once(value: float) -> None:
    rows = [row(50) | {"mlm": value, "loss": value}, row(100) | {"loss": value}]
    assert [message.partition(". ")[0] for message in messages(rows)] == [
        f"step 50: mlm is {value}",
        f"step 50: loss is {value}",
    ]


def test_a_discriminator_that_guesses_again_gives_a_warning() -> None:
    rows = [*(row(step) for step in steps(50, 500)), *(row(step, ratio=1.001) for step in steps(550, 2000))]
    [message] = messages(rows)
    guessing = guessing_loss(0.1)
    assert message.startswith("step 1050: mrtd is back to guessing which tokens are replaced: its loss is")
    assert f"{1.001 * guessing:.4g}, the best constant answer costs {guessing:.4g}. If that lasts" in message


@pytest.mark.parametrize("replaced", [0.0, 0.004])
def test_a_generator_that_copies_gives_a_warning(replaced: float) -> None:
    [message] = messages(row(step, bound=8.0, accuracy=0.98, replaced=replaced) for step in steps(50, 2000))
    assert message.startswith("step 650: the generator of mrtd is nearly always correct: only 0.")
    assert message.endswith("Try fewer model.generator_layers or a higher masking rate, mrtd.rate.")


def test_every_warning_is_one_line_with_a_fix() -> None:
    rows = [row(step, bound=8.0) | contrastive_row(step, 6.0) for step in steps(50, 500)]
    rows += [row(step, 1.0, 0.07, 1.0) | contrastive_row(step, 0.0) for step in steps(550, 4000)]
    rows += [row(step, 1.0, 0.07, 1.0, 0.001) for step in steps(4050, 6000)]
    found = messages(rows)
    assert len(found) == len({*found}) == 6  # lost and chance of mlm, guessing, lost and chance of xlco, copies
    for message in found:
        assert "\n" not in message
        assert "Try " in message or "tart again with" in message


# Rows of runs on synthetic languages, size tiny, 2,048 tokens a task, lr 2e-3: step, then generator's bound and
# accuracy, discriminator's loss relative to guessing, replaced tokens.
HEALTHY = [
    *((25, 0.19, 0.053, 1.534, 0.134), (50, 0.95, 0.075, 1.007, 0.134), (100, 1.76, 0.096, 1.001, 0.132)),
    *((200, 2.58, 0.110, 1.011, 0.131), (300, 3.08, 0.123, 1.000, 0.128), (375, 3.53, 0.170, 1.002, 0.123)),
]
HEALTHY_BOUNDS = [
    (25, -0.10),
    (50, 2.50),
    (75, 3.39),
    (100, 3.71),
    (125, 3.78),
    (150, 3.69),
    (175, 3.60),
    (425, 4.88),
]


@pytest.mark.parametrize("times", [1, 10, 100])  # the same curve in longer runs
def test_healthy_runs_give_no_warning(times: int) -> None:
    assert messages((row(times * step, *rest) for step, *rest in HEALTHY), warmup=times * 100) == []
    assert messages((contrastive_row(times * step, bound) for step, bound in HEALTHY_BOUNDS), warmup=times * 100) == []


def test_a_short_jump_gives_no_warning() -> None:
    worse = {1000, 1050, *range(1400, 1900)}
    rows = [
        row(step, 1.0, 0.05, 1.2, 0.001) if step in worse else row(step) for step in steps(50, 6000) if step != 1900
    ]
    assert messages(rows) == []


def test_a_sign_needs_three_rows() -> None:
    rows = [row(1000), row(2000), *(row(step, 1.0) for step in (3000, 4000, 5000))]
    assert messages(rows[:4]) == []
    assert len(messages(rows)) == 1


def test_no_warning_during_the_warmup() -> None:
    rows = [*(row(step, 6.0) for step in steps(50, 1000)), *(row(step, 2.9) for step in steps(1050, 3000))]
    assert len(messages(rows)) == 1
    assert messages(rows, warmup=1000) == []  # the bound before it does not count
    assert messages((row(step, 0.1, 0.0, 1.5, 0.001) for step in steps(50, 1000)), warmup=1000) == []


def test_a_discriminator_that_never_learned_gives_no_warning() -> None:
    assert messages(row(step, ratio=1.0) for step in steps(50, 6000)) == []


def test_a_small_bound_gives_no_warning() -> None:
    rows = [
        *(contrastive_row(step, 0.9) for step in steps(50, 500)),
        *(contrastive_row(step, 0.1) for step in steps(550, 3000)),
    ]
    assert messages(rows) == []


def test_a_term_without_weight_is_not_checked() -> None:
    monitor = CollapseMonitor({"xlco": 0.0}, 0, token_frequency)
    assert messages((contrastive_row(step, 0.0) for step in steps(50, 4000)), monitor) == []


def test_rows_without_a_term_change_nothing() -> None:
    rows = [row(step, 1.5, 0.079) if step % 100 else {"step": step} for step in steps(50, 4000)]
    assert len(messages(rows)) == 1


@pytest.mark.parametrize("stop", range(0, 60, 7))
def test_a_resumed_run_repeats_no_warning(stop: int) -> None:
    rows = [row(step, 6.0) for step in steps(50, 500)]
    rows += [row(step, 1.0, 0.07, 1.0) for step in steps(550, 3000)]
    before, after = CollapseMonitor(WEIGHTS, 100, token_frequency), CollapseMonitor(WEIGHTS, 100, token_frequency)
    first = messages(rows[:stop], before)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert first + messages(rows[stop:], after) == messages(rows)
    assert len(messages(rows)) == 3


def test_frequency_of_the_most_frequent_masked_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "FREQUENCY_SAMPLE", 5)
    batch = {"ids": torch.zeros(2, 3), "targets": torch.tensor([[9, 9, 9], [7, 5, 7]])}
    batches = [batch | {"masked_at": torch.tensor(places)} for places in ([3, 4], [0, 4, 5], [0, 1, 2])]
    assert most_frequent_token_share(iter(batches)) == pytest.approx(2 / 5)  # 7 5 9 5 7; the last batch is not needed
    two = batch | {"x_masked_at": torch.tensor([3, 5]), "y_masked_at": torch.tensor([0, 1, 2])}
    assert most_frequent_token_share([two]) == pytest.approx(3 / 5)
    assert most_frequent_token_share(iter([{"query": torch.zeros(1)}])) is None


def shorten_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show every sign within a few steps. Chance varies more on so few tokens."""
    for name, value in {"CHANCE_STEPS": 2, "STEPS": 2, "CHANCE_RATIO": 10.0, "FREQUENCY_SAMPLE": 200}.items():
        monkeypatch.setattr(health, name, value)


def warnings_of(recipe: Recipe, shards: Shards, out: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            pretrain(recipe, shards, out)
        except Interrupted:
            pretrain(recipe, shards, out)
    return [str(each.message) for each in caught if str(each.message).startswith("step ")]


def test_a_run_that_cannot_learn_warns_once_per_term_even_if_resumed(
    full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learning rate is almost 0."""
    shorten_limits(monkeypatch)
    recipe = full_recipe.set(["lr=1e-9", "steps=12", "log_every=1", "checkpoint_every=100"])
    whole = warnings_of(recipe, shards, tmp_path / "whole")
    assert {(message.split()[2], "nothing" in message) for message in whole} >= {("mlm", True), ("tlm", True)}
    assert len({" ".join(message.split()[2:6]) for message in whole}) == len(whole)
    original = Batches.__getitem__

    def interrupting(self: Batches, step: int) -> StepWork:
        if step == 8:
            signal.raise_signal(signal.SIGINT)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "__getitem__", interrupting)
        assert warnings_of(recipe, shards, tmp_path / "stopped") == whole


@pytest.mark.parametrize(("changes", "found"), [(["lr=100"], "mlm"), (["mlm.weight=1e308", "steps=4"], "the")])
def test_a_run_that_diverges_is_not_called_trained(
    changes: list[str],
    found: str,
    small_model: list[str],
    shards: Shards,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = ["optimizer.warmup=2", "steps=20", "log_every=4", "mlm.tokens=192", "mlm.length=32"]
    recipe = xlm_r("tiny").set([*small_model, *small, *changes])
    assert {message.split()[2] for message in warnings_of(recipe, shards, tmp_path / "run")} == {found}
    assert warnings_of(recipe, shards, tmp_path / "run") == []  # it is finished
    ends = [line for line in capsys.readouterr().err.splitlines() if "FLOPs" in line]
    assert [end.startswith(f"no usable model after {recipe.steps} steps: ") for end in ends] == [True, True]


def test_both_sides_of_cross_attention_are_checked(
    small_model: list[str], shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_limits(monkeypatch)
    lengths = [f"{name}.{what}" for name in ("ca_mlm", "ca_tlm", "tlm") for what in ("length=32", "tokens=128")]
    recipe = veco("tiny").set([*small_model, *lengths, "steps=12", "log_every=2", "lr=1e-9", "optimizer.warmup=1"])
    found = {message.split()[2] for message in warnings_of(recipe, shards, tmp_path / "run")}
    sides = {f"ca_{name}_{side}{stream}" for name in ("mlm", "tlm") for side in "xy" for stream in ("", "_cross")}
    assert {*sides, "tlm"} == found


def test_a_healthy_run_has_no_warnings(full_recipe: Recipe, shards: Shards, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pretrain(full_recipe, shards, tmp_path / "run")
        pretrain(full_recipe, shards, tmp_path / "run")  # already finished
    notes = [str(each.message) for each in caught]
    assert [note for note in notes if not note.startswith("first step after")] == ["plain torch, float32, 1 process"]
