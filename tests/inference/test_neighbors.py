from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.inference import mining as neighbors
from crossling.inference.mining import VectorRows, find_neighbors, find_neighbors_faiss
from crossling.inference.pooling import normalize_vectors


@given(
    st.integers(0, 10_000),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(1, 7),
    st.integers(1, 7),
)
def test_search_in_blocks_equals_search_at_once(
    seed: int, first: int, second: int, k: int, first_block: int, second_block: int
) -> None:
    rng = np.random.default_rng(seed)
    one, other = (rng.normal(size=(rows, 6)).astype(np.float32) for rows in (first, second))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbors, "FIRST_BLOCK", first_block)
        patch.setattr(neighbors, "SECOND_BLOCK", second_block)
        both_sides = find_neighbors(VectorRows.all(one), VectorRows.all(other), k)
    cosine = normalize_vectors(one) @ normalize_vectors(other).T
    for found, similarity in zip(both_sides, (cosine, cosine.T), strict=True):
        near = np.argsort(-similarity, axis=1)[:, :k]
        np.testing.assert_array_equal(found.row_Nk, near)
        np.testing.assert_allclose(found.cosine_Nk, np.take_along_axis(similarity, near, axis=1), atol=1e-6)


def test_search_of_selected_rows_in_half_precision() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(12, 8)).astype(np.float16)
    rows = np.array([1, 4, 5, 11])
    some, _ = find_neighbors(VectorRows(values, rows), VectorRows.all(values), 1)
    assert some.row_Nk[:, 0].tolist() == rows.tolist()
    assert some.cosine_Nk.dtype == np.float32
    _, backward = find_neighbors(VectorRows.all(values), VectorRows(values, rows), 1)
    assert backward.row_Nk[:, 0].tolist() == rows.tolist()


@pytest.mark.skipif(not find_spec("faiss"), reason="faiss is not installed")
@pytest.mark.parametrize("min_clustered", [1, 10_000])
def test_faiss_finds_the_same_neighbors(min_clustered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "MIN_CLUSTERED", min_clustered)
    monkeypatch.setattr(neighbors, "FIRST_BLOCK", 64)
    monkeypatch.setattr(neighbors, "PROBED_CLUSTERS", 10_000)  # all clusters
    rng = np.random.default_rng(0)
    sides = [VectorRows.all(rng.normal(size=(rows, 8)).astype(np.float32)) for rows in (150, 110)]
    for ours, theirs in zip(find_neighbors(*sides, 3), find_neighbors_faiss(*sides, 3), strict=True):
        np.testing.assert_array_equal(ours.row_Nk, theirs.row_Nk)
        np.testing.assert_allclose(ours.cosine_Nk, theirs.cosine_Nk, atol=1e-5)
