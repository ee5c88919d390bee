"""Contents and scripts of pages."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from crossling.report.html_page import PageContents, inline_script


def test_anchors_are_readable_and_unique() -> None:
    contents = PageContents()
    assert contents.add("Word alignment") == "word-alignment"
    assert contents.add("Tatoeba en→xx", below=True) == "tatoeba-en-to-xx"
    assert contents.add("Word alignment") == "word-alignment-2"
    assert contents.add("漢字") == "section"
    assert [entry.title for entry in contents.entries] == ["Word alignment", "Word alignment", "漢字"]
    assert [child.anchor for child in contents.entries[0].children] == ["tatoeba-en-to-xx"]


def test_policy_allows_only_this_script(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(f"/* {name} */\n")
    script = inline_script(tmp_path / "a", tmp_path / "b")
    assert script.text == "/* a */\n/* b */"
    digest = base64.b64encode(hashlib.sha256(b"/* a */\n/* b */").digest()).decode()
    assert script.policy.endswith(f"script-src 'sha256-{digest}'")
    assert script.policy.startswith("default-src 'none'")
