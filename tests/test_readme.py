"""The promises of the README are tests too."""

import os
import re
import subprocess
import sys
from pathlib import Path

from crossling.babel import babel
from crossling.data.shards import Shards
from crossling.demo import WITH, models
from crossling.disk import write_json

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == kind]


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SHORT = {
    "steps=100": "steps=3",
    "steps=50": "steps=3",
    "--size 4000": "--size 1000",
    "4000, ": "1000, ",
    "dro=on": "dro=on --set dro.times=2",
    "-o mt ": "-o mt --set beam=1 --set dev_rows=5 ",
    "babel -o babel": "babel -o babel --sentences 1000 --languages 3",
}


def shortened(text: str) -> str:
    for long, short in SHORT.items():
        text = text.replace(long, short)
    return text


def demo_recipe(shards: Shards, folder: Path) -> None:
    write_json(folder / "demo" / WITH / "recipe.json", {"recipe": models(shards)[WITH].dump()})


def test_the_ten_lines_run(shards: Shards, tmp_path: Path) -> None:
    demo_recipe(shards, tmp_path)
    babel(tmp_path / "demo" / "babel", sentences=1000)
    [example] = blocks("python")
    run([sys.executable, "-c", shortened(example)], tmp_path)


def test_the_commands_run(shards: Shards, tmp_path: Path) -> None:
    demo_recipe(shards, tmp_path)
    [listed] = [block for block in blocks("") if "crossling babel" in block]
    lines = shortened(listed).splitlines()
    assert len(lines) == 18
    for line in lines:
        command = re.sub("^crossling", f"{sys.executable} -m crossling", line)
        run(["bash", "-c", command], tmp_path)
    assert len((tmp_path / "pairs.txt").read_text(encoding="utf-8").splitlines()) == 3
    assert "xy_lent" in (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "run" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_its_links_and_pictures_are_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)|src=\"([^\"]+)\"", README):
        assert (ROOT / "".join(target)).exists(), target
