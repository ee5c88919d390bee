"""Locks between processes. A lock ends with its process, even if that is killed.

`lock_file` guards a short section. `output_lock` guards an output for as long as a command writes it. A second command
with the same output is refused at once. The message has the process, the machine and the time of the first one.

The operating system holds the lock on an open file. Some network file systems do not have common locks for all
machines. So the file also names its holder. That of a process on another machine is an obstacle until it is removed.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import IO, Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

from crossling.core.errors import BadInput

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # has the same value in all containers of a machine
UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}  # file systems without locks
LOCK_SUFFIX = ".lock"
POLL_SECONDS = 0.2  # between two attempts to get a lock with a timeout
WINDOWS_OFFSET = 1 << 30  # of the locked byte, which other processes cannot read

_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())  # outputs that this thread has locked
_open_files: set[IO[str]] = set()


class OutputInUse(BadInput):
    """Another process writes the same output."""


@contextmanager
def output_lock(out: str | os.PathLike[str], part: str = "") -> Iterator[None]:
    """Refuse an output that another process writes. The same thread may lock it again.

    The lock is the hidden file `.NAME.lock` beside the output, and is removed at the end.

    Args:
        out: File or folder that is written. It may be missing.
        part: Part of shared work. Several processes may write different parts at the same time.

    Raises:
        OutputInUse: If another process holds the lock.
    """
    file = _lock_of(Path(out), part)
    if file in _held.get():
        yield
        return
    with ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(_open_locked(file, wait=False))
        except OSError as error:  # names the hidden file
            raise OSError(error.errno, error.strerror, str(out)) from None
        holder = _read_holder(file)
        if lock is None or (holder is not None and not _is_this_machine(holder)):
            raise OutputInUse(_refusal(out, file, holder, is_certain=lock is None))
        lock.truncate(0)
        json.dump({**_machine(), "pid": os.getpid(), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}, lock)
        lock.flush()
        token = _held.set(_held.get() | {file})
        try:
            yield
        finally:
            _held.reset(token)
            _remove(file, lock)


def remove_own_locks() -> None:
    """Remove the lock files of this process, which is about to end without leaving its blocks."""
    for lock in [*_open_files]:
        Path(lock.name).unlink(missing_ok=True)


@contextmanager
def lock_file(path: Path, *, wait: bool = True, timeout: float | None = None, remove: bool = False) -> Iterator[bool]:
    """Yield True while this process alone holds the lock. It is not reentrant.

    Args:
        path: File of the lock. It is created if it is missing.
        wait: Wait for another holder. Otherwise yield False at once.
        timeout: Seconds to wait; then yield False. [default: no limit]
        remove: Remove the file at the end.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _open_locked(path, wait=wait, timeout=timeout) as lock:
        try:
            yield lock is not None
        finally:
            if lock is not None and remove:
                _remove(path, lock)


@contextmanager
def _open_locked(path: Path, *, wait: bool, timeout: float | None = None) -> Iterator[IO[str] | None]:
    """Yield the locked file, or None if another process holds the lock."""
    _close_in_forks()
    end = time.monotonic() + (timeout or 0.0)
    while True:
        with path.open("a", encoding="utf-8") as lock:
            _open_files.add(lock)
            try:
                while not (is_mine := _lock(lock, wait and timeout is None)) and wait and time.monotonic() < end:
                    time.sleep(POLL_SECONDS)
                if not is_mine:
                    yield None
                    return
                if _is_same_file(path, lock):
                    yield lock
                    return
            finally:
                _open_files.discard(lock)
        # The last holder removed the file between opening and locking: try the new one.


def _lock(lock: IO[str], wait: bool) -> bool:
    try:
        if sys.platform == "win32":
            lock.seek(WINDOWS_OFFSET)
            msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (BlockingIOError, PermissionError):  # PermissionError: on Windows
        return False
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    return True


def _is_same_file(path: Path, lock: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(lock.fileno()))
    except FileNotFoundError:
        return False


def _remove(path: Path, lock: IO[str]) -> None:
    lock.truncate(0)
    with suppress(PermissionError):  # Windows does not remove open files: the empty one stays
        path.unlink(missing_ok=True)


@cache
def _close_in_forks() -> None:
    """Close the files in forked processes, such as loader workers, which may live longer than a killed parent."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: [lock.close() for lock in _open_files])


# ---- holders -------------------------------------------------------------------------------------------------


def _lock_of(out: Path, part: str) -> Path:
    """Return the file of a lock: beside the output, or inside of a folder whose parent is read-only."""
    out = out.resolve()
    suffix = f".{part}{LOCK_SUFFIX}" if part else LOCK_SUFFIX
    if out.is_dir() and not os.access(out.parent, os.W_OK):
        return out / suffix
    return out.with_name(f".{out.name}{suffix}")


def _machine() -> dict[str, str]:
    boot = BOOT_ID.read_text(encoding="utf-8").strip() if BOOT_ID.is_file() else ""
    return {"host": socket.gethostname(), "boot": boot}


def _is_this_machine(holder: dict[str, Any]) -> bool:
    """Return True for this host, also before it was restarted, and for another container on this machine."""
    own = _machine()
    return holder.get("host") == own["host"] or holder.get("boot") == own["boot"] != ""


def _read_holder(file: Path) -> dict[str, Any] | None:
    try:
        holder = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return holder if isinstance(holder, dict) else None


def _refusal(out: str | os.PathLike[str], file: Path, holder: dict[str, Any] | None, *, is_certain: bool) -> str:
    who = f" (pid {holder.get('pid')}, host {holder.get('host')}, since {holder.get('since')})" if holder else ""
    fix = "" if is_certain else f" If that process is gone, remove {file}."
    return f"{out}: another process writes here{who}. Wait until it ends, or give another output.{fix}"
