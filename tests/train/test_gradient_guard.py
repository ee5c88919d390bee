"""Steps are skipped as the rule defines, and too many of them end the run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import Failed
from crossling.train import health
from crossling.train.health import GradientNormGuard

NORMS = st.lists(st.sampled_from([0.5, 1.0, 3.0, 30.0, 500.0, math.nan, math.inf]), max_size=40)


@pytest.fixture(autouse=True, scope="module")
def _short_warmup() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "WARMUP_STEPS", 4)
        yield


def skips(norms: list[float], guard: GradientNormGuard) -> list[bool]:
    return [bool(guard.update(torch.tensor(norm))) for norm in norms]


def by_rule(norms: list[float]) -> list[bool]:
    """Skip norms that are not finite, or after four good ones more than twenty times their mean."""
    good: list[float] = []
    found = []
    for norm in norms:
        skip = not math.isfinite(norm) or (len(good) >= 4 and norm > 20 * fmean(good))
        found.append(skip)
        good += [] if skip else [norm]
    return found


@given(NORMS)
def test_skipped_steps_follow_the_rule(norms: list[float]) -> None:
    guard = GradientNormGuard(torch.device("cpu"))
    assert skips(norms, guard) == by_rule(norms)
    assert int(guard.skipped) == sum(by_rule(norms))


@given(NORMS, st.integers(0, 40))
def test_state_survives_a_checkpoint(norms: list[float], cut: int) -> None:
    whole, before, after = (GradientNormGuard(torch.device("cpu")) for _ in range(3))
    expected = skips(norms, whole)
    skips(norms[:cut], before)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert skips(norms[cut:], after) == expected[cut:]
    assert after.state_dict() == whole.state_dict()


def test_the_running_mean_follows_the_norms() -> None:
    guard = GradientNormGuard(torch.device("cpu"))
    skips([100.0] * 200, guard)
    skips([1.0] * 1500, guard)
    assert float(guard.mean_norm) == pytest.approx(1.0, rel=0.01)
    assert skips([30.0], guard) == [True]


@pytest.mark.parametrize(("bad", "ends"), [(4, False), (5, True), (9, True)])
def test_consecutive_skips_end_the_run_even_if_checked_late(bad: int, ends: bool) -> None:
    guard = GradientNormGuard(torch.device("cpu"))
    skips([1.0, *[math.nan] * bad, 1.0, math.nan, 1.0], guard)
    if not ends:
        guard.check(12, "nothing")
        return
    with pytest.raises(Failed) as caught:
        guard.check(12, "the last good checkpoint is run/checkpoints/0000007")
    assert str(caught.value) == (
        "step 12: 5 consecutive steps were skipped, because their gradients were not finite or more than 20 times their"
        " running mean; the last good checkpoint is run/checkpoints/0000007. Train again in a new folder, initialized"
        " from the last good checkpoint. Set a lower lr, a longer optimizer.warmup or a lower optimizer.clip."
    )


def test_reset_mean_starts_a_new_warmup() -> None:
    guard = GradientNormGuard(torch.device("cpu"))
    skips([1.0] * 10, guard)
    guard.reset_mean()
    assert skips([1000.0, math.nan], guard) == [False, True]


def test_four_skips_of_five_end_the_run() -> None:
    guard = GradientNormGuard(torch.device("cpu"))
    skips([*[1.0] * 50, *([math.nan] * 4 + [1.0]) * 4], guard)
    guard.check(70, "")
    skips(([math.nan] * 4 + [1.0]) * 20, guard)
    with pytest.raises(Failed, match=r"^step 170: most of the last steps were skipped, "):
        guard.check(170, "")


def test_one_skip_of_five_does_not_end_the_run() -> None:
    guard = GradientNormGuard(torch.device("cpu"))
    skips(([math.nan] + [1.0] * 4) * 100, guard)
    guard.check(500, "")
