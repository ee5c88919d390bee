"""The README is short, its links exist, and its figures are those of the stored results.

tests/docs runs its commands, and `make check` checks the types of its Python.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import pytest

from tests.load_script import load_script

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150
    assert max(map(len, README.splitlines())) <= 220  # rows of tables and comments; text wraps at 120


def test_sentences_are_short() -> None:
    prose = re.sub(r"^```.*?^```|<!--.*?-->|^\|.*?$|^#.*?$", "", README, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"\]\([^)]*\)|[*`\[\]]", "", prose)
    sentences = re.split(r"[.:;?!](?:\s+|$)|\n\s*\n|^- ", prose, flags=re.MULTILINE)
    lengths = [len(sentence.split()) for sentence in sentences if len(sentence.split()) > 2]
    assert fmean(lengths) <= 18


def test_links_and_pictures_exist() -> None:
    for target in re.findall(r"\]\((?!http|#)([^)#]+)\)|src=\"([^\"]+)\"", README):
        assert (ROOT / "".join(target)).exists(), target


def test_generated_parts_are_current() -> None:
    assert load_script("experiments/readme_blocks.py").fill(README) == README


def test_a_missing_marker_is_reported() -> None:
    with pytest.raises(ValueError, match="expected '<!-- comparison"):
        load_script("experiments/readme_blocks.py").fill("# crossling")
