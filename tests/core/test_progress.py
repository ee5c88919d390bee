"""Tests of progress bars: items done, note and ETA."""

from __future__ import annotations

import pytest

from crossling.core import progress
from crossling.core.progress import Progress, format_duration, track


def test_durations_are_formatted() -> None:
    formatted = [format_duration(seconds) for seconds in (12, 75, 3720, 86_400, 639_360)]
    assert formatted == ["12 s", "1 min 15 s", "1 h 2 min", "1.0 days", "7.4 days"]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(progress.time, "monotonic", fake)
    return fake


def test_without_a_terminal_lines_are_printed_at_intervals_and_at_the_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("run", 20, done=10) as bar:
        for done, now in ((11, 101.0), (12, 116.0), (13, 117.0), (20, 118.0)):
            clock.now = now
            bar.update(done, f"loss {done}")
    # Two steps in 16 s: eight more take 64 s. Steps before the start do not count.
    assert capsys.readouterr().err.splitlines() == [
        "run 12/20  loss 12  ETA 1 min 4 s",
        "run 20/20  loss 20  in 18 s",
    ]


def test_a_given_eta_replaces_the_estimate(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("run", 20) as bar:
        clock.now += 20
        bar.update(1, "", eta=7200)
    assert capsys.readouterr().err.endswith("ETA 2 h 0 min\n")


def test_disabled_progress_prints_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("run", 2, enabled=False) as bar:
        clock.now += 100
        bar.update(2, "done")
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_the_same_text_with_a_bar(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress("run", 20) as bar:
        clock.now += 4
        bar.update(5, "loss 3")
    last = capsys.readouterr().err
    assert "5/20" in last
    assert "loss 3" in last
    assert "ETA 12 s" in last


def test_advance_adds_up_and_track_names_items(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("sentences", 5) as bar:
        bar.advance(2)
        bar.advance(3)
    assert list(track("sets", ["a", "b"], str.upper)) == ["a", "b"]
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("sentences 5/5")
    assert second.startswith("sets 2/2  B")
