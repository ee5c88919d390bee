"""Results are kept with what they were measured on, whole after every row, and become tables and a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from crossling import cli
from crossling.bench.chart import growth_chart
from crossling.bench.results import BEGIN, END, Results, figure, markdown, put, read
from crossling.bench.row import Row
from crossling.errors import BadInput

ROW = Row(
    "xlm_e, batch 64", 412345.6789, 218000.0, 1.89149, "tokens/s", "GPU", "a peer", "step", "fused", 0.47, 19.5, 32.0
)


def grown(what: str, value: int, tokens: float, peak: float | None) -> dict[str, Any]:
    return Row(f"{what} {value:,}", tokens, 1.0, tokens, "tokens/s", "GPU", bench="growth", peak_gib=peak).dump()


def test_results_are_whole_after_every_row(tmp_path: Path) -> None:
    file = tmp_path / "new" / "results.json"
    results = Results(file, "crossling bench step", "0.1.0")
    assert read(file)["rows"] == []
    results.add(ROW)
    kept = read(file)
    assert [*kept] == ["date", "device", "versions", "command", "rows"]
    assert kept["command"] == "crossling bench step"
    assert kept["versions"]["crossling"] == "0.1.0"
    assert {"python", "torch", "transformers"} <= {*kept["versions"]}
    assert kept["rows"] == [{**ROW.dump(), "ours": 412346.0}]
    assert not file.with_suffix(".svg").exists()  # nothing has grown


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 3}', '{"rows": [{}]}'])
def test_a_file_that_holds_no_results_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"results.json: .*crossling bench -o"):
        read(file)


def test_tables_have_what_rows_have() -> None:
    alone = Row("embedding", 1234.0, None, None, "sentences/s", "GPU", "not here", "encode")
    facts = {"date": "2026-01-01", "device": "GPU", "versions": {"torch": "2"}, "command": "crossling bench"}
    text = markdown([{**facts, "rows": [ROW.dump(), alone.dump()]}])
    assert "2026-01-01, GPU; torch 2. `crossling bench`" in text
    assert "| step | ours | peer | ratio | MFU | peak GiB | peer's | path |" in text
    assert "| xlm_e, batch 64 (tokens/s) | 412,346 | 218,000 (a peer) | 1.89 | 0.47 | 19.5 | 32 | fused |" in text
    assert "| encode | ours | peer |\n| --- | --- | --- |\n| embedding (sentences/s) | 1,234 | (not here) |" in text


def test_tables_go_between_the_marks_of_a_page_and_replace_the_old() -> None:
    page = f"# Speed\n{BEGIN}\nold\n{END}\nafter\n"
    assert put(page, "new\n", Path("p")) == f"# Speed\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert put(put(page, "new\n", Path("p")), "new\n", Path("p")) == put(page, "new\n", Path("p"))
    with pytest.raises(BadInput, match="no place for figures"):
        put("# Speed\n", "new", Path("p"))


def test_the_page_has_a_place_for_figures() -> None:
    page = Path(__file__).parents[2] / "docs" / "speed.md"
    assert "tables" in put(page.read_text(encoding="utf-8"), "tables\n", page)


@pytest.mark.parametrize(("value", "text"), [(412345.6, "412,346"), (0.8123, "0.812"), (99.94, "99.9"), (None, "")])
def test_figures_are_short(value: float | None, text: str) -> None:
    assert figure(value) == text


def test_growth_is_drawn_as_far_as_it_was_measured() -> None:
    rows = [grown("length", 128, 500.0, 20.0), grown("length", 2048, 250.0, 21.0), grown("batch", 16, 300.0, 10.0)]
    drawn = growth_chart([ROW.dump(), *rows])
    assert drawn is not None
    tree = ElementTree.fromstring(drawn)
    lines = tree.findall(".//{*}polyline")
    assert len(lines) == 2  # tokens and memory by length; one batch alone is no line
    first, second = ([tuple(map(float, p.split(","))) for p in line.attrib["points"].split()] for line in lines)
    assert first[0][1] < first[1][1]  # fewer tokens are lower on the page
    assert second[0][1] > second[1][1]
    assert growth_chart([grown("length", 128, 500.0, None)]) is None
    without = growth_chart([grown("length", 128, 500.0, None), grown("length", 256, 500.0, None)])
    assert without is not None
    assert without.count("<polyline") == 1  # a CPU tells no memory


def crossling(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_the_command_keeps_and_prints_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "growth.json"
    assert crossling(monkeypatch, "bench", "growth", "head", "--json", "-o", file) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kept = read(file)
    assert [row["name"] for row in printed] == [row["name"] for row in kept["rows"]]
    assert {row["bench"] for row in printed} == {"growth", "head"}
    assert all({"name", "ours", "peer", "ratio", "unit", "device"} <= {*row} for row in printed)
    assert kept["command"] == f"crossling bench growth head --json -o {file}"
    assert file.with_suffix(".svg").read_text(encoding="utf-8").startswith("<svg")


def test_the_command_prints_what_it_has_when_something_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr("crossling.bench.attention.materialised", broken)
    assert crossling(monkeypatch, "bench", "attention", "head") == 1
    printed = capsys.readouterr()
    assert "all logits" in " ".join(printed.out.split())
    assert "could not be measured: RuntimeError: oh" in printed.err


def test_nothing_is_measured_that_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert crossling(monkeypatch, "bench", "step", "-o", tmp_path / "file" / "results.json") == 2
    assert capsys.readouterr().out == ""
