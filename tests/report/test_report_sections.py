from __future__ import annotations

from pathlib import Path
from typing import Any

from crossling.report.analysis import LANGUAGES
from crossling.report.curves import scatter_charts, training_charts
from crossling.report.leaderboard import build_leaderboards
from crossling.report.published import published_rows, published_table
from crossling.report.report_sections import MetricCard, task_sections
from crossling.report.runs import ReportRun
from crossling.tasks.metrics import METRICS
from crossling.tasks.registry import DATASETS

from .score_folders import row

ON_DEV = {"cola", "sst2", "mrpc", "qqp", "stsb", "qnli", "rte", "mnli", "mnli-mismatched", "squad2", "tydiqa"}
NOT_SHOWN = {"XLM-E, Table 2", "XLM-E, §4.7 (Figure 3)", "XY-LENT, Table 2", "XY-LENT, Table 6"}
DOCS = Path(__file__).parents[2] / "docs/tutorials/read-a-report.md"


def cards(rows: list[dict[str, Any]]) -> list[MetricCard]:
    return [card for section in task_sections([ReportRun(name="m", rows=rows)]) for card in section.cards]


def published_scores(card: MetricCard) -> dict[tuple[str, str], dict[str, float]]:
    """Scores of published models by (name, reference)."""
    return {
        (each.name, each.reference): {code: cell.value for code, cell in each.cells.items()}
        for each in card.rows
        if each.reference and each.cells
    }


def only(task: str, language: str = "en", **more: Any) -> MetricCard:
    [card] = cards([row("m", task, language, 50.0, **more)])
    return card


def test_english_tasks_are_shown_with_xy_lents_table_3() -> None:
    facts = {"setting": "zero-shot", "split": "dev"}
    model = ("XY-LENT Base", "XY-LENT, Table 3")
    [row] = [each for each in published_table("XY-LENT", "3") if each.name == model[0]]
    assert published_scores(only("rte", protocol="glue", **facts))[model] == {"en": row.values["rte/accuracy/en"]}
    assert model in published_scores(only("mnli-mismatched", protocol="glue", **facts))
    assert model in published_scores(only("cola", protocol="glue", metric="matthews", **facts))
    assert model in published_scores(only("squad2", protocol="squad-2.0", metric="exact_match", **facts))
    assert not published_scores(only("rte", protocol="glue", setting="zero-shot", split="test"))
    assert not published_scores(only("rte", protocol="glue", setting="translate-train", split="dev"))
    assert ("XY-LENT Base", "XY-LENT, Table 7") in published_scores(only("chemprot", setting="zero-shot"))


def test_tagging_mining_and_alignment_are_shown_with_their_tables() -> None:
    tags = published_scores(only("udpos", setting="zero-shot", protocol="tokens"))
    assert list(tags) == [("VECO Large", "VECO, Table 12")]
    mined = {"metric": "f1", "layer": 8}
    assert ("VECO Large", "VECO, Table 11") in published_scores(only("bucc2018", "de", pooling="mean", **mined))
    assert not published_scores(only("bucc2018", "de", pooling="cls", **mined))
    assert not published_scores(only("bucc2018", "de", pooling="mean", protocol="margin", **mined))
    links = {"metric": "aer", "layer": 8}
    reversed_pair = published_scores(only("word-alignment", "ro-en", protocol="xlm-align-ot", **links))
    assert reversed_pair == expected_scores("XLM-E, Table 6", "word-alignment/aer/en-ro", "ro-en")
    assert not published_scores(only("word-alignment", "ro-en", protocol="mutual-argmax", **links))


def expected_scores(reference: str, column: str, code: str) -> dict[tuple[str, str], dict[str, float]]:
    rows = [
        each for each in published_rows() if each.reference == reference and each.name in ("XLM-R Base", "XLM-E Base")
    ]
    return {(each.name, reference): {code: each.values[column]} for each in rows}


