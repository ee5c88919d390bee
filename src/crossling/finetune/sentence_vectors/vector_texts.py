"""Texts of pairs by number: each distinct text once, with its token ids."""
# N pairs, T distinct texts

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from crossling.core.progress import count_truncations
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePair
from crossling.inference.hidden_states import tokenize_sentences
from crossling.inference.sentence_encoder import Encoder


@dataclass(frozen=True)
class VectorTexts:
    """The texts of some pairs.

    Attributes:
        strings: Distinct texts.
        anchors: Number of the anchor of each pair.
        positives: Number of the positive of each pair.
        negatives: Numbers of the given negatives of each pair.
        scores: Score of each pair, or none.
    """

    strings: list[str] = field(repr=False)
    anchors: list[int]
    positives: list[int]
    negatives: list[tuple[int, ...]]
    scores: list[float]

    @classmethod
    def of(cls, rows: Sequence[SentencePair]) -> VectorTexts:
        """Number the texts of some pairs."""
        numbers: dict[str, int] = {}

        def number(text: str) -> int:
            return numbers.setdefault(text, len(numbers))

        anchors, positives = [number(row.anchor) for row in rows], [number(row.positive) for row in rows]
        negatives = [tuple(map(number, row.negatives)) for row in rows]
        return cls([*numbers], anchors, positives, negatives, [row.score for row in rows if row.score is not None])

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def distinct_anchors(self) -> list[int]:
        """Numbers of the texts that are anchors."""
        return list(dict.fromkeys(self.anchors))

    @property
    def distinct_candidates(self) -> list[int]:
        """Numbers of the texts that are positives or negatives."""
        return list(dict.fromkeys([*self.positives, *(each for row in self.negatives for each in row)]))

    @cached_property
    def known_positives(self) -> dict[int, list[int]]:
        """Positives of each anchor."""
        return _group(self.anchors, self.positives)

    @cached_property
    def known_anchors(self) -> dict[int, list[int]]:
        """Anchors of each positive."""
        return _group(self.positives, self.anchors)


def _group(keys: Sequence[int], values: Sequence[int]) -> dict[int, list[int]]:
    groups: dict[int, dict[int, None]] = {}
    for key, value in zip(keys, values, strict=True):
        groups.setdefault(key, {})[value] = None
    return {key: [*group] for key, group in groups.items()}


def tokenize_texts(encoder: Encoder, texts: Sequence[str], prompt: str, length: int) -> list[list[int]]:
    """Return the token ids of texts with a prompt, truncated to `length`."""
    head = encoder.head
    prompted = [prompt + text for text in texts]
    if head is not None and head.lowercases:
        prompted = [text.lower() for text in prompted]
    limit = min(length, encoder.max_length, (head and head.max_length) or encoder.max_length)
    with count_truncations("training texts"):
        return tokenize_sentences(prompted, encoder.tokenizer, limit, encoder.name)
