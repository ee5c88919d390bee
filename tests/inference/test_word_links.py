from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.inference.pooling import normalize_vectors
from crossling.inference.word_links import ALIGNMENT_METHODS, extract_links, itermax, mutual_argmax, optimal_transport


def slow_transport(similarity: list[list[float]]) -> tuple[list[list[float]], list[list[float]]]:
    """Compute the equations number by number."""
    rows, columns = range(len(similarity)), range(len(similarity[0]))
    pi = [[similarity[i][j] if similarity[i][j] > 1e-6 else 1e-6 for j in columns] for i in rows]
    xi = pi
    for _ in range(2):
        over_i = [sum(pi[i][j] for i in rows) for j in columns]
        xi = [[pi[i][j] / over_i[j] for j in columns] for i in rows]
        over_j = [sum(xi[i][j] for j in columns) for i in rows]
        pi = [[xi[i][j] / over_j[i] for j in columns] for i in rows]
    return pi, xi


def test_optimal_transport_follows_the_equations() -> None:
    similarity = np.random.default_rng(0).normal(size=(3, 5, 7))
    pi, xi = optimal_transport(similarity)
    for layer in range(3):
        slow_pi, slow_xi = slow_transport(similarity[layer].tolist())
        np.testing.assert_allclose(pi[layer], slow_pi)
        np.testing.assert_allclose(xi[layer], slow_xi)
    np.testing.assert_allclose(pi.sum(axis=2), 1)
    np.testing.assert_allclose(xi.sum(axis=1), 1)


def test_links_are_mutual_argmax() -> None:
    rng = np.random.default_rng(1)
    source, target = rng.normal(size=(2, 6, 4)), rng.normal(size=(2, 8, 4))
    for layer, links in enumerate(extract_links(source, target, "ot")):
        pi, xi = (np.array(side) for side in slow_transport((source[layer] @ target[layer].T).tolist()))
        expected = [[i, j] for i in range(6) for j in range(8) if pi[i].argmax() == j and xi[:, j].argmax() == i]
        assert links.tolist() == expected
        assert expected


def test_normalization_avoids_hubs() -> None:
    """A hub, similar to everything, gets all links by argmax but not by optimal transport."""
    similarity = np.array([[[0.9, 1.0], [0.1, 0.95]]])
    assert mutual_argmax(similarity, similarity)[0].tolist() == [[False, True], [False, False]]
    assert mutual_argmax(*optimal_transport(similarity))[0].tolist() == [[True, False], [False, True]]


def test_the_first_of_equal_values_is_linked() -> None:
    flat = np.ones((1, 2, 3))
    assert np.argwhere(mutual_argmax(flat, flat)[0]).tolist() == [[0, 0]]


def slow_itermax(similarity: list[list[float]]) -> set[tuple[int, int]]:
    """Follow SimAlign's definition pair by pair: two iterations, 0.9 for pairs with one linked token, 0 for two."""
    rows, columns = range(len(similarity)), range(len(similarity[0]))

    def choices(weight: dict[tuple[int, int], float]) -> set[tuple[int, int]]:
        value = {(i, j): similarity[i][j] * weight[i, j] for i in rows for j in columns}
        of_row = {i: max(columns, key=lambda j: (value[i, j], -j)) for i in rows}
        of_column = {j: max(rows, key=lambda i: (value[i, j], -i)) for j in columns}
        return {(i, j) for i, j in of_row.items() if of_column[j] == i}

    linked = choices({(i, j): 1.0 for i in rows for j in columns})
    used_rows, used_columns = {i for i, _ in linked}, {j for _, j in linked}
    if min(len(rows), len(columns)) <= 2 or len(used_rows) == len(rows) or len(used_columns) == len(columns):
        return linked
    weight = {(i, j): (1.0, 0.9, 0.0)[(i in used_rows) + (j in used_columns)] for i in rows for j in columns}
    return linked | {(i, j) for i, j in choices(weight) if weight[i, j]}


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 9))
def test_itermax_follows_its_definition(seed: int, source: int, target: int) -> None:
    similarity = np.random.default_rng(seed).random((2, source, target))
    for layer, linked in enumerate(itermax(similarity)):
        assert {(int(i), int(j)) for i, j in np.argwhere(linked)} == slow_itermax(similarity[layer].tolist())


def test_itermax_adds_links_to_argmax() -> None:
    rng = np.random.default_rng(3)
    source, target = rng.normal(size=(1, 9, 5)), rng.normal(size=(1, 9, 5))
    plain, more = (
        {tuple(pair) for pair in extract_links(source, target, method)[0].tolist()} for method in ALIGNMENT_METHODS[1:]
    )
    assert plain < more
    cosine = normalize_vectors(source[0]) @ normalize_vectors(target[0]).T
    assert more == slow_itermax(((cosine + 1) / 2).tolist())


@pytest.mark.parametrize("method", ALIGNMENT_METHODS)
def test_empty_sentences_have_no_links(method: str) -> None:
    for source, target in ((0, 3), (3, 0), (0, 0)):
        assert [
            links.tolist() for links in extract_links(np.ones((2, source, 4)), np.ones((2, target, 4)), method)
        ] == [[], []]


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(BadInput, match="argmax"):
        extract_links(np.ones((1, 1, 1)), np.ones((1, 1, 1)), "argmx")
