from __future__ import annotations

import pytest

from crossling.evaluate.charts import HEIGHT, MOST_POINTS, WIDTH, Series, alignment_grid, compact, line_chart, ticks


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (1.2, 6.9, [0, 2, 4, 6, 8]),
        (0, 0.07, [0, 0.02, 0.04, 0.06, 0.08]),
        (3, 3, [3, 4]),
        (0, 0, [0, 0.2]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_are_round_and_enclose(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high, 5) == expected


def test_ticks_of_layers_are_whole() -> None:
    assert ticks(0, 3, 6, whole=True) == [0, 1, 2, 3]
    assert ticks(0, 1, 6, whole=True) == [0, 1]


def test_compact() -> None:
    assert [compact(number) for number in (0.25, 12, 2000, 1.5e6, 3e9)] == ["0.25", "12", "2k", "1.5M", "3G"]


@pytest.mark.parametrize("points", [[(0, 5.0)], [(0, 0.0), (4, 0.0)], [(step, 1 / (step + 1)) for step in range(1000)]])
def test_everything_lies_inside(points: list[tuple[float, float]]) -> None:
    chart = line_chart("t", "step", [Series("a", 0, points), Series("b", 1, [])], percent=True, rule=(7.0, "chance"))
    [line] = chart.lines
    assert 1 <= len(line.dots) <= MOST_POINTS
    assert all(0 <= dot.x <= WIDTH and 0 <= dot.y <= HEIGHT for dot in line.dots)
    assert all(0 <= tick.at <= WIDTH for tick in chart.x_ticks)
    assert all(0 <= tick.at <= HEIGHT for tick in chart.y_ticks)
    assert chart.rule is not None
    assert 0 <= chart.rule.at <= HEIGHT


def test_thinning_keeps_the_mean_and_the_end() -> None:
    chart = line_chart("t", "step", [Series("a", 0, [(step, float(step % 2)) for step in range(2 * MOST_POINTS)])])
    [line] = chart.lines
    assert len(line.dots) == MOST_POINTS
    assert line.dots[-1].title == f"a, step {2 * MOST_POINTS - 1}: 0.5"


def test_alignment_grid() -> None:
    grid = alignment_grid(
        {
            "source": ["a", "bb"],
            "target": ["c", "dddddddd", "漢字"],
            "similarity": [[0.0, 0.5, 1.0], [0.2, 0.2, 0.2]],
            "predicted": [[0, 2], [1, 0]],
            "sure": [[0, 2]],
            "possible": [[0, 2], [1, 1]],
        }
    )
    assert [cell.shade for cell in grid.cells] == [0, 0.5, 1, 0.2, 0.2, 0.2]
    assert [cell.gold for cell in grid.cells] == ["", "", "sure", "", "possible", ""]
    assert [cell.predicted for cell in grid.cells] == [False, False, True, True, False, False]
    assert grid.cells[2].title == "a – 漢字: similarity 1.00, gold: sure, found"
    assert all(cell.x < grid.width and cell.y < grid.height for cell in grid.cells)
