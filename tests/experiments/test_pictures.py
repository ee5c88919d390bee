"""experiments/pictures.py writes the pictures of the concepts pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.load_script import ROOT, load_script


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("experiments/pictures.py")


def test_pictures_of_this_repository_are_up_to_date(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["pictures.py", "--root", str(tmp_path)])
    script.main()
    written = [*(tmp_path / "docs" / "pictures").iterdir()]
    assert {file.stem for file in written} == {*script.PICTURES}
    for file in written:
        assert file.read_bytes() == (ROOT / "docs" / "pictures" / file.name).read_bytes(), file.name


def test_pictures_are_valid_and_have_no_background(script: ModuleType) -> None:
    for name, draw in script.PICTURES.items():
        text = draw()
        ElementTree.fromstring(text)
        assert not re.search(r"fill: ?#(ffffff|fff|000000)", text), name
        for reference in re.findall(r'xlink:href="#(\w+)"', text):
            assert f'id="{reference}"' in text, name


def test_rows_of_the_pair_rules_are_those_of_the_page(script: ModuleType) -> None:
    page = (ROOT / "docs" / "concepts" / "sampling.md").read_text(encoding="utf-8")
    for rule, probabilities in script.pair_rules().items():
        cells = [f"{100 * p:.1f}" if p > 5e-4 else "0" for p in probabilities.values()]
        assert f"| {rule if rule == 'data' else f'`{rule}`'} | {' | '.join(cells)} |" in page, rule


def test_predicted_scaling_is_that_of_the_page(script: ModuleType) -> None:
    page = (ROOT / "docs" / "research" / "scaling.md").read_text(encoding="utf-8")
    for size, estimates in script.scaling().items():
        cells = [f"{each.tokens_per_second / 1e6:.2f}M, {1 - each.waiting:.0%}" for each in estimates]
        sharded = "FSDP2" if estimates[-1].memory.sharded else "replicas"
        assert f"| {size} | {sharded} | {' | '.join(cells)} |" in page, size
