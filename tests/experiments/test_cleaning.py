"""The script experiments/cleaning.py: its text has lines for the rules to drop, and the command cleans it."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest

from tests.load_script import load_script


def test_generated_lines_are_repeated_in_part() -> None:
    lines = [*islice(load_script("experiments/cleaning.py").generate_lines(), 20_000)]
    assert 0.9 < len({*lines}) / len(lines) < 0.99


@pytest.mark.skipif(find_spec("rensa") is None, reason="needs the extra data")
def test_a_row_for_each_set_of_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("experiments/cleaning.py")
    monkeypatch.setattr(script, "RULE_SETS", {"length": ["--length", "2:10000"]})
    [row] = script.measure(50_000, 1, ["length"])
    assert row["bytes"] >= 50_000
    assert row["kept"] > 100
    assert row["cc100_hours"] > 0
    assert Path(script.DOCS).is_dir()
