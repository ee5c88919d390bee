"""The time limit of a lab ends work as a signal would."""

from __future__ import annotations

import signal
import threading

import pytest

from crossling.core.errors import Interrupted
from crossling.lab.lab import time_limit
from crossling.train.stop_signals import stop_signals

MOMENT = 1e-3  # minutes


def test_time_limit_raises_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), time_limit(MOMENT):
        signal.pause()


def test_training_is_stopped_by_the_time_limit() -> None:
    with time_limit(MOMENT) as check_time:
        with stop_signals() as stop:
            assert stop.wait(10)
        with pytest.raises(Interrupted, match=r"0\.001 minutes are over\. The same command resumes"):
            check_time()


def test_signal_of_a_scheduler_raises_an_interrupt() -> None:
    with time_limit(None) as check_time:
        check_time()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGALRM)]
    with time_limit(60) as check_time:
        check_time()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 3000
    assert [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_thread_without_signals_checks_the_time_between_jobs() -> None:
    errors: list[str] = []

    def work() -> None:
        with time_limit(1e-9) as check_time:
            try:
                check_time()
            except Interrupted as error:
                errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(errors) == 1
