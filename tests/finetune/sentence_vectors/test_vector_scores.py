"""Retrieval scores of both directions, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from crossling.finetune.sentence_vectors import vector_scores
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePair, SentencePairs
from crossling.finetune.sentence_vectors.vector_scores import score_pairs
from crossling.inference.sentence_encoder import Encoder

ANGLES = {"a": 0, "A": 5, "A2": 100, "b": 30, "B": 62, "c": 61, "C": 10, "n": 29}


@pytest.fixture(autouse=True)
def vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(_: Encoder, texts: vector_scores.VectorTexts, rows: list[int], role: int) -> np.ndarray:
        assert role in (0, 1)
        radians = np.radians([ANGLES[texts.strings[row]] for row in rows])
        return np.stack([np.cos(radians), np.sin(radians)], 1)

    monkeypatch.setattr(vector_scores, "_encode", encode)


def test_ranks_in_both_directions(encoder: Encoder) -> None:
    pairs = [("a", "A"), ("a", "A2"), ("b", "B"), ("c", "C")]
    rows = [SentencePair(*pair, ("n",) if pair[0] == "b" else ()) for pair in pairs]
    forward, backward = score_pairs(encoder, SentencePairs(rows))
    # a: A is first, and A2 does not count. b: n, C and A are nearer. c: B, n, A2 are nearer.
    assert (forward.direction, forward.examples) == ("anchor-positive", 3)
    assert forward.values == pytest.approx({"mrr@10": 100 * (1 + 1 / 4 + 1 / 4) / 3, "accuracy": 100 / 3})
    # A: a first. A2: c and b are nearer. B: c is nearer. C: a and b are nearer.
    assert backward.values == pytest.approx({"mrr@10": 100 * (1 + 1 / 3 + 1 / 2 + 1 / 3) / 4, "accuracy": 25})
    assert forward.main == forward.values["mrr@10"]


def test_correlation_with_scores(encoder: Encoder) -> None:
    rows = [SentencePair("a", other, (), score) for other, score in (("A", 5.0), ("b", 3.0), ("B", 4.0))]
    [scores] = score_pairs(encoder, SentencePairs(rows))
    assert (scores.direction, scores.examples) == ("similarity", 3)
    assert scores.values == pytest.approx({"spearman": 50.0})
