"""One task of one model under way: kept beside its folder's results until it is whole, so that the same command goes
on, and nobody compares models by a part of a task.

FOLDER/.evaluate-TASK-DIGEST/
    rows.jsonl      {"name": "de-en", "of": ..., "rows": [...]}, a line for each set that is done
    predictions/

The digest is of what is measured, and how: another model, or another way, is other work.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

from crossling.disk import new_file
from crossling.evaluate import predictions
from crossling.evaluate.scores import Row
from crossling.progress import say


class UnderWay:
    def __init__(self, folder: Path, task: str, what: Mapping[str, Any]) -> None:
        self.folder, self.task = folder, task
        digest = xxhash.xxh3_64_hexdigest(json.dumps(what, sort_keys=True).encode())
        self.place = folder / f".evaluate-{task}-{digest}"  # predictions are written here
        self.file = self.place / "rows.jsonl"
        self.done = self._read()
        if self.done:
            say(f"{task}: {len(self.done)} of its sets were measured before; the rest follows")
        with new_file(self.file) as temporary:  # without a line that was not finished
            temporary.write_text("".join(_line(*key, rows) for key, rows in self.done.items()), encoding="utf-8")

    def rows(self, name: str, of: str) -> list[Row] | None:
        """What was measured of a set before, if it was and its files (`of`) are the same."""
        return self.done.get((name, of))

    def add(self, name: str, of: str, rows: list[Row]) -> None:
        self.done[name, of] = rows
        with self.file.open("a", encoding="utf-8") as file:
            file.write(_line(name, of, rows))

    def finish(self) -> None:
        """Puts the predictions where they belong."""
        for file in predictions.paths(self.place):
            whole = self.folder / file.relative_to(self.place)
            whole.parent.mkdir(parents=True, exist_ok=True)
            file.replace(whole)
        shutil.rmtree(self.place)

    def _read(self) -> dict[tuple[str, str], list[Row]]:
        found = {}
        try:
            for line in self.file.read_text(encoding="utf-8").split("\n"):
                stored = json.loads(line)
                found[stored["name"], stored["of"]] = stored["rows"]
        except (OSError, ValueError):  # nothing there, or the end: an empty line, or one that was being written
            pass
        return found


def _line(name: str, of: str, rows: list[Row]) -> str:
    return json.dumps({"name": name, "of": of, "rows": rows}, ensure_ascii=False) + "\n"
