from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from crossling.errors import BadInput
from crossling.evaluate import scores
from crossling.evaluate.report import report
from crossling.evaluate.runs import collect, short_names
from crossling.evaluate.scores import Score

EVIL = "<script>alert('x')</script>"

SHOWCASE: dict[str, Any] = {
    "title": f"Title {EVIL}",
    "subtitle": "Sub & title",
    "command": "crossling demo -o <dir>",
    "facts": {"cost": f"two minutes {EVIL}"},
    "chance": 0.25,
    "alignment": {
        "source": ["the", EVIL],
        "target": ["la", "maison"],
        "similarity": [[0.9, 0.1], [0.2, 0.8]],
        "predicted": [[0, 0], [1, 1]],
        "sure": [[0, 0]],
        "possible": [[0, 0], [1, 1]],
        "languages": ["qaa", "qab"],
        "model": "demo/runs/one",
    },
    "neighbours": [
        {
            "query": f"query {EVIL}",
            "language": "qaa",
            "truth": "truth",
            "candidates": [{"text": f"text {EVIL}", "score": 0.5, "right": True}] * 4,
        }
    ],
    "detection": {
        "auc": 0.8,
        "sentences": [{"tokens": ["a", EVIL], "replaced": [False, True], "probability": [0, 0.9]}],
    },
}


class Page(HTMLParser):
    """Checks that tags are closed in order, and gathers tags and text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def row(model: str, layer: int, value: float, **changes: Any) -> dict[str, Any]:
    fields = {"task": "tatoeba", "protocol": "sweep", "metric": "accuracy", "language": "qaa-qab", "examples": 400}
    return Score(**{"model": model, "layer": layer, "value": value, "direction": "qaa-qab", **fields, **changes}).row()


def write_run(folder: Path, terms: dict[str, float], steps: int = 30) -> None:
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text(json.dumps({"recipe": {"name": "xlm_e", "seed": 7}, "shards": "x"}))
    rows = [
        {"step": step, **terms, "lr": 0.1, "tokens": step * 100, "seconds": step * 2.0, "tokens_per_second": 50.0}
        for step in range(10, steps + 1, 10)
    ]
    rows[-1]["probe/retrieval"] = 3.0
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs, their scores and a showcase, as the demo leaves them."""
    demo = tmp_path / "demo"
    write_run(demo / "runs" / "one", {"loss": 3.0, "mlm": 2.0})
    write_run(demo / "runs" / "two", {"loss": 2.0, "mlm": 1.0, "xlco": 0.5})
    rows = []
    for model, values in (("demo/runs/one", (1.0, 20.0, 10.0)), ("demo/runs/two", (2.0, 40.0, 62.5))):
        for layer, value in enumerate(values):
            rows.append(row(model, layer, value))
            rows.append(row(model, layer, value / 2, direction="qab-qaa"))
            aer = {"task": "word-alignment", "protocol": "xlm-align-ot", "metric": "aer", "direction": None}
            rows.append(row(model, layer, 90 - value, **aer))
    scores.add(demo / "scores.jsonl", rows)
    (demo / "showcase.json").write_text(json.dumps(SHOWCASE))
    return demo


def test_the_page_is_whole_and_alone(folder: Path, tmp_path: Path) -> None:
    out = report([folder], tmp_path / "pages" / "report.html")
    assert out == tmp_path / "pages" / "report.html"
    text = out.read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://|//[a-z]|url\(|@import|\bsrc=|<link|<script", text)
    assert "script" not in page.tags
    assert page.text.count(EVIL) >= 5
    headings = ["Runs", "Training", "Layer by layer", "Language by language"]
    examples = ["Which word is which", "Nearest translations", "Replaced tokens"]
    assert page.headings == [*headings, *examples]
    assert "demo/runs/one" not in page.text
    assert page.text.count("✓") == 3  # the nearest three of four


def test_the_numbers(folder: Path, tmp_path: Path) -> None:
    text = " ".join(Page(report([folder], tmp_path / "r.html").read_text(encoding="utf-8")).text.split())
    assert "one 15.0 % retrieval, layer 1; chance 0.25 70.0 % alignment errors, layer 1" in text
    assert "two 46.9 % retrieval, layer 2; chance 0.25 27.5 % alignment errors, layer 2" in text
    assert "one xlm_e 30 3k 1 min 0 s 50 7 2 15.0 70.0" in text
    assert "XLCo: translations against others" in text
    assert "TRTD" not in text
    assert "Retrieval while training" in text
    assert "training time 2 min 0 s for 2 runs" in text
    assert "crossling demo -o <dir>" in text


