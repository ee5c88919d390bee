"""How pages, cards and pictures are filled in: strictly, a name that is not there being a fault."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def templates(*folders: Path, markup: bool = True) -> Environment:
    """Of HTML or SVG, in which text is escaped, or of plain text, which keeps its last line break."""
    return Environment(
        loader=FileSystemLoader(folders),
        autoescape=markup,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not markup,
    )
