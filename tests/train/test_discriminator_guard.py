"""The guard: a discriminator that fell back to guessing ends the run, one that never learned or came back does not."""

from __future__ import annotations

import json
import math
import re
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import Failed, Interrupted
from crossling.data.batches import Batches, StepWork
from crossling.data.shards import Shards
from crossling.recipes import xlm_e
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.train import checkpoint
from crossling.train.health import DiscriminatorGuard, guessing_loss
from crossling.train.optimizer import OptimizerSettings

GUESSING = guessing_loss(0.13)


def row(step: int, ratio: float, term: str = "mrtd", share: float = 0.13) -> dict[str, float]:
    return {"step": step, "mlm": 9.0, term: ratio * guessing_loss(share), f"{term}_replaced": share}


def ends(ratios: list[float], checkpoints: Path = Path("none"), guard: DiscriminatorGuard | None = None) -> int | None:
    """Return the number of rows after which the guard ends a run, given its losses relative to guessing."""
    guard = guard or DiscriminatorGuard(checkpoints, 5e-4)
    for number, ratio in enumerate(ratios, start=1):
        try:
            guard.check(row(10 * number, ratio))
        except Failed:
            return number
    return None


def slow(ratios: list[float]) -> int | None:
    """Apply the rule: a row below 0.95, and after it three consecutive rows of 0.99 or more."""
    for end in range(3, len(ratios) + 1):
        last_three = ratios[end - 3 : end]
        if min(last_three) >= 0.99 and any(ratio < 0.95 for ratio in ratios[: end - 3]):
            return end
    return None


@given(st.lists(st.sampled_from([0.5, 0.94, 0.96, 0.98, 0.995, 1.0, 1.3, 80.0]), max_size=14))
def test_the_guard_follows_the_rule(ratios: list[float]) -> None:
    assert ends(ratios) == slow(ratios)


@given(st.integers(1, 999), st.integers(1000, 5000), st.floats(0.001, 0.999))
def test_no_constant_answer_is_better_than_guessing(replaced: int, tokens: int, answer: float) -> None:
    """Gibbs' inequality: no constant answer beats the entropy of the same row, so LOST can be close to 1."""
    share = replaced / tokens
    loss = -(share * math.log(answer) + (1 - share) * math.log(1 - answer))
    assert loss >= guessing_loss(share) * (1 - 1e-12)
    assert guessing_loss(share) == pytest.approx(-(share * math.log(share) + (1 - share) * math.log(1 - share)))


def test_knowing_special_tokens_is_less_than_having_learned() -> None:
    """At a masking rate of 15% and one special token in fifteen, as in the synthetic languages."""
    share, special = 0.135, 1 / 15
    loss = (1 - special) * guessing_loss(share / (1 - special))
    assert 0.95 < loss / guessing_loss(share) < 0.99


@pytest.mark.parametrize(
    ("ratios", "end"),
    [
        ([1.7, 1.5, 1.04, 1.002, 1.0, 1.004, 0.998], None),  # the beginning of every run
        ([1.1, 1.0, 0.97, 0.96, 0.96, 1.0, 1.0, 1.0, 1.0], None),  # special tokens are all it ever knew
        ([0.6, 0.6, 1.2, 1.1, 0.9, 0.6], None),  # a jump it came back from
        ([0.6, 0.7, 0.8, 0.9, 0.98, 0.98, 0.98, 0.98], None),  # a generator that becomes better
        ([0.6, 90.0, 48.0, 1.016], 4),
        ([0.6, 1.0009, 1.0004, 1.0001], 4),  # settled at the constant answer
    ],
)
def test_typical_runs(ratios: list[float], end: int | None) -> None:
    assert ends(ratios) == slow(ratios) == end


