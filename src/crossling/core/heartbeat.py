"""Heartbeats of the processes of a run, so that one may be busy for any time without being taken for dead.

Each process writes a counter to the store of the run, in a thread. The main process watches all others, and they watch
the main process. Only a counter that stands still for minutes means that a process is lost: its machine was switched
off, its network is down, or it is suspended. A process that ends closes its connections, which others notice at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Store

INTERVAL = 10.0  # seconds between two heartbeats
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
        self._seen: dict[int, tuple[str, float]] = {}  # the last heartbeat of each watched process, and when it was new
        self._count = 0
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and let the others know that this process ends."""
        self._stopped.set()
        self._thread.join(INTERVAL)
        self._write(FINISHED)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._count += 1
            if not self._write(str(self._count)):
                return
            lost = self.find_lost(time.monotonic())
            if lost is not None:
                self.on_lost(lost)
                return
            self._stopped.wait(INTERVAL)

    def find_lost(self, now: float) -> int | None:
        """Return the rank of a watched process whose heartbeat has stood still for too long, if there is one."""
        for rank in self._watched:
            beat = self._read(rank)
            last, since = self._seen.get(rank, (None, now))
            if beat != last:
                self._seen[rank] = beat, now
            elif beat != FINISHED and now - since > LIMIT:
                return rank
        return None

    def _write(self, beat: str) -> bool:
        """Return False if the store is gone. Then its process has ended, which connections show."""
        try:
            self._store.set(_key(self.rank), beat)
        except RuntimeError:  # torch's errors of the network derive from it
            return False
        return True

    def _read(self, rank: int) -> str:
        """Return the heartbeat of a process, "" before its first one."""
        try:
            return self._store.get(_key(rank)).decode() if self._store.check([_key(rank)]) else ""
        except RuntimeError:
            return FINISHED


def _key(rank: int) -> str:
    return f"heartbeat/{rank}"


def _exit(rank: int) -> None:
    """End this process, whose main thread waits for a process that will not answer."""
    print(
        f"crossling: process {rank} of this run has not responded for {LIMIT:.0f} seconds. Run the same command again"
        " to resume from the last checkpoint.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)
