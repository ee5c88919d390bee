from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.tasks.metrics import METRICS, correlation, f1, matthews, proportion

LABELS = ["0", "1", "1", "0", "1", "1", "0", "0"]
PREDICTED = ["0", "1", "0", "0", "1", "0", "1", "0"]
TAGS = [("B-PER", "O", "B-LOC"), ("O", "O"), ("B-ORG", "I-ORG"), ("O", "B-LOC")] * 2
PREDICTED_TAGS = [("B-PER", "O", "O"), ("O", "B-LOC"), ("B-ORG", "I-ORG"), ("O", "B-PER")] * 2
ANSWERS = [("the cat", "a dog"), ("Rome",), (), ("1.5 m",)] * 2
PREDICTED_ANSWERS = ["cat", "Rome fell", "", "2 m"] * 2
INPUTS = {
    "classification": (LABELS, PREDICTED),
    "regression": ([1.0, 2.0, 3.0, 4.0, 2.5, 0.0, 1.0, 5.0], [1.5, 1.0, 3.0, 5.0, 2.0, 0.5, 0.0, 4.0]),
    "tagging": (TAGS, PREDICTED_TAGS),
    "qa": (ANSWERS, PREDICTED_ANSWERS),
}
TASK_TYPES = {
    "chunk-f1": "tagging",
    "strict-chunk-f1": "tagging",
    "token-accuracy": "tagging",
    "pearson": "regression",
    "spearman": "regression",
} | {name: "qa" for name in METRICS if "squad" in name or "mlqa" in name or "characters" in name or "cmrc" in name}


@pytest.mark.parametrize("name", METRICS)
def test_statistics_add_up_and_values_accept_many_sums(name: str) -> None:
    metric = METRICS[name]
    gold, predicted = INPUTS[TASK_TYPES.get(name, "classification")]
    statistics_NS = metric.statistics(gold, predicted, "en")
    assert len(statistics_NS) == len(gold)
    counts_RN = np.random.default_rng(0).integers(0, 3, (5, len(gold)))
    values_R = metric.value(counts_RN @ statistics_NS)
    assert values_R.shape == (5,)
    one_by_one = [float(metric.value((counts_N[:, None] * statistics_NS).sum(axis=0))) for counts_N in counts_RN]
    assert values_R == pytest.approx(one_by_one)
    whole = metric.score(gold, predicted)
    assert whole == pytest.approx(float(metric.value(statistics_NS.sum(axis=0))))
    assert (
        metric.score(gold, gold if name not in TASK_TYPES or TASK_TYPES[name] != "qa" else PREDICTED_ANSWERS) >= whole
    )


@pytest.mark.parametrize("name", METRICS)
def test_an_empty_test_set_scores_0_or_is_undefined(name: str) -> None:
    expected = math.nan if name in ("pearson", "spearman") else 0.0
    assert METRICS[name].score([], []) == pytest.approx(expected, nan_ok=True)


def test_divisions_by_zero_give_0() -> None:
    assert proportion(np.zeros(2)) == f1(np.zeros(3)) == matthews(np.array([3, 0, 0, 0])) == 0


def test_the_correlation_with_a_constant_is_undefined() -> None:
    assert math.isnan(correlation(np.array([3, 3.0, 6.0, 3.0, 12.0, 6.0])))
    for name in ("pearson", "spearman"):
        assert math.isnan(METRICS[name].score([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]))


PAIRS = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)))


@given(gold=PAIRS, predicted=PAIRS)
def test_f1_of_sets_of_pairs(gold: set[tuple[int, int]], predicted: set[tuple[int, int]]) -> None:
    same = len(gold & predicted)
    precision, recall = (same / len(pairs) if pairs else 0 for pairs in (predicted, gold))
    expected = 200 * precision * recall / (precision + recall) if same else 0
    assert f1(np.array([same, len(predicted), len(gold)])) == pytest.approx(expected)
