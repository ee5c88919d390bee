"""Hard negatives are near, are no positives, and are less similar than the positive by a margin."""

from __future__ import annotations

import numpy as np
import pytest

from crossling.finetune.sentence_vectors import hard_negatives
from crossling.finetune.sentence_vectors.hard_negatives import mine_hard_negatives
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePair
from crossling.finetune.sentence_vectors.vector_texts import VectorTexts
from crossling.inference.sentence_encoder import Encoder

ANGLES = {"a": 0, "A": 20, "A2": 15, "false": 21, "near": 40, "far": 120}


def test_probable_false_negatives_are_skipped(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(_: Encoder, texts: list[str], prompt: str) -> np.ndarray:
        assert prompt == ""
        radians = np.radians([ANGLES[text] for text in texts])
        return np.stack([np.cos(radians), np.sin(radians)], 1)

    monkeypatch.setattr(hard_negatives, "_encode", encode)
    rows = [
        SentencePair("a", "A"),
        SentencePair("a", "A2"),
        *(SentencePair(each, each) for each in ("false", "near", "far")),
    ]
    texts = VectorTexts.of(rows)
    mined = [[texts.strings[text] for text in row] for row in mine_hard_negatives(encoder, texts, 2, 0.05)]
    assert mined[0] == mined[1] == ["near", "far"]
    assert mined[4] == ["near", "false"]  # for the anchor "far", nothing is near
    [first, *_] = mine_hard_negatives(encoder, texts, 1, 0.0)
    assert [texts.strings[text] for text in first] == ["false"]
