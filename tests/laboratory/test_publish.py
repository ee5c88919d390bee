"""benchmarks/publish.py: the page of the repository is made of the boards of laboratories."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "publish.py"
AROUND = "# before\n<!-- papers: made by benchmarks/publish.py -->\n| old |\n<!-- until here -->\nafter\n"

Told = dict[str, Any]


def run(name: str, recipe: str, seed: int, tatoeba: float, aer: float, state: str = "finished") -> Told:
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


def board(name: str, runs: Sequence[Told], date: str = "2026-01-02") -> Told:
    plan = {"size": "tiny", "steps": 10, "runs": {each["run"]: {"recipe": each["recipe"]} for each in runs}}
    command = f"crossling lab {name} -o LAB"
    return {
        **{"date": date, "command": command, "device": ["a CPU"], "versions": [{"torch": "2"}]},
        **{"plan": plan, "runs": [*runs], "claims": []},
    }


def laboratory(folder: Path, told: Told) -> Path:
    folder.mkdir()
    (folder / "lab.json").write_text(json.dumps(told), encoding="utf-8")
    return folder


class Ended(NamedTuple):
    returncode: int
    stderr: str


Publish = Callable[..., Ended]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("publish", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def publish(script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Publish:
    """The command, for the repository in a folder."""

    def publish(root: Path, *labs: Path) -> Ended:
        (root / "docs").mkdir(parents=True, exist_ok=True)
        (root / "benchmarks" / "results").mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(sys, "argv", ["publish.py", *map(str, labs), "--root", str(root)])
        try:
            script.main()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        return Ended(status, capsys.readouterr().err)

    return publish


def page(root: Path) -> str:
    return (root / "docs" / "results.md").read_text(encoding="utf-8")


def test_one_page_of_all_boards_that_lie_there(publish: Publish, tmp_path: Path) -> None:
    root, one = tmp_path / "root", run("one", "xlm", 0, 40.0, 50.0)
    labs = [laboratory(tmp_path / name, board(name, [one])) for name in ("embedded", "mine.json", "another")]
    done = publish(root, *labs[:2])
    assert done.returncode == 0, done.stderr
    assert "| one | `xlm` | 1 of 1 | 10 | 1k | 1e+09 | 1 min 1 s | 40.0 (3) | 50.0 (2) |" in page(root)
    assert "(lab-embedded.svg)" in page(root)
    assert "<svg" in (root / "docs" / "lab-mine.svg").read_text(encoding="utf-8")
    assert publish(root, labs[2]).returncode == 0  # the others are read from where they were stored
    titles = [line for line in page(root).splitlines() if line.startswith("## ")]
    assert titles == [f"## {name}: what was found" for name in ("another", "embedded", "mine")]
    stored = {file.name for file in (root / "benchmarks" / "results").iterdir()}
    assert stored == {f"2026-01-02-lab-{name}.json" for name in ("embedded", "mine", "another")}


def test_the_newest_board_of_a_name_counts(publish: Publish, tmp_path: Path) -> None:
    for date, value in (("2026-02-01", 77.0), ("2026-01-31", 33.0)):
        told = board("embedded", [run("one", "xlm", 0, value, 50.0)], date)
        assert publish(tmp_path / "root", laboratory(tmp_path / date, told)).returncode == 0
    assert "77.0 (3)" in page(tmp_path / "root")
    assert "33.0 (3)" not in page(tmp_path / "root")


def test_what_is_under_way_is_named(publish: Publish, tmp_path: Path) -> None:
    going = run("two", "xlm", 1, 4.0, 65.0, "under way")
    done = publish(tmp_path / "root", laboratory(tmp_path / "a", board("embedded", [going])))
    assert done.returncode == 2
    assert "no run is finished" in done.stderr
    assert not (tmp_path / "root" / "docs" / "results.md").exists()
    lab = laboratory(tmp_path / "b", board("embedded", [run("one", "xlm", 0, 4.0, 65.0), going]))
    assert publish(tmp_path / "other", lab).returncode == 0
    assert "was not measured: two-1." in page(tmp_path / "other")


def test_the_table_of_the_readme(publish: Publish, tmp_path: Path) -> None:
    told = [
        run("xlm", "xlm", 0, 4.0, 65.0),
        run("rosetta", "rosetta", 0, 44.0, 56.0),
        run("rosetta", "rosetta", 1, 46.0, 58.0),
        run("rosetta-less", "rosetta", 0, 20.0, 1.0),
        run("xlm-more", "xlm", 0, 6.0, 66.0),
        run("xlm-most", "xlm", 0, 50.0, 66.0, "under way") | {"scores": {}},
    ]
    root = tmp_path / "root"
    root.mkdir()
    (root / "README.md").write_text(AROUND, encoding="utf-8")
    done = publish(root, laboratory(tmp_path / "a", board("papers", told)))
    assert done.returncode == 0, done.stderr
    lines = (root / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["# before", "<!-- papers: made by benchmarks/publish.py -->"]
    assert lines[4:] == [
        "| `rosetta` | **45.0** | **57.0** |",
        "| `xlm-more` | 6.0¹ | 66.0¹ |",
        "| `xlm` | 4.0¹ | 65.0¹ |",
        "<!-- until here -->",
        "after",
    ]


def test_a_board_without_a_finished_run_leaves_the_readme_alone(publish: Publish, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "README.md").write_text(AROUND, encoding="utf-8")
    lab = laboratory(tmp_path / "a", board("papers", [run("xlm", "xlm", 0, 4.0, 65.0, "under way")]))
    done = publish(root, lab)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert (root / "README.md").read_text(encoding="utf-8") == AROUND


@pytest.mark.parametrize(
    ("board_of", "sentence"),
    [
        (None, "lab.json: expected the board of a laboratory"),
        ("not JSON", "lab.json: expected the board of a laboratory"),
        ({**board("embedded", []), "command": "something else"}, "lab.json: expected the board of a laboratory"),
        (board("embedded", [run("one", "xlmm", 0, 4.0, 65.0)]), "board of embedded: run one"),
        (board("papers", [run("one", "xlm", 0, 4.0, 65.0)]), "README.md: expected '<!-- papers: made by"),
    ],
)
def test_what_cannot_be_published_is_one_sentence(
    publish: Publish, tmp_path: Path, board_of: Any, sentence: str
) -> None:
    lab = laboratory(tmp_path / "a", board_of)
    if board_of is None:
        (lab / "lab.json").unlink()
    root = tmp_path / "root"
    root.mkdir()
    (root / "README.md").write_text("no table here\n", encoding="utf-8")
    done = publish(root, lab)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert sentence in line
    assert [file.name for file in root.rglob("*") if file.is_file()] == ["README.md"]  # nothing by half


def test_the_page_of_this_repository_is_made_of_its_boards(publish: Publish, tmp_path: Path) -> None:
    ours = SCRIPT.parent.parent
    root = tmp_path / "root"
    (root / "benchmarks" / "results").mkdir(parents=True)
    for file in (ours / "benchmarks" / "results").glob("*-lab-*.json"):
        (root / "benchmarks" / "results" / file.name).write_bytes(file.read_bytes())
    (root / "README.md").write_bytes((ours / "README.md").read_bytes())
    done = publish(root)
    assert done.returncode == 0, done.stderr
    assert page(root) == (ours / "docs" / "results.md").read_text(encoding="utf-8")
    for picture in (root / "docs").glob("*.svg"):
        assert picture.read_bytes() == (ours / "docs" / picture.name).read_bytes()
    assert (root / "README.md").read_bytes() == (ours / "README.md").read_bytes()
