from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.benchmarks.sets import UPOS
from crossling.metrics import METRICS
from crossling.metrics.tagging import chunks

seqeval = pytest.importorskip("seqeval.metrics")

NER = ["O", *(f"{place}-{kind}" for place in "BI" for kind in ("PER", "ORG", "LOC"))]
BIOES = ["O", *(f"{place}-{kind}" for place in "BIES" for kind in ("PER", "LOC"))]
F1, ACCURACY = METRICS["chunk-f1"], METRICS["token-accuracy"]


def pairs(tags: list[str]) -> st.SearchStrategy[list[list[tuple[str, str]]]]:
    """Sentences of (gold, predicted); right more often than by chance."""
    tag = st.sampled_from(tags)
    one = st.one_of(tag.map(lambda tag: (tag, tag)), st.tuples(tag, tag))
    return st.lists(st.lists(one, min_size=1, max_size=8), min_size=1, max_size=5)


def split(sentences: list[list[tuple[str, str]]]) -> tuple[list[list[str]], list[list[str]]]:
    return [[g for g, _ in sentence] for sentence in sentences], [[p for _, p in sentence] for sentence in sentences]


def of_seqeval(gold: list[list[str]], predicted: list[list[str]]) -> float:
    return 100 * float(seqeval.f1_score(gold, predicted, zero_division=0))


@pytest.mark.parametrize("tags", [NER, BIOES], ids=["bio", "bioes"])
@given(data=st.data())
def test_names_against_seqeval(tags: list[str], data: st.DataObject) -> None:
    gold, predicted = split(data.draw(pairs(tags)))
    assert F1.score(gold, predicted) == pytest.approx(of_seqeval(gold, predicted))
    assert ACCURACY.score(gold, predicted) == pytest.approx(100 * seqeval.accuracy_score(gold, predicted))


@pytest.mark.filterwarnings("ignore:.*seems not to be NE tag")
@given(sentences=pairs([tag for tag in UPOS if tag not in ("SCONJ", "X")]))
def test_parts_of_speech_against_seqeval(sentences: list[list[tuple[str, str]]]) -> None:
    gold, predicted = split(sentences)
    assert F1.score(gold, predicted) == pytest.approx(of_seqeval(gold, predicted))


@pytest.mark.filterwarnings("ignore:.*seems not to be NE tag")
@given(sentences=pairs(list(UPOS)))
def test_all_parts_of_speech_as_the_release_of_xtremes_time_scored_them(
    sentences: list[list[tuple[str, str]]],
) -> None:
    """seqeval 0.0.12 took all of a tag for its kind; today's takes what follows its first hyphen."""
    gold, predicted = split(sentences)
    spelled = [[[f"{tag[0]}-{tag}" for tag in tags] for tags in side] for side in (gold, predicted)]
    assert F1.score(gold, predicted) == pytest.approx(of_seqeval(*spelled))


def test_random_predictions_on_many_sentences_against_seqeval() -> None:
    random = np.random.default_rng(0)
    gold = [random.choice(NER, size).tolist() for size in random.integers(1, 40, 500)]
    predicted = [[tag if random.random() < 0.8 else str(random.choice(NER)) for tag in tags] for tags in gold]
    assert F1.score(gold, predicted) == pytest.approx(of_seqeval(gold, predicted))


def test_the_check_value() -> None:
    gold, predicted = [("N", "N", "V", "N")], [("N", "V", "V", "N")]
    assert F1.score(gold, predicted) == pytest.approx(100 / 3)
    assert ACCURACY.score(gold, predicted) == 75


def test_runs_are_one_chunk_but_for_tags_that_begin_with_s() -> None:
    assert chunks(["NOUN", "NOUN", "VERB"]) == {("NOUN", 0, 1), ("VERB", 2, 2)}
    assert chunks(["SYM", "SYM"]) == {("SYM", 0, 0), ("SYM", 1, 1)}
    assert chunks(["I-PER", "I-PER", "I-LOC", "O", "B-LOC", "B-LOC"]) == {
        ("PER", 0, 1),
        ("LOC", 2, 2),
        ("LOC", 4, 4),
        ("LOC", 5, 5),
    }


def test_a_tag_too_few_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="1 tags for 2 words"):
        F1.score([("O", "O")], [("O",)])
