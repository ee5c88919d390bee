"""The Python of a Markdown page becomes one module with the page's line numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.load_script import ROOT, load_script

extract_python: Any = load_script("tools/extract_python.py")

PAGE = """# Title

```bash
crossling demo
```

```python
import crossling as xl
```

text

```python
xl.load()
```
"""


def test_line_numbers_are_those_of_the_page() -> None:
    assert extract_python.extract_python(PAGE).split("\n") == [
        *[""] * 7,
        "import crossling as xl",
        *[""] * 5,
        "xl.load()",
        "",
    ]


def test_the_readme_has_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "build" / "example.py"
    monkeypatch.setattr(sys, "argv", ["extract_python.py", str(ROOT / "README.md"), str(module)])
    extract_python.main()
    text = module.read_text(encoding="utf-8")
    assert "import crossling" in text
    compile(text, str(module), "exec")


def test_a_page_without_python_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text("# Title\n\n```bash\nls\n```\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["extract_python.py", str(tmp_path / "page.md"), str(tmp_path / "page.py")])
    with pytest.raises(SystemExit, match=r"page\.md: no Python block"):
        extract_python.main()
    assert not (tmp_path / "page.py").exists()


def test_make_check_checks_the_types_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "tools/extract_python.py README.md build/readme_example.py" in makefile
    assert "/mypy src examples build/readme_example.py" in makefile
