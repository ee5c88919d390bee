"""Shards with random tokens, to time training steps."""
# N sentences, P tokens

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crossling.data.shards import SHARD_FORMAT, Shards, TokenizedBitext, TokenizedSentences
from crossling.vocabulary.vocabulary import EOS, UNK

MEAN = 28.0  # tokens per side of a pair
SPREAD = 0.15  # standard deviation of the log ratio of the sides
TOKENS = 1 << 20  # of text, and about as many of pairs


@dataclass(frozen=True)
class RandomShards(Shards):
    """Shards that are not on disk."""

    @classmethod
    def of(cls, vocabulary: int, length: int) -> RandomShards:
        """Create shards for sequences of `length` tokens."""
        pairs = int(TOKENS / (2 * MEAN))
        entry = {"languages": ["qaa", "qab"], "pairs": pairs, "tokens": [round(pairs * MEAN)] * 2}
        documents = TOKENS // (length - 1)
        text = {"tokens": documents * (length - 1), "sentences": documents, "documents": documents}
        manifest: dict[str, Any] = {
            "format": SHARD_FORMAT,
            "fingerprint": f"random-{vocabulary}-{length}",
            "vocabulary": {"size": vocabulary, "fingerprint": "random"},
            "text": {"qaa": text},
            "pairs": {"random.qaa-qab": entry},
            "multi": {},
        }
        return cls(Path("random"), manifest)

    @cached_property
    def text(self) -> dict[str, TokenizedSentences]:
        entry = self.manifest["text"]["qaa"]
        lengths_N = np.full(entry["documents"], entry["tokens"] // entry["documents"])
        documents = np.arange(entry["documents"] + 1)
        return {"qaa": self._sentences(lengths_N, np.random.default_rng(0), documents)}

    @cached_property
    def bitexts(self) -> list[TokenizedBitext]:
        [(name, entry)] = self.manifest["pairs"].items()
        random = np.random.default_rng(1)
        one_N = random.gamma(2.0, MEAN / 2, entry["pairs"])
        other_N = one_N * np.exp(random.normal(0.0, SPREAD, entry["pairs"]))
        lengths = [np.maximum(2, side_N.round().astype(np.int64)) for side_N in (one_N, other_N)]
        first, second = (self._sentences(lengths_N, random) for lengths_N in lengths)
        return [
            TokenizedBitext(
                corpus=name, languages=("qaa", "qab"), sides=(first, second), pairs=entry["pairs"], corpus_id=0
            )
        ]

    def _sentences(
        self, lengths_N: np.ndarray, random: np.random.Generator, documents: np.ndarray | None = None
    ) -> TokenizedSentences:
        """Sample ordinary tokens, with </s> at the end."""
        offsets = np.concatenate([[0], np.cumsum(lengths_N)])
        tokens_P = random.integers(UNK + 1, self.vocabulary_size - 1, offsets[-1], dtype=np.int64)
        tokens_P[offsets[1:] - 1] = EOS
        return TokenizedSentences(tokens_P.astype(np.uint32), offsets, documents)
