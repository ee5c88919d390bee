"""Training cost, ETA, and metrics between two rows."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.train.meters import EtaMeter, Machine, MetricsAccumulator, RareEvent, StepResult, TrainingCost

FLOPS = {"full": 10.0, "paper": 6.0}
ONE, TWO, CPU = Machine("1 x GPU", 100.0), Machine("2 x GPU", 200.0), Machine("a processor", None)


def run_part(machine: Machine, tokens: int, seconds: float, before: dict[str, Any] | None = None) -> TrainingCost:
    cost = TrainingCost(FLOPS, machine)
    if before is not None:
        cost.load_state_dict(json.loads(json.dumps(before)))
    cost.tokens += tokens
    cost.add_seconds(seconds)
    return cost


def test_a_row_has_the_totals_and_its_own_mfu() -> None:
    cost = run_part(TWO, 1000, 100.0)
    assert cost.row(8.0) == {
        **{"tokens": 1000, "seconds": 100.0, "flops": 10_000.0},
        **{"tokens_per_second": 8.0, "mfu": pytest.approx(8 * 10 / 200)},
    }
    assert cost.mfu == pytest.approx(10_000 / (100 * 200))


def test_without_a_known_peak_there_is_no_mfu() -> None:
    cost = run_part(CPU, 1000, 100.0)
    assert "mfu" not in cost.row(8.0)
    assert cost.mfu is None
    assert cost.summary(5)["mfu"] is None


def test_costs_add_up_over_machines() -> None:
    cost = run_part(TWO, 500, 10.0, run_part(ONE, 1000, 100.0).state_dict())
    cost = run_part(ONE, 100, 20.0, cost.state_dict())
    assert cost.summary(7) == {
        "steps": 7,
        "tokens": 1600,
        "seconds": 130.0,
        "machines": {"1 x GPU": 120.0, "2 x GPU": 10.0},
        "flops": {"full": 16_000.0, "paper": 9_600.0},
        "mfu": pytest.approx(16_000 / (120 * 100 + 10 * 200)),
    }


def test_one_machine_without_a_known_peak_leaves_the_run_without_mfu() -> None:
    first = run_part(CPU, 1000, 100.0)
    cost = run_part(ONE, 500, 10.0, first.state_dict())
    assert cost.mfu is None
    assert cost.row(1.0)["mfu"] == pytest.approx(0.1)  # of this machine alone
    assert run_part(CPU, 1, 1.0, run_part(ONE, 1, 1.0).state_dict()).mfu is None


SAVE, PROBE = 7.0, 31.0  # seconds
EVERY: dict[RareEvent, int] = {"save": 4, "probe": 6}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(eta: EtaMeter, clock: Clock, first: int, last: int, a_step: float, log_every: int = 5) -> None:
    """Run steps of equal duration with saves and probes, as the trainer does."""
    eta.start(first)
    for step in range(first + 1, last + 1):
        clock.now += a_step
        if step % log_every == 0 or step % 6 == 0 or step == eta.steps:
            eta.add_row(step)
        if "probe" in eta.every and (step % 6 == 0 or step == eta.steps):
            with eta.timed("probe"):
                clock.now += PROBE
        if step % 4 == 0 or step == eta.steps:
            with eta.timed("save"):
                clock.now += SAVE


def truth(step: int, steps: int, a_step: float) -> float:
    ahead = range(step + 1, steps + 1)
    saves = sum(each % 4 == 0 or each == steps for each in ahead)
    probes = sum(each % 6 == 0 or each == steps for each in ahead)
    return len(ahead) * a_step + saves * SAVE + probes * PROBE


@given(st.integers(6, 40), st.integers(6, 60))
def test_eta_counts_steps_saves_and_probes_ahead(stop: int, steps: int) -> None:
    stop = min(stop, steps)
    clock = Clock()
    eta = EtaMeter(steps, EVERY, clock)
    run(eta, clock, 0, stop, 2.0)
    assert eta.seconds_left(stop) == pytest.approx(truth(stop, steps, 2.0))


def test_no_eta_before_the_first_row() -> None:
    clock = Clock()
    eta = EtaMeter(100, EVERY, clock)
    clock.now += 60
    assert eta.seconds_left(3) is None


def test_a_probe_before_the_first_step_does_not_count_as_step_time() -> None:
    clock = Clock()
    eta = EtaMeter(100, {"probe": 0}, clock)
    with eta.timed("probe"):
        clock.now += 50
    clock.now += 10
    eta.add_row(10)
    assert eta.seconds_left(10) == pytest.approx(90 + 50)  # one more at the end
    assert eta.seconds_left(100) == 0


def test_compilation_time_soon_has_no_effect() -> None:
    clock = Clock()
    eta = EtaMeter(10_000, {"save": 1000}, clock)
    clock.now += 600
    left = []
    for step in range(50, 200, 50):
        clock.now += 50
        eta.add_row(step)
        left.append(eta.seconds_left(step))
    assert left == [pytest.approx(9950 * 13), pytest.approx(9900), pytest.approx(9850)]


def test_the_latest_rows_count_most() -> None:
    clock = Clock()
    eta = EtaMeter(10_000, {"save": 1000}, clock)
    for row in range(1, 41):
        clock.now += 50 if row <= 20 else 100
        eta.add_row(50 * row)
    assert eta.seconds_left(2000) == pytest.approx(8000 * 2, rel=0.02)


def test_a_resumed_run_has_an_eta_at_once_and_adapts_in_one_row() -> None:
    clock = Clock()
    before = EtaMeter(60, EVERY, clock)
    run(before, clock, 0, 13, 2.0)
    stored = json.loads(json.dumps(before.state_dict()))

    clock = Clock()
    clock.now = 10_000.0  # after a long break
    after = EtaMeter(60, EVERY, clock)
    after.load_state_dict(stored)
    after.start(13)
    assert after.seconds_left(13) == pytest.approx(truth(13, 60, 2.0))
    run(after, clock, 13, 15, 0.5)
    assert after.seconds_left(15) == pytest.approx(truth(15, 60, 0.5))


def test_probes_can_be_added_when_a_run_is_resumed() -> None:
    clock = Clock()
    without = EtaMeter(60, {"save": 4}, clock)
    run(without, clock, 0, 10, 2.0)
    probed = EtaMeter(60, EVERY, clock)
    probed.load_state_dict(json.loads(json.dumps(without.state_dict())))
    assert probed.seconds_left(10) == pytest.approx(50 * 2.0 + 13 * SAVE)
    run(probed, clock, 10, 12, 2.0)
    assert probed.seconds_left(12) == pytest.approx(truth(12, 60, 2.0))
    without.load_state_dict(probed.state_dict())
    assert without.seconds_left(12) == pytest.approx(48 * 2.0 + 12 * SAVE)


def step_result(loss: float, norm: float, skipped: bool = False) -> StepResult:
    metrics = {"gradient_norm": torch.tensor(norm), "update_norm": torch.tensor(norm / 2)}
    return StepResult(
        sums={"mlm": torch.tensor(loss)}, counts={"mlm": 2}, tokens=10, metrics=metrics, skipped=torch.tensor(skipped)
    )


def test_a_row_has_the_means_of_sums_and_step_metrics_without_skipped_steps() -> None:
    metrics = MetricsAccumulator()
    metrics.add(step_result(6.0, 1.0))
    metrics.add(step_result(float("nan"), float("inf"), skipped=True))
    metrics.add(step_result(2.0, 3.0))
    assert metrics.means() == {"mlm": 2.0, "gradient_norm": 2.0, "update_norm": 1.0}
    assert metrics.tokens == 30


def test_metrics_between_two_rows_are_restored_from_a_checkpoint() -> None:
    first, resumed = MetricsAccumulator(), MetricsAccumulator()
    first.add(step_result(6.0, 1.0))
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for metrics in (first, resumed):
        metrics.add(step_result(2.0, 3.0))
    assert resumed.means() == first.means()
    assert resumed.tokens == first.tokens
