"""The promises of the README are tests too."""

import os
import re
import subprocess
import sys
from pathlib import Path

from crossling.babel import babel

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == kind]


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SHORT = {"steps=100": "steps=3", "--size 4000": "--size 1000", "4000, ": "1000, "}


def shortened(text: str) -> str:
    for long, short in SHORT.items():
        text = text.replace(long, short)
    return text


def test_the_ten_lines_run(tmp_path: Path) -> None:
    babel(tmp_path / "demo" / "babel", sentences=1000)
    [example] = blocks("python")
    run([sys.executable, "-c", shortened(example)], tmp_path)


def test_the_commands_run(tmp_path: Path) -> None:
    [listed] = [block for block in blocks("") if "crossling babel" in block]
    (tmp_path / "pairs.txt").write_text("a b ||| c d\n", encoding="utf-8")
    lines = [line.split("#")[0].split() for line in shortened(listed).splitlines() if line.startswith("crossling")]
    assert len(lines) == 7
    for line in lines:
        run([sys.executable, "-m", *line, *(["--sentences", "1000"] if line[1] == "babel" else [])], tmp_path)


def test_its_links_and_pictures_are_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)|src=\"([^\"]+)\"", README):
        assert (ROOT / "".join(target)).exists(), target
