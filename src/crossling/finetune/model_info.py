"""JSON file in the folder of a fine-tuned model: what the model is and how it was trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from crossling.core.errors import BadInput
from crossling.core.files import write_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class _SeededInfo(Protocol):
    @property
    def seed(self) -> int: ...


Info = TypeVar("Info", bound=_SeededInfo)


@dataclass(frozen=True)
class InfoFile(Generic[Info]):
    """Format of an info file, and the folders that hold one.

    Args:
        name: File name.
        version: Version of the format.
        parse: Builds the info from its JSON object.
        command: Command that writes the file.
    """

    name: str
    version: int
    parse: Callable[[dict[str, Any]], Info]
    command: str

    def exists(self, folder: Path) -> bool:
        """Return True if the folder holds such a model."""
        return (folder / self.name).is_file()

    def seed_folders(self, folder: Path) -> list[Path]:
        """Return the folder of each seed, or the folder itself if it holds a single model."""
        folders = [path for path in folder.glob("seed-*") if self.exists(path)]
        return sorted(folders, key=lambda path: self.read(path).seed) or [folder]

    def read(self, folder: Path) -> Info:
        """Return the info of the model in a folder."""
        file = folder / self.name
        if not file.is_file():
            raise BadInput(f"{folder}: no {self.name} here. Train the model with {self.command}.")
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            version = stored.pop("version", 1)
            info = self.parse(stored) if version == self.version else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{file}: not valid ({error}). Train the model again with {self.command}.") from None
        if info is None:
            raise BadInput(
                f"{file}: format version {version}, expected {self.version}. Train the model again with {self.command}."
            )
        return info

    def write(self, folder: Path, info: DataclassInstance) -> None:
        """Write the info of a model into its folder."""
        write_json(folder / self.name, {"version": self.version, **asdict(info)})
