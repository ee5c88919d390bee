from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from crossling.core.errors import BadInput
from crossling.report.leaderboard import build_leaderboards
from crossling.report.report import report
from crossling.report.runs import collect_runs, count_parameters, short_names
from crossling.tasks import scores
from crossling.tasks.scores import Score

from ..html_pages import HtmlPage, is_self_contained
from . import score_folders

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
    "rtd": {
        "auc": 0.8,
        "sentences": [{"tokens": ["a", EVIL], "replaced": [False, True], "probability": [0, 0.9]}],
    },
}


def row(model: str, layer: int, value: float, **changes: Any) -> dict[str, Any]:
    fields = {"task": "tatoeba", "protocol": "sweep", "metric": "accuracy", "language": "qaa-qab", "examples": 400}
    return Score(**{"model": model, "layer": layer, "value": value, "direction": "qaa-qab", **fields, **changes}).row()


def write_run(folder: Path, terms: dict[str, float], steps: int = 30) -> None:
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text(
        json.dumps({"format": 2, "recipe": {"name": "xlm_e", "seed": 7}, "shards": "x"})
    )
    rows = [
        {"step": step, **terms, "lr": 0.1, "tokens": step * 100, "seconds": step * 2.0, "tokens_per_second": 50.0}
        for step in range(10, steps + 1, 10)
    ]
    rows[-1]["probe/retrieval"] = 3.0
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs, their scores and a showcase, as the demo writes them."""
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
    scores.add_scores(demo / "scores.jsonl", rows)
    (demo / "showcase.json").write_text(json.dumps(SHOWCASE))
    return demo


def test_page_is_valid_and_self_contained(folder: Path, tmp_path: Path) -> None:
    out = report([folder], tmp_path / "pages" / "report.html")
    assert out == tmp_path / "pages" / "report.html"
    text = out.read_text(encoding="utf-8")
    page = HtmlPage(text)
    assert is_self_contained(text)
    assert page.tags.count("script") == 1  # that of the page, which sorts tables
    assert page.text.count(EVIL) >= 5
    headings = ["Runs", "Training", "Layer by layer", "Language by language", "Task by task"]
    examples = ["Word alignment", "Nearest translations", "Replaced token detection"]
    assert page.headings == [*headings, *examples]
    assert "demo/runs/one" not in page.text
    assert page.text.count("✓") == 3  # the nearest three of four


def test_page_shows_scores_and_costs(folder: Path, tmp_path: Path) -> None:
    text = " ".join(HtmlPage(report([folder], tmp_path / "r.html").read_text(encoding="utf-8")).text.split())
    assert "one 15.0 % retrieval, layer 1; chance 0.25 70.0 % AER, layer 1" in text
    assert "two 46.9 % retrieval, layer 2; chance 0.25 27.5 % AER, layer 2" in text
    assert "one xlm_e 30 3k 1 min 0 s 50 7 2 15.0 70.0" in text
    assert "XLCo: contrastive loss" in text
    assert "TRTD" not in text
    assert "Retrieval during training" in text
    assert "training time 2 min 0 s for 2 runs" in text
    assert "crossling demo -o <dir>" in text


def test_page_of_scores_without_runs(tmp_path: Path) -> None:
    rows = [row("org/encoder", layer, 50.0, language=code, direction=way, examples=10) for layer in (0, 1)
            for code in ("sw", "th") for way in ("en-xx", "xx-en")]  # fmt: skip
    scores.add_scores(tmp_path / "scores.jsonl", rows)
    page = HtmlPage(report([tmp_path], tmp_path / "report.html").read_text(encoding="utf-8"))
    text = " ".join(page.text.split())
    assert "encoder 50.0 % retrieval, layer 0; chance 10" in text
    assert "Tatoeba en→xx accuracy, protocol sweep, training-free, test set, en-xx, each at its best layer (0)" in text
    assert "th sw encoder 50.0 50.0" in text
    assert page.headings == ["Leaderboard", "Runs", "Layer by layer", "Task by task", "Footnotes"]


def test_discriminator_that_has_not_learned(folder: Path, tmp_path: Path) -> None:
    weak = {**SHOWCASE, "rtd": {**SHOWCASE["rtd"], "auc": 0.55}}
    (folder / "showcase.json").write_text(json.dumps(weak))
    text = HtmlPage(report([folder], tmp_path / "r.html").read_text(encoding="utf-8")).text
    assert "does not detect replaced tokens yet: its AUC is 0.55" in text
    assert "warmer colours" not in text


def test_short_names(tmp_path: Path) -> None:
    assert short_names(["a/x", "a/y", "a/x"]) == {"a/x": "x", "a/y": "y"}
    assert short_names(["a/x", "b/x"]) == {"a/x": "a/x", "b/x": "b/x"}
    for name in ("first", "second"):
        write_run(tmp_path / name / "one", {"loss": 1.0})
        scores.add_scores(tmp_path / name / "scores.jsonl", [row("elsewhere/one", 0, 1.0)])
    runs, showcases = collect_runs([tmp_path / "first", tmp_path / "second", tmp_path / "first"])
    assert [(run.name, len(run.metrics), len(run.rows)) for run in runs] == [("first/one", 3, 1), ("second/one", 3, 1)]
    assert showcases == []


def test_unfinished_run(tmp_path: Path) -> None:
    write_run(tmp_path / "one", {"loss": 1.0, "mlm": float("nan"), "tlm": None})
    with (tmp_path / "one/metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "lo')
    scores.add_scores(tmp_path / "one/scores.jsonl", [row("one", 0, 1.0)])
    [run], _ = collect_runs([tmp_path / "one"])
    assert (run.name, len(run.metrics), len(run.rows), run.recipe["seed"]) == ("one", 3, 1, 7)
    assert not {"mlm", "tlm"} & {*run.metrics[0]}


def test_invalid_folders(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        report([tmp_path / "nowhere"], tmp_path / "r.html")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"no scores\.jsonl and no run"):
        report([tmp_path / "empty"], tmp_path / "r.html")
    (folder / "runs/one/metrics.jsonl").write_text('{"loss": 1}\n')
    with pytest.raises(BadInput, match=r"metrics\.jsonl: line 1"):
        report([folder], tmp_path / "r.html")
    (folder / "runs/one/recipe.json").write_text('{"recipe": {}}')
    with pytest.raises(BadInput, match=r"recipe\.json: format version 1, expected 2\. Train again"):
        report([folder], tmp_path / "r.html")
    (folder / "runs/one/recipe.json").write_text("[]")
    with pytest.raises(BadInput, match="with a 'recipe'"):
        report([folder], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_a_single_folder_may_be_given(folder: Path, tmp_path: Path) -> None:
    one, listed = (report(given, tmp_path / f"{number}.md") for number, given in enumerate((str(folder), [folder])))
    assert one.read_text() == listed.read_text()


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
        ("rtd", {"auc": True, "sentences": []}, "rtd.auc: expected a number"),
        (
            "rtd",
            {"auc": 1, "sentences": [{"tokens": ["a"], "replaced": [], "probability": [0.1]}]},
            "one 'replaced'",
        ),
    ],
)
def test_invalid_showcase(folder: Path, tmp_path: Path, part: str, value: Any, message: str) -> None:
    (folder / "showcase.json").write_text(json.dumps({**SHOWCASE, part: value}))
    with pytest.raises(BadInput, match=message):
        report([folder], tmp_path / "r.html")


@pytest.mark.parametrize("part", sorted(SHOWCASE))
def test_every_part_of_a_showcase_is_optional(folder: Path, tmp_path: Path, part: str) -> None:
    (folder / "showcase.json").write_text(json.dumps({name: value for name, value in SHOWCASE.items() if name != part}))
    HtmlPage(report([folder], tmp_path / "r.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def scored_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, the second initialized from the first, fine-tuned for two tasks with three seeds."""
    return score_folders.make_folder(tmp_path_factory.mktemp("measured"), tasks=("xnli", "tydiqa"), examples=20)


