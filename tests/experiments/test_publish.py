"""experiments/publish.py generates the results page, the README table and their charts from stored lab results."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tests.load_script import ROOT, load_script

AROUND = "# before\n<!-- papers: made by experiments/publish.py -->\n| old |\n<!-- until here -->\nafter\n"

Results = dict[str, Any]


def run(name: str, recipe: str, seed: int, tatoeba: float, aer: float, state: str = "finished") -> Results:
    scores = {"accuracy": {"mean": tatoeba, "layer": 3}}, {"aer": {"mean": aer, "layer": 2}}
    return {
        **{"run": name, "recipe": recipe, "seed": seed, "state": state, "cost": COST, "curve": CURVE},
        "scores": dict(zip(("tatoeba", "word-alignment"), scores, strict=True)),
    }


COST = {"steps": 10, "tokens": 1000, "seconds": 61.0, "flops": {"full": 1e9}}
CURVE = [
    {"step": step, "tokens": step, "seconds": 1.0, "flops": 1e8 * step, "value": float(step), "languages": {}}
    for step in (0, 10)
]


def lab_results(name: str, runs: Sequence[Results], date: str = "2026-01-02") -> Results:
    plan = {
        "version": 2,
        "size": "tiny",
        "steps": 10,
        "runs": {each["run"]: {"recipe": each["recipe"]} for each in runs},
    }
    command = f"crossling lab {name} -o LAB"
    return {
        **{"version": 2, "date": date, "command": command, "device": ["a CPU"], "versions": [{"torch": "2"}]},
        **{"plan": plan, "runs": [*runs], "claims": []},
    }


def write_lab(folder: Path, results: Results) -> Path:
    folder.mkdir()
    (folder / "lab.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


class Ended(NamedTuple):
    returncode: int
    stderr: str


Publish = Callable[..., Ended]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("experiments/publish.py")


@pytest.fixture
def publish(script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Publish:
    """Run the script on a repository folder."""

    def publish(root: Path, *labs: Path) -> Ended:
        (root / "docs" / "research").mkdir(parents=True, exist_ok=True)
        (root / "experiments" / "results").mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(sys, "argv", ["publish.py", *map(str, labs), "--root", str(root)])
        try:
            script.main()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        return Ended(status, capsys.readouterr().err)

    return publish


def page(root: Path) -> str:
    return (root / "docs" / "research" / "results.md").read_text(encoding="utf-8")


def test_page_contains_all_stored_results(publish: Publish, tmp_path: Path) -> None:
    root, one = tmp_path / "root", run("one", "xlm", 0, 40.0, 50.0)
    labs = [write_lab(tmp_path / name, lab_results(name, [one])) for name in ("synthetic", "mine.json", "another")]
    done = publish(root, *labs[:2])
    assert done.returncode == 0, done.stderr
    assert "| one | `xlm` | 1 of 1 | 10 | 1k | 1e+09 | 1 min 1 s | 40.0 (3) | 50.0 (2) |" in page(root)
    assert "(../pictures/lab-synthetic.svg)" in page(root)
    assert "<svg" in (root / "docs" / "pictures" / "lab-mine.svg").read_text(encoding="utf-8")
    assert publish(root, labs[2]).returncode == 0  # the others are read from the stored files
    titles = [line for line in page(root).splitlines() if line.startswith("## ")]
    assert titles == [f"## Results of {name}" for name in ("another", "mine", "synthetic")]
    stored = {file.name for file in (root / "experiments" / "results").iterdir()}
    assert stored == {f"2026-01-02-lab-{name}.json" for name in ("synthetic", "mine", "another")}


def test_newest_results_of_a_name_are_used(publish: Publish, tmp_path: Path) -> None:
    for date, value in (("2026-02-01", 77.0), ("2026-01-31", 33.0)):
        results = lab_results("synthetic", [run("one", "xlm", 0, value, 50.0)], date)
        assert publish(tmp_path / "root", write_lab(tmp_path / date, results)).returncode == 0
    assert "77.0 (3)" in page(tmp_path / "root")
    assert "33.0 (3)" not in page(tmp_path / "root")


def test_unfinished_runs_are_named(publish: Publish, tmp_path: Path) -> None:
    going = run("two", "xlm", 1, 4.0, 65.0, "in progress")
    done = publish(tmp_path / "root", write_lab(tmp_path / "a", lab_results("synthetic", [going])))
    assert done.returncode == 2
    assert "no run is finished" in done.stderr
    assert not (tmp_path / "root" / "docs" / "research" / "results.md").exists()
    lab = write_lab(tmp_path / "b", lab_results("synthetic", [run("one", "xlm", 0, 4.0, 65.0), going]))
    assert publish(tmp_path / "other", lab).returncode == 0
    assert "some scores are missing: two-1." in page(tmp_path / "other")


def test_table_and_chart_of_the_readme(publish: Publish, tmp_path: Path) -> None:
    runs = [
        run("xlm", "xlm", 0, 4.0, 65.0),
        run("rosetta", "rosetta", 0, 44.0, 56.0),
        run("rosetta", "rosetta", 1, 46.0, 58.0),
        run("rosetta-less", "rosetta", 0, 20.0, 1.0),
        run("rosetta-short", "rosetta", 0, 49.14, 51.0),
        run("xlm-more", "xlm", 0, 6.0, 66.0),
        run("xlm_r", "xlm_r", 0, 50.0, 66.0, "in progress") | {"scores": {}},
    ]
    root = tmp_path / "root"
    (root / "docs" / "research").mkdir(parents=True)
    pages = [root / "README.md", root / "docs" / "research" / "index.md"]
    for page in pages:
        page.write_text(AROUND, encoding="utf-8")
    done = publish(root, write_lab(tmp_path / "a", lab_results("papers", runs)))
    assert done.returncode == 0, done.stderr
    for page in pages:
        lines = page.read_text(encoding="utf-8").splitlines()
        assert lines[:2] == ["# before", "<!-- papers: made by experiments/publish.py -->"]
        assert lines[4:] == [
            "| `rosetta-short` | 49.1¹ | 51.0¹ |",
            "| `rosetta` | **45.0** | **57.0** |",
            "| `xlm` | 4.0¹ | 65.0¹ |",
            "<!-- until here -->",
            "after",
        ]
    chart = (root / "docs" / "pictures" / "results.svg").read_text(encoding="utf-8")
    texts = re.findall(r">([^<>\n]+)</text>", chart)
    assert [text for text in texts if text in ("49.1", "45.0", "4.0")] == ["49.1", "45.0", "4.0"]  # as in the table
    assert {"rosetta-short", "rosetta", "xlm", "51.0", "57.0", "65.0"} <= {*texts}
    assert "xlm_r" not in texts


def test_results_without_a_finished_run_leave_the_readme_unchanged(publish: Publish, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "README.md").write_text(AROUND, encoding="utf-8")
    lab = write_lab(tmp_path / "a", lab_results("papers", [run("xlm", "xlm", 0, 4.0, 65.0, "in progress")]))
    done = publish(root, lab)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert (root / "README.md").read_text(encoding="utf-8") == AROUND


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (None, "lab.json: expected the results of a lab"),
        ("not JSON", "lab.json: expected the results of a lab"),
        ({**lab_results("synthetic", []), "command": "something else"}, "lab.json: expected the results of a lab"),
        (lab_results("synthetic", [run("one", "xlmm", 0, 4.0, 65.0)]), "results of synthetic: run one"),
        (lab_results("papers", [run("one", "xlm", 0, 4.0, 65.0)]), "README.md: expected '<!-- papers: made by"),
    ],
)
def test_errors_are_one_line_and_change_nothing(publish: Publish, tmp_path: Path, results: Any, message: str) -> None:
    lab = write_lab(tmp_path / "a", results)
    if results is None:
        (lab / "lab.json").unlink()
    root = tmp_path / "root"
    root.mkdir()
    (root / "README.md").write_text("no table here\n", encoding="utf-8")
    done = publish(root, lab)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert message in line
    assert [file.name for file in root.rglob("*") if file.is_file()] == ["README.md"]  # nothing is written


def test_pages_of_this_repository_are_up_to_date(publish: Publish, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "experiments" / "results").mkdir(parents=True)
    (root / "docs" / "research").mkdir(parents=True)
    stored = [file.relative_to(ROOT) for file in (ROOT / "experiments" / "results").glob("*-lab-*.json")]
    for name in [*stored, "README.md", "docs/research/index.md"]:
        (root / name).write_bytes((ROOT / name).read_bytes())
    done = publish(root)
    assert done.returncode == 0, done.stderr
    written = [*(root / "docs").rglob("*.*"), root / "README.md"]
    assert len(written) == 8
    for file in written:
        assert file.read_bytes() == (ROOT / file.relative_to(root)).read_bytes(), file.name
