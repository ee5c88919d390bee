from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crossling.transfer.lengths import batches


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_every_row_is_read_once_within_the_budget(lengths: list[int], tokens: int) -> None:
    found = list(batches(lengths, tokens))
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    read = [lengths[row] for rows in found for row in rows]
    assert read == sorted(lengths, reverse=True)  # as little padding as there can be
    for place, rows in enumerate(found, start=1):
        longest = lengths[rows[0]]
        assert len(rows) == 1 or len(rows) * longest <= tokens
        assert place == len(found) or (len(rows) + 1) * longest > tokens  # one more would not have fitted


def test_of_equal_lengths_the_first_comes_first() -> None:
    assert list(batches([3, 5, 3, 5], 10)) == [[1, 3], [0, 2]]
