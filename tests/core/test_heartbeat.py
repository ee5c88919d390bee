"""A process without a heartbeat is lost, one that is only busy is not."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
import torch.distributed as dist

from crossling.core import heartbeat
from crossling.core.heartbeat import FINISHED, LIMIT, Heartbeat
from crossling.core.locks import output_lock


class FakeStore:
    """Store of several processes in one."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.answers = Event()
        self.answers.set()
        self.is_gone = False

    def clone(self) -> FakeStore:
        return self

    def set(self, key: str, value: str) -> None:
        self.answers.wait(60)
        if self.is_gone:
            raise dist.DistNetworkError("connection closed")
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats are created at time 0."""
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: 0.0)


def make(rank: int, world_size: int = 3) -> Heartbeat:
    return Heartbeat(FakeStore(), rank, world_size)  # type: ignore[arg-type]


def advance(own: Heartbeat, seconds: range, beats: dict[int, str | None]) -> list[int | None]:
    """Check every ten seconds. A process has new heartbeats (None), or always the same one."""
    found = []
    for now in seconds:
        for rank, beat in beats.items():
            own.record(rank, str(now) if beat is None else beat, float(now))
        own._answered_at = float(now)
        found.append(own.find_lost(float(now)))
    return found


@pytest.mark.usefixtures("clock")
def test_the_main_process_finds_a_process_whose_counter_stands_still() -> None:
    found = advance(make(0), range(10, 200, 10), {1: None, 2: "7"})  # 1 is busy, but its thread beats
    late = next(number for number, rank in enumerate(found) if rank == 2)
    assert set(found[:late]) == {None}
    assert LIMIT < 10 * late <= LIMIT + 20


@pytest.mark.usefixtures("clock")
def test_a_process_that_never_starts_is_lost() -> None:
    assert advance(make(0, 2), range(10, int(LIMIT) + 20, 10), {})[-1] == 1


@pytest.mark.usefixtures("clock")
def test_other_processes_watch_the_main_process_only() -> None:
    own = make(2)
    assert own._watched == [0]
    assert advance(own, range(10, int(LIMIT) + 30, 10), {0: "1"})[-1] == 0


@pytest.mark.usefixtures("clock")
def test_a_process_that_finished_is_not_lost() -> None:
    assert set(advance(make(0, 2), range(10, 1000, 10), {1: FINISHED})) == {None}


@pytest.mark.usefixtures("clock")
def test_a_store_that_does_not_answer_is_that_of_a_lost_main_process() -> None:
    own = make(1)
    found = [own.find_lost(float(now)) for now in range(10, int(LIMIT) + 30, 10)]
    assert (found[0], found[-1]) == (None, 0)


@pytest.mark.usefixtures("clock")
def test_nothing_is_lost_after_all_processes_were_suspended() -> None:
    own = make(0, 2)
    assert set(advance(own, range(10, 50, 10), {1: None})) == {None}
    assert own.find_lost(5000.0) is None  # the first check after the pause
    assert set(advance(own, range(5010, 5500, 10), {1: None})) == {None}


def test_a_thread_beats_and_another_reports_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.001)
    monkeypatch.setattr(heartbeat, "LIMIT", 1000.0)
    store, found, reported = FakeStore(), [], Event()

    def report(rank: int) -> None:
        found.append(rank)
        reported.set()

    own = Heartbeat(store, 1, 2, on_lost=report)  # type: ignore[arg-type]
    own.start()
    while store.values.get("heartbeat/1", "0") < "2":
        assert not reported.is_set()
    store.answers.clear()
    monkeypatch.setattr(heartbeat, "LIMIT", 0.2)
    assert reported.wait(60)
    store.answers.set()
    own.stop()
    assert found == [0]


def test_the_end_of_a_process_is_written_if_there_is_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.001)
    store = FakeStore()
    own, other = (Heartbeat(store, rank, 2) for rank in (0, 1))  # type: ignore[arg-type]
    own.start()
    own.stop()
    assert store.values["heartbeat/0"] == FINISHED
    other.start()
    store.is_gone = True
    other.stop()


def test_the_store_of_a_run_can_be_used_from_a_thread() -> None:
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    own = Heartbeat(dist.PrefixStore("run", store), 0, 1)
    own.start()
    own.stop()
    assert store.get("run/heartbeat/0") == FINISHED.encode()


def test_a_lost_process_ends_this_one_with_a_message_and_without_its_locks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(heartbeat.os, "_exit", codes.append)
    with output_lock(tmp_path / "run"):
        assert (tmp_path / ".run.lock").exists()
        heartbeat._exit(3)
        assert not (tmp_path / ".run.lock").exists()
    assert codes == [1]
    assert capsys.readouterr().err.startswith("crossling: process 3 of this run has not responded for 120 seconds. ")
