"""Atomic writes (a temporary file or folder beside the target, then one rename), JSON and its format versions."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from crossling.core.errors import BadInput


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` on success and is removed on any error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        temporary.chmod(0o644)  # mkstemp creates private files
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `path` on success and is removed on any error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield temporary
        for entry in (*temporary.rglob("*"), temporary):
            _flush(entry)
        temporary.chmod(0o755)
        _replace_folder(temporary, path)
        _flush(path.parent)  # its entry for the new name
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace_folder(folder: Path, path: Path) -> None:
    """Rename `folder` to `path`. An old folder is moved aside first: the target of a rename must be empty.

    Several processes may do so for the same path at the same time. The last one wins.
    """
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
        except FileNotFoundError:  # another process moved it
            aside.rmdir()
            continue
        try:
            folder.replace(path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another process replaced it
                shutil.rmtree(aside, ignore_errors=True)
                continue
            aside.replace(path)
            raise
        shutil.rmtree(aside, ignore_errors=True)
        return


def read_json(path: Path) -> Any:
    """Read JSON in UTF-8."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def check_format(where: object, found: object, expected: int, fix: str) -> None:
    """Raise BadInput unless a file has the expected format version.

    Args:
        where: The file, the start of the message.
        found: Stored version, of any type. Callers pass 1 for a file without a version.
        expected: Version that this release reads.
        fix: Sentence that names the command that makes the file again.
    """
    if isinstance(found, bool) or found != expected:
        raise BadInput(f"{where}: format version {found!r:.40}, expected {expected}. {fix}")


def link_or_copy(source: Path, target: Path) -> None:
    """Create a hard link, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def append_file(source: BinaryIO, target: BinaryIO) -> None:
    """Append the rest of a file to another one. On Linux the bytes do not pass through this process."""
    target.flush()
    position, end = source.tell(), os.fstat(source.fileno()).st_size
    try:
        while hasattr(os, "copy_file_range") and position < end:
            copied = os.copy_file_range(source.fileno(), target.fileno(), end - position, position)
            if not copied:  # some network file systems copy nothing, without an error
                break
            position += copied
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF):
            raise
    source.seek(position)
    target.seek(0, os.SEEK_END)
    shutil.copyfileobj(source, target, 1 << 20)


def _flush(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk so that a crash of the machine does not lose them."""
    if os.name == "nt":  # Windows cannot flush a file that is opened for reading, nor a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot flush folders
            raise
    finally:
        os.close(descriptor)


@cache  # an environment keeps its compiled templates
def template_environment(*folders: Path, escape: bool = True) -> Environment:
    """Return an environment in which an undefined name is an error.

    Args:
        folders: Folders with templates.
        escape: Escape text for HTML and SVG. False for plain text, which keeps its last line break.
    """
    return Environment(
        loader=FileSystemLoader(folders),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not escape,
    )
