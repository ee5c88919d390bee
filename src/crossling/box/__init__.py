"""The model that ships: small, many languages, for those who name none. benchmarks/box.py makes it."""

from __future__ import annotations

from pathlib import Path

from crossling.errors import BadInput

NAME = "box"
FOLDER = Path(__file__).parent / "model"


def folder() -> Path:
    """Where it lies."""
    if not (FOLDER / "config.json").is_file():
        raise BadInput(
            "no model is named, and this installation has none in it; give a run, an exported folder, or a Hugging Face"
            " encoder"
        )
    return FOLDER
