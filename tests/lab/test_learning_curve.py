"""Learning curves: equal steps, equal FLOPs, and the speed-up of one run over another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.data.shards import Shards
from crossling.evaluate.probes import make_retrieval_probe
from crossling.lab import learning_curve as curve
from crossling.recipes.network import build_network
from crossling.recipes.recipe import Recipe
from crossling.vocabulary.vocabulary import Vocabulary

from .tiny_plan import curve_of

rising = st.lists(st.floats(0, 100), min_size=3, max_size=8).map(sorted)


def test_values_between_two_points_are_interpolated() -> None:
    points = curve_of([0, 10, 30], flops_of_step=4, of=lambda value: {"de": value, "fr": 2 * value})
    assert curve.interpolate(points, "step", 1.5) == {"de": 20, "fr": 40}
    assert curve.interpolate(points, "flops", 2) == {"de": 5, "fr": 10}


def test_common_end_is_that_of_the_shorter_curve() -> None:
    short, long = curve_of([0, 1, 2], flops_of_step=5), curve_of([0, 1, 2, 3])
    assert curve.common_end(short, long, "step") == 2
    assert curve.common_end(short, long, "flops") == 3


def test_speed_up_is_in_flops() -> None:
    better, worse = curve_of([0, 10, 20, 40], flops_of_step=2), curve_of([0, 5, 15], flops_of_step=6)
    # 15 lies halfway between the points at 2 and 4 FLOPs; the worse run needed 12
    assert curve.speed_up(better, worse) == pytest.approx(12 / 3)
    assert curve.speed_up(worse, better) == pytest.approx(3 / 12)  # the inverse


def test_run_that_learned_nothing_has_no_speed_up() -> None:
    assert curve.speed_up(curve_of([7, 9]), curve_of([7, 7])) is None
    assert curve.speed_up(curve_of([7, 7]), curve_of([7, 9])) is None
    # Both end below their start, whichever of them is better.
    assert curve.speed_up(curve_of([7, 3, 5]), curve_of([7, 2, 4])) is None
    assert curve.speed_up(curve_of([7, 3, 9]), curve_of([7, 2, 4])) is None
    assert [curve.has_learned(curve_of(values)) for values in ([7, 3, 9], [7, 9, 7], [7, 3, 5])] == [True, False, False]


@given(rising, st.floats(1.0, 50.0))
def test_equal_curves_differ_by_their_cost(values: list[float], times: float) -> None:
    found = curve.speed_up(curve_of(values), curve_of(values, flops_of_step=times))
    if values[0] < values[-1]:
        first = next(step for step, value in enumerate(values) if value == values[-1])
        assert found == pytest.approx(times * (len(values) - 1) / first)
    else:
        assert found is None


@given(st.lists(rising.map(lambda values: values[:3]), min_size=1, max_size=4))
def test_mean_of_seeds_is_taken_point_by_point(seeds: list[list[float]]) -> None:
    found = curve.mean_curve([curve_of(values) for values in seeds])
    assert [point.step for point in found] == [0, 1, 2]
    for place, point in enumerate(found):
        expected = sum(values[place] for values in seeds) / len(seeds)
        assert point.value == pytest.approx(expected)
        assert point.languages["fr"] == pytest.approx(expected)


def test_incomplete_last_line_is_skipped(tmp_path: Path) -> None:
    rows = [{"step": 0, "probe/retrieval": 1.0, "probe/retrieval/de": 1.0}, {"step": 1, "loss": 3.0}]
    rows += [{"step": 2, "tokens": 9, "seconds": 2.0, "flops": 8.0, "probe/retrieval": 5.0, "probe/retrieval/de": 5.0}]
    file = tmp_path / "metrics.jsonl"
    file.write_text("\n".join([*map(json.dumps, rows), '{"step": 4, "pro']), encoding="utf-8")
    assert [(point.step, point.flops, point.value) for point in curve.read_curve(file)] == [(0, 0, 1.0), (2, 8.0, 5.0)]
    assert curve.read_curve(tmp_path / "none") == []


def test_probe_uses_the_best_layer(shards: Shards, synth_folder: Path, full_recipe: Recipe) -> None:
    """The probe equals the mean over languages at the best layer that `evaluate` reports."""
    from crossling.evaluate.evaluate import evaluate
    from crossling.inference.load import make_encoder
    from crossling.tasks.scores import summarize_layers

    net = build_network(full_recipe, shards.vocabulary_size)
    vocabulary = Vocabulary.load(shards.vocabulary_path)
    data = synth_folder / "data"
    found = make_retrieval_probe(data, vocabulary, 12, best_layer=True)(net)
    rows = evaluate(make_encoder(net, vocabulary, "net"), ["tatoeba"], data)
    [measured] = summarize_layers([row for row in rows if row["metric"] == "accuracy"])
    assert found["retrieval"] == pytest.approx(measured.best)
    assert set(found) == {"retrieval", "retrieval/qaa-qab", "retrieval/qaa-qac", "retrieval/qab-qac"}
    fewer = make_retrieval_probe(data, vocabulary, 5, ["qaa-qac"], best_layer=True)(net)
    assert set(fewer) == {"retrieval", "retrieval/qaa-qac"}
