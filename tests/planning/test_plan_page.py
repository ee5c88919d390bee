"""Page and tables of a plan, and the `plan` command."""

from __future__ import annotations

import base64
import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossling import cli
from crossling.core.errors import BadInput
from crossling.data.shards import Shards
from crossling.planning import plan
from crossling.planning.plan_page import DOWNSTREAM, color_scale, directed_probabilities, plan_tables

from ..html_pages import HtmlPage, is_self_contained
from .fake_shards import STAR, WORKED, hundred_languages, recipe, shards_of

# ---- the page -----------------------------------------------------------------------------------------------


def page_of(shards: Any, out: Path, *assignments: str) -> HtmlPage:
    plan(recipe(*assignments), shards, out, device="h200")
    text = out.read_text(encoding="utf-8")
    assert is_self_contained(text)
    return HtmlPage(text)


def test_page_has_all_sections(tmp_path: Path) -> None:
    page = page_of(shards_of({**WORKED, ("en", "yo"): 5, ("de", "yo"): 3}), tmp_path / "page.html")
    benchmarks = ["Density, languages of the benchmarks", "Density, all languages"]
    assert page.headings == [
        "Memory and time as published",
        "Rules for pairs",
        *benchmarks,
        "Text",
        "Languages in pairs",
        "Pairs",
        "Recipe",
    ]
    assert {link.removeprefix("#") for link in page.links} <= {*page.anchors}
    text = " ".join(page.text.split())
    assert "3 of the 21 languages of XNLI" in text  # ta and yo are not among them
    assert "5 languages (XY-LENT, Figure 6)" in text
    assert '"pair_alpha": 0.2' in text
    assert text.index("de-en 800") < text.index("en-ta 60") < text.index("sw-ta 2")
    assert page.tags.count("figure") == 6


def test_page_explains_an_infeasible_rule(tmp_path: Path) -> None:
    page = page_of(shards_of(STAR), tmp_path / "page.html")
    text = " ".join(page.text.split())
    assert "xy_lent is infeasible. Sampling at temperature 5: de, sw, ta should be" in text
    assert "xy_lent relaxed 0.0 %" in text


def test_page_without_pairs_and_without_text(tmp_path: Path) -> None:
    assert page_of(shards_of({}), tmp_path / "a.html", "trtd=off").headings[1:] == ["Text", "Recipe"]
    assert "Text" not in page_of(shards_of(WORKED), tmp_path / "b.html", "mrtd=off").headings


def test_names_are_escaped(tmp_path: Path) -> None:
    shards = shards_of(WORKED)
    shards.path = Path("<script>x")
    page = page_of(shards, tmp_path / "page.html")
    assert "<script>x" in page.text


def test_page_of_a_hundred_languages_is_small_and_readable(tmp_path: Path) -> None:
    counts, text = hundred_languages()
    out = tmp_path / "page.html"
    planned = plan(recipe(), shards_of(counts, text), out)
    source = out.read_text(encoding="utf-8")
    assert len(source.encode()) < 200_000
    assert min(map(float, re.findall(r'font-size="([\d.]+)"', source))) >= 10
    header, values = (re.search(rf'data-{name}="([^"]*)"', source) for name in ("header", "values"))
    assert header
    assert values
    rows = unpack_pairs(json.loads(html.unescape(header[1])), base64.b64decode(values[1]))
    assert len(rows) == 4950
    for rule, preview in planned.feasible_rules.items():
        for pair, p in preview.probabilities.items():
            found = rows["-".join(pair)]
            assert found["count"] == counts[pair]
            assert found[rule] == pytest.approx((p, preview.epochs[pair]), rel=1e-4, abs=1e-30)


