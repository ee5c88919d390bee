"""Charts are complete, deterministic and self-contained SVG."""

from __future__ import annotations

import base64
import io
import re
from itertools import combinations, pairwise

import numpy as np
import pytest
from PIL import Image

from crossling.core.progress import format_count
from crossling.report.charts import (
    GREY,
    HEIGHT,
    MAX_POINTS,
    PALETTE,
    WIDTH,
    Dot,
    LinePlot,
    ScatterPlot,
    Series,
    alignment_grid,
    average_groups,
    density_map,
    line_chart,
    spread_labels,
)

from ..html_pages import chart_lines, chart_texts, is_self_contained

ALIGNMENT = {
    "source": ["a", "b<b"],
    "target": ["c", "dddddddd", "漢字"],
    "similarity": [[0.0, 0.5, 1.0], [0.2, 0.21, 0.2]],
    "predicted": [[0, 2], [1, 0]],
    "sure": [[0, 2]],
    "possible": [[0, 2], [1, 1]],
}


def line_plot(*points: list[tuple[float, float]], from_zero: bool = True) -> LinePlot:
    series = [Series(f"run {k}", k, each) for k, each in enumerate(points)]
    return LinePlot("Title", "step", "loss", series, from_zero=from_zero, level=(7.0, "chance"))


def scatter_plot(*dots: Dot) -> ScatterPlot:
    return ScatterPlot("Title", "parameters", "accuracy", dots)


def circles(svg: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"', svg)]


def test_counts_are_short() -> None:
    assert [format_count(number) for number in (0.25, 12, 2000, 1.5e6, 3e9)] == ["0.25", "12", "2k", "1.5M", "3G"]


@pytest.mark.parametrize("points", [[(0, 5.0)], [(0, 0.0), (4, 0.0)], [(step, 1 / (step + 1)) for step in range(1000)]])
def test_lines_lie_inside_the_chart(points: list[tuple[float, float]]) -> None:
    svg = line_plot(points, []).svg
    [line] = chart_lines(svg)
    assert 1 <= len(line) <= MAX_POINTS
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in line)
    assert {"step", "loss", "chance"} <= set(chart_texts(svg))


def test_higher_values_are_higher_and_series_have_different_colours() -> None:
    svg = line_plot([(0, 1.0), (10, 3.0)], [(0, 3.0), (10, 1.0)]).svg
    rising, falling = chart_lines(svg)
    assert rising[0][1] > rising[-1][1]
    assert falling[0][1] < falling[-1][1]
    assert PALETTE[0] in svg
    assert PALETTE[1] in svg
    assert len({*PALETTE}) == len(PALETTE) == 6


def many_series(number: int) -> LinePlot:
    return LinePlot("t", "step", "y", [Series(f"run {k}", k, [(0, k), (1, k)]) for k in range(number)])


def test_at_most_six_series_are_coloured_and_named() -> None:
    svg = many_series(15).svg
    assert len(chart_lines(svg)) == len(PALETTE)
    assert svg.count("stroke-opacity: 0.6") == 9
    assert [text for text in chart_texts(svg) if text.startswith("run")] == [f"run {k}" for k in range(6)]


def test_grey_series_can_be_listed_below() -> None:
    svg = line_chart([[many_series(8)]], label="x", legend=True)
    assert "Grey: run 6, run 7" in chart_texts(svg)
    assert not any("Grey" in text for text in chart_texts(line_chart([[many_series(6)]], label="x", legend=True)))


def test_one_series_needs_no_name() -> None:
    assert "run 0" not in chart_texts(many_series(1).svg)


def test_names_at_line_ends_do_not_overlap_and_keep_their_order() -> None:
    assert spread_labels([0.5, 0.2], [0.1, 0.1]) == [0.5, 0.2]
    places = spread_labels([0.99, 0.98, 0.97, 0.1], [0.1] * 4)
    assert places == pytest.approx([0.95, 0.85, 0.75, 0.1])
    low = spread_labels([0.0, 0.0, 0.01], [0.1] * 3)
    assert sorted(low) == low
    assert [b - a for a, b in pairwise(low)] == pytest.approx([0.1, 0.1])


