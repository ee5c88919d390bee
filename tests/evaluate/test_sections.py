from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from crossling.benchmarks.sets import SETS
from crossling.evaluate.analysis import LANGUAGES, task_scores
from crossling.evaluate.board import Entry, boards
from crossling.evaluate.points import against
from crossling.evaluate.published import of_table, printed
from crossling.evaluate.runs import Run
from crossling.evaluate.sections import Card, tasks
from crossling.metrics import METRICS

from .made import row

ON_DEV = {"cola", "sst2", "mrpc", "qqp", "stsb", "qnli", "rte", "mnli", "mnli-mismatched", "squad2", "tydiqa"}
ONLY_KEPT = {"XLM-E, Table 2", "XLM-E, §4.7 (Figure 3)", "XY-LENT, Table 2", "XY-LENT, Table 6"}
DOCS = Path(__file__).parents[2] / "docs/report.md"


def cards(rows: list[dict[str, Any]]) -> list[Card]:
    return [card for section in tasks([Entry("m", 0, task_scores(rows))]) for card in (section.first, *section.more)]


def beside(card: Card) -> dict[tuple[str, str], dict[str, float]]:
    """What papers printed, by name and place."""
    return {
        (line.name, line.place): {code: tile.value for code, tile in line.tiles.items()}
        for line in card.heats[0].lines
        if line.place and line.tiles
    }


def only(task: str, language: str = "en", **more: Any) -> Card:
    [card] = cards([row("m", task, language, 50.0, **more)])
    return card


def test_english_tasks_stand_beside_xy_lents_table_3() -> None:
    facts = {"setting": "zero-shot", "split": "dev"}
    place = ("XY-LENT Base", "XY-LENT, Table 3")
    [row] = [each for each in of_table("XY-LENT", "3") if each.name == place[0]]
    assert beside(only("rte", protocol="glue", **facts))[place] == {"en": row.values["rte/accuracy/en"]}
    assert place in beside(only("mnli-mismatched", protocol="glue", **facts))
    assert place in beside(only("cola", protocol="glue", metric="matthews", **facts))
    assert place in beside(only("squad2", protocol="squad-2.0", metric="exact_match", **facts))
    assert not beside(only("rte", protocol="glue", setting="zero-shot", split="test"))
    assert not beside(only("rte", protocol="glue", setting="translate-train", split="dev"))
    assert ("XY-LENT Base", "XY-LENT, Table 7") in beside(only("chemprot", setting="zero-shot"))


def test_tags_mining_and_links_stand_beside_their_tables() -> None:
    tags = beside(only("udpos", setting="zero-shot", protocol="tokens"))
    assert list(tags) == [("VECO Large", "VECO, Table 12")]
    mined = {"metric": "f1", "layer": 8}
    assert ("VECO Large", "VECO, Table 11") in beside(only("bucc2018", "de", pooling="mean", **mined))
    assert not beside(only("bucc2018", "de", pooling="cls", **mined))
    assert not beside(only("bucc2018", "de", pooling="mean", protocol="margin", **mined))
    links = {"metric": "aer", "layer": 8}
    turned = beside(only("word-alignment", "ro-en", protocol="xlm-align-ot", **links))
    assert turned == beside_of("XLM-E, Table 6", "word-alignment/aer/en-ro", "ro-en")
    assert not beside(only("word-alignment", "ro-en", protocol="mutual-argmax", **links))


def beside_of(place: str, column: str, code: str) -> dict[tuple[str, str], dict[str, float]]:
    rows = [each for each in printed() if each.place == place and each.name in ("XLM-R Base", "XLM-E Base")]
    return {(each.name, place): {code: each.values[column]} for each in rows}


def test_xnli_has_each_model_once() -> None:
    for setting in ("zero-shot", "translate-train"):
        names = [name for name, _ in beside(only("xnli", setting=setting))]
        assert len(names) == len(set(names)) > 4
    assert {"VECO (plug-out) Large", "VECO (plug-in) Large"} <= set(names)


def test_every_table_is_shown_somewhere_or_listed_as_kept_only() -> None:
    rows = []
    for setting in ("zero-shot", "translate-train"):
        for name, data_set in SETS.items():
            facts = {"setting": setting, "split": "dev" if name in ON_DEV else "test"}
            for metric in (METRICS[each] for each in data_set.metrics):
                for code in LANGUAGES.get(name, ["en", "ay"]):
                    rows.append(row("m", name, code, 50.0, metric=metric.name, protocol=metric.protocol, **facts))
    at = {"layer": 8, "pooling": "mean"}
    for code in LANGUAGES["tatoeba-36"]:
        rows += [row("m", "tatoeba", code, 50.0, protocol="sweep", direction=way, **at) for way in ("en-xx", "xx-en")]
    rows += [row("m", "bucc2018", code, 50.0, metric="f1", **at) for code in LANGUAGES["bucc2018"]]
    rows += [row("m", "word-alignment", "de-en", 50.0, metric="aer", protocol="xlm-align-ot", layer=8)]
    entry = Entry("m", 0, task_scores(rows))
    seen = {place for card in cards(rows) for _, place in beside(card)}
    seen |= {line.place for board in boards([entry]) for line in board.printed}
    run = Run("m", parameters=10**8, cost={"flops": {"paper": 1e20}})
    titles = [each.spot.title for drawn in against([(run, entry)]) for each in drawn.spots]
    seen |= {match[1] for title in titles if (match := re.search(r"\(([^()]*), as published\)$", title))}
    assert {each.place for each in printed()} - seen == ONLY_KEPT
    text = " ".join(DOCS.read_text(encoding="utf-8").split())
    assert all(place in text for place in ONLY_KEPT)


def test_sizes_are_those_of_three_tables_each_model_once() -> None:
    rows = [row("m", "xnli", code, 50.0, setting="zero-shot") for code in LANGUAGES["xnli"]]
    [drawn] = against([(Run("m", parameters=10**8), Entry("m", 0, task_scores(rows)))])
    titles = [each.spot.title for each in drawn.spots if each.spot.name == "XLM-E Large"]
    assert titles == ["XLM-E Large: 81.3 (XLM-E, Table 3, as published)"]
    assert {each.spot.x for each in drawn.spots if each.spot.name == "XLM-E Base"} == {279e6, 477e6}


def test_an_interval_over_languages_is_not_called_95_percent() -> None:
    facts = {"setting": "zero-shot", "low": 48.0, "high": 52.0}
    [several] = cards([row("m", "xnli", code, 50.0, **facts) for code in ("en", "de", "fr", "sw")])
    assert several.bars[0].text == "50.0; interval of the mean if languages were independent: 49.0 to 51.0; 4 of 15"
    [one] = cards([row("m", "xcopa", "et", 50.0, **facts)])
    assert one.bars[0].text == "50.0; 95% interval: 48.0 to 52.0; 1 language"
