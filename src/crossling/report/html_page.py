"""Parts that all HTML pages share: the table of contents, and scripts that the browser runs only unchanged."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

SORT_SCRIPT = Path(__file__).parent / "page" / "sort.js"


@dataclass
class ContentsEntry:
    """A heading of the page."""

    title: str
    anchor: str
    children: list[ContentsEntry] = field(default_factory=list)


@dataclass
class PageContents:
    """Table of contents. Templates add the headings while they render them."""

    entries: list[ContentsEntry] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def add(self, title: str, below: bool = False) -> str:
        """Add a heading, or with `below` a heading of the section before, and return its anchor."""
        name = re.sub(r"[^a-z0-9]+", "-", title.lower().replace("→", "-to-")).strip("-") or "section"
        anchor, number = name, 1
        while anchor in self.anchors:
            number += 1
            anchor = f"{name}-{number}"
        self.anchors.add(anchor)
        siblings = self.entries[-1].children if below and self.entries else self.entries
        siblings.append(ContentsEntry(title, anchor))
        return anchor


@dataclass(frozen=True)
class InlineScript:
    """A script of the page.

    `policy` is a content security policy: the browser runs this script alone and loads nothing from elsewhere.
    """

    text: Markup
    policy: str


def inline_script(*files: Path) -> InlineScript:
    """Join script files into one."""
    text = "\n".join(file.read_text(encoding="utf-8").strip() for file in files)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return InlineScript(Markup(text), policy)
