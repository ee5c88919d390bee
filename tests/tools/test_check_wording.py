"""The wording check finds every term that the glossary replaces, and the other kinds of findings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.load_script import ROOT, load_script

check_wording: Any = load_script("tools/check_wording.py")

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
    "line",
    [
        *("# the learning rate", "# the error rate", "# replaced token detection", "# held-out", "# report sections"),
        *("loss = MLM(rate=0.15)", "# the head shares the weights of the table", "# charts are drawn by matplotlib"),
        "# memory was measured on an H200 and is shown in the report",
    ],
)
def test_terms_of_the_field_pass(line: str, findings: Check) -> None:
    assert findings("src/crossling/train/new.py", f"{line}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        *("# its rate", "# a window of steps", "measured = 3", "def shown():", "from crossling.report import sections"),
        "# a table of the shares of languages",  # the context of another sense, but not at the term
        "# a chart of the examples drawn at random",
    ],
)
@pytest.mark.parametrize("folder", ["src/crossling/cli", "tests/cli", "examples"])
def test_terms_are_found_in_every_folder_and_beside_other_words(folder: str, line: str, findings: Check) -> None:
    assert findings(f"{folder}/new.py", f"{line}\n    pass\n" if line.endswith(":") else f"{line}\n")


LONG = "Word " * 31


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/new.py", f"# {LONG}\n"),
        ("src/new.py", f'print("Short. {LONG}.")\n'),
        ("src/new.py", f'value = 1\nprint(f"{{value}} {LONG[5:]}"\n    ". Short.")\n'),
        ("src/new.html.jinja", f"<p>Short. {LONG}</p>\n"),
        ("src/new.html.jinja", f"<p><b>{{{{ name }}}}</b> {LONG[5:]}\n"),
        ("docs/new.md", f"Short. {LONG}\n"),
    ],
)
def test_long_sentences_are_found(name: str, text: str, findings: Check) -> None:
    [long] = findings(name, text)
    assert "31 words in a sentence" in long


def test_strings_of_tests_and_lists_of_codes_are_not_prose(findings: Check) -> None:
    assert findings("tests/new.py", f'text = "Short. {LONG}."\n') == []
    assert findings("src/new.py", f'CODES = "{LONG}".split()\n') == []


def test_headless_docstrings_and_comments_are_found(findings: Check) -> None:
    [headless] = findings("src/new.py", '"""Whether it works."""\n')
    assert "docstring starts with 'Whether'" in headless
    [headless] = findings("src/new.py", "# What scales a recipe.\nSMALL = 1  # of layers\n")
    assert "comment starts with 'What'" in headless


def test_placeholders_of_pages_are_found(findings: Check) -> None:
    [found] = findings("docs/new.md", "# Title\n\nTABLE\n\n```bash\ncat << EOF\nEOF\n```\n\nA RUN is text.\n")
    assert found.startswith("docs/new.md:3: 'TABLE' alone on a line")


def test_contributing_has_the_glossary(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_wording.main(["--table"]) == 0
    table = capsys.readouterr().out
    assert table.count("\n") == len(check_wording.RULES) + 2
    assert (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").endswith(f"\n\n{table}"), (
        "paste the output of --table"
    )
