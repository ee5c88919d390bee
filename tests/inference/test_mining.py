from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.inference import mining as neighbors
from crossling.inference.encode_file import encode_file
from crossling.inference.mining import (
    RETRIEVALS,
    MinedPair,
    VectorRows,
    find_neighbors,
    iter_pairs,
    mine,
    retrieve_pairs,
)
from crossling.inference.pooling import normalize_vectors
from crossling.inference.sentence_encoder import Encoder

Write = Callable[[Path, str], Path]
FIRST = ["the white house", "a b c", "zebra quilt", "one more sentence", "the house the house"]
SECOND = ["white house the", "quilt zebra", "nothing like it at all", "a c b", "the house", "one sentence more"]


def slow_mine(
    first: np.ndarray, second: np.ndarray, k: int, margin: str, retrieval: str = "max"
) -> list[tuple[float, int, int]]:
    """Mine pair by pair, from all similarities at once, as LASER's mine_bitexts.py."""
    cosine = normalize_vectors(first) @ normalize_vectors(second).T
    forward = [sorted(range(len(second)), key=lambda j: -cosine[i, j])[:k] for i in range(len(first))]
    backward = [sorted(range(len(first)), key=lambda i: -cosine[i, j])[:k] for j in range(len(second))]
    mean_first = [np.mean([cosine[i, j] for j in near]) for i, near in enumerate(forward)]
    mean_second = [np.mean([cosine[i, j] for i in near]) for j, near in enumerate(backward)]

    def score(i: int, j: int) -> float:
        mean = (mean_first[i] + mean_second[j]) / 2
        return {"ratio": cosine[i, j] / mean, "distance": cosine[i, j] - mean, "absolute": cosine[i, j]}[margin]

    best = [(max((score(i, j), i, j) for j in near)) for i, near in enumerate(forward)]
    other_best = [(max((score(i, j), i, j) for i in near)) for j, near in enumerate(backward)]
    if retrieval == "forward":
        return sorted(best, reverse=True)
    if retrieval == "backward":
        return sorted(other_best, reverse=True)
    if retrieval == "intersection":
        return sorted((value, i, j) for value, i, j in best if other_best[j][1] == i)[::-1]
    best += other_best
    accepted: list[tuple[float, int, int]] = []
    for value, i, j in sorted(best, key=lambda each: -each[0]):
        if all(i != other and j != another for _, other, another in accepted):
            accepted.append((value, i, j))
    return accepted


@given(
    st.integers(0, 10_000),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from(["ratio", "distance", "absolute"]),
    st.sampled_from(RETRIEVALS),
)
def test_pairs_equal_those_of_the_slow_loop(
    seed: int, first: int, second: int, k: int, margin: str, retrieval: str
) -> None:
    rng = np.random.default_rng(seed)
    # Sentence vectors have similar directions. A ratio to a mean near zero would be arbitrary.
    one, other = (rng.normal(size=(rows, 6)).astype(np.float32) + 2 for rows in (first, second))
    pairs = retrieve_pairs(*find_neighbors(VectorRows.all(one), VectorRows.all(other), k), margin, retrieval)
    slow = slow_mine(one, other, k, margin, retrieval)
    np.testing.assert_allclose(pairs.score_P, [score for score, _, _ in slow], atol=1e-5)
    assert set(zip(pairs.first_P.tolist(), pairs.second_P.tolist(), strict=True)) == {(i, j) for _, i, j in slow}


def test_a_pair_no_closer_than_its_neighbors_is_not_above_a_distance_of_zero() -> None:
    """Equal vectors have a distance of 0 to the mean, up to rounding."""
    sentences = ["a", "b", "c"]
    raised = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        one, other = (np.repeat(rng.normal(size=(1, 6)).astype(np.float32), 3, axis=0) for _ in range(2))
        pairs = retrieve_pairs(*find_neighbors(VectorRows.all(one), VectorRows.all(other), 3), "distance")
        raised += bool((pairs.score_P > 0).any())
        assert list(iter_pairs(pairs, sentences, sentences, 0.0)) == []
    assert raised  # rounding does move some above 0


