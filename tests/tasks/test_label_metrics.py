from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.tasks.label_metrics import find_chunks, find_strict_chunks
from crossling.tasks.label_sets import UPOS
from crossling.tasks.metrics import METRICS

seqeval = pytest.importorskip("seqeval.metrics")
IOB2 = pytest.importorskip("seqeval.scheme").IOB2
sklearn = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")

NER = ["O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in ("PER", "ORG", "LOC"))]
BIOES = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC"))]
F1, STRICT, ACCURACY = METRICS["chunk-f1"], METRICS["strict-chunk-f1"], METRICS["token-accuracy"]


def pairs(tags: list[str]) -> st.SearchStrategy[list[list[tuple[str, str]]]]:
    """Return a strategy for sentences of (gold, predicted) tags, correct more often than by chance."""
    tag = st.sampled_from(tags)
    one = st.one_of(tag.map(lambda tag: (tag, tag)), st.tuples(tag, tag))
    return st.lists(st.lists(one, min_size=1, max_size=8), min_size=1, max_size=5)


def split(sentences: list[list[tuple[str, str]]]) -> tuple[list[list[str]], list[list[str]]]:
    return [[g for g, _ in sentence] for sentence in sentences], [[p for _, p in sentence] for sentence in sentences]


def seqeval_f1(gold: list[list[str]], predicted: list[list[str]]) -> float:
    return 100 * float(seqeval.f1_score(gold, predicted, zero_division=0))


@pytest.mark.parametrize("tags", [NER, BIOES], ids=["bio", "bioes"])
@given(data=st.data())
def test_ner_equals_seqeval(tags: list[str], data: st.DataObject) -> None:
    gold, predicted = split(data.draw(pairs(tags)))
    assert F1.score(gold, predicted) == pytest.approx(seqeval_f1(gold, predicted))
    assert ACCURACY.score(gold, predicted) == pytest.approx(100 * seqeval.accuracy_score(gold, predicted))


@given(sentences=pairs(NER))
def test_strict_ner_equals_seqeval(sentences: list[list[tuple[str, str]]]) -> None:
    gold, predicted = split(sentences)
    expected = seqeval.f1_score(gold, predicted, mode="strict", scheme=IOB2, zero_division=0)
    assert STRICT.score(gold, predicted) == pytest.approx(100 * float(expected))


def test_a_strict_chunk_starts_with_b() -> None:
    tags = ["I-PER", "B-PER", "I-PER", "I-LOC", "B-LOC", "B-LOC", "O", "I-LOC"]
    assert find_strict_chunks(tags) == {("PER", 1, 2), ("LOC", 4, 4), ("LOC", 5, 5)}
    assert find_chunks(["I-PER"]) == {("PER", 0, 0)}


@pytest.mark.filterwarnings("ignore:.*seems not to be NE tag")
@given(sentences=pairs([tag for tag in UPOS if tag not in ("SCONJ", "X")]))
def test_pos_equals_seqeval(sentences: list[list[tuple[str, str]]]) -> None:
    gold, predicted = split(sentences)
    assert F1.score(gold, predicted) == pytest.approx(seqeval_f1(gold, predicted))


@pytest.mark.filterwarnings("ignore:.*seems not to be NE tag")
@given(sentences=pairs(list(UPOS)))
def test_pos_equals_the_seqeval_release_of_xtreme(
    sentences: list[list[tuple[str, str]]],
) -> None:
    """In seqeval 0.0.12 the whole tag is the type. Today it is the text after the first hyphen."""
    gold, predicted = split(sentences)
    spelled = [[[f"{tag[0]}-{tag}" for tag in tags] for tags in side] for side in (gold, predicted)]
    assert F1.score(gold, predicted) == pytest.approx(seqeval_f1(*spelled))


def test_random_predictions_equal_seqeval() -> None:
    random = np.random.default_rng(0)
    gold = [random.choice(NER, size).tolist() for size in random.integers(1, 40, 500)]
    predicted = [[tag if random.random() < 0.8 else str(random.choice(NER)) for tag in tags] for tags in gold]
    assert F1.score(gold, predicted) == pytest.approx(seqeval_f1(gold, predicted))


def test_a_known_value() -> None:
    gold, predicted = [("N", "N", "V", "N")], [("N", "V", "V", "N")]
    assert F1.score(gold, predicted) == pytest.approx(100 / 3)
    assert ACCURACY.score(gold, predicted) == 75


def test_runs_are_one_chunk_except_for_tags_that_start_with_s() -> None:
    assert find_chunks(["NOUN", "NOUN", "VERB"]) == {("NOUN", 0, 1), ("VERB", 2, 2)}
    assert find_chunks(["SYM", "SYM"]) == {("SYM", 0, 0), ("SYM", 1, 1)}
    assert find_chunks(["I-PER", "I-PER", "I-LOC", "O", "B-LOC", "B-LOC"]) == {
        ("PER", 0, 1),
        ("LOC", 2, 2),
        ("LOC", 4, 4),
        ("LOC", 5, 5),
    }


def test_different_numbers_of_tags_are_refused() -> None:
    with pytest.raises(ValueError, match="1 tags for 2 words"):
        F1.score([("O", "O")], [("O",)])


@pytest.mark.parametrize("seed", range(20))
def test_binary_metrics_equal_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    size, frequency = int(random.integers(1, 200)), random.random()
    gold = [str(int(value)) for value in random.random(size) < frequency]
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
def test_accuracy_equals_scikit_learn(seed: int) -> None:
    gold, predicted = np.random.default_rng(seed).choice(["contradiction", "entailment", "neutral"], (2, 57)).tolist()
    assert METRICS["accuracy"].score(gold, predicted) == pytest.approx(100 * sklearn.accuracy_score(gold, predicted))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_correlations_equal_scipy(seed: int, shift: float) -> None:
    random = np.random.default_rng(seed)
    gold = (random.integers(0, 26, 300) / 5 + shift).tolist()  # with ties
    predicted = (np.array(gold) + random.normal(size=300)).round(1).tolist()
    assert METRICS["pearson"].score(gold, predicted) == pytest.approx(100 * stats.pearsonr(gold, predicted)[0])
    assert METRICS["spearman"].score(gold, predicted) == pytest.approx(100 * stats.spearmanr(gold, predicted)[0])


def exact_correlation(x: list[float], y: list[float]) -> float:
    """Return the Pearson correlation without any rounding before the last step."""
    mean_x, mean_y = (sum(map(Fraction, side)) / len(side) for side in (x, y))
    pairs = [(Fraction(a) - mean_x, Fraction(b) - mean_y) for a, b in zip(x, y, strict=True)]
    covariance, xx, yy = sum(a * b for a, b in pairs), sum(a * a for a, _ in pairs), sum(b * b for _, b in pairs)
    return float(covariance**2 / (xx * yy)) ** 0.5 * (1 if covariance > 0 else -1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of scipy, for nearly constant and constant values
@pytest.mark.parametrize(("center", "step"), [(0, 1e-13), (0, 1e-200), (0, 1e-310), (1, 1e-15), (1e6, 1e-9)])
def test_nearly_constant_values_correlate_as_in_scipy(center: float, step: float) -> None:
    random = np.random.default_rng(0)
    steps = random.integers(0, 5, 50)
    gold, predicted = (center + steps * step).tolist(), (steps + random.normal(size=50)).tolist()
    expected = exact_correlation(gold, predicted)
    assert 0.7 < expected < 0.95
    assert METRICS["pearson"].score(gold, predicted) == pytest.approx(100 * expected)
    if not center:  # else scipy rounds the mean
        assert METRICS["pearson"].score(gold, predicted) == pytest.approx(100 * stats.pearsonr(gold, predicted)[0])
    assert METRICS["spearman"].score(gold, predicted) == pytest.approx(100 * stats.spearmanr(gold, predicted)[0])
    for name, correlate in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        assert np.isnan(METRICS[name].score(gold, [2.0] * 50))
        assert np.isnan(correlate(gold, [2.0] * 50)[0])


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(BadInput, match="not a finite number"):
        METRICS["pearson"].score([1.0, 2.0], [1.0, float("nan")])
