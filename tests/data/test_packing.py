"""Rows contain every sequence once and contiguously, with little padding. Batches by length keep a token budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.data.packing import Sequences, batch_by_length, best_fit_rows, bucket_size, pack
from crossling.vocabulary.vocabulary import PAD


@given(st.lists(st.integers(1, 32), max_size=80))
def test_every_sequence_fits_in_one_row(lengths: list[int]) -> None:
    rows = best_fit_rows(lengths, 32)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= 32 for row in rows)
    # At most one row is half empty or more: two such rows would have been one.
    assert sum(sum(lengths[index] for index in row) <= 16 for row in rows) <= 1


def test_a_sequence_longer_than_a_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="33 tokens does not fit into rows of 32"):
        best_fit_rows([5, 33], 32)


@given(st.lists(st.integers(1, 16), min_size=1, max_size=40))
def test_packed_sequences_can_be_unpacked(lengths: list[int]) -> None:
    ids = np.concatenate([np.arange(1000 * i + 10, 1000 * i + 10 + length) for i, length in enumerate(lengths)])
    tokens = {"ids": ids, "noise": (ids / 8).astype(np.float32), "masked": ids % 2 == 0}
    sequences = Sequences(np.array(lengths), tokens)
    batch = pack(sequences, 16, "ids")
    flat = {name: batch[name].flatten() for name in (*tokens, "ids_segments")}
    for number, (start, length) in enumerate(zip(batch["ids_starts"].tolist(), lengths, strict=True)):
        place = slice(start, start + length)
        assert start // 16 == (place.stop - 1) // 16  # in one row
        assert flat["ids_segments"][place].tolist() == [number + 1] * length
        for name, values in tokens.items():
            assert flat[name][place].tolist() == values[sequences.sequence_ids == number].tolist()
    padding = flat["ids_segments"] == 0
    assert int(padding.sum()) == len(padding) - sum(lengths)
    assert torch.all(flat["ids"][padding] == PAD)
    assert not flat["masked"][padding].any()
    assert not flat["noise"][padding].any()
    assert [batch[name].dtype for name in tokens] == [torch.int64, torch.float32, torch.bool]


@pytest.mark.parametrize(("pairs", "most"), [(17_000, 0.005), (2_000, 0.01), (300, 0.02)])
def test_little_padding(pairs: int, most: float) -> None:
    """Lengths as of real pairs: log-normal, 57 tokens on average."""
    lengths = np.clip(np.random.default_rng(0).lognormal(3.9, 0.6, pairs), 4, 512).astype(int).tolist()
    assert 1 - sum(lengths) / (512 * len(best_fit_rows(lengths, 512))) < most


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=40))
def test_sequences_of_one_example_are_in_one_row(lengths: list[tuple[int, int]]) -> None:
    sizes = np.array(lengths).ravel()
    sequences = Sequences(sizes, {"ids": np.arange(sizes.sum()) + 10})
    batch = pack(sequences, 16, "ids", per_example=2)
    assert len(batch["ids"]) == len(best_fit_rows([sum(both) for both in lengths], 16))
    for row in batch["ids_segments"].tolist():
        numbers = {*row} - {0}
        assert numbers == {each + side for each in numbers if each % 2 for side in (0, 1)}
    for number, start in enumerate(batch["ids_starts"].tolist()):
        found = batch["ids"].flatten()[start : start + int(sizes[number])]
        assert found.tolist() == sequences.tokens["ids"][sequences.sequence_ids == number].tolist()


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_batches_by_length_contain_every_row_within_the_budget(lengths: list[int], tokens: int) -> None:
    found = list(batch_by_length(lengths, tokens))
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    read = [lengths[row] for rows in found for row in rows]
    assert read == sorted(lengths, reverse=True)  # which minimizes padding
    for place, rows in enumerate(found, start=1):
        longest = lengths[rows[0]]
        assert len(rows) == 1 or len(rows) * longest <= tokens
        assert place == len(found) or (len(rows) + 1) * longest > tokens  # one more would not have fitted


def test_batches_by_length_keep_the_order_of_equal_lengths() -> None:
    assert list(batch_by_length([3, 5, 3, 5], 10)) == [[1, 3], [0, 2]]


@given(st.integers(0, 10**6))
def test_buckets_are_few_and_little_larger(number: int) -> None:
    assert number <= bucket_size(number) <= number * 17 / 16
    assert bucket_size(bucket_size(number)) == bucket_size(number)
    assert len({bucket_size(each) for each in range(number, 2 * number)}) <= 33 or number < 32


def test_rows_and_marks_can_be_padded_to_few_shapes() -> None:
    lengths = np.full(150, 16)
    marks = np.arange(150 * 16) % 7 == 0
    plain, padded = (
        pack(
            Sequences(lengths, {"ids": np.full(150 * 16, 7), "masked": marks}), 32, "ids", has_bucketed_shapes=bucketed
        )
        for bucketed in (False, True)
    )
    rows, positions = len(plain["ids"]), len(plain["masked_at"])
    assert len(padded["ids"]) == bucket_size(rows) > rows
    assert len(padded["masked_at"]) == bucket_size(positions) > positions
    assert torch.equal(padded["ids"][:rows], plain["ids"])
    assert torch.all(padded["ids"][rows:] == PAD)
    assert not padded["ids_segments"][rows:].any()
    assert torch.equal(padded["masked_at"][:positions], plain["masked_at"])
    assert torch.all(padded["masked_at"][positions:] == padded["ids"].numel())
