"""The losses equal slow loops over pairs, written from their equations."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from crossling.finetune.sentence_vectors.vector_losses import SentenceObjective

from .vector_helpers import ROWS, Table, one_batch

TEMPERATURE = 0.1


@pytest.mark.parametrize("symmetric", [False, True])
def test_ranking_loss(symmetric: bool) -> None:
    texts, batch = one_batch(ROWS, "ranking", symmetric)
    model = Table(len(texts.strings))
    vectors = {text: model.table.weight[number].tolist() for number, text in enumerate(texts.strings)}

    def score(one: str, other: str) -> float:
        product = sum(x * y for x, y in zip(vectors[one], vectors[other], strict=True))
        return product / math.hypot(*vectors[one]) / math.hypot(*vectors[other]) / TEMPERATURE

    def loss_of(query: str, target: str, candidates: set[str], known: set[str]) -> tuple[float, bool]:
        negatives = {each for each in candidates if each not in known and each != query}
        terms = [math.exp(score(query, each)) for each in [target, *sorted(negatives)]]
        return -math.log(terms[0] / sum(terms)), terms[0] == max(terms)

    positives, anchors = [row.positive for row in ROWS], [row.anchor for row in ROWS]
    candidates = {*positives, "n", "B"}
    found = [
        loss_of(row.anchor, row.positive, candidates, {each.positive for each in ROWS if each.anchor == row.anchor})
        for row in ROWS
    ]
    if symmetric:
        found += [
            loss_of(
                row.positive, row.anchor, {*anchors}, {each.anchor for each in ROWS if each.positive == row.positive}
            )
            for row in ROWS
        ]
    expected = sum(loss for loss, _ in found) / (2 if symmetric else 1)

    loss, correct = SentenceObjective("ranking", TEMPERATURE, symmetric).loss_and_correct(model, batch)

    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(correct) == pytest.approx(sum(right for _, right in found) / (2 if symmetric else 1))


@pytest.mark.parametrize("name", ["cosent", "cosine"])
def test_losses_of_scored_pairs(name: str) -> None:
    rows = [replace(row, score=score) for row, score in zip(ROWS, [0.9, 0.1, 0.5, 0.5, 0.2], strict=True)]
    texts, batch = one_batch(rows, name)
    model = Table(len(texts.strings))
    unit = model.table.weight.detach().numpy()
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = [float(unit[a] @ unit[p]) for a, p in zip(texts.anchors, texts.positives, strict=True)]
    scored = list(zip([row.score or 0.0 for row in rows], cosines, strict=True))
    total = sum(
        math.exp((other - cosine) / TEMPERATURE) for (y, cosine), (lower, other) in permutations(scored, 2) if y > lower
    )
    expected = {"cosent": 5 * math.log(1 + total), "cosine": sum((cosine - y) ** 2 for y, cosine in scored)}

    loss, _ = SentenceObjective(name, TEMPERATURE).loss_and_correct(model, batch)

    assert float(loss) == pytest.approx(expected[name], rel=1e-5)


def test_perfect_order_of_scores_counts_as_correct() -> None:
    rows = [replace(row, score=float(number)) for number, row in enumerate(ROWS)]
    _, batch = one_batch(rows, "cosent")
    objective = SentenceObjective("cosent", TEMPERATURE)
    score_N = batch["scores"]
    loss, correct = objective._scored(score_N / 10, score_N)
    assert_close(correct, torch.tensor(5.0))
    worse, wrong = objective._scored(-score_N / 10, score_N)
    assert float(worse) > float(loss)
    assert float(wrong) == 1.0  # the lowest has nothing to be above
