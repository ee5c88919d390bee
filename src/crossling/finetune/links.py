"""The same files in a second place, without their bytes a second time where the file system allows it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from crossling.disk import new_file


def linked(source: Path, target: Path, deep: bool = True) -> None:
    """All files of a folder; with `deep`, of its folders too. Files of these names give way."""
    for file in sorted(source.rglob("*") if deep else source.glob("*")):
        if file.is_file():
            with new_file(target / file.relative_to(source)) as new:
                new.unlink()
                _link(file, new)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
