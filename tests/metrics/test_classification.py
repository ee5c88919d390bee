from __future__ import annotations

import numpy as np
import pytest

from crossling.errors import BadInput
from crossling.metrics import METRICS

sklearn = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("seed", range(20))
def test_labels_against_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    size, rate = int(random.integers(1, 200)), random.random()
    gold = [str(int(value)) for value in random.random(size) < rate]
    predicted = [str(int(value)) for value in random.random(size) < random.random()]
    expected = {
        "accuracy": sklearn.accuracy_score(gold, predicted),
        "glue-accuracy": sklearn.accuracy_score(gold, predicted),
        "glue-f1": sklearn.f1_score(gold, predicted, pos_label="1", zero_division=0),
        "matthews": sklearn.matthews_corrcoef(gold, predicted),
    }
    assert {name: METRICS[name].score(gold, predicted) for name in expected} == pytest.approx(
        {name: 100 * value for name, value in expected.items()}
    )


@pytest.mark.parametrize("seed", range(20))
def test_accuracy_of_many_labels_against_scikit_learn(seed: int) -> None:
    gold, predicted = np.random.default_rng(seed).choice(["contradiction", "entailment", "neutral"], (2, 57)).tolist()
    assert METRICS["accuracy"].score(gold, predicted) == pytest.approx(100 * sklearn.accuracy_score(gold, predicted))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_correlations_against_scipy(seed: int, shift: float) -> None:
    random = np.random.default_rng(seed)
    gold = (random.integers(0, 26, 300) / 5 + shift).tolist()  # with ties, as scores have
    predicted = (np.array(gold) + random.normal(size=300)).round(1).tolist()
    assert METRICS["pearson"].score(gold, predicted) == pytest.approx(100 * stats.pearsonr(gold, predicted)[0])
    assert METRICS["spearman"].score(gold, predicted) == pytest.approx(100 * stats.spearmanr(gold, predicted)[0])


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(BadInput, match="no finite number"):
        METRICS["pearson"].score([1.0, 2.0], [1.0, float("nan")])
