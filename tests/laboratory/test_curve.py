"""Two curves against each other: at equal steps, at equal operations, and how much sooner one is where another ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.data.shards import Shards
from crossling.laboratory import curve
from crossling.recipe import Recipe
from crossling.recipe.network import build
from crossling.vocabulary.vocabulary import Vocabulary

from .made import line

rising = st.lists(st.floats(0, 100), min_size=3, max_size=8).map(sorted)


def test_values_between_two_looks_lie_on_the_line() -> None:
    points = line([0, 10, 30], flops_of_step=4, of=lambda value: {"de": value, "fr": 2 * value})
    assert curve.at(points, "step", 1.5) == {"de": 20, "fr": 40}
    assert curve.at(points, "flops", 2) == {"de": 5, "fr": 10}


def test_both_go_as_far_as_the_shorter_one() -> None:
    short, long = line([0, 1, 2], flops_of_step=5), line([0, 1, 2, 3])
    assert curve.common_end(short, long, "step") == 2
    assert curve.common_end(short, long, "flops") == 3


def test_speed_up_is_of_operations() -> None:
    better, worse = line([0, 10, 20, 40], flops_of_step=2), line([0, 5, 15], flops_of_step=6)
    # 15 lies halfway between the looks at 2 and 4 operations; the worse one spent 12 on it
    assert curve.speed_up(better, worse) == pytest.approx(12 / 3)
    assert curve.speed_up(worse, better) == pytest.approx(3 / 12)  # the same, seen from the other side


def test_what_was_there_before_it_began_has_no_speed_up() -> None:
    assert curve.speed_up(line([7, 9]), line([7, 7])) is None
    assert curve.speed_up(line([7, 7]), line([7, 9])) is None
    # Below where they began, whichever of the two is ahead.
    assert curve.speed_up(line([7, 3, 5]), line([7, 2, 4])) is None
    assert curve.speed_up(line([7, 3, 9]), line([7, 2, 4])) is None
    assert [curve.learned(line(values)) for values in ([7, 3, 9], [7, 9, 7], [7, 3, 5])] == [True, False, False]


@given(rising, st.floats(1.0, 50.0))
def test_a_curve_that_costs_less_is_faster_by_just_that(values: list[float], times: float) -> None:
    found = curve.speed_up(line(values), line(values, flops_of_step=times))
    if values[0] < values[-1]:
        first = next(step for step, value in enumerate(values) if value == values[-1])
        assert found == pytest.approx(times * (len(values) - 1) / first)
    else:
        assert found is None


@given(st.lists(rising.map(lambda values: values[:3]), min_size=1, max_size=4))
def test_the_mean_of_seeds_is_taken_look_by_look(seeds: list[list[float]]) -> None:
    found = curve.mean([line(values) for values in seeds])
    assert [point.step for point in found] == [0, 1, 2]
    for place, point in enumerate(found):
        expected = sum(values[place] for values in seeds) / len(seeds)
        assert point.value == pytest.approx(expected)
        assert point.languages["fr"] == pytest.approx(expected)


def test_a_line_that_is_being_written_is_passed_over(tmp_path: Path) -> None:
    rows = [{"step": 0, "probe/retrieval": 1.0, "probe/retrieval/de": 1.0}, {"step": 1, "loss": 3.0}]
    rows += [{"step": 2, "tokens": 9, "seconds": 2.0, "flops": 8.0, "probe/retrieval": 5.0, "probe/retrieval/de": 5.0}]
    file = tmp_path / "metrics.jsonl"
    file.write_text("\n".join([*map(json.dumps, rows), '{"step": 4, "pro']), encoding="utf-8")
    assert [(point.step, point.flops, point.value) for point in curve.read(file)] == [(0, 0, 1.0), (2, 8.0, 5.0)]
    assert curve.read(tmp_path / "none") == []


def test_a_look_is_at_the_best_layer(shards: Shards, babel_folder: Path, full_recipe: Recipe) -> None:
    """As good as the mean over languages of the best layer that evaluation finds, of the same sentences."""
    from crossling.evaluate.evaluate import evaluate
    from crossling.evaluate.scores import summary
    from crossling.load import encoder_of

    net = build(full_recipe, shards.vocabulary_size)
    vocabulary = Vocabulary.load(shards.vocabulary_path)
    data = babel_folder / "data"
    found = curve.probe(data, vocabulary, None, 12)(net)
    [measured] = summary(evaluate(encoder_of(net, vocabulary, "net"), ["tatoeba"], data))
    assert found["retrieval"] == pytest.approx(measured.best)
    assert set(found) == {"retrieval", "retrieval/qaa-qab", "retrieval/qaa-qac", "retrieval/qab-qac"}
    fewer = curve.probe(data, vocabulary, ["qaa-qac"], 5)(net)
    assert set(fewer) == {"retrieval", "retrieval/qaa-qac"}
