"""Scores of sentence vectors on pairs: retrieval in both directions, or the correlation with scores of similarity.

- accuracy@1: queries whose nearest candidate is one of their positives, in percent.
- MRR@10: mean of 1 / rank of the best positive among the ten nearest candidates, or 0 without one, in percent.
- Spearman: rank correlation of the cosines with the given scores, in percent.

Candidates are the distinct positives and negatives of all pairs. Candidates that are equally near share the lower rank,
so that a model with constant vectors scores nothing.
"""
# Q queries, A candidates

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crossling.core.progress import count_truncations
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePairs
from crossling.finetune.sentence_vectors.vector_model import find_prompts
from crossling.finetune.sentence_vectors.vector_texts import VectorTexts
from crossling.inference.pooling import normalize_vectors
from crossling.inference.sentence_encoder import Encoder
from crossling.tasks.metrics import METRICS

ACCURACY, MRR, SPEARMAN = "accuracy", "mrr@10", "spearman"
RANKS = 10
QUERIES_PER_BLOCK = 1024
FORWARD, BACKWARD, SIMILARITY = "anchor-positive", "positive-anchor", "similarity"


@dataclass(frozen=True)
class DirectionScores:
    """Scores of one direction, in percent, the main one first."""

    direction: str
    values: Mapping[str, float]
    examples: int

    @property
    def main(self) -> float:
        """Metric that selects a checkpoint."""
        return next(iter(self.values.values()))


def score_pairs(encoder: Encoder, pairs: SentencePairs) -> list[DirectionScores]:
    """Return the scores of an encoder on some pairs, by direction."""
    texts = VectorTexts.of(pairs.rows)
    queries = _encode(encoder, texts, texts.distinct_anchors, role=0)
    documents = _encode(encoder, texts, texts.distinct_candidates, role=1)
    if pairs.is_scored:
        places = _places(texts.distinct_anchors), _places(texts.distinct_candidates)
        rows = [
            (places[0][anchor], places[1][positive])
            for anchor, positive in zip(texts.anchors, texts.positives, strict=True)
        ]
        cosines = [float(queries[first] @ documents[second]) for first, second in rows]
        value = METRICS["spearman"].score(texts.scores, cosines, "")
        return [DirectionScores(SIMILARITY, {SPEARMAN: 0.0 if np.isnan(value) else value}, len(rows))]
    forward = _retrieve(queries, documents, texts.distinct_anchors, texts.distinct_candidates, texts.known_positives)
    positives = list(dict.fromkeys(texts.positives))
    place = _places(texts.distinct_candidates)
    reverse = documents[[place[text] for text in positives]]
    backward = _retrieve(reverse, queries, positives, texts.distinct_anchors, texts.known_anchors)
    return [
        DirectionScores(FORWARD, forward, len(queries)),
        DirectionScores(BACKWARD, backward, len(positives)),
    ]


def _encode(encoder: Encoder, texts: VectorTexts, rows: Sequence[int], role: int) -> np.ndarray:
    pooling, layer = encoder.resolve_pooling("auto")
    prompt = find_prompts(encoder.head)[role] if encoder.head else None
    with count_truncations("dev"):
        [vectors] = encoder.encode_layers([texts.strings[row] for row in rows], pooling, [layer], prompt=prompt)
    return normalize_vectors(np.asarray(vectors))


def _retrieve(
    query_QD: np.ndarray,
    candidate_AD: np.ndarray,
    queries: Sequence[int],
    candidates: Sequence[int],
    known: Mapping[int, Sequence[int]],
) -> dict[str, float]:
    place = _places(candidates)
    ranks: list[int] = []
    for start in range(0, len(queries), QUERIES_PER_BLOCK):
        cosine_QA = query_QD[start : start + QUERIES_PER_BLOCK] @ candidate_AD.T
        for cosine_A, query in zip(cosine_QA, queries[start : start + QUERIES_PER_BLOCK], strict=True):
            positives = [place[text] for text in known[query]]
            others = np.delete(cosine_A, [*positives, *([place[query]] if query in place else [])])
            ranks.append(1 + int((others >= cosine_A[positives].max()).sum()))
    rank_Q = np.asarray(ranks)
    reciprocal = np.where(rank_Q <= RANKS, 1 / rank_Q, 0.0)
    return {MRR: 100 * float(reciprocal.mean()), ACCURACY: 100 * float((rank_Q == 1).mean())}


def _places(rows: Sequence[int]) -> dict[int, int]:
    return {row: place for place, row in enumerate(rows)}
