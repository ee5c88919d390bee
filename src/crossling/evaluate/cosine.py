"""Cosine, the measure of likeness everywhere here: the dot product of unit vectors."""

from __future__ import annotations

import numpy as np


def unit(vectors: np.ndarray) -> np.ndarray:
    """Each vector (last axis) at length one; a zero vector stays zero instead of turning into NaN."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