# Machado, Oliveira and Fernandes (2009): linear RGB as seen with each kind of colour blindness, severity 1.
COLOUR_BLIND = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab_colour(linear: np.ndarray) -> np.ndarray:
    """Return CIELAB of linear RGB, in which distances are differences that people see."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear.clip(0, 1)
    x, y, z = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("kind", ["none", *COLOUR_BLIND])
def test_colour_blind_readers_can_separate_the_colours(kind: str) -> None:
    matrix = np.array(COLOUR_BLIND.get(kind, np.eye(3)))
    codes = np.array([[int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)] for colour in (*PALETTE, GREY)])
    linear = np.where(codes <= 0.04045, codes / 12.92, ((codes + 0.055) / 1.055) ** 2.4)
    seen = [lab_colour(matrix @ each) for each in linear]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen[:-1], 2)) > 15


def test_long_series_are_averaged_and_keep_their_end() -> None:
    points = [(step, float(step % 2)) for step in range(2 * MAX_POINTS)]
    averaged = average_groups(points)
    assert len(averaged) == MAX_POINTS
    assert averaged[-1] == (2 * MAX_POINTS - 1, 0.5)
    assert average_groups([]) == []


def test_values_of_a_line_chart_are_in_its_table() -> None:
    header, *rows = line_plot([(0, 0.5), (2000, 0.25)], [(2000, 4.0)]).table
    assert header == ["step", "run 0", "run 1"]
    assert rows == [["0", "0.5", "–"], ["2k", "0.25", "4"]]
    long = line_plot([(step, 1.0) for step in range(1000)]).table
    assert len(long) == 11
    assert long[-1][0] == "999"


def test_panels_have_titles() -> None:
    plots = [line_plot([(0, 1.0), (1, 2.0)]), line_plot([(0, 2.0), (1, 1.0)])]
    svg = line_chart([plots, plots[:1]], label="Some <panels>", legend=True, standalone=True)
    assert len(chart_lines(svg)) == 3
    texts = chart_texts(svg)
    assert texts.count("Title") == 3
    assert 'aria-label="Some &lt;panels&gt;"' in svg
    assert 'xmlns="http://www.w3.org/2000/svg"' in svg
    assert "prefers-color-scheme:dark" in svg  # a file has no page around it
    assert "prefers-color-scheme" not in plots[0].svg


@pytest.mark.parametrize("xs", [[3e8], [2e8, 3e8, 2e10], [1e12, 9.5e19, 9.6e21]])
def test_dots_lie_inside_the_chart_in_order(xs: list[float]) -> None:
    svg = scatter_plot(*(Dot(f"model {x}", x, 60.0 + k, colour=k or None) for k, x in enumerate(xs))).svg
    found = circles(svg)
    assert len(found) == len(xs)
    assert [x for x, _ in found] == sorted(x for x, _ in found)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in found)


def test_the_scale_of_a_scatter_plot_is_logarithmic() -> None:
    first, second, third = circles(scatter_plot(Dot("a", 1e6, 1), Dot("b", 1e7, 2), Dot("c", 1e8, 3)).svg)
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.2)


def test_names_of_dots_do_not_overlap_and_all_are_in_the_table() -> None:
    ends = [Dot("low", 1e3, 10), Dot("far", 1e9, 90)]
    pair = [Dot("published", 1e6, 50, reference="XLM-E, Table 1"), Dot("run", 1.05e6, 50, colour=0)]
    plot = scatter_plot(*pair, *ends)
    assert {"published", "run", "low", "far"} <= set(chart_texts(plot.svg))
    assert ["published", "1e+06", "50.0", "XLM-E, Table 1"] in plot.table
    crowd = scatter_plot(*(Dot(f"one of many {k}", 1e6 * (1 + k / 1e4), 50) for k in range(8)), *ends)
    named = [text for text in chart_texts(crowd.svg) if text.startswith("one of many")]
    assert 1 < len(named) < 8
    assert len(crowd.table) == 11


def test_an_alignment_grid_shows_words_similarities_and_links() -> None:
    svg = alignment_grid(ALIGNMENT)
    texts = chart_texts(svg)
    assert {"a", "b&lt;b", "c", "dddddddd", "漢字", "1.00", "0.50", "0.21"} <= set(texts)
    assert svg.count(f"stroke: {PALETTE[4]}") == 2  # gold links, one of them
    assert svg.count("stroke-dasharray") == 1  # only possible
    assert len(circles(svg)) == 2  # predicted links


def test_empty_alignment() -> None:
    empty: dict[str, list[str]] = {key: [] for key in ALIGNMENT}
    assert alignment_grid(empty).startswith("<svg")


def test_a_density_map_names_every_language() -> None:
    values = [[None, 1e-3, 0.0], [1e-3, None, 1e-5], [0.0, 1e-5, None]]
    svg = density_map("rule", ["de", "en", "sw"], values, low=1e-6, high=1e-2)
    texts = chart_texts(svg)
    assert [texts.count(code) for code in ("de", "en", "sw")] == [2, 2, 2]
    assert {"first language", "second language", "1e-06, probability", "1e-02"} <= {*texts}
    assert "data:image/png;base64" in svg
    assert min(map(float, re.findall(r'font-size="([\d.]+)"', svg))) >= 10


def test_cells_of_a_density_map_have_the_colour_of_their_value() -> None:
    svg = density_map("rule", ["a", "b"], [[None, 1e-2], [0.0, 1e-6]], low=1e-6, high=1e-2)
    data = re.findall(r"base64,([\w+/=]*)", svg)[0]
    pixels = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA")
    blank, most, never, least = (pixels.getpixel(place) for place in ((0, 0), (1, 0), (0, 1), (1, 1)))
    assert (blank[3], most[3], never[:3]) == (0, 255, (128, 128, 128))
    assert most[:3] == least[:3] == (0, 114, 178)
    assert least[3] < 30


@pytest.mark.parametrize(
    ("svg", "labels"),
    [
        (line_plot([(0, 1.0), (1, 2.0)]).svg, {"step", "loss"}),
        (scatter_plot(Dot("a", 1e6, 1)).svg, {"parameters", "accuracy"}),
        (alignment_grid(ALIGNMENT), {"source words", "target words"}),
    ],
    ids=["lines", "scatter", "alignment"],
)
def test_both_axes_have_a_label(svg: str, labels: set[str]) -> None:
    assert labels <= {*chart_texts(svg)}


@pytest.mark.parametrize(
    "draw",
    [
        lambda: line_plot([(0, 1.0), (1, 2.0)]).svg,
        lambda: scatter_plot(Dot("a", 1e6, 1), Dot("b", 1e7, 2, colour=0)).svg,
        lambda: alignment_grid(ALIGNMENT),
        lambda: density_map("rule", ["de", "en"], [[None, 0.1], [0.1, None]], 1e-3, 1),
    ],
    ids=["lines", "scatter", "alignment", "density"],
)
def test_charts_are_deterministic_transparent_and_self_contained(draw: object) -> None:
    assert callable(draw)
    svg = draw()
    assert svg == draw()
    assert is_self_contained(svg)
    assert "#ffffff" not in svg
    assert "<metadata>" not in svg
    ids = re.findall(r' id="([^"]*)"', svg)
    assert len(ids) == len(set(ids))
