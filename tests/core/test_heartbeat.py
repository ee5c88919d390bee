"""A process without a heartbeat is lost, one that is only busy is not."""

from __future__ import annotations

from threading import Event

import pytest
import torch.distributed as dist

from crossling.core import heartbeat
from crossling.core.heartbeat import LIMIT, Heartbeat


class FakeStore:
    """Store of several processes in one."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.is_gone = False

    def clone(self) -> FakeStore:
        return self

    def set(self, key: str, value: str) -> None:
        if self.is_gone:
            raise dist.DistNetworkError("connection closed")
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        if self.is_gone:
            raise dist.DistNetworkError("connection closed")
        return all(key in self.values for key in keys)


def make(rank: int, world_size: int = 3) -> tuple[Heartbeat, FakeStore]:
    store = FakeStore()
    return Heartbeat(store, rank, world_size), store  # type: ignore[arg-type]


def test_the_main_process_finds_a_process_whose_counter_stands_still() -> None:
    own, store = make(0)
    for second in range(0, 400, 10):  # process 1 is busy, but its thread beats; process 2 stops at 100
        store.set("heartbeat/1", str(second))
        store.set("heartbeat/2", str(min(second, 100)))
        lost = own.find_lost(second)
        assert lost == (2 if second > 100 + LIMIT else None)
        if lost is not None:
            return
    pytest.fail("process 2 was not found")


def test_a_process_that_never_starts_is_lost() -> None:
    own, _ = make(0, world_size=2)
    assert own.find_lost(0.0) is None
    assert own.find_lost(LIMIT) is None
    assert own.find_lost(LIMIT + 1) == 1


def test_other_processes_watch_the_main_process_only() -> None:
    own, store = make(2)
    store.set("heartbeat/0", "1")
    store.set("heartbeat/1", "1")
    assert own.find_lost(0.0) is None
    assert own.find_lost(LIMIT + 1) == 0


def test_a_process_that_finished_is_not_lost() -> None:
    own, store = make(0, world_size=2)
    other = Heartbeat(store, 1, 2)  # type: ignore[arg-type]
    other.start()
    other.stop()
    assert own.find_lost(0.0) is None
    assert own.find_lost(10 * LIMIT) is None


def test_nothing_is_lost_when_the_store_is_gone() -> None:
    own, store = make(1)
    store.is_gone = True
    assert own.find_lost(0.0) is None
    assert own.find_lost(10 * LIMIT) is None
    own.start()
    own.stop()


def test_the_thread_beats_and_reports_a_lost_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.0)
    monkeypatch.setattr(heartbeat, "LIMIT", 0.0)
    store, found, reported = FakeStore(), [], Event()

    def report(rank: int) -> None:
        found.append(rank)
        reported.set()

    own = Heartbeat(store, 0, 2, on_lost=report)  # type: ignore[arg-type]
    own.start()
    assert reported.wait(60)
    own.stop()
    assert found == [1]
    assert store.values["heartbeat/0"] == heartbeat.FINISHED


def test_the_store_of_a_run_can_be_watched_from_a_thread() -> None:
    """A clone has a connection of its own: the first one may wait for a key meanwhile."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    own, other = Heartbeat(dist.PrefixStore("run", store), 0, 2), Heartbeat(dist.PrefixStore("run", store), 1, 2)
    assert own.find_lost(0.0) is None
    other.start()
    other.stop()
    assert own.find_lost(1.0) is None
    assert own.find_lost(2 * LIMIT) is None


def test_a_lost_process_ends_this_one_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(heartbeat.os, "_exit", codes.append)
    heartbeat._exit(3)
    assert codes == [1]
    assert capsys.readouterr().err.startswith("crossling: process 3 of this run has not responded for 120 seconds. ")
