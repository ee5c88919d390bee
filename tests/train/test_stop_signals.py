"""A signal stops a run after the present step, also when the terminal is gone."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from crossling.core.errors import Interrupted
from crossling.data.shards import Shards
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.train.stop_signals import STOP_SIGNALS, ignore_signals, stop_signals

from .run_helpers import before_step, saved

WAIT_AND_SAVE = """
import sys
from pathlib import Path
from crossling.train.stop_signals import stop_signals
with stop_signals() as stop:
    print("ready", flush=True)
    stop.wait()
    print("progress", flush=True)
    print("saving", file=sys.stderr, flush=True)
    Path(sys.argv[1]).touch()
"""


@pytest.mark.parametrize("kind", STOP_SIGNALS)
def test_a_signal_saves_a_checkpoint(
    kind: signal.Signals, full_recipe: Recipe, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_step(monkeypatch, 3, lambda: signal.raise_signal(kind))
    with pytest.raises(Interrupted, match=r"stopped at step 3 of 7\. The checkpoint is saved"):
        pretrain(full_recipe, shards, tmp_path / "run")
    assert saved(tmp_path / "run")[-1] == 3


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_a_closed_terminal_stops_a_run_that_still_prints(tmp_path: Path) -> None:
    import pty

    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", WAIT_AND_SAVE, str(tmp_path / "saved")])
    while b"ready" not in os.read(terminal, 1024):
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (tmp_path / "saved").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_nohup_is_respected() -> None:
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.is_set()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, earlier)


def test_loader_workers_ignore_the_signals() -> None:
    earlier = {kind: signal.getsignal(kind) for kind in STOP_SIGNALS}
    try:
        ignore_signals(0)
        assert {signal.getsignal(kind) for kind in STOP_SIGNALS} == {signal.SIG_IGN}
    finally:
        for kind, handler in earlier.items():
            signal.signal(kind, handler)
