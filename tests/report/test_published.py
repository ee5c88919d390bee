"""The papers' numbers agree with themselves and with each other, except where a footnote explains it."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

import pytest

from crossling.report.analysis import GLUE_8, LANGUAGES, QA_MEAN, XTREME_7, XTREME_9
from crossling.report.published import PublishedRow, paper_citations, published_rows, published_table

ROUNDING = 0.101  # a mean of rounded numbers, itself rounded
ROWS = list(published_rows())


def describe(row: PublishedRow) -> str:
    return f"{row.reference} {row.setting} {row.name} {row.selection or ''}"


def by_measure(row: PublishedRow) -> dict[tuple[str, ...], dict[str, float]]:
    found: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for column, value in row.values.items():
        task, metric, *rest = column.split("/")
        if rest:
            found[task, metric, *rest[1:]][rest[0]] = value
    return found


def wrong_means(row: PublishedRow) -> list[str]:
    found = []
    for measure, values in by_measure(row).items():
        languages = [value for language, value in values.items() if not language.startswith("mean")]
        whole = len(languages) == len(LANGUAGES.get(measure[0], languages))
        if "mean" in values and languages and whole and abs(fmean(languages) - values["mean"]) > ROUNDING:
            found.append("/".join(measure))
    return found


def test_printed_means_match_the_languages_unless_footnoted() -> None:
    wrong = {describe(row): wrong_means(row) for row in ROWS if wrong_means(row)}
    assert wrong == {
        "XY-LENT, Table 5 zero-shot XLM-R Base ": ["americasnli/accuracy"],
        "InfoXLM, Table 1 zero-shot XLM (w/o TLM) Base each-dev": ["xnli/accuracy"],
        "InfoXLM, Table 1 zero-shot XLM (w/o TLM) Base all-dev": ["xnli/accuracy"],
        "VECO, Table 14 zero-shot VECO Large all-dev": ["xquad/exact_match"],
    }
    assert all(row.notes for row in ROWS if describe(row) in wrong)


def averages(row: PublishedRow, tasks: list[str]) -> float | None:
    parts: dict[str, list[float]] = defaultdict(list)
    for column, value in row.values.items():
        task, _, *rest = column.split("/")
        if task in tasks and rest == ["mean"]:
            parts[task].append(value)
    return fmean(fmean(values) for values in parts.values()) if len(parts) == len(tasks) else None


def test_printed_averages_match_the_tasks_unless_footnoted() -> None:
    wrong = {}
    checked = 0
    for row in ROWS:
        for name, tasks in (("xtreme-7", [*XTREME_7]), ("xtreme-9", [*XTREME_7, "bucc2018", "tatoeba"])):
            printed_mean, computed = row.values.get(f"{name}/average/mean"), averages(row, tasks)
            if printed_mean is not None and computed is not None:
                checked += 1
                if abs(printed_mean - computed) > ROUNDING:
                    wrong[describe(row)] = round(computed, 1)
    assert checked == 6 + 9
    assert wrong == {
        "VECO, Table 2 zero-shot VECO Large all-dev": 73.3,
        "VECO, Table 2 translate-train FILTER Large all-dev": 76.7,
    }
    assert all(row.notes for row in ROWS if describe(row) in wrong)


def test_xlm_e_averages_69_3() -> None:
    [row] = [row for row in published_table("XLM-E", "1") if row.model == "XLM-E"]
    computed = averages(row, [*XTREME_7])
    assert computed is not None
    assert round(computed, 1) == row.values["xtreme-7/average/mean"] == 69.3
    assert [*XTREME_7.values()].count(QA_MEAN) == 3


def test_nine_tasks_are_those_of_veco() -> None:
    tasks = [task.partition("-")[0] for task in XTREME_9]
    [row] = [row for row in published_table("VECO", "2", setting="zero-shot") if row.model == "XLM-R"]
    computed = averages(row, tasks)
    assert computed is not None
    assert round(computed, 1) == row.values["xtreme-9/average/mean"]


def test_glue_averages_are_over_the_eight_tasks() -> None:
    columns = [f"{task}/{metric}/en" for task, metric in GLUE_8.items()]
    rows = [row for row in published_table("XY-LENT", "3") if {"glue/average/en", *columns} <= {*row.values}]
    wrong = [
        row
        for row in rows
        if abs(fmean(row.values[name] for name in columns) - row.values["glue/average/en"]) > ROUNDING
    ]
    assert len(rows) == 9
    assert {row.model for row in wrong} == {"METRO-LM"}  # quoted from its own paper


def test_averages_match_the_tables_by_language() -> None:
    """XY-LENT's Table 1 against its Tables 10 to 14, VECO's Table 2 against its Tables 9 to 17."""
    own = {
        "XY-LENT": ("1", ["10", "11", "12", "13", "14"]),
        "VECO": ("2", ["9", "10", "11", "13", "14", "15", "16", "17"]),
    }
    other, checked = set(), 0
    for paper, (table, detailed) in own.items():
        for row in published_table(paper, table):
            for detail in published_table(paper, *detailed, setting=row.setting):
                if (detail.model, detail.size) != (row.model, row.size):
                    continue
                for (task, metric, *_), values in by_measure(detail).items():
                    mean = values.get("mean", fmean(v for code, v in values.items() if code != "mean"))
                    printed = row.values.get(f"{task}/{metric}/mean")
                    if printed is not None:
                        checked += 1
                        if abs(mean - printed) > ROUNDING:
                            other.add((describe(row), task))
    assert checked > 60
    assert other == {
        ("XY-LENT, Table 1 translate-train XY-LENT Base ", "xnli"),
        ("XY-LENT, Table 1 translate-train XY-LENT Base ", "pawsx"),
        ("XY-LENT, Table 1 zero-shot XLM-R Large ", "mlqa"),
        ("XY-LENT, Table 1 zero-shot XLM-R Large ", "tydiqa"),
        ("VECO, Table 2 zero-shot XLM-R Large all-dev", "tatoeba"),
    }
    assert all(row.notes for row in ROWS if any(describe(row) == name for name, _ in other))


@pytest.mark.parametrize(
    ("model", "gaps"),
    [("XY-LENT", (15.3, 19.9, 8.6, 7.8, 6.8)), ("XLM-E", (15.1, 21.9, 13.0, 9.8, 9.2))],
)
def test_gaps_follow_from_the_tables_by_language(model: str, gaps: tuple[float, ...]) -> None:
    computed = []
    tables = {"xquad": "14", "mlqa": "12", "tydiqa": "13", "xnli": "11", "pawsx": "10"}
    for task, table in tables.items():
        metric = "accuracy" if task in ("xnli", "pawsx") else "exact_match"
        rows = published_table("XY-LENT", table, setting="zero-shot")
        [row] = [row for row in rows if (row.model, row.size) == (model, "Base")]
        values = row.languages(task, metric)
        computed.append(values.pop("en") - fmean(values.values()))
    assert computed == pytest.approx(gaps, abs=ROUNDING)


def test_every_row_has_its_reference_and_protocol() -> None:
    assert {row.paper for row in ROWS} == set(paper_citations()) == {"XLM-E", "XY-LENT", "InfoXLM", "VECO", "MTEB"}
    assert all(row.reference and row.description and row.setting and row.protocol for row in ROWS)
    assert all(row.source for row in ROWS if row.evaluation)  # the papers are the sources of the others
    assert {row.setting for row in ROWS} == {"zero-shot", "translate-train", "training-free", "english"}
    percent = [value for row in ROWS for column, value in row.values.items() if not column.startswith("cost/")]
    assert len(percent) > 3000
    assert all(0 <= value <= 100 for value in percent)


def test_results_of_mteb_name_the_file_of_every_model() -> None:
    rows = [row for row in ROWS if row.paper == "MTEB"]
    assert {row.evaluation for row in rows} == {"mteb", "mteb-v2"}
    for row in rows:
        assert row.source is not None
        assert row.source.startswith(("https://github.com/embeddings-benchmark/results/", "https://huggingface.co/"))
        assert row.name in row.source or (row.name, row.table) == ("LaBSE", "BUCC")
        assert row.source in row.description
    [labse] = [row for row in rows if (row.name, row.table) == ("LaBSE", "Tatoeba")]
    languages = labse.languages("tatoeba", "f1", "xx-en")
    assert set(languages) == set(LANGUAGES["tatoeba-36"])
    assert languages == labse.languages("tatoeba-36", "f1", "xx-en")
    assert languages["sw"] == 84.5


def test_language_lists_are_those_of_the_papers() -> None:
    for task, paper, table in (("xnli", "XY-LENT", "11"), ("pawsx", "XY-LENT", "10"), ("panx", "VECO", "13"),
                               ("mlqa", "XY-LENT", "12"), ("xquad", "XY-LENT", "14"), ("tydiqa", "XY-LENT", "13"),
                               ("bucc2018", "VECO", "11")):  # fmt: skip
        metric = {"panx": "f1", "xnli": "accuracy", "pawsx": "accuracy"}.get(task, "f1")
        row = published_table(paper, table)[0]
        assert set(row.languages(task, metric)) == set(LANGUAGES[task]), task
    tagged = published_table("VECO", "12")[0].languages("udpos", "accuracy")
    assert set(tagged) == set(LANGUAGES["udpos"])
