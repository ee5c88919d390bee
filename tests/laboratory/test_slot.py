"""When time is over, work ends as it would by a signal."""

from __future__ import annotations

import signal
import threading

import pytest

from crossling.errors import Interrupted
from crossling.laboratory.slot import slot
from crossling.train.signals import stop_signals

MOMENT = 1e-3  # minutes


def test_the_end_comes_as_an_interrupt_where_nobody_listens() -> None:
    with pytest.raises(KeyboardInterrupt), slot(MOMENT):
        signal.pause()


def test_training_hears_it_and_saves_first() -> None:
    with slot(MOMENT) as check:
        with stop_signals() as stop:
            assert stop.wait(10)
        with pytest.raises(Interrupted, match=r"0\.001 minutes are over; the same command goes on"):
            check()


def test_a_scheduler_that_ends_the_process_is_heard_too() -> None:
    with slot(None) as check:
        check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_afterwards_everything_is_as_before() -> None:
    before = [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGALRM)]
    with slot(60) as check:
        check()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 3000
    assert [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_thread_that_gets_no_signals_is_checked_between_pieces_of_work() -> None:
    found: list[str] = []

    def work() -> None:
        with slot(1e-9) as check:
            try:
                check()
            except Interrupted as error:
                found.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(found) == 1