def test_scores_of_fine_tuned_models_belong_to_their_base_model(scored_runs: Path) -> None:
    runs, _ = collect_runs([scored_runs])
    assert [run.name for run in runs] == ["base", "continued"]
    assert {row["task"] for row in runs[0].rows} == {"tatoeba", "word-alignment", "xnli", "tydiqa"}
    assert (runs[0].init, runs[1].init) == (None, str(scored_runs / "base"))
    apart, _ = collect_runs([scored_runs / "base", scored_runs / "base-xnli"])
    assert [run.name for run in apart] == ["base"]
    assert len(apart[0].folders) == 2


def test_page_with_all_sections(scored_runs: Path, tmp_path: Path) -> None:
    source = report([scored_runs], tmp_path / "report.html").read_text(encoding="utf-8")
    page = HtmlPage(source)
    assert page.headings == [
        *("Leaderboard", "Runs", "Training", "Layer by layer", "Task by task", "Significance"),
        *("Language families", "Languages by training data", "Before and after continued training"),
        *("Score against size and cost", "Footnotes"),
    ]
    text = " ".join(page.text.split())
    assert "Fine-tuned on mnli-subset, not on the training set of the task." in text
    assert "Measured on the dev set, which also selected the model: slightly optimistic." in text
    assert "InfoXLM on XNLI is 76.2 in its own Table 1 and 76.5 in XLM-E's Table 1." in text
    assert "XLM-E, Table 1" in text
    assert "3 seeds" in text
    assert "xlm_e 30 3M" in text
    assert "All 2 tests" in text
    assert "title=" not in source  # every value is on the page itself, not only under the pointer
    assert "Values with intervals, and conditions" in text
    assert re.search(r"sw \d+\.\d\d ± \d+\.\d\d, median \d+\.\d\d, 3 seeds; 95% interval \d", text)
    assert "Languages of every group, and conditions" in text