def test_a_sentence_may_repeat_on_the_searched_side_only(encoder: Encoder) -> None:
    one, other = ["the white house", "the house", "the white", "zebra"], ["the white house", "zebra quilt"]
    forward = encoder.mine(one, other, margin="absolute", threshold=-1, retrieval="forward")
    assert sorted(pair.source for pair in forward) == sorted(one)
    assert {pair.target for pair in forward} <= {*other}
    backward = encoder.mine(one, other, margin="absolute", threshold=-1, retrieval="backward")
    assert sorted(pair.target for pair in backward) == sorted(other)
    both = encoder.mine(one, other, margin="absolute", threshold=-1, retrieval="intersection")
    assert {(pair.source, pair.target) for pair in both} == (
        {(pair.source, pair.target) for pair in forward} & {(pair.source, pair.target) for pair in backward}
    )


def test_random_vectors_are_paired_by_chance() -> None:
    rng = np.random.default_rng(0)
    right = [
        np.mean(pairs.first_P == pairs.second_P)
        for pairs in (
            retrieve_pairs(*find_neighbors(*(VectorRows.all(rng.normal(size=(50, 16))) for _ in range(2)), 4))
            for _ in range(100)
        )
    ]
    assert np.mean(right) == pytest.approx(1 / 50, abs=0.01)


def test_mine_finds_the_pairs_of_two_files(tmp_path: Path, write: Write, encoder: Encoder) -> None:
    first = write(tmp_path / "a.txt", "\n".join([*FIRST, FIRST[1], FIRST[0]]))
    second = write(tmp_path / "b.txt", "\n".join([SECOND[0], *SECOND]) + "\n")
    vectors = [encoder.encode(side, layer=1) for side in (FIRST, SECOND)]
    expected = [(score, FIRST[i], SECOND[j]) for score, i, j in slow_mine(*vectors, 2, "ratio")]
    found = list(mine(encoder, str(first), second, layer=1, k=2))
    assert [(pair.source, pair.target) for pair in found] == [pair[1:] for pair in expected]
    np.testing.assert_allclose([pair.score for pair in found], [pair[0] for pair in expected], atol=1e-5)
    cut = (expected[1][0] + expected[2][0]) / 2
    assert list(mine(encoder, first, second, layer=1, k=2, threshold=cut)) == found[:2]
    stored = [encode_file(encoder, file, tmp_path / f"{file.stem}.npy", layer=1) for file in (first, second)]
    again = mine(None, first, second, k=2, vectors=(stored[0], stored[1]))
    assert [(pair.source, pair.target) for pair in again] == [pair[1:] for pair in expected]
    assert isinstance(found[0], MinedPair)


def test_invalid_inputs_are_refused(
    tmp_path: Path, write: Write, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = write(tmp_path / "a.txt", "a b\nc\n"), write(tmp_path / "b.txt", "d\n")
    with pytest.raises(BadInput, match="did you mean 'ratio'"):
        list(mine(encoder, first, second, margin="ration"))
    with pytest.raises(BadInput, match="did you mean 'forward'"):
        list(mine(encoder, first, second, retrieval="foward"))
    with pytest.raises(BadInput, match="expected at least 1 neighbor"):
        list(mine(encoder, first, second, k=0))
    with pytest.raises(BadInput, match="Give a model, or the vectors"):
        list(mine(None, first, second))
    with pytest.raises(BadInput, match="layer 9 does not exist"):
        list(mine(encoder, first, second, layer=9))
    with pytest.raises(BadInput, match=r"c\.txt: no such file"):
        list(mine(encoder, first, tmp_path / "c.txt"))
    one, other = (encode_file(encoder, file, tmp_path / f"{file.stem}.npy") for file in (first, second))
    with pytest.raises(BadInput, match=r"b\.npy: 1 vectors, but .*a\.txt has 2 lines"):
        list(mine(None, first, second, vectors=(other, other)))
    with pytest.raises(BadInput, match=r"a\.txt: not a \.npy file of vectors"):
        list(mine(None, first, second, vectors=(first, other)))
    np.save(other, np.zeros((1, 3), dtype=np.float32))
    with pytest.raises(BadInput, match="widths 16 and 3"):
        list(mine(None, first, second, vectors=(one, other)))
    monkeypatch.setattr(neighbors, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match="faiss is not installed"):
        list(mine(encoder, first, second, faiss=True))
