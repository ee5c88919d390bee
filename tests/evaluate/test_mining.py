from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.errors import BadInput
from crossling.evaluate import neighbours as blocks
from crossling.evaluate.embedding import embed
from crossling.evaluate.encode import Encoder
from crossling.evaluate.mining import Mined, mine, one_to_one
from crossling.evaluate.neighbours import Vectors, approximate, neighbours

Write = Callable[[Path, str], Path]
FIRST = ["the white house", "a b c", "zebra quilt", "one more sentence", "the house the house"]
SECOND = ["white house the", "quilt zebra", "nothing like it at all", "a c b", "the house", "one sentence more"]


def normal(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def slow_mine(first: np.ndarray, second: np.ndarray, k: int, margin: str) -> list[tuple[float, int, int]]:
    """Pair by pair, from all similarities at once."""
    cosine = normal(first) @ normal(second).T
    ahead = [sorted(range(len(second)), key=lambda j: -cosine[i, j])[:k] for i in range(len(first))]
    back = [sorted(range(len(first)), key=lambda i: -cosine[i, j])[:k] for j in range(len(second))]
    mean_first = [np.mean([cosine[i, j] for j in near]) for i, near in enumerate(ahead)]
    mean_second = [np.mean([cosine[i, j] for i in near]) for j, near in enumerate(back)]

    def score(i: int, j: int) -> float:
        around = (mean_first[i] + mean_second[j]) / 2
        return {"ratio": cosine[i, j] / around, "distance": cosine[i, j] - around, "absolute": cosine[i, j]}[margin]

    best = [(max((score(i, j), i, j) for j in near)) for i, near in enumerate(ahead)]
    best += [(max((score(i, j), i, j) for i in near)) for j, near in enumerate(back)]
    taken: list[tuple[float, int, int]] = []
    for value, i, j in sorted(best, key=lambda each: -each[0]):
        if all(i != other and j != another for _, other, another in taken):
            taken.append((value, i, j))
    return taken


@given(
    st.integers(0, 10_000),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(1, 7),
    st.integers(1, 7),
)
def test_neighbours_in_blocks_are_those_of_the_whole(
    seed: int, first: int, second: int, k: int, of_first: int, of_second: int
) -> None:
    rng = np.random.default_rng(seed)
    one, other = (rng.normal(size=(rows, 6)).astype(np.float32) for rows in (first, second))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "FIRST_AT_ONCE", of_first)
        patch.setattr(blocks, "SECOND_AT_ONCE", of_second)
        both = neighbours(Vectors.all(one), Vectors.all(other), k)
    cosine = normal(one) @ normal(other).T
    for found, similarity in zip(both, (cosine, cosine.T), strict=True):
        near = np.argsort(-similarity, axis=1)[:, :k]
        np.testing.assert_array_equal(found.row_Nk, near)
        np.testing.assert_allclose(found.cosine_Nk, np.take_along_axis(similarity, near, axis=1), atol=1e-6)


def test_neighbours_of_chosen_rows_in_half_precision() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(12, 8)).astype(np.float16)
    rows = np.array([1, 4, 5, 11])
    some, _ = neighbours(Vectors(values, rows), Vectors.all(values), 1)
    assert some.row_Nk[:, 0].tolist() == rows.tolist()
    assert some.cosine_Nk.dtype == np.float32
    _, back = neighbours(Vectors.all(values), Vectors(values, rows), 1)
    assert back.row_Nk[:, 0].tolist() == rows.tolist()


@given(
    st.integers(0, 10_000),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from(["ratio", "distance", "absolute"]),
)
def test_pairs_are_those_of_the_slow_loop(seed: int, first: int, second: int, k: int, margin: str) -> None:
    rng = np.random.default_rng(seed)
    # Sentence vectors point much the same way; a ratio to a mean near zero would say little.
    one, other = (rng.normal(size=(rows, 6)).astype(np.float32) + 2 for rows in (first, second))
    pairs = one_to_one(*neighbours(Vectors.all(one), Vectors.all(other), k), margin)
    slow = slow_mine(one, other, k, margin)
    np.testing.assert_allclose(pairs.score_P, [score for score, _, _ in slow], atol=1e-5)
    assert set(zip(pairs.first_P.tolist(), pairs.second_P.tolist(), strict=True)) == {(i, j) for _, i, j in slow}


