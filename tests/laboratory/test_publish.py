"""benchmarks/publish.py: the page of the repository is made of what laboratories wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "publish.py"


def laboratory(folder: Path, name: str, state: str = "finished") -> Path:
    folder.mkdir()
    runs = [{"run": "one", "seed": 0, "state": state}]
    board = {"date": "2026-01-02", "command": f"crossling lab {name} -o LAB", "runs": runs}
    (folder / "lab.json").write_text(json.dumps(board), encoding="utf-8")
    (folder / "results.md").write_text(f"# {name}: what was found\n\n## Scores\n\n![c](curves.svg)\n", encoding="utf-8")
    (folder / "curves.svg").write_text("<svg/>", encoding="utf-8")
    return folder


def publish(root: Path, *labs: Path) -> subprocess.CompletedProcess[str]:
    (root / "docs").mkdir(parents=True)
    (root / "benchmarks" / "results").mkdir(parents=True)
    command = [sys.executable, str(SCRIPT), *map(str, labs), "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_one_page_of_all_laboratories(tmp_path: Path) -> None:
    labs = laboratory(tmp_path / "a", "embedded"), laboratory(tmp_path / "b", "mine.json")
    root = tmp_path / "root"
    done = publish(root, *labs)
    assert done.returncode == 0, done.stderr
    page = (root / "docs" / "results.md").read_text(encoding="utf-8")
    assert page.index("## embedded: what was found") < page.index("## mine.json: what was found")
    assert "### Scores" in page
    assert "(lab-embedded.svg)" in page
    assert {file.name for file in (root / "docs").iterdir()} == {"results.md", "lab-embedded.svg", "lab-mine.svg"}
    stored = root / "benchmarks" / "results" / "2026-01-02-lab-mine.json"
    assert json.loads(stored.read_text())["runs"][0]["run"] == "one"


def test_what_is_under_way_is_not_published(tmp_path: Path) -> None:
    done = publish(tmp_path / "root", laboratory(tmp_path / "a", "embedded", "under way"))
    assert done.returncode == 1
    assert "one-0 not finished" in done.stderr
    assert not (tmp_path / "root" / "docs" / "results.md").exists()
