"""The exponent of XLM and XLM-E: small counts drawn more often than they are, large ones less.

q_l = n_l^alpha / sum over k of n_k^alpha                                                     (XLM-E Eq. 9)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Key = TypeVar("Key")


def tempered(counts: Mapping[Key, int], alpha: float) -> dict[Key, float]:
    """Alpha = 1 follows the data, alpha = 0 is uniform over what is there."""
    if not any(counts.values()):
        return dict.fromkeys(counts, 0.0)
    # Divided by the largest first, so that no power of a large count overflows.
    largest = max(counts.values())
    powers = {key: (n / largest) ** alpha if n else 0.0 for key, n in counts.items()}
    total = sum(powers.values())
    return {key: power / total for key, power in powers.items()}
