"""Which steps are left out, against the rule written out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.errors import Failed
from crossling.train import steady
from crossling.train.steady import Steady

NORMS = st.lists(st.sampled_from([0.5, 1.0, 3.0, 30.0, 500.0, math.nan, math.inf]), max_size=40)


@pytest.fixture(autouse=True, scope="module")
def _soon() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady, "SETTLED", 4)
        yield


def judged(norms: list[float], judge: Steady) -> list[bool]:
    return [bool(judge.judge(torch.tensor(norm))) for norm in norms]


def by_rule(norms: list[float]) -> list[bool]:
    """No number, or after four good ones more than twenty times their mean."""
    good: list[float] = []
    found = []
    for norm in norms:
        skip = not math.isfinite(norm) or (len(good) >= 4 and norm > 20 * fmean(good))
        found.append(skip)
        good += [] if skip else [norm]
    return found


@given(NORMS)
def test_it_follows_the_rule(norms: list[float]) -> None:
    judge = Steady(torch.device("cpu"))
    assert judged(norms, judge) == by_rule(norms)
    assert int(judge.skipped) == sum(by_rule(norms))


@given(NORMS, st.integers(0, 40))
def test_what_it_knows_survives_a_stop(norms: list[float], cut: int) -> None:
    whole, before, after = (Steady(torch.device("cpu")) for _ in range(3))
    expected = judged(norms, whole)
    judged(norms[:cut], before)
    after.load(json.loads(json.dumps(before.dump())))
    assert judged(norms[cut:], after) == expected[cut:]
    assert after.dump() == whole.dump()


def test_what_is_usual_changes_with_time() -> None:
    judge = Steady(torch.device("cpu"))
    judged([100.0] * 200, judge)
    judged([1.0] * 1500, judge)
    assert float(judge.usual) == pytest.approx(1.0, rel=0.01)
    assert judged([30.0], judge) == [True]


@pytest.mark.parametrize(("bad", "ends"), [(4, False), (5, True), (9, True)])
def test_a_few_in_a_row_end_the_run_however_late_it_is_looked_at(bad: int, ends: bool) -> None:
    judge = Steady(torch.device("cpu"))
    judged([1.0, *[math.nan] * bad, 1.0, math.nan, 1.0], judge)
    if not ends:
        judge.check(12, "nothing")
        return
    with pytest.raises(Failed) as caught:
        judge.check(12, "the last good state is run/checkpoints/0000007")
    assert str(caught.value) == (
        "5 steps in a row had to be left out by step 12: their gradients were not finite, or more than 20 times as"
        " large as before; the last good state is run/checkpoints/0000007; try a lower lr, a longer optimizer.warmup"
        " or a lower optimizer.clip in another -o folder (--init begins it as a run that has a state)"
    )


def test_once_more_parameters_learn_nothing_is_usual() -> None:
    judge = Steady(torch.device("cpu"))
    judged([1.0] * 10, judge)
    judge.forget()
    assert judged([1000.0, math.nan], judge) == [False, True]


def test_four_of_five_for_ever_end_it_too() -> None:
    judge = Steady(torch.device("cpu"))
    judged([*[1.0] * 50, *([math.nan] * 4 + [1.0]) * 4], judge)
    judge.check(70, "")
    judged(([math.nan] * 4 + [1.0]) * 20, judge)
    with pytest.raises(Failed, match=r"^most of the last steps had to be left out by step 170: "):
        judge.check(170, "")


def test_one_of_five_does_not() -> None:
    judge = Steady(torch.device("cpu"))
    judged(([math.nan] + [1.0] * 4) * 100, judge)
    judge.check(500, "")
