"""Every command and example of the README runs, and its links and pictures exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crossling import cli
from crossling.core.files import write_json
from crossling.data.shards import Shards
from crossling.demo import WITH, demo_recipes
from crossling.synthetic import synth

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Settings that make the README's commands short enough for a test.
SHORTER = {
    "steps=100": "steps=3",
    "steps=50": "steps=3",
    "--size 4000": "--size 1000",
    "4000, ": "1000, ",
    "dro=on": "dro=on --set dro.times=2",
    "-o mt ": "-o mt --set beam=1 --set dev_rows=5 ",
    "synth -o synth": "synth -o synth --sentences 1000 --languages 3",
}


def code_blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def shorten(text: str) -> str:
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return text


def write_demo_recipe(shards: Shards, folder: Path) -> None:
    write_json(folder / "demo" / WITH / "recipe.json", {"format": 2, "recipe": demo_recipes(shards)[WITH].dump()})


def test_the_python_example_runs(shards: Shards, tmp_path: Path) -> None:
    write_demo_recipe(shards, tmp_path)
    synth(tmp_path / "demo" / "synth", sentences=1000)
    [example] = code_blocks("python")
    command = [sys.executable, "-c", shorten(example)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_python_example_passes_the_type_checker(tmp_path: Path) -> None:
    [example] = code_blocks("python")
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", str(tmp_path / "example.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_commands_run(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_demo_recipe(shards, tmp_path)
    monkeypatch.chdir(tmp_path)
    [block] = [block for block in code_blocks("") if "crossling synth" in block]
    lines = shorten(block).splitlines()
    assert len(lines) == 18
    for line in lines:
        run_line(line, monkeypatch)
    assert len((tmp_path / "pairs.txt").read_text(encoding="utf-8").splitlines()) == 3
    assert "xy_lent" in (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "run" in (tmp_path / "report.html").read_text(encoding="utf-8")


def run_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one line of a shell, a command of ours in this process: each import of torch takes seconds."""
    command = line.partition("#")[0].strip()
    if not command.startswith("crossling ") or ">" in command:
        command = re.sub("^crossling", f"{sys.executable} -m crossling", command)
        subprocess.run(["bash", "-c", command], check=True)
        return
    monkeypatch.setattr(sys, "argv", command.split())
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert not exit_.value.code, command


def test_links_and_pictures_exist() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)|src=\"([^\"]+)\"", README):
        assert (ROOT / "".join(target)).exists(), target
