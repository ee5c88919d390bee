"""How often each language or language pair is drawn: counts in, probabilities out. No readers, no state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True)
class Sampling:
    """The sampling part of a recipe. Counts are tokens for text and pairs for bitext."""

    text_alpha: float = 0.7
    pair_alpha: float = 0.7
    pivot: str | None = None  # use only the pairs that contain this language ("en": EN-X); none: every X-Y pair


def tempered(counts: Mapping[Key, int], alpha: float) -> dict[Key, float]:
    """q_l = n_l^alpha / sum of n_k^alpha (XLM-E Eq. 9); alpha = 1 follows the data, alpha = 0 is uniform."""
    if not any(counts.values()):
        return dict.fromkeys(counts, 0.0)
    # Divided by the largest first, so that no power of a large count overflows.
    largest = max(counts.values())
    powers = {key: (n / largest) ** alpha if n else 0.0 for key, n in counts.items()}
    total = sum(powers.values())
    return {key: power / total for key, power in powers.items()}