def test_random_vectors_find_partners_by_chance() -> None:
    rng = np.random.default_rng(0)
    right = [
        np.mean(pairs.first_P == pairs.second_P)
        for pairs in (
            one_to_one(*neighbours(*(Vectors.all(rng.normal(size=(50, 16))) for _ in range(2)), 4)) for _ in range(100)
        )
    ]
    assert np.mean(right) == pytest.approx(1 / 50, abs=0.01)


def test_mine_files(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    first = write(tmp_path / "a.txt", "\n".join([*FIRST, FIRST[1], FIRST[0]]))
    second = write(tmp_path / "b.txt", "\n".join([SECOND[0], *SECOND]) + "\n")
    vectors = [encoder.embed(side, layer=1) for side in (FIRST, SECOND)]
    expected = [(score, FIRST[i], SECOND[j]) for score, i, j in slow_mine(*vectors, 2, "ratio")]
    found = list(mine(encoder, first, second, layer=1, k=2))
    assert [(pair.source, pair.target) for pair in found] == [pair[1:] for pair in expected]
    np.testing.assert_allclose([pair.score for pair in found], [pair[0] for pair in expected], atol=1e-5)
    cut = (expected[1][0] + expected[2][0]) / 2
    assert list(mine(encoder, first, second, layer=1, k=2, threshold=cut)) == found[:2]
    stored = [embed(encoder, file, tmp_path / f"{file.stem}.npy", layer=1) for file in (first, second)]
    again = mine(None, first, second, k=2, vectors=(stored[0], stored[1]))
    assert [(pair.source, pair.target) for pair in again] == [pair[1:] for pair in expected]
    assert isinstance(found[0], Mined)


@pytest.mark.skipif(not find_spec("faiss"), reason="faiss is not installed")
@pytest.mark.parametrize("few", [1, 10_000])
def test_faiss_finds_the_same(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "FEW", few)
    monkeypatch.setattr(blocks, "FIRST_AT_ONCE", 64)
    monkeypatch.setattr(blocks, "PROBES", 10_000)  # all clusters
    rng = np.random.default_rng(0)
    sides = [Vectors.all(rng.normal(size=(rows, 8)).astype(np.float32)) for rows in (150, 110)]
    for ours, theirs in zip(neighbours(*sides, 3), approximate(*sides, 3), strict=True):
        np.testing.assert_array_equal(ours.row_Nk, theirs.row_Nk)
        np.testing.assert_allclose(ours.cosine_Nk, theirs.cosine_Nk, atol=1e-5)


def test_bad_input(tmp_path: Path, write: Write, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = write(tmp_path / "a.txt", "a b\nc\n"), write(tmp_path / "b.txt", "d\n")
    with pytest.raises(BadInput, match="did you mean 'ratio'"):
        list(mine(encoder, first, second, margin="ration"))
    with pytest.raises(BadInput, match="1 at least"):
        list(mine(encoder, first, second, k=0))
    with pytest.raises(BadInput, match="give a model, or the vectors"):
        list(mine(None, first, second))
    with pytest.raises(BadInput, match="layer 9 does not exist"):
        list(mine(encoder, first, second, layer=9))
    with pytest.raises(BadInput, match=r"c\.txt: no such file"):
        list(mine(encoder, first, tmp_path / "c.txt"))
    one, other = (embed(encoder, file, tmp_path / f"{file.stem}.npy") for file in (first, second))
    with pytest.raises(BadInput, match=r"b\.npy: 1 vectors but 2 lines in .*a\.txt"):
        list(mine(None, first, second, vectors=(other, other)))
    with pytest.raises(BadInput, match=r"a\.txt: no \.npy file of vectors"):
        list(mine(None, first, second, vectors=(first, other)))
    np.save(other, np.zeros((1, 3), dtype=np.float32))
    with pytest.raises(BadInput, match="different widths"):
        list(mine(None, first, second, vectors=(one, other)))
    monkeypatch.setattr(blocks, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match="needs faiss"):
        list(mine(encoder, first, second, faiss=True))
