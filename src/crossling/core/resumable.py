"""Output that survives an interruption: fingerprints of inputs, partial output and finished folders.

Two forms of progress cover all commands.

- One process works through a list: `PartialOutput` keeps a journal of the finished items beside the output.
- Several processes or machines share the work: every part is a folder with an `entry.json`, which appears as a whole.
  No two processes write to the same file.

Both store a fingerprint of the inputs with each result. Other inputs give another fingerprint, so the work is redone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import xxhash

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file, atomic_folder, read_json, write_json
from crossling.core.locks import LOCK_SUFFIX, lock_file

PARTIAL_FORMAT = 1  # version of the folder that PartialOutput writes
ENTRY_FILE = "entry.json"
PARTS_FOLDER = ".partial"  # hidden folder in an output folder, for the parts of shared work


# ---- fingerprints -------------------------------------------------------------------------------------------


def fingerprint(value: Any) -> str:
    """Digest of a JSON value. Equal values give equal digests, in any order of the keys."""
    return xxhash.xxh3_128_hexdigest(json.dumps(value, sort_keys=True).encode())


def file_fingerprint(path: Path) -> str:
    """Digest of the bytes of a file."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_state(paths: Iterable[Path]) -> str:
    """Digest of names, sizes and modification times: changes with the files, and reads none of them."""
    states = [(path, path.stat()) for path in paths]
    return fingerprint([[path.name, stat.st_size, stat.st_mtime_ns] for path, stat in states])


# ---- work of one process: a journal beside the output --------------------------------------------------------


class PartialOutput:
    """Finished items of an output that is not complete yet.

    The output appears when everything is done. Until then there is a hidden folder beside it:

        .NAME.partial/job.json      format version and description of the inputs
                      done.jsonl    {"key": ..., "inputs": ..., "value": ...}, one line for each finished item
                      ...           files of the command

    The same command with the same description resumes. A folder with another description is discarded.

    Args:
        out: Path of the complete output.
        description: JSON values that determine the output: inputs, model fingerprint and settings.
    """

    def __init__(self, out: Path, description: Mapping[str, Any]) -> None:
        self.out = out
        self.folder = out.with_name(f".{out.name}.partial")
        self._journal = self.folder / "done.jsonl"
        job = {"version": PARTIAL_FORMAT, "inputs": fingerprint(description), "description": dict(description)}
        stored = _read_object(self.folder / "job.json")
        if stored is None or (stored.get("version"), stored.get("inputs")) != (job["version"], job["inputs"]):
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "job.json", job)
        self._items = self._read_journal()
        with atomic_file(self._journal) as temporary:  # drops a line that was cut off
            temporary.write_text("".join(_line(*key, value) for key, value in self._items.items()), encoding="utf-8")

    @property
    def count(self) -> int:
        """Number of finished items."""
        return len(self._items)

    def done(self, key: str, inputs: str = "") -> Any:
        """Return the value of a finished item, or None. `inputs` is the fingerprint of what it was computed from."""
        return self._items.get((key, inputs))

    def record(self, key: str, value: Any, inputs: str = "") -> None:
        """Add a finished item to the journal."""
        self._items[key, inputs] = value
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(_line(key, inputs, value))
            file.flush()
            os.fsync(file.fileno())

    def publish(self, file: Path) -> None:
        """Make a file of the partial folder the output, and remove the rest."""
        file.replace(self.out)
        self.discard()

    def discard(self) -> None:
        """Remove the partial folder."""
        shutil.rmtree(self.folder)

    def _read_journal(self) -> dict[tuple[str, str], Any]:
        items: dict[tuple[str, str], Any] = {}
        try:
            for line in self._journal.read_text(encoding="utf-8").split("\n"):
                item = json.loads(line)
                items[item["key"], item["inputs"]] = item["value"]
        except (OSError, ValueError, KeyError, TypeError):
            pass  # no journal, or its end: an empty line, or a line that was cut off
        return items


def _line(key: str, inputs: str, value: Any) -> str:
    return json.dumps({"key": key, "inputs": inputs, "value": value}, ensure_ascii=False) + "\n"


# ---- work of several processes: one folder for each part -----------------------------------------------------


def read_entry(folder: Path) -> dict[str, Any] | None:
    """Return the entry of a finished folder. None if there is none, or if a file it lists is missing or cut off."""
    entry = _read_object(folder / ENTRY_FILE)
    try:
        if entry is None or not isinstance(entry["key"], str):
            return None
        complete = all((folder / name).stat().st_size == file["bytes"] for name, file in entry.get("files", {}).items())
    except (OSError, KeyError, TypeError, AttributeError):
        return None
    return entry if complete else None


def is_finished(folder: Path, key: str) -> bool:
    """True if the folder was completed from the inputs with this fingerprint."""
    entry = read_entry(folder)
    return entry is not None and entry["key"] == key


@contextmanager
def write_finished_folder(folder: Path, key: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a temporary folder and its entry to fill. The folder appears under its name with the entry, or not at all.

    Args:
        folder: Folder to create or replace.
        key: Fingerprint of all inputs.
    """
    with atomic_folder(folder) as temporary:
        entry: dict[str, Any] = {"key": key}
        yield temporary, entry
        write_json(temporary / ENTRY_FILE, entry)


def stored_value(file: Path, key: str, compute: Callable[[], Any]) -> Any:
    """Return a JSON value that was computed from the same inputs, or compute and store it.

    Several processes may need it at the same time. One of them computes it, and the others wait.

    Args:
        file: File of the value.
        key: Fingerprint of all inputs.
        compute: Returns the value.
    """
    if not _has_key(file, key):
        with lock_file(file.with_name(file.name + LOCK_SUFFIX), remove=True):
            if not _has_key(file, key):
                write_json(file, {"key": key, "value": compute()})
    return read_json(file)["value"]


def _has_key(file: Path, key: str) -> bool:
    stored = _read_object(file)
    return stored is not None and stored.get("key") == key


# ---- output folders ------------------------------------------------------------------------------------------


def check_output_folder(out: Path, *, holds: Iterable[str], command: str, exclusive: bool = False) -> None:
    """Refuse an output folder that belongs to something else.

    Args:
        out: Folder to write. It may be missing, empty, or contain earlier output of the command.
        holds: Glob patterns of the names that the command writes.
        command: Command that is named in the message.
        exclusive: Refuse any other file. Otherwise one name that matches is enough, and hidden files do not count.

    Raises:
        BadInput: If `out` is a file, or a folder with other content.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise BadInput(f"{out}: expected a folder, found a file. Give a folder for the output of {command}.")
    patterns = [*holds]
    names = sorted(path.name for path in out.iterdir() if not path.name.endswith(LOCK_SUFFIX))
    others = [name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)]
    if not exclusive:
        others = [name for name in others if name[0] != "."] if len(others) == len(names) else []
    if others:
        raise BadInput(f"{out}: not empty, and {others[0]} is no output of {command}. Give a new or an empty folder.")


def _read_object(file: Path) -> dict[str, Any] | None:
    try:
        value = read_json(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


@contextmanager
def working_folder(folder: Path) -> Iterator[None]:
    """Create a folder of working state, if there is none. A new one is removed if the input turns out to be unusable.

    Otherwise the call with a corrected file would be refused, because the state is that of other files.
    """
    is_new = not folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BadInput:
        if is_new:
            shutil.rmtree(folder)
        raise
