"""Heartbeats of the processes of a run, so that a busy process is not mistaken for a lost one.

Each process writes a counter to the store of the run, in a thread. The main process watches all others, and they watch
the main process and the store. Only a counter that stands still for minutes means that a process is lost: its machine
was switched off, its network is down, or it is suspended. A process that ends closes its connections, which others
notice at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

from crossling.core.locks import remove_own_locks

if TYPE_CHECKING:
    from torch.distributed import Store

INTERVAL = 10.0  # seconds between two heartbeats
STOP_SECONDS = 10.0  # for the thread to end, which the store may block
LIMIT = 120.0  # seconds after which a process without a heartbeat is lost
FINISHED = "finished"  # a process that ended in an orderly way


class Heartbeat:
    """Writes the heartbeat of this process and watches those of others, from `start` until `stop`.

    Args:
        store: Store of the run. It is cloned, because a thread that waits for a key blocks its connection.
        rank: Rank of this process.
        world_size: World size of the run.
        on_lost: Called with the rank of a lost process. [default: print a message and exit]
    """

    def __init__(self, store: Store, rank: int, world_size: int, on_lost: Callable[[int], None] | None = None) -> None:
        self.rank, self.on_lost = rank, on_lost or _exit
        self._watched = [other for other in range(world_size) if other != rank] if rank == 0 else [0]
        self._store: Store = store.clone()  # type: ignore[attr-defined]  # torch's stub lacks it
        self._beats: dict[int, str] = {}  # of the watched processes
        self._new_at = dict.fromkeys(self._watched, time.monotonic())  # when each was new
        self._answered_at = self._checked_at = time.monotonic()
        self._stopped = Event()
        # The store may stop answering. The thread that reads it would notice nothing.
        self._threads = [Thread(target=work, name="heartbeat", daemon=True) for work in (self._exchange, self._watch)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads, and let the others know that this process ends."""
        self._stopped.set()
        exchange, watch = self._threads
        watch.join()
        exchange.join(STOP_SECONDS)
        if not exchange.is_alive():
            with suppress(RuntimeError):  # the store is gone
                self._store.set(_key(self.rank), FINISHED)

    def _exchange(self) -> None:
        """Write the own heartbeat and read those of the watched processes."""
        count = 0
        with suppress(RuntimeError):  # of the network: the store is gone, which `_watch` notices
            while not self._stopped.is_set():
                count += 1
                self._store.set(_key(self.rank), str(count))
                for rank in self._watched:
                    beat = self._store.get(_key(rank)).decode() if self._store.check([_key(rank)]) else ""
                    self.record(rank, beat, time.monotonic())
                self._answered_at = time.monotonic()
                self._stopped.wait(INTERVAL)

    def _watch(self) -> None:
        while not self._stopped.wait(INTERVAL):
            lost = self.find_lost(time.monotonic())
            if lost is not None:
                self.on_lost(lost)
                return

    def record(self, rank: int, beat: str, now: float) -> None:
        """Store the heartbeat of a watched process."""
        if beat != self._beats.get(rank):
            self._beats[rank], self._new_at[rank] = beat, now

    def find_lost(self, now: float) -> int | None:
        """Return the rank of a process that is lost, if there is one: the main process where the store is silent."""
        if now - self._checked_at > LIMIT / 2:  # this process was suspended, and the others maybe as well
            self._answered_at = now
            self._new_at = dict.fromkeys(self._watched, now)
        self._checked_at = now
        if now - self._answered_at > LIMIT:
            return 0
        late = [
            rank for rank in self._watched if now - self._new_at[rank] > LIMIT and self._beats.get(rank) != FINISHED
        ]
        return late[0] if late else None


def _key(rank: int) -> str:
    return f"heartbeat/{rank}"


def _exit(rank: int) -> None:
    """End this process, whose main thread waits for a process that will not answer."""
    remove_own_locks()
    print(
        f"crossling: process {rank} of this run has not responded for {LIMIT:.0f} seconds. Run the same command again"
        " to resume from the last checkpoint.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)
