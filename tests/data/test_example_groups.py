"""Blocks contain a text once and in order, never cross documents, and are full."""

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

from crossling.data import example_groups as module
from crossling.data.example_groups import block_starts, example_lengths, make_groups
from crossling.data.shards import ArrayWriter, TokenizedSentences
from crossling.sampling import Sampling

from .batch_helpers import bitext, shards_of

Documents = list[list[int]]  # the lengths of their sentences


def sentences_of(documents: Documents) -> TokenizedSentences:
    lengths = [length for document in documents for length in document]
    offsets = np.cumsum([0, *lengths])
    return TokenizedSentences(np.arange(offsets[-1]), offsets, np.cumsum([0, *map(len, documents)]))


def saved(folder: Path, documents: Documents) -> TokenizedSentences:
    made = sentences_of(documents)
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in (("tokens", made.tokens), ("offsets", made.offsets), ("documents", made.documents)):
        with ArrayWriter(folder / f"{name}.npy", np.int64) as column:
            column.add(np.asarray(values))
    return TokenizedSentences.open(folder, documents=True)


def by_definition(documents: Documents, capacity: int) -> list[int]:
    """Compute the block starts token by token, with the end."""
    starts, place = [0], 0
    for document in documents:
        ends = set((place + np.cumsum(document)).tolist())
        last = place + sum(document)
        while place < last:
            size = min(capacity, last - place)
            if place + size < last:  # inside the document: a tenth may stay empty to end with a sentence
                whole = [n for n in range(1, capacity + 1) if place + n in ends and 10 * (capacity - n) <= capacity]
                size = max(whole, default=capacity)
            place += size
            starts.append(place)
    return starts


DOCUMENTS = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12), max_size=10)


@settings(max_examples=200, deadline=None)
@given(documents=DOCUMENTS, capacity=st.integers(1, 60), chunk_size=st.integers(1, 4))
def test_blocks_match_the_definition(documents: Documents, capacity: int, chunk_size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_SIZE", chunk_size)
        assert block_starts(sentences_of(documents), capacity).tolist() == by_definition(documents, capacity)


@settings(max_examples=100, deadline=None)
@given(documents=DOCUMENTS, capacity=st.integers(1, 60))
def test_blocks_contain_every_token_once_and_are_full(documents: Documents, capacity: int) -> None:
    sentences = sentences_of(documents)
    starts = block_starts(sentences, capacity).tolist()
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
        ([[5, 3, 4]], [0, 10, 12]),  # 8 of 10 is not: the block ends inside the sentence
        ([[10, 10]], [0, 10, 20]),
        ([[11]], [0, 10, 11]),
        ([[35]], [0, 10, 20, 30, 35]),  # a sentence longer than several blocks
        ([[3], [3], [3]], [0, 3, 6, 9]),  # documents never share a block
        ([[9, 1, 3]], [0, 10, 13]),  # as many sentences as fit
    ],
)
def test_blocks_of_ten(documents: Documents, starts: list[int]) -> None:
    assert block_starts(sentences_of(documents), 10).tolist() == starts


def test_empty_text_has_no_blocks() -> None:
    assert block_starts(sentences_of([]), 8).tolist() == [0]
    assert block_starts(sentences_of([[0, 0], [0]]), 8).tolist() == [0]


def test_text_without_documents_is_one_document() -> None:
    assert block_starts(TokenizedSentences(np.arange(12), np.array([0, 4, 8, 12])), 8).tolist() == [0, 8, 12]


@contextmanager
def record_capacities(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield a list of the capacities for which blocks are computed."""
    found: list[int] = []
    original = module._starts

    def recorded(sentences: TokenizedSentences, capacity: int) -> Iterator[np.ndarray]:
        found.append(capacity)
        yield from original(sentences, capacity)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_starts", recorded)
        yield found


def test_blocks_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [[5, 3, 4], [7, 30]]
    sentences = saved(tmp_path / "text", documents)
    with record_capacities(monkeypatch) as found:
        first = block_starts(sentences, 10)
        assert first.tolist() == by_definition(documents, 10)
        kept = (tmp_path / "text" / "blocks-10.npy").stat()
        assert block_starts(TokenizedSentences.open(tmp_path / "text", documents=True), 10).tolist() == first.tolist()
        assert found == [10]
        assert block_starts(sentences, 7).tolist() == by_definition(documents, 7)  # another length has its own
        assert found == [10, 7]
    again = (tmp_path / "text" / "blocks-10.npy").stat()
    assert (again.st_ino, again.st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)
    assert sorted(file.name for file in (tmp_path / "text").glob("*blocks*")) == ["blocks-10.npy", "blocks-7.npy"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
@pytest.mark.parametrize("after", [0, 1])
def test_read_only_shards_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, after: int) -> None:
    """The error may be raised at once, or after some blocks were written."""
    documents = [[5, 3, 4]] * 30
    sentences = saved(tmp_path / "text", documents)
    monkeypatch.setattr(module, "CHUNK_SIZE", 8)
    add, calls = ArrayWriter.add, iter(range(after))

    def closed(column: ArrayWriter, values: np.ndarray) -> None:
        if next(calls, None) is None:
            raise OSError(code, "no")
        add(column, values)

    monkeypatch.setattr(ArrayWriter, "add", closed)
    assert block_starts(sentences, 10).tolist() == by_definition(documents, 10)
    assert not [file for file in (tmp_path / "text").iterdir() if "blocks" in file.name]


def test_other_errors_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = saved(tmp_path / "text", [[5]])

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(ArrayWriter, "add", broken)
    with pytest.raises(OSError, match="Input/output error"):
        block_starts(sentences, 10)


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_SIZE", 500)

    def peak(name: str, documents: int, lengths: Sequence[int]) -> int:
        sentences = saved(tmp_path / name, [list(lengths)] * documents)
        tracemalloc.start()
        assert len(block_starts(sentences, 31)) > documents
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak("more documents", 6000, [20] * 3) < 1.3 * peak("documents", 600, [20] * 3)
    assert peak("longer documents", 400, [20] * 150) < 1.3 * peak("fewer blocks", 400, [20] * 15)


@pytest.mark.parametrize("full_blocks", [False, True])
def test_lengths_are_those_of_the_examples(full_blocks: bool) -> None:
    """Text with a shorter last block, and pairs that are empty on a side or longer than a side may be."""
    sides = [0, 4, 9, 30, 2] * 300, [5, 6, 0, 8, 2] * 300
    corpora = [bitext(0, "en-sw", *sides), bitext(1, "de-sw", [3] * 9, [4] * 9)]
    shards = shards_of({"en": [[3, 4, 20], [5], [2, 2]], "sw": [7]}, corpora)
    for stream in ("text", "pairs"):
        groups = make_groups(shards, stream, 21, Sampling(full_blocks=full_blocks))
        examples = [(group, index) for group in range(len(groups)) for index in range(len(groups[group]))][::-1]
        group_N, index_N = np.asarray(examples).T
        expected = [1 + sum(map(len, groups[group].example(index)[:2])) for group, index in examples]
        assert example_lengths(groups, group_N, index_N).tolist() == expected


def test_rows_are_those_with_both_sides() -> None:
    corpus = bitext(0, "en-sw", [0, 4, 9, 30, 2] * 300, [5, 6, 0, 8, 2] * 300)
    expected = [row for row in range(1500) if row % 5 in (1, 3, 4)]
    assert corpus.rows(np.arange(900)).tolist() == expected
    assert corpus.rows(np.array([899, 0, 899])).tolist() == [expected[i] for i in (899, 0, 899)]
    assert corpus.row(500) == expected[500]
