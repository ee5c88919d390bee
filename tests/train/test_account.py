"""Tokens, time and operations of a run, whatever its stretches ran on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crossling.train.account import Account, Machine

FLOPS = {"full": 10.0, "paper": 6.0}
ONE, TWO, CPU = Machine("1 x GPU", 100.0), Machine("2 x GPU", 200.0), Machine("a processor", None)


def stretch(machine: Machine, tokens: int, seconds: float, before: dict[str, Any] | None = None) -> Account:
    account = Account(FLOPS, machine)
    if before is not None:
        account.load(json.loads(json.dumps(before)))
    account.tokens += tokens
    account.add(seconds)
    return account


def test_a_row_has_the_totals_and_the_share_of_the_peak_at_its_own_speed() -> None:
    account = stretch(TWO, 1000, 100.0)
    assert account.row(8.0) == {
        **{"tokens": 1000, "seconds": 100.0, "flops": 10_000.0},
        **{"tokens_per_second": 8.0, "mfu": pytest.approx(8 * 10 / 200)},
    }
    assert account.mfu == pytest.approx(10_000 / (100 * 200))


def test_without_a_known_peak_there_is_no_share_of_it() -> None:
    account = stretch(CPU, 1000, 100.0)
    assert "mfu" not in account.row(8.0)
    assert account.mfu is None
    assert account.bill(5)["mfu"] is None


def test_stretches_add_up_on_whatever_they_ran() -> None:
    account = stretch(TWO, 500, 10.0, stretch(ONE, 1000, 100.0).dump())
    account = stretch(ONE, 100, 20.0, account.dump())
    assert account.bill(7) == {
        "steps": 7,
        "tokens": 1600,
        "seconds": 130.0,
        "machines": {"1 x GPU": 120.0, "2 x GPU": 10.0},
        "flops": {"full": 16_000.0, "paper": 9_600.0},
        "mfu": pytest.approx(16_000 / (120 * 100 + 10 * 200)),
    }


def test_one_stretch_without_a_known_peak_leaves_the_whole_without() -> None:
    first = stretch(CPU, 1000, 100.0)
    account = stretch(ONE, 500, 10.0, first.dump())
    assert account.mfu is None
    assert account.row(1.0)["mfu"] == pytest.approx(0.1)  # that of this stretch is known
    assert stretch(CPU, 1, 1.0, stretch(ONE, 1, 1.0).dump()).mfu is None
