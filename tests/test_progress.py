"""What a person reads: how far it is, what it says, and how long it still takes."""

from __future__ import annotations

import pytest

from crossling import progress
from crossling.progress import Counted, Progress, duration, watched


def test_duration() -> None:
    found = [duration(seconds) for seconds in (12, 75, 3720, 86_400, 639_360)]
    assert found == ["12 s", "1 min 15 s", "1 h 2 min", "1.0 days", "7.4 days"]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress.time, "monotonic", found)
    return found


def test_without_a_terminal_a_line_now_and_then_and_one_at_the_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("run", 20, done=10) as shown:
        for done, now in ((11, 101.0), (12, 116.0), (13, 117.0), (20, 118.0)):
            clock.now = now
            shown.update(done, f"loss {done}")
    # Two steps in 16 s: eight more take 64. What was done before counts for nothing.
    assert capsys.readouterr().err.splitlines() == [
        "run 12/20  loss 12  1 min 4 s left",
        "run 20/20  loss 20  0 s left",
    ]


def test_who_knows_better_says_how_long_it_takes(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("run", 20) as shown:
        clock.now += 20
        shown.update(1, "", left=7200)
    assert capsys.readouterr().err.endswith("2 h 0 min left\n")


def test_nothing_is_shown_where_another_process_speaks(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("run", 2, shown=False) as shown:
        clock.now += 100
        shown.update(2, "done")
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar_with_the_same_words(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress("run", 20) as shown:
        clock.now += 4
        shown.update(5, "loss 3")
    last = capsys.readouterr().err
    assert "5/20" in last
    assert "loss 3" in last
    assert "12 s left" in last


def test_parts_add_up_and_things_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Counted("sentences", 5) as shown:
        shown.add(2)
        shown.add(3)
    assert list(watched("sets", ["a", "b"], str.upper)) == ["a", "b"]
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("sentences 5/5")
    assert second.startswith("sets 2/2  B")
