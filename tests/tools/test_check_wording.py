"""The wording check finds every term that the glossary replaces, and the other kinds of findings."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
_spec = importlib.util.spec_from_file_location("check_wording", ROOT / "tools" / "check_wording.py")
assert _spec is not None
assert _spec.loader is not None
check_wording = sys.modules["check_wording"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_wording)

Check = Callable[[str, str], list[str]]  # name and text of a file -> findings
# A line of a file for each entry of the glossary.
REPLACED = {
    "src/crossling/train/new.py": [
        *("# the peak rate", "# its rate is low", "pieces = 3", "# all maps of a block", "# on the way back"),
        *("# both ways", "# computed again", "# a run goes on", "class Begun:", "# begins as XLM-R", "# from nothing"),
        *(
            "# the contrast",
            "# by detection",
            "# trained by masking",
            "# a step left out",
            "# examples drawn at random",
        ),
        *("# drawn anew", "# the shares of languages", "# is told", "# tells", "# it says", "def speaks():"),
        *("first_one_then_all", "LAST_WORDS = 3", "# looks at the data", "# judged", "# mended", "# room for it"),
        *("# the whole house", "# in the box", "# embedded languages", "# babel", "# the place of a token"),
        *("# number of processes", "# the first process", "# state to go on from", "steady = 1", "# the usual norm"),
        *("pace = 2", "# time left", "class Account:", "# a window of steps", "# asked for", "class Measured:"),
        *("class Shown:", "# the board", "# names, answers", "# parts of speech", "# errors of word alignment"),
        *("# piles of text", "# its fate", "# a stranger", "class Seen:", "# if not said base"),
        *("# a list is born", "# hears of it", "# remembers it", "# forgot it"),
    ],
    "src/crossling/lab/new.py": [
        *("# the material", "# a trial", "# a unit", "# the verdict", "# the claim held", "# undecided", "# finalists"),
    ],
}


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setattr(check_wording, "ROOT", tmp_path)

    def check(name: str, text: str) -> list[str]:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return [*check_wording.check(file)]

    return check


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in REPLACED.items() for line in lines])
def test_replaced_terms_are_found(name: str, line: str, findings: Check) -> None:
    text = f"{line}\n    pass\n" if line.endswith(":") else f"{line}\n"
    found = findings(name, text)
    assert found
    assert all(each.startswith(f"{name}:1: ") for each in found)


@pytest.mark.parametrize(
    "line", ["# the learning rate", "# the error rate", "# replaced token detection", "# held-out"]
)
def test_terms_of_the_field_pass(line: str, findings: Check) -> None:
    assert findings("src/crossling/train/new.py", f"{line}\n") == []


def test_long_sentences_and_headless_docstrings_are_found(findings: Check) -> None:
    [long] = findings("src/new.py", f"# {'word ' * 31}\n")
    assert "31 words in a sentence" in long
    [headless] = findings("src/new.py", '"""Whether it works."""\n')
    assert "docstring starts with 'Whether'" in headless
