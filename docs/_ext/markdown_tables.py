"""Markdown tables of the generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a pipe table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def code(text: str) -> str:
    """Return text as code, or nothing if it is empty."""
    return f"`{text}`" if text else ""


def escape(text: str) -> str:
    """Return plain text whose special characters Markdown does not interpret."""
    for character in "\\*_<$":
        text = text.replace(character, f"\\{character}")
    return text
