"""Blocks hold a text once and in order, never two documents in one, and are full."""

from __future__ import annotations

import errno
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.data import blocks as module
from crossling.data.blocks import blocks
from crossling.data.column import Column
from crossling.data.shards import Sentences

Documents = list[list[int]]  # the lengths of their sentences


def sentences_of(documents: Documents) -> Sentences:
    lengths = [length for document in documents for length in document]
    offsets = np.cumsum([0, *lengths])
    return Sentences(np.arange(offsets[-1]), offsets, np.cumsum([0, *map(len, documents)]))


def saved(folder: Path, documents: Documents) -> Sentences:
    made = sentences_of(documents)
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in (("tokens", made.tokens), ("offsets", made.offsets), ("documents", made.documents)):
        with Column(folder / f"{name}.npy", np.int64) as column:
            column.add(np.asarray(values))
    return Sentences.open(folder, documents=True)


def by_definition(documents: Documents, capacity: int) -> list[int]:
    """Token by token: where a block starts, and the end."""
    starts, place = [0], 0
    for document in documents:
        ends = set((place + np.cumsum(document)).tolist())
        last = place + sum(document)
        while place < last:
            size = min(capacity, last - place)
            if place + size < last:  # the document goes on: give up to a tenth for the end of a sentence
                whole = [n for n in range(1, capacity + 1) if place + n in ends and 10 * (capacity - n) <= capacity]
                size = max(whole, default=capacity)
            place += size
            starts.append(place)
    return starts


DOCUMENTS = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12), max_size=10)


@settings(max_examples=200, deadline=None)
@given(documents=DOCUMENTS, capacity=st.integers(1, 60), at_once=st.integers(1, 4))
def test_blocks_are_as_defined(documents: Documents, capacity: int, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", at_once)
        assert blocks(sentences_of(documents), capacity).tolist() == by_definition(documents, capacity)


@settings(max_examples=100, deadline=None)
@given(documents=DOCUMENTS, capacity=st.integers(1, 60))
def test_blocks_hold_everything_once_and_are_full(documents: Documents, capacity: int) -> None:
    sentences = sentences_of(documents)
    starts = blocks(sentences, capacity).tolist()
    assert starts[0] == 0
    assert starts[-1] == len(sentences.tokens)
    assert sentences.documents is not None
    ends_of_documents = set(sentences.offsets[sentences.documents].tolist())
    assert ends_of_documents <= set(starts)
    for start, end in pairwise(starts):
        assert 0 < end - start <= capacity
        if end not in ends_of_documents:
            assert 10 * (end - start) >= 9 * capacity
            assert end - start == capacity or end in sentences.offsets


@pytest.mark.parametrize(
    ("documents", "starts"),
    [
        ([[5, 4, 3]], [0, 9, 12]),  # 9 of 10 is enough
        ([[5, 3, 4]], [0, 10, 12]),  # 8 of 10 is not: full, and the rest of the sentence comes next
        ([[10, 10]], [0, 10, 20]),
        ([[11]], [0, 10, 11]),
        ([[35]], [0, 10, 20, 30, 35]),  # a sentence longer than several blocks
        ([[3], [3], [3]], [0, 3, 6, 9]),  # documents never share a block
        ([[9, 1, 3]], [0, 10, 13]),  # as many sentences as fit
    ],
)
def test_blocks_of_ten(documents: Documents, starts: list[int]) -> None:
    assert blocks(sentences_of(documents), 10).tolist() == starts


def test_blocks_of_nothing() -> None:
    assert blocks(sentences_of([]), 8).tolist() == [0]
    assert blocks(sentences_of([[0, 0], [0]]), 8).tolist() == [0]


def test_without_documents_all_is_one() -> None:
    assert blocks(Sentences(np.arange(12), np.array([0, 4, 8, 12])), 8).tolist() == [0, 8, 12]


# ---- beside the tokens ---------------------------------------------------------------------------------------


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The capacities for which blocks are looked for."""
    found: list[int] = []
    look = module._starts

    def noted(sentences: Sentences, capacity: int) -> Iterator[np.ndarray]:
        found.append(capacity)
        yield from look(sentences, capacity)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_starts", noted)
        yield found


def test_blocks_are_kept_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [[5, 3, 4], [7, 30]]
    sentences = saved(tmp_path / "text", documents)
    with counted(monkeypatch) as found:
        first = blocks(sentences, 10)
        assert first.tolist() == by_definition(documents, 10)
        kept = (tmp_path / "text" / "blocks-10.npy").stat()
        assert blocks(Sentences.open(tmp_path / "text", documents=True), 10).tolist() == first.tolist()
        assert found == [10]
        assert blocks(sentences, 7).tolist() == by_definition(documents, 7)  # another length has its own
        assert found == [10, 7]
    again = (tmp_path / "text" / "blocks-10.npy").stat()
    assert (again.st_ino, again.st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)
    assert sorted(file.name for file in (tmp_path / "text").glob("*blocks*")) == ["blocks-10.npy", "blocks-7.npy"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
@pytest.mark.parametrize("after", [0, 1])
def test_shards_that_may_only_be_read_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, after: int
) -> None:
    """The error may come at once, or when some of the blocks are written."""
    documents = [[5, 3, 4]] * 30
    sentences = saved(tmp_path / "text", documents)
    monkeypatch.setattr(module, "AT_ONCE", 8)
    add, calls = Column.add, iter(range(after))

    def closed(column: Column, values: np.ndarray) -> None:
        if next(calls, None) is None:
            raise OSError(code, "no")
        add(column, values)

    monkeypatch.setattr(Column, "add", closed)
    assert blocks(sentences, 10).tolist() == by_definition(documents, 10)
    assert not [file for file in (tmp_path / "text").iterdir() if "blocks" in file.name]


def test_other_errors_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = saved(tmp_path / "text", [[5]])

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Column, "add", broken)
    with pytest.raises(OSError, match="Input/output error"):
        blocks(sentences, 10)


def test_memory_stays_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 500)

    def peak(name: str, documents: int, lengths: Sequence[int]) -> int:
        sentences = saved(tmp_path / name, [list(lengths)] * documents)
        tracemalloc.start()
        assert len(blocks(sentences, 31)) > documents
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak("more documents", 6000, [20] * 3) < 1.3 * peak("documents", 600, [20] * 3)
    assert peak("longer documents", 400, [20] * 150) < 1.3 * peak("fewer blocks", 400, [20] * 15)
