"""The reader of pages: which blocks run, and how output is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from .page_blocks import output_matches, read_page, shorten, split_console

PAGE = """\
% files: corpora run
# Title

% shorter: steps=900 -> steps=2
```bash
crossling pretrain rosetta --set steps=900
```

<!-- not run: needs a GPU -->
```bash
torchrun train
```

% not run: needs the network

A paragraph in between: the comment belongs to no block.

````{note}
```python
x = 1
```
````

```text
shown only
```

```{note}
A directive.
```

```bash
true
```
"""


def test_blocks_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    page = read_page(tmp_path / "page.md")
    assert page.files == ("corpora", "run")
    assert [(block.language, block.reason) for block in page.blocks] == [
        ("bash", ""),
        ("bash", "needs a GPU"),
        ("python", ""),
        ("bash", ""),
    ]
    assert page.blocks[0].code == "crossling pretrain rosetta --set steps=2"
    assert page.blocks[0].line == 5
    assert page.blocks[2].code == "x = 1"


def test_a_replacement_that_is_not_in_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="steps=900"):
        shorten("crossling demo", "steps=900 -> steps=2")


def test_console_commands_with_their_output() -> None:
    code = "$ cat a \\\n    b\none\ntwo\n$ true"
    assert split_console(code) == [("cat a \\\n    b", ["one", "two"]), ("true", [])]


@pytest.mark.parametrize(
    ("expected", "output", "matches"),
    [
        (["one", "two"], "one  \ntwo\n", True),
        (["one"], "one\ntwo\n", False),
        (["one", "...", "four"], "one\ntwo\nthree\nfour\n", True),
        (["took ... s"], "took 3.1 s\n", True),
        (["took ... s"], "took 3.1 s\nmore\n", False),
        (["a.c"], "abc", False),
        (["1.471286 a", "2.5"], "1.471301 a\n2.5\n", True),
        (["1.471286 a"], "1.481286 a\n", False),
        (["2.5"], "2.6", False),
    ],
)
def test_output_is_compared(expected: list[str], output: str, matches: bool) -> None:
    assert output_matches(expected, output) is matches
