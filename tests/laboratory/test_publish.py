"""benchmarks/publish.py: the page of the repository is made of what laboratories wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_what_is_under_way_is_named(tmp_path: Path) -> None:
    done = publish(tmp_path / "root", laboratory(tmp_path / "a", "embedded", "under way"))
    assert done.returncode == 1
    assert "no run is finished" in done.stderr
    assert not (tmp_path / "root" / "docs" / "results.md").exists()
    lab = laboratory(tmp_path / "b", "embedded")
    board = json.loads((lab / "lab.json").read_text())
    board["runs"].append({"run": "two", "seed": 1, "state": "under way"})
    (lab / "lab.json").write_text(json.dumps(board))
    assert publish(tmp_path / "other", lab).returncode == 0
    assert "was not measured: two-1." in (tmp_path / "other" / "docs" / "results.md").read_text(encoding="utf-8")


def test_the_table_of_the_readme(tmp_path: Path) -> None:
    def run(name: str, recipe: str, seed: int, tatoeba: float, aer: float) -> dict[str, Any]:
        scores = {"tatoeba": {"accuracy": {"mean": tatoeba}}, "word-alignment": {"aer": {"mean": aer}}}
        return {"run": name, "recipe": recipe, "seed": seed, "state": "finished", "scores": scores}

    lab = laboratory(tmp_path / "a", "papers")
    board = json.loads((lab / "lab.json").read_text())
    board["runs"] = [
        run("xlm", "xlm", 0, 4.0, 65.0),
        run("rosetta", "rosetta", 0, 44.0, 56.0),
        run("rosetta", "rosetta", 1, 46.0, 58.0),
        run("rosetta-less", "rosetta", 0, 20.0, 1.0),
        run("xlm-more", "xlm", 0, 6.0, 66.0),
        run("xlm-most", "xlm", 0, 50.0, 66.0) | {"state": "under way"},
    ]
    (lab / "lab.json").write_text(json.dumps(board))
    root = tmp_path / "root"
    root.mkdir()
    around = "# before\n<!-- made by benchmarks/publish.py -->\n| old |\n<!-- until here -->\nafter\n"
    (root / "README.md").write_text(around, encoding="utf-8")
    done = publish(root, lab)
    assert done.returncode == 0, done.stderr
    lines = (root / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["# before", "<!-- made by benchmarks/publish.py -->"]
    assert lines[4:] == [
        "| `rosetta` | **45.0** | **57.0** | – | – | – |",
        "| `xlm-more` | 6.0 | 66.0 | – | – | – |",
        "| `xlm` | 4.0 | 65.0 | – | – | – |",
        "<!-- until here -->",
        "after",
    ]


def test_a_board_without_a_finished_recipe_leaves_the_readme_alone(tmp_path: Path) -> None:
    lab = laboratory(tmp_path / "a", "papers")
    board = json.loads((lab / "lab.json").read_text())
    board["runs"] = [{"run": "b", "seed": 0, "state": "under way"}]
    (lab / "lab.json").write_text(json.dumps(board))
    done = publish(tmp_path / "root", lab)
    assert done.returncode == 1
    assert "no run is finished" in done.stderr
    assert "Traceback" not in done.stderr
