"""One process writes an output at a time. A lock ends with its process."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import time
from pathlib import Path
from threading import Thread

import pytest

from crossling.core import locks
from crossling.core.errors import BadInput
from crossling.core.locks import OutputInUse, lock_file, output_lock
from crossling.core.resumable import check_output_folder


def test_one_process_holds_a_lock(tmp_path: Path) -> None:
    with lock_file(tmp_path / "new" / "lock") as mine:
        assert mine
        with lock_file(tmp_path / "new" / "lock", wait=False) as second:
            assert not second
    with lock_file(tmp_path / "new" / "lock", wait=False) as again:
        assert again


def test_waiting_for_a_lock_can_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(time, "monotonic", lambda: 10.0 * len(waited))
    with lock_file(tmp_path / "lock"), lock_file(tmp_path / "lock", timeout=35.0) as mine:
        assert not mine
    assert len(waited) == 4
    with lock_file(tmp_path / "lock", timeout=35.0) as mine:
        assert mine


def hold_and_exit(path: Path) -> None:
    lock = lock_file(path)
    lock.__enter__()
    os._exit(1)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=hold_and_exit, args=(tmp_path / "lock",))
    process.start()
    process.join()
    with lock_file(tmp_path / "lock", wait=False) as mine:
        assert mine


def test_an_output_is_locked_until_the_block_ends(tmp_path: Path) -> None:
    with output_lock(tmp_path / "new" / "run"):
        refusals = in_thread(tmp_path / "new" / "run")
        assert in_thread(tmp_path / "new" / "other") == []
    found = (
        rf"^{tmp_path}/new/run: another process writes here \(pid {os.getpid()}, host \S+, since 20[-\d]+ [:\d]+\)\."
    )
    with pytest.raises(OutputInUse, match=f"{found} Wait until it ends, or give another output.$"):
        raise refusals[0]
    assert [*(tmp_path / "new").iterdir()] == []
    assert in_thread(tmp_path / "new" / "run") == []


def in_thread(out: Path, part: str = "") -> list[BadInput]:
    """Lock an output in another thread, which is refused like another process. Return the error."""
    errors: list[BadInput] = []

    def lock() -> None:
        try:
            with output_lock(out, part):
                pass
        except BadInput as error:
            errors.append(error)

    thread = Thread(target=lock)
    thread.start()
    thread.join()
    return errors


def test_parts_of_an_output_are_locked_one_by_one(tmp_path: Path) -> None:
    with output_lock(tmp_path / "shards", "1-2"):
        assert len(in_thread(tmp_path / "shards", "1-2")) == 1
        assert in_thread(tmp_path / "shards", "2-2") == []


def test_a_command_may_call_another_one_with_the_same_output(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with output_lock(tmp_path / "run"):
        with output_lock(tmp_path / "run"), output_lock(tmp_path / "link"):
            pass
        assert len(in_thread(tmp_path / "run")) == 1


def kill_while_locked(out: Path) -> None:
    with output_lock(out):
        os._exit(1)


def test_the_lock_of_a_dead_process_is_no_obstacle(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=kill_while_locked, args=(tmp_path / "run",))
    process.start()
    process.join()
    assert (tmp_path / ".run.lock").is_file()
    with output_lock(tmp_path / "run"):
        pass
    assert [*tmp_path.iterdir()] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    """The parent dies and its worker, as of a data loader, lives on."""
    ended, end = os.pipe()
    parent = os.fork()
    if parent == 0:
        with output_lock(tmp_path / "run"):
            if os.fork() == 0:
                os.close(end)
                os.read(ended, 1)  # lives until the test ends
            os._exit(0)
    os.waitpid(parent, 0)
    with output_lock(tmp_path / "run"):
        pass
    os.close(end)
    os.close(ended)


@pytest.mark.parametrize("is_same_boot", [False, True])
def test_the_lock_of_another_machine_is_an_obstacle(
    is_same_boot: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process may run although this machine does not see its lock. Containers have a host name of their own."""
    monkeypatch.setattr(locks, "BOOT_ID", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("1234\n")
    holder = {"pid": 7, "host": "node-3", "boot": "1234" if is_same_boot else "99", "since": "2026-01-01 00:00:00"}
    (tmp_path / ".run.lock").write_text(json.dumps(holder))
    if is_same_boot:
        assert in_thread(tmp_path / "run") == []
        return
    message = rf"writes here \(pid 7, host node-3, since 2026-01-01 00:00:00\)\..* remove {tmp_path}/\.run\.lock\.$"
    with pytest.raises(OutputInUse, match=message), output_lock(tmp_path / "run"):
        pass
    assert json.loads((tmp_path / ".run.lock").read_text()) == holder


def test_a_folder_in_a_read_only_one_has_its_lock_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the mount point of a container, for instance."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    (tmp_path / "out").mkdir()
    with output_lock(tmp_path / "out"):
        assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
        check_output_folder(tmp_path / "out", holds=[], command="crossling x", exclusive=True)


def test_a_file_system_without_locks_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(locks.fcntl, "flock", fail)
    with output_lock(tmp_path / "run"):
        pass


def test_an_output_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"exists|directory") as raised, output_lock(tmp_path / "file" / "run"):
        pass
    assert raised.value.filename == str(tmp_path / "file" / "run")