def unpack_pairs(header: dict[str, Any], values: bytes) -> dict[str, dict[str, Any]]:
    """Read the packed pairs as the script of the page does."""
    languages, n = header["languages"], header["pairs"]
    first, second = np.frombuffer(values, "u1", 2 * n).reshape(2, n)
    count = np.frombuffer(values, ">u4", n, 2 * n)
    rows = {f"{languages[a]}-{languages[b]}": {"count": c} for a, b, c in zip(first, second, count, strict=True)}
    for k, (rule, samples) in enumerate(zip(header["rules"], header["samples"], strict=True)):
        parts = np.frombuffer(values, "u1", 3 * n, 6 * n + 3 * n * k).reshape(n, 3)
        p = np.concatenate([parts, np.zeros((n, 1), np.uint8)], axis=1).view(">f4")[:, 0]
        for row, each in zip(rows.values(), p, strict=True):
            row[rule] = each, samples * each / row["count"]
    return rows


def test_page_needs_an_html_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"page\.pdf: the plan is an HTML page\. Give a name that ends in \.html"):
        plan(recipe(), shards_of(WORKED), tmp_path / "page.pdf")
    assert not [*tmp_path.iterdir()]


def test_downstream_languages_are_those_of_the_paper() -> None:
    tables = {
        "XNLI": "en fr es de el bg ru tr ar vi th zh hi sw ur",
        "PAWS-X": "en de es fr ja ko zh",
        "XQuAD": "en ar de el es hi ru th tr vi zh",
        "MLQA": "en ar de es hi vi zh",
        "TyDiQA": "en ar bn fi id ko ru sw te",
    }
    assert {*DOWNSTREAM} == {language for languages in tables.values() for language in languages.split()}
    assert len(DOWNSTREAM) == 21


def test_density_maps_have_both_directions() -> None:
    probabilities = {("a", "b"): 0.8, ("a", "c"): 0.2, ("b", "c"): 0.0, ("c", "d"): 1e-9}
    assert color_scale([probabilities]) == (pytest.approx(2e-9), 0.4)
    values = directed_probabilities(["a", "b", "c"], probabilities)  # c-d is not among the languages
    assert values == [[None, 0.4, 0.1], [0.4, None, 0.0], [0.1, 0.0, None]]


# ---- command line -------------------------------------------------------------------------------------------


def crossling(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0), *capsys.readouterr()


def test_plan_prints_json(shards: Shards, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--size", "tiny", "--set", "sampling.pair_rule=xy_lent", "--json"]
    status, out, _ = crossling(monkeypatch, capsys, "plan", "xlm_e", "--shards", shards.path, *options)
    assert status == 0
    found = json.loads(out)
    assert {"parameters", "flops_per_token", "rates", "epochs", "recipe", "rules"} <= {*found}
    assert {*found["flops_per_token"]} == {"full", "paper"}
    assert {*found["rates"]["text"]} == {"qaa", "qab", "qac"}
    assert {*found["rates"]["pairs"]} == {*found["epochs"]["pairs"]} == {"qaa-qab", "qaa-qac", "qab-qac"}
    assert found["recipe"]["sampling"]["pair_rule"] == "xy_lent"


def test_plan_prints_tables_and_writes_a_page(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    options = ["--size", "tiny", "-o", page]
    status, out, _ = crossling(monkeypatch, capsys, "plan", "xlm_e", "--shards", shards.path, *options)
    assert status == 0
    assert out.endswith(f"Open {page}\n")
    assert all(word in out for word in ("parameters", "FLOPs (full)", "qaa-qab", "xy_lent", "never sampled"))
    assert "Density, all languages" in HtmlPage(page.read_text(encoding="utf-8")).headings


def test_only_the_largest_rows_are_printed() -> None:
    text = {f"l{i:02}": 1000 * (i + 1) for i in range(40)}
    found = [*plan_tables(plan(recipe("trtd=off"), shards_of({}, text), device="h200"))]
    assert [table.row_count for table in found][1:] == [12, 3]
    assert found[1].caption == "and 28 smaller ones (--json, or -o page.html)"