def test_contents_link_to_every_section(scored_runs: Path, tmp_path: Path) -> None:
    page = HtmlPage(report([scored_runs], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(page.anchors) == len({*page.anchors})
    targets = {link.removeprefix("#") for link in page.links}
    assert targets <= {*page.anchors}
    assert {"leaderboard", "runs", "task-by-task", "xnli", "tatoeba-en-to-xx", "significance", "footnotes"} <= targets
    text = " ".join(page.text.split())
    assert text.index("Contents Leaderboard Fine-tuned on English") < text.index("How cross-lingual is it? base")


def test_more_runs_than_colours_are_grey(tmp_path: Path) -> None:
    values = [10.0, 80.0, 20.0, 70.0, 30.0, 60.0, 50.0, 40.0]
    scores.add_scores(tmp_path / "scores.jsonl", [row(f"m{k}", 0, value) for k, value in enumerate(values)])
    page = report([tmp_path], tmp_path / "r.html").read_text(encoding="utf-8")
    cards = re.findall(r'card run" style="--run: var\(--run-(\d)\)">\s*<h3>(m\d)', page)
    assert cards == [*zip("60612345", [f"m{k}" for k in range(8)], strict=True)]  # m0 and m2 are the worst
    assert "--run-6: #808080" in page


def test_leaderboards_have_only_columns_of_the_runs(scored_runs: Path) -> None:
    runs, _ = collect_runs([scored_runs])
    leaderboards = {each.title: each for each in build_leaderboards(runs)}
    tuned = leaderboards["Fine-tuned on English, tested on all languages"]
    assert tuned.columns == ["TyDiQA F1 / EM", "XNLI acc."]
    base, continued = tuned.runs
    rows = [row["value"] for row in runs[0].rows if row["task"] == "xnli"]
    assert base.cells[1].text == f"{fmean(rows):.1f}"
    assert base.cells[1].small.startswith("± ")
    assert "3 seeds" in base.cells[1].title
    assert "protocol xtreme" in base.cells[1].title
    assert continued.name == "continued"
    [own] = [each for each in tuned.published if (each.name, each.reference) == ("XLM-E Base", "XLM-E, Table 1")]
    assert [cell.text for cell in own.cells] == ["62.4 / 45.7", "76.6"]
    gaps = leaderboards["Transfer gap"]
    assert [cell.text for cell in next(each for each in gaps.published if each.name == "XY-LENT Base").cells] == [
        "8.6",
        "7.8",
    ]
    assert "Fine-tuned on translations into all languages" not in leaderboards
    retrieval = leaderboards["Retrieval, mining and alignment"]
    assert retrieval.columns[-1] == "AER"
    assert re.search(r"en-xx, layer \d+, 14 languages", retrieval.runs[0].cells[0].title)


def test_incomplete_list_of_languages_is_marked(tmp_path: Path) -> None:
    rows = [score_folders.row("m", "xnli", code, 50.0, setting="zero-shot") for code in ("en", "de", "sw")]
    scores.add_scores(tmp_path / "scores.jsonl", rows)
    text = " ".join(HtmlPage(report([tmp_path], tmp_path / "r.html").read_text(encoding="utf-8")).text.split())
    assert "50.0 (3 of 15)" in text


def test_markdown_alone_and_with_the_page(scored_runs: Path, tmp_path: Path) -> None:
    report([scored_runs], tmp_path / "one.html")
    assert report([scored_runs], tmp_path / "two.md") == tmp_path / "two.md"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.html", "one.md", "two.md"]
    text = (tmp_path / "two.md").read_text(encoding="utf-8")
    assert text == (tmp_path / "one.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.M)
    assert len(tables) > 10
    for table in tables:  # a header, a separator, and rows of the same width
        head, rule, *rows = table.splitlines()
        assert set(rule) <= set("|-:")
        assert rows
        assert {row.count("|") for row in (head, rule, *rows)} == {head.count("|")}
    assert "| XLM-E Base | XLM-E, Table 1, as published | 62.4 / 45.7 | 76.6 |" in text
    with pytest.raises(BadInput, match=r"ends in \.html or \.md"):
        report([scored_runs], tmp_path / "report.pdf")


def test_count_parameters(tmp_path: Path) -> None:
    tensors = {"encoder.a": np.zeros((3, 4)), "encoder.a/exp_avg": np.zeros((3, 4)), "parts.head": np.zeros(7)}
    (tmp_path / "checkpoints/0000010").mkdir(parents=True)
    save_file(tensors, tmp_path / "checkpoints/0000010/00000.safetensors")
    assert count_parameters(tmp_path) == 12
    save_file({"embeddings": np.zeros((5, 2))}, tmp_path / "model.safetensors")
    assert count_parameters(tmp_path) == 12
    (tmp_path / "exported").mkdir()
    save_file({"embeddings": np.zeros((5, 2))}, tmp_path / "exported/model.safetensors")
    assert count_parameters(tmp_path / "exported") == 10
    assert count_parameters(tmp_path / "nowhere") is None


def test_real_and_synthetic_languages_are_two_runs(tmp_path: Path) -> None:
    """A mean over both would not be meaningful."""
    row = {"model": "m", "task": "tatoeba", "protocol": "sweep", "metric": "accuracy", "layer": 1, "examples": 10}
    real = [{**row, "language": code, "direction": "en-xx", "value": 20.0} for code in ("de", "sw")]
    synthetic = [{**row, "language": "qaa-qab", "direction": "qaa-qab", "value": 80.0}]
    scores.add_scores(tmp_path / "m" / "scores.jsonl", [*real, *synthetic])
    runs, _ = collect_runs([tmp_path / "m"])
    assert [(run.name, {each["language"] for each in run.rows}) for run in runs] == [
        ("m", {"de", "sw"}),
        ("m, synthetic languages", {"qaa-qab"}),
    ]
    assert [run.folders for run in runs] == [[tmp_path / "m"], []]  # predictions are compared once
    page = report([tmp_path / "m"], tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| 20.0 |" in page
    assert "| 80.0 |" in page
    assert "40.0" not in page
    scores.add_scores(tmp_path / "only" / "scores.jsonl", synthetic)
    assert [run.name for run in collect_runs([tmp_path / "only"])[0]] == ["m"]
