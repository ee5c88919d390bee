"""Result files with their environment, tables in Markdown, the growth chart and the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from crossling import cli
from crossling.bench import bench_attention
from crossling.bench.bench_results import (
    BEGIN,
    END,
    BenchResults,
    figure,
    growth_chart,
    insert_tables,
    read_results,
    results_markdown,
)
from crossling.bench.workload import BenchRow
from crossling.core.errors import BadInput
from tests.html_pages import chart_lines

ROW = BenchRow(
    "xlm_e, batch 64", 412345.6789, 218000.0, "tokens/s", "GPU", "a peer", "step", "fused", 0.47, 0.1, 19.5, 32.0
)


def growth_row(what: str, value: int, tokens: float, peak: float | None) -> dict[str, Any]:
    return BenchRow(f"{what} {value:,}", tokens, 1.0, "tokens/s", "GPU", bench="growth", peak_gib=peak).dump()


def test_result_file_is_complete_after_every_row(tmp_path: Path) -> None:
    file = tmp_path / "new" / "results.json"
    results = BenchResults(file, "crossling bench step", "0.1.0")
    assert read_results(file)["rows"] == []
    results.add(ROW)
    stored = read_results(file)
    assert [*stored] == ["date", "device", "versions", "command", "rows"]
    assert stored["command"] == "crossling bench step"
    assert stored["versions"]["crossling"] == "0.1.0"
    assert {"python", "torch", "transformers"} <= {*stored["versions"]}
    assert stored["rows"] == [{**ROW.dump(), "ours": 412346.0, "ratio": 1.89149}]
    assert not file.with_suffix(".svg").exists()  # no growth rows


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 3}', '{"rows": [{}]}'])
def test_file_without_results_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"results.json: .*crossling bench -o"):
        read_results(file)


def test_tables_have_the_columns_of_their_rows() -> None:
    alone = BenchRow("embedding", 1234.0, None, "sentences/s", "GPU", "not here", "encode")
    facts = {"date": "2026-01-01", "device": "GPU", "versions": {"torch": "2"}, "command": "crossling bench"}
    text = results_markdown([{**facts, "rows": [ROW.dump(), alone.dump()]}])
    assert "2026-01-01, GPU; torch 2. `crossling bench`" in text
    assert "| step | ours | peer | ratio | MFU | host | peak GiB | peer's | path |" in text
    assert (
        "| xlm_e, batch 64 (tokens/s) | 412,346 | 218,000 (a peer) | 1.89 | 0.47 | 0.10 | 19.5 | 32 | fused |" in text
    )
    assert "| encode | ours | peer |\n| --- | --- | --- |\n| embedding (sentences/s) | 1,234 | (not here) |" in text


def test_tables_replace_those_between_the_marks_of_a_page() -> None:
    page = f"# Speed\n{BEGIN}\nold\n{END}\nafter\n"
    assert insert_tables(page, "new\n", Path("p")) == f"# Speed\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert insert_tables(insert_tables(page, "new\n", Path("p")), "new\n", Path("p")) == insert_tables(
        page, "new\n", Path("p")
    )
    with pytest.raises(BadInput, match="no marks for the figures"):
        insert_tables("# Speed\n", "new", Path("p"))


def test_page_has_marks_for_the_tables() -> None:
    page = Path(__file__).parents[2] / "docs" / "research" / "speed.md"
    assert "tables" in insert_tables(page.read_text(encoding="utf-8"), "tables\n", page)


@pytest.mark.parametrize(("value", "text"), [(412345.6, "412,346"), (0.8123, "0.812"), (99.94, "99.9"), (None, "")])
def test_figures_are_short(value: float | None, text: str) -> None:
    assert figure(value) == text


def test_growth_chart_has_a_line_per_measured_size() -> None:
    rows = [
        growth_row("length", 128, 500.0, 20.0),
        growth_row("length", 2048, 250.0, 21.0),
        growth_row("batch", 16, 300.0, 10.0),
    ]
    chart = growth_chart([ROW.dump(), *rows])
    assert chart is not None
    first, second = chart_lines(chart)  # tokens and memory by length; one batch size has no line
    assert first[0][1] < first[1][1]  # fewer tokens are lower on the page
    assert second[0][1] > second[1][1]
    assert growth_chart([growth_row("length", 128, 500.0, None)]) is None
    without = growth_chart([growth_row("length", 128, 500.0, None), growth_row("length", 256, 500.0, None)])
    assert without is not None
    assert len(chart_lines(without)) == 1  # the CPU reports no memory


def crossling(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_command_stores_and_prints_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "growth.json"
    assert crossling(monkeypatch, "bench", "growth", "head", "--json", "-o", file) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    stored = read_results(file)
    assert [row["name"] for row in printed] == [row["name"] for row in stored["rows"]]
    assert {row["bench"] for row in printed} == {"growth", "head"}
    assert all({"name", "ours", "peer", "ratio", "unit", "device"} <= {*row} for row in printed)
    assert stored["command"] == f"crossling bench growth head --json -o {file}"
    assert file.with_suffix(".svg").read_text(encoding="utf-8").startswith("<svg")


def test_command_prints_other_rows_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr(bench_attention, "sdpa_with_bias", broken)
    assert crossling(monkeypatch, "bench", "attention", "head") == 1
    printed = capsys.readouterr()
    assert "all logits" in " ".join(printed.out.split())
    assert "failed: RuntimeError: oh" in printed.err


def test_unwritable_result_file_is_refused_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert crossling(monkeypatch, "bench", "step", "-o", tmp_path / "file" / "results.json") == 2
    assert capsys.readouterr().out == ""
