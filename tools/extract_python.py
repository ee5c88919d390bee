"""Write the Python blocks of a Markdown page as one module, so that `make check` can check their types.

    python tools/extract_python.py README.md build/readme_example.py

The blocks of a page share one namespace. Line numbers of the module equal those of the page.
"""

from __future__ import annotations

import sys
from pathlib import Path


def extract_python(text: str) -> str:
    """Return the page with every line outside of a Python block left empty."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line.strip() == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Write the module. A page without Python is an error, because the check would then check nothing."""
    page, module = map(Path, sys.argv[1:])
    python = extract_python(page.read_text(encoding="utf-8"))
    if not python.strip():
        sys.exit(f"{page}: no Python block. Remove the page from make check.")
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(python, encoding="utf-8")


if __name__ == "__main__":
    main()