def test_scores_alone_make_a_page(tmp_path: Path) -> None:
    rows = [row("org/encoder", layer, 50.0, language=code, direction=way, examples=10) for layer in (0, 1)
            for code in ("sw", "th") for way in ("en-xx", "xx-en")]  # fmt: skip
    scores.add(tmp_path / "scores.jsonl", rows)
    page = Page(report([tmp_path], tmp_path / "report.html").read_text(encoding="utf-8"))
    text = " ".join(page.text.split())
    assert "encoder 50.0 % retrieval, layer 0; chance 10" in text
    assert "en → xx xx → en sw 50 50 th 50 50" in text
    assert "Training" not in text
    assert "Replaced tokens" not in text


def test_detection_that_has_not_learned(folder: Path, tmp_path: Path) -> None:
    weak = {**SHOWCASE, "detection": {**SHOWCASE["detection"], "auc": 0.55}}
    (folder / "showcase.json").write_text(json.dumps(weak))
    text = Page(report([folder], tmp_path / "r.html").read_text(encoding="utf-8")).text
    assert "has not learned to tell replaced tokens yet: its AUC is 0.55" in text
    assert "The warmer" not in text


def test_names(tmp_path: Path) -> None:
    assert short_names(["a/x", "a/y", "a/x"]) == {"a/x": "x", "a/y": "y"}
    assert short_names(["a/x", "b/x"]) == {"a/x": "a/x", "b/x": "b/x"}
    for name in ("first", "second"):
        write_run(tmp_path / name / "one", {"loss": 1.0})
        scores.add(tmp_path / name / "scores.jsonl", [row("elsewhere/one", 0, 1.0)])
    runs, showcases = collect([tmp_path / "first", tmp_path / "second", tmp_path / "first"])
    assert [(run.name, len(run.metrics), len(run.rows)) for run in runs] == [("first/one", 3, 1), ("second/one", 3, 1)]
    assert showcases == []


def test_a_run_by_itself_and_unfinished(tmp_path: Path) -> None:
    write_run(tmp_path / "one", {"loss": 1.0, "mlm": float("nan")})
    with (tmp_path / "one/metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "lo')
    scores.add(tmp_path / "one/scores.jsonl", [row("one", 0, 1.0)])
    [run], _ = collect([tmp_path / "one"])
    assert (run.name, len(run.metrics), len(run.rows), run.recipe["seed"]) == ("one", 3, 1, 7)
    assert "mlm" not in run.metrics[0]


def test_bad_folders(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        report([tmp_path / "nowhere"], tmp_path / "r.html")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"no scores\.jsonl and no run"):
        report([tmp_path / "empty"], tmp_path / "r.html")
    (folder / "runs/one/metrics.jsonl").write_text('{"loss": 1}\n')
    with pytest.raises(BadInput, match=r"metrics\.jsonl: line 1"):
        report([folder], tmp_path / "r.html")
    (folder / "runs/one/recipe.json").write_text("[]")
    with pytest.raises(BadInput, match="with a 'recipe' in it"):
        report([folder], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("title", 3, "title: expected text"),
        ("facts", {"a": 1}, "facts.a: expected text"),
        ("chance", "x", "chance: expected a number"),
        ("alignment", {}, "alignment: expected a field 'source'"),
        ("alignment", {**SHOWCASE["alignment"], "similarity": [[1]]}, "expected 2 rows of 2 numbers"),
        ("alignment", {**SHOWCASE["alignment"], "sure": [[0, 2]]}, "alignment.sure: expected links"),
        ("neighbours", [{"query": "q"}], r"neighbours\[0\]: expected a field 'language'"),
        ("detection", {"auc": True, "sentences": []}, "detection.auc: expected a number"),
        (
            "detection",
            {"auc": 1, "sentences": [{"tokens": ["a"], "replaced": [], "probability": [0.1]}]},
            "as many 'replaced'",
        ),
    ],
)
def test_bad_showcase(folder: Path, tmp_path: Path, part: str, value: Any, message: str) -> None:
    (folder / "showcase.json").write_text(json.dumps({**SHOWCASE, part: value}))
    with pytest.raises(BadInput, match=message):
        report([folder], tmp_path / "r.html")


@pytest.mark.parametrize("part", sorted(SHOWCASE))
def test_every_part_of_a_showcase_may_be_absent(folder: Path, tmp_path: Path, part: str) -> None:
    (folder / "showcase.json").write_text(json.dumps({name: value for name, value in SHOWCASE.items() if name != part}))
    Page(report([folder], tmp_path / "r.html").read_text(encoding="utf-8"))
