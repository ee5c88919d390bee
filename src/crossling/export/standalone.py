"""Model code that is added to an export, so that transformers loads it without crossling."""

from __future__ import annotations

import re
from pathlib import Path

from crossling.model import heads

ENTRY = "heads"  # imports all other files and has every class below
# All classes come from one file: transformers gives each file its own namespace, with its own copy of a class.
AUTO_MAP = {
    "AutoConfig": f"{ENTRY}.CrosslingConfig",
    "AutoModel": f"{ENTRY}.CrosslingModel",
    "AutoModelForMaskedLM": f"{ENTRY}.CrosslingForMaskedLM",
    "AutoModelForPreTraining": f"{ENTRY}.CrosslingForPreTraining",
}
_IMPORT = re.compile(r"^from crossling\.model\.(?:kernels\.)?(\w+) import", re.MULTILINE)
_KERNEL = re.compile(
    r"^if torch\.cuda\.is_available\(\).*\n    with suppress.*\n        from crossling\.model.*\n"  # attention, blocks
    r"|^try:\n    from crossling\.model.*\nexcept .*\n    kernel = None.*\n",  # prediction
    re.MULTILINE,
)


def collect_sources() -> dict[str, str]:
    """Return the file names and contents of the entry and all modules that it imports."""
    sources: dict[str, str] = {}
    folder = Path(heads.__file__).parent
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name not in sources:
            file = next(file for file in (folder / f"{name}.py", folder / "kernels" / f"{name}.py") if file.exists())
            text = file.read_text(encoding="utf-8")
            waiting += _IMPORT.findall(text)
            sources[name] = _make_standalone(text)
    return {
        f"{name}.py": f"# Part of crossling, under the Apache License 2.0.\n{sources[name]}" for name in sorted(sources)
    }


def _make_standalone(text: str) -> str:
    """Make imports relative and remove the kernels, which only training needs."""
    text = _KERNEL.sub("kernel = None\n", text)
    return _IMPORT.sub(r"from .\1 import", text)
