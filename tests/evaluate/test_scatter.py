from __future__ import annotations

import pytest

from crossling.evaluate.charts import HEIGHT, LEFT, WIDTH
from crossling.evaluate.scatter import Spot, scatter


@pytest.mark.parametrize("xs", [[3e8], [2e8, 3e8, 2e10], [1e12, 9.5e19, 9.6e21]])
def test_everything_lies_inside(xs: list[float]) -> None:
    found = scatter("t", "x", [Spot(f"model {x}", x, 60.0 + k, k or None) for k, x in enumerate(xs)])
    assert [each.spot.x for each in found.spots] == xs
    assert all(LEFT <= each.x <= WIDTH and 0 <= each.y <= HEIGHT for each in found.spots)
    assert all(LEFT <= tick.at <= WIDTH for tick in found.x_ticks)
    assert found.x_ticks or len(xs) == 1
    assert sorted(each.x for each in found.spots) == [each.x for each in found.spots]


def test_the_scale_is_one_of_factors() -> None:
    first, second, third = scatter("t", "x", [Spot("a", 1e6, 1), Spot("b", 1e7, 2), Spot("c", 1e8, 3)]).spots
    assert second.x - first.x == pytest.approx(third.x - second.x, abs=0.2)


def test_names_do_not_lie_on_each_other() -> None:
    ends = [Spot("low", 1e3, 10), Spot("far", 1e9, 90)]
    pair = [Spot("printed", 1e6, 50), Spot("run", 1.05e6, 50, 0)]
    printed, run, *_ = scatter("t", "x", [*pair, *ends]).spots
    assert run.anchor == "start"
    assert printed.anchor is not None
    assert (printed.name_x, printed.name_y) != (run.name_x, run.name_y)
    crowd = scatter("t", "x", [*(Spot(f"one of many {k}", 1e6 * (1 + k / 1e4), 50) for k in range(8)), *ends])
    places = [(each.name_x, each.name_y) for each in crowd.spots if each.anchor]
    assert 2 < len(places) == len(set(places)) < 10
