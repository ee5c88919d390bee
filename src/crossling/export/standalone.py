"""The code of the model beside its weights, for those who have transformers and not crossling.

transformers copies these files away and imports them once the user has said `trust_remote_code=True`. Where crossling
is imported, its own classes come first.
"""

from __future__ import annotations

import re
from pathlib import Path

from crossling.model import heads

ENTRY = "heads"  # imports all other files, and has every class below
# All by one file: transformers gives each its own namespace, in which a class is not that of another.
AUTO_MAP = {
    "AutoConfig": f"{ENTRY}.CrosslingConfig",
    "AutoModel": f"{ENTRY}.CrosslingModel",
    "AutoModelForMaskedLM": f"{ENTRY}.CrosslingForMaskedLM",
    "AutoModelForPreTraining": f"{ENTRY}.CrosslingForPreTraining",
}
_IMPORT = re.compile(r"^from crossling\.model\.(\w+) import", re.MULTILINE)
_KERNEL = re.compile(r"^try:\n    from crossling\.model.*\nexcept .*\n    kernel = None.*\n", re.MULTILINE)
_REGISTER = re.compile(r"^Auto\w+\.register\(.*\)\n", re.MULTILINE)  # a second folder would meet the first's names


def sources() -> dict[str, str]:
    """The files and what is in them: the entry and all it imports, each from its own folder."""
    found: dict[str, str] = {}
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name not in found:
            text = (Path(heads.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
            waiting += _IMPORT.findall(text)
            found[name] = _plain(text)
    return {
        f"{name}.py": f"# Part of crossling, under the Apache License 2.0.\n{found[name]}" for name in sorted(found)
    }


def _plain(text: str) -> str:
    """The kernels stay behind: they are for those who train."""
    text = _KERNEL.sub("kernel = None\n", text)
    return _REGISTER.sub("", _IMPORT.sub(r"from .\1 import", text)).rstrip() + "\n"


def write_code(folder: Path) -> None:
    for name, text in sources().items():
        (folder / name).write_text(text, encoding="utf-8")