def test_message_of_a_collapsed_discriminator(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        (tmp_path / f"{step:07d}").mkdir()
    guard = DiscriminatorGuard(tmp_path, 5e-4)
    for number, ratio in enumerate([1.2, 0.6, 1.1, 1.05], start=1):
        guard.check(row(10 * number, ratio))
    with pytest.raises(Failed) as caught:
        guard.check(row(50, 1.25))
    assert str(caught.value) == (
        f"step 50: mrtd has diverged. Its loss is {1.25 * GUESSING:.4g}, guessing costs {GUESSING:.4g}; at step 20 it"
        f" was {0.6 * GUESSING:.4g}; the last good checkpoint is {tmp_path}/0000020. Replaced token detection that"
        " continues at its original peak learning rate is known to diverge (XY-LENT, Limitations). Train again in a"
        " new folder. Set lr=0.0001, a fifth."
    )


def test_a_checkpoint_after_the_collapse_is_not_good(tmp_path: Path) -> None:
    (tmp_path / "0000025").mkdir()
    guard = DiscriminatorGuard(tmp_path, 1.0)
    assert ends([0.9, 0.9, 1.0, 1.0], guard=guard) is None
    with pytest.raises(Failed, match=r"; no checkpoint from before is left\. "):
        guard.check(row(50, 1.0))


def test_terms_are_checked_separately() -> None:
    guard = DiscriminatorGuard(Path("none"), 1.0)
    guard.check(row(1, 0.5) | row(1, 1.0, "trtd"))
    for step in (2, 3):
        guard.check(row(step, 0.5) | row(step, 1.0, "trtd"))
    guard.check({"step": 3, "mlm": 9.0})  # steps without a discriminator
    guard.check({"step": 4, "mrtd": 0.1, "mrtd_replaced": 0.0})  # nothing to detect
    assert not guard.is_suspect
    guard.check(row(5, 0.5) | row(5, 0.6, "trtd"))
    guard.check(row(6, 0.5) | row(6, 1.0, "trtd"))
    assert guard.is_suspect
    guard.check(row(7, 1.0) | row(7, 1.0, "trtd"))
    with pytest.raises(Failed, match=r"^step 8: trtd has diverged"):
        guard.check(row(8, 1.0) | row(8, 1.0, "trtd"))


@given(st.lists(st.sampled_from([0.9, 0.97, 1.0]), min_size=1, max_size=9), st.data())
def test_state_survives_a_checkpoint(ratios: list[float], data: st.DataObject) -> None:
    end = ends(ratios)
    cut = data.draw(st.integers(0, (end or len(ratios) + 1) - 1))
    before, after = DiscriminatorGuard(Path("none"), 1.0), DiscriminatorGuard(Path("none"), 1.0)
    assert ends(ratios[:cut], guard=before) is None
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert after.state_dict() == before.state_dict()
    found = ends(ratios[cut:], guard=after)
    assert (None if found is None else found + cut) == end


@pytest.fixture
def over_the_edge(small_model: list[str], monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Return MRTD that learns for 60 steps at a good learning rate, then continues at an absurd one."""
    monkeypatch.setattr(OptimizerSettings, "learning_rate", lambda _, step, *__: 0.01 if step < 60 else 1.0)
    return xlm_e("tiny").set(
        [
            *("trtd=off", "mrtd.tokens=256", "mrtd.length=32", "mrtd.rate=0.5", "steps=120", "lr=0.05"),
            *(*small_model, "model.dropout=0", "log_every=10", "checkpoint_every=10"),
        ]
    )


@pytest.fixture
def start(over_the_edge: Recipe, shards: Shards, tmp_path: Path) -> InitialModel:
    """Return the model that the run is initialized from: the guard checks only initialized runs."""
    pretrain(over_the_edge.replace(steps=2), shards, tmp_path / "start")
    return InitialModel.load(tmp_path / "start")


def found_in(out: Path) -> list[tuple[int, float]]:
    """Return the step and the loss relative to guessing of every row."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["mrtd"] / guessing_loss(row["mrtd_replaced"])) for row in rows]


def test_a_run_at_an_absurd_learning_rate_ends_and_keeps_its_last_good_checkpoint(
    over_the_edge: Recipe, shards: Shards, start: InitialModel, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(Failed) as caught:
        pretrain(over_the_edge, shards, out, init=start)
    found = found_in(out)
    assert slow([ratio for _, ratio in found]) == len(found)
    assert [step for step, _ in found] == [*range(10, 10 * len(found) + 1, 10)]
    assert len(found) < 12
    good = re.search(r"the last good checkpoint is (\S+)\. ", str(caught.value))
    assert good is not None
    newest = checkpoint.list_checkpoints(out / "checkpoints")[
        -1
    ]  # none was saved while it was suspect, though one was due at every row
    assert Path(good[1]) == newest
    assert int(newest.name) == found[-4][0] >= 60
    assert "Set lr=0.01, a fifth" in str(caught.value)


def test_a_run_that_was_stopped_while_suspect_ends_at_the_same_step(
    over_the_edge: Recipe, shards: Shards, start: InitialModel, tmp_path: Path
) -> None:
    with pytest.raises(Failed) as whole:
        pretrain(over_the_edge, shards, tmp_path / "whole", init=start)
    last = found_in(tmp_path / "whole")[-1][0]
    original = Batches.__getitem__

    def interrupting(self: Batches, step: int) -> StepWork:
        if step == last - 5:
            signal.raise_signal(signal.SIGINT)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "__getitem__", interrupting)
        with pytest.raises(Interrupted):
            pretrain(over_the_edge, shards, tmp_path / "stopped", init=start)
    with pytest.raises(Failed) as stopped:
        pretrain(over_the_edge, shards, tmp_path / "stopped", init=start)
    assert str(stopped.value) == str(whole.value).replace("/whole/", "/stopped/")
    assert found_in(tmp_path / "stopped") == found_in(tmp_path / "whole")


def test_a_run_from_scratch_is_not_guarded(over_the_edge: Recipe, shards: Shards, tmp_path: Path) -> None:
    """Its discriminator may detect early nonsense better than later samples."""
    pretrain(over_the_edge, shards, tmp_path / "run")
    assert found_in(tmp_path / "run")[-1][0] == 120
