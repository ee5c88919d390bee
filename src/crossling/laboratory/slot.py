"""Time that is lent: when it is over, or a signal comes, work ends in good order and can go on later."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from crossling.errors import Interrupted


@contextmanager
def slot(minutes: float | None) -> Iterator[Callable[[], None]]:
    """Yields a check to be made between two pieces of work: it raises when the minutes are over.

    Within a piece of work the end comes as SIGTERM would: training, which hears it by itself, saves its step first, and
    elsewhere it is raised as Ctrl-C, which loses only what was not yet written.
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes

    def check() -> None:
        if end is not None and time.monotonic() >= end:
            raise Interrupted(f"{minutes:g} minutes are over; the same command goes on")

    if threading.current_thread() is not threading.main_thread():  # others get no signals
        yield check
        return
    earlier = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, _stop),
        signal.SIGALRM: signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM)),
    }
    if minutes is not None:
        signal.setitimer(signal.ITIMER_REAL, max(60 * minutes, 1e-3))
    try:
        yield check
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind, handler in earlier.items():
            signal.signal(kind, handler)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt
