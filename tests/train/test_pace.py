"""The time that is left, on a clock that is set by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.train.pace import Kind, Pace

SAVE, PROBE = 7.0, 31.0  # seconds
EVERY: dict[Kind, int] = {"save": 4, "probe": 6}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(pace: Pace, clock: Clock, first: int, last: int, a_step: float, log_every: int = 5) -> None:
    """Steps of the same length with all that is due, as the trainer does them."""
    pace.begin(first)
    for step in range(first + 1, last + 1):
        clock.now += a_step
        if step % log_every == 0 or step % 6 == 0 or step == pace.steps:
            pace.row(step)
        if "probe" in pace.every and (step % 6 == 0 or step == pace.steps):
            with pace.on("probe"):
                clock.now += PROBE
        if step % 4 == 0 or step == pace.steps:
            with pace.on("save"):
                clock.now += SAVE


def truth(step: int, steps: int, a_step: float) -> float:
    ahead = range(step + 1, steps + 1)
    saves = sum(each % 4 == 0 or each == steps for each in ahead)
    probes = sum(each % 6 == 0 or each == steps for each in ahead)
    return len(ahead) * a_step + saves * SAVE + probes * PROBE


@given(st.integers(6, 40), st.integers(6, 60))
def test_steps_saves_and_probes_that_are_to_come_are_counted_each(stop: int, steps: int) -> None:
    stop = min(stop, steps)
    clock = Clock()
    pace = Pace(steps, EVERY, clock)
    run(pace, clock, 0, stop, 2.0)
    assert pace.left(stop) == pytest.approx(truth(stop, steps, 2.0))


def test_before_the_first_row_nothing_is_known() -> None:
    clock = Clock()
    pace = Pace(100, EVERY, clock)
    clock.now += 60
    assert pace.left(3) is None


def test_a_probe_before_the_first_step_is_no_step() -> None:
    clock = Clock()
    pace = Pace(100, {"probe": 0}, clock)
    with pace.on("probe"):
        clock.now += 50
    clock.now += 10
    pace.row(10)
    assert pace.left(10) == pytest.approx(90 + 50)  # one more at the end
    assert pace.left(100) == 0


def test_what_compiling_took_is_soon_forgotten() -> None:
    clock = Clock()
    pace = Pace(10_000, {"save": 1000}, clock)
    clock.now += 600
    left = []
    for step in range(50, 200, 50):
        clock.now += 50
        pace.row(step)
        left.append(pace.left(step))
    assert left == [pytest.approx(9950 * 13), pytest.approx(9900), pytest.approx(9850)]


def test_the_latest_rows_count() -> None:
    clock = Clock()
    pace = Pace(10_000, {"save": 1000}, clock)
    for row in range(1, 41):
        clock.now += 50 if row <= 20 else 100
        pace.row(50 * row)
    assert pace.left(2000) == pytest.approx(8000 * 2, rel=0.02)


def test_a_run_that_goes_on_knows_its_pace_at_once_and_learns_that_of_another_machine_in_one_row() -> None:
    clock = Clock()
    before = Pace(60, EVERY, clock)
    run(before, clock, 0, 13, 2.0)
    stored = json.loads(json.dumps(before.dump()))

    clock = Clock()
    clock.now = 10_000.0  # it had been stopped for long
    after = Pace(60, EVERY, clock)
    after.load(stored)
    after.begin(13)
    assert after.left(13) == pytest.approx(truth(13, 60, 2.0))
    run(after, clock, 13, 15, 0.5)
    assert after.left(15) == pytest.approx(truth(15, 60, 0.5))


def test_a_session_may_have_probes_where_another_had_none() -> None:
    clock = Clock()
    without = Pace(60, {"save": 4}, clock)
    run(without, clock, 0, 10, 2.0)
    probed = Pace(60, EVERY, clock)
    probed.load(json.loads(json.dumps(without.dump())))
    assert probed.left(10) == pytest.approx(50 * 2.0 + 13 * SAVE)
    run(probed, clock, 10, 12, 2.0)
    assert probed.left(12) == pytest.approx(truth(12, 60, 2.0))
    without.load(probed.dump())
    assert without.left(12) == pytest.approx(48 * 2.0 + 12 * SAVE)
