"""Writing so that nothing is ever seen half written: a temporary neighbour first, then one rename."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it becomes `path`, on any error it vanishes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        temporary.chmod(0o644)  # mkstemp makes private files; ours are meant to be shared
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `path`; on success it replaces `path`, on any error it vanishes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield temporary
        for entry in (*temporary.rglob("*"), temporary):
            _flush(entry)
        temporary.chmod(0o755)
        _put(temporary, path)
        _flush(path.parent)  # the new name
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put(folder: Path, path: Path) -> None:
    """A folder cannot be renamed onto a full one, so an old one moves aside first. Others may do the same with the same
    path at the same moment: whoever comes last stays."""
    while True:
        try:
            folder.replace(path)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            path.replace(aside)
        except FileNotFoundError:  # moved by another
            aside.rmdir()
            continue
        try:
            folder.replace(path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # put there by another
                shutil.rmtree(aside, ignore_errors=True)
                continue
            aside.replace(path)
            raise
        shutil.rmtree(aside, ignore_errors=True)
        return


def write_json(path: Path, value: Any) -> None:
    with new_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _flush(path: Path) -> None:
    """A file, or the names in a folder, so that a machine that goes down keeps them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot do so with folders
            raise
    finally:
        os.close(descriptor)
