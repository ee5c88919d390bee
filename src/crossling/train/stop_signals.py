"""Signals that stop a run after the present step: Ctrl-C, SIGTERM of a scheduler, SIGHUP of a closed terminal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Set an event on a stop signal, so that the present step is finished and saved. A second Ctrl-C kills.

    SIGHUP stays ignored if it was, as by `nohup`.
    """
    stop = threading.Event()
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def handle(kind: int, _: object) -> None:
        if stop.is_set() and kind == signal.SIGINT:
            raise KeyboardInterrupt
        _discard_output(terminals)
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    kinds = [kind for kind in STOP_SIGNALS if kind.name != "SIGHUP" or signal.getsignal(kind) != signal.SIG_IGN]
    earlier = {kind: signal.signal(kind, handle) for kind in kinds}
    try:
        yield stop
    finally:
        for kind, handler in earlier.items():
            signal.signal(kind, handler)


def ignore_signals(_: int) -> None:
    """Ignore signals in a loader worker, which must live until the present step is saved.

    Ctrl-C and SIGHUP reach every process of a terminal, and SIGTERM every process of a job. Workers end with their
    parent.
    """
    for kind in STOP_SIGNALS:
        signal.signal(kind, signal.SIG_IGN)


def _discard_output(terminals: Sequence[int]) -> None:
    """Discard what is written to a terminal that was closed: an error there would prevent the last checkpoint."""
    with open(os.devnull, "w") as null:  # noqa: PTH123
        for stream in terminals:
            if not os.isatty(stream):
                os.dup2(null.fileno(), stream)
