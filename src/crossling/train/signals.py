"""SIGINT and SIGTERM: the step in hand is finished and saved first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """They set the event instead of killing. A second Ctrl-C does not wait."""
    stop = threading.Event()

    def handle(kind: int, _: object) -> None:
        if stop.is_set() and kind == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    earlier = {kind: signal.signal(kind, handle) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for kind, handler in earlier.items():
            signal.signal(kind, handler)


def ignore_signals(_: int) -> None:
    """Ctrl-C reaches every process of a terminal, and a scheduler's SIGTERM every process of a job; the loader's must
    live until the step in hand is saved. They end with the process that started them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