def test_xnli_has_each_model_once() -> None:
    for setting in ("zero-shot", "translate-train"):
        names = [name for name, _ in published_scores(only("xnli", setting=setting))]
        assert len(names) == len(set(names)) > 4
    assert {"VECO (plug-out) Large", "VECO (plug-in) Large"} <= set(names)


def test_every_table_is_shown_or_documented_as_not_shown() -> None:
    rows = []
    for setting in ("zero-shot", "translate-train"):
        for name, data_set in DATASETS.items():
            facts = {"setting": setting, "split": "dev" if name in ON_DEV else "test"}
            for metric in (METRICS[each] for each in data_set.metrics):
                for code in LANGUAGES.get(name, ["en", "ay"]):
                    rows.append(row("m", name, code, 50.0, metric=metric.name, protocol=metric.protocol, **facts))
    at = {"layer": 8, "pooling": "mean"}
    for code in LANGUAGES["tatoeba-36"]:
        rows += [row("m", "tatoeba", code, 50.0, protocol="sweep", direction=way, **at) for way in ("en-xx", "xx-en")]
    rows += [row("m", "bucc2018", code, 50.0, metric="f1", **at) for code in LANGUAGES["bucc2018"]]
    rows += [row("m", "word-alignment", "de-en", 50.0, metric="aer", protocol="xlm-align-ot", layer=8)]
    of_mteb = {"metric": "f1", "layer": 9, "pooling": "declared"}
    rows += [row("m", "tatoeba", "sw", 50.0, protocol="mteb", direction="xx-en", **of_mteb)]
    rows += [row("m", "bucc2018", "de", 50.0, protocol=protocol, **of_mteb) for protocol in ("mteb", "mteb-v2")]
    run = ReportRun(name="m", rows=rows, parameters=10**8, cost={"flops": {"paper": 1e20}})
    references = {reference for card in cards(rows) for _, reference in published_scores(card)}
    references |= {each.reference for leaderboard in build_leaderboards([run]) for each in leaderboard.published}
    references |= {dot.reference for plot in scatter_charts([run]) for dot in plot.dots}
    assert {each.reference for each in published_rows()} - references == NOT_SHOWN
    text = " ".join(DOCS.read_text(encoding="utf-8").split())
    assert all(reference in text for reference in NOT_SHOWN)


def test_sizes_come_from_three_tables_without_repeats() -> None:
    rows = [row("m", "xnli", code, 50.0, setting="zero-shot") for code in LANGUAGES["xnli"]]
    [plot] = scatter_charts([ReportRun(name="m", rows=rows, parameters=10**8)])
    assert [(dot.y, dot.reference) for dot in plot.dots if dot.name == "XLM-E Large"] == [(81.3, "XLM-E, Table 3")]
    assert {dot.x for dot in plot.dots if dot.name == "XLM-E Base"} == {279e6, 477e6}


def test_a_loss_without_a_title_is_shown_under_its_name() -> None:
    row = {"step": 1, "loss": 3.0, "mlm": 2.0, "mlm_accuracy": 0.1, "new": 1.0, "new_accuracy": 0.2, "lr": 0.1}
    row |= {"ca_mlm_y": 1.0, "ca_mlm_y_accuracy": 0.2}
    charts = training_charts([ReportRun(name="a", metrics=[row])])
    assert [chart.title for chart in charts] == ["Total loss", "MLM: masked tokens", "new"]


def test_interval_over_languages_is_not_called_95_percent() -> None:
    facts = {"setting": "zero-shot", "low": 48.0, "high": 52.0}
    [several] = cards([row("m", "xnli", code, 50.0, **facts) for code in ("en", "de", "fr", "sw")])
    assert several.bars[0].text == "50.0; interval of the mean for independent languages: 49.0 to 51.0; 4 of 15"
    [one] = cards([row("m", "xcopa", "et", 50.0, **facts)])
    assert one.bars[0].text == "50.0; 95% interval: 48.0 to 52.0; 1 language"
