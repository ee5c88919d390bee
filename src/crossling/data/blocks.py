"""Text in blocks of a recipe's length: sentences of one document, as many as fit.

A block ends at the end of a sentence where that leaves a tenth of it empty or less, else inside one; no block crosses
the end of a document, and nothing is dropped.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import numpy as np

from crossling.data.column import Column, mapped
from crossling.data.shards import Sentences
from crossling.disk import new_file

AT_ONCE = 1 << 16  # documents, and blocks
FULL = 0.9  # of a block: enough to end it with a sentence
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def blocks(sentences: Sentences, capacity: int) -> np.ndarray:
    """Where the blocks start, plus the end. Kept beside the tokens, as a list of them would grow with the corpus."""
    starts = _starts(sentences, capacity)
    if sentences.folder is None:
        return np.concatenate([*starts])
    file = sentences.folder / f"blocks-{capacity}.npy"
    if not file.exists():
        try:
            with new_file(file) as new, Column(new, np.int64) as column:
                for some in starts:
                    column.add(some)
        except OSError as error:
            if error.errno not in CLOSED:
                raise
            return np.concatenate([*_starts(sentences, capacity)])  # shards that may only be read
    return mapped(file)


def _starts(sentences: Sentences, capacity: int) -> Iterator[np.ndarray]:
    offsets = sentences.offsets
    documents = np.asarray([0, len(sentences)]) if sentences.documents is None else sentences.documents
    start, starts = 0, [0]
    for first in range(1, len(documents), AT_ONCE):
        for end in offsets[documents[first : first + AT_ONCE]].tolist():
            while start < end:
                limit = start + capacity
                if limit >= end:
                    start = end
                else:
                    fits = int(offsets[np.searchsorted(offsets, limit, side="right") - 1])
                    start = fits if fits - start >= FULL * capacity else limit
                starts.append(start)
            if len(starts) >= AT_ONCE:
                yield np.asarray(starts, dtype=np.int64)
                starts = []
    yield np.asarray(starts, dtype=np.int64)
