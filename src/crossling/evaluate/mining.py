"""Translations in two piles of sentences, by margin (Artetxe and Schwenk 2019, as LASER and XTREME do).

    score(x, y) = margin(cos(x, y), (mean cosine of x and its k nearest + mean cosine of y and its k nearest) / 2)

For each sentence of either side the best of its neighbours is a candidate; candidates are taken in the order of their
scores, unless one of the two is taken already.
"""
# N sentences of the first side, M of the second, k neighbours, P pairs

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from crossling.errors import BadInput, nearest
from crossling.evaluate.asked import check_pooling
from crossling.evaluate.embedding import read_vectors, write_vectors
from crossling.evaluate.encode import Encoder
from crossling.evaluate.neighbours import Neighbours, Vectors, approximate, neighbours
from crossling.evaluate.sentences import Sentences

NEIGHBOURS = 4
MARGINS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ratio": lambda cosine, around: np.divide(cosine, around, out=np.zeros_like(cosine), where=around != 0),
    "distance": lambda cosine, around: cosine - around,
    "absolute": lambda cosine, _: cosine,
}


@dataclass(frozen=True)
class Mined:
    score: float
    source: str
    target: str


@dataclass(frozen=True)
class Pairs:
    """Best first."""

    score_P: np.ndarray
    first_P: np.ndarray  # rows
    second_P: np.ndarray


def mine(
    encoder: Encoder | None,
    first: Path | str,
    second: Path | str,
    *,
    layer: int | None = None,
    pooling: str = "mean",
    margin: str = "ratio",
    k: int = NEIGHBOURS,
    threshold: float = 0.0,
    vectors: tuple[Path | str, Path | str] | None = None,
    faiss: bool = False,
) -> Iterator[Mined]:
    """Pairs of sentences of two files that score above the threshold, best first, each sentence at most once. With the
    vectors of both files (of `embed`) no encoder is needed."""
    check_margin(margin, k)
    check_pooling(pooling)
    if encoder is None and vectors is None:
        raise BadInput("give a model, or the vectors of both files")
    files = Sentences(Path(first)), Sentences(Path(second))
    with tempfile.TemporaryDirectory(prefix="crossling-mine-") as folder:
        if vectors is None and encoder is not None:
            chosen = encoder.layer(layer)
            vectors = Path(folder) / "first.npy", Path(folder) / "second.npy"
            for sentences, path in zip(files, vectors, strict=True):
                write_vectors(encoder, sentences, path, chosen, pooling, np.float32)
        assert vectors is not None
        one, other = _checked(files[0], Path(vectors[0])), _checked(files[1], Path(vectors[1]))
        if one.values_ND.shape[1] != other.values_ND.shape[1]:
            raise BadInput(f"{vectors[0]} and {vectors[1]}: vectors of different widths; embed both with one model")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        found = approximate(one, other, k) if faiss else neighbours(one, other, k, device, "search")
        pairs = one_to_one(*found, margin)
        first_P, second_P = one.rows[pairs.first_P], other.rows[pairs.second_P]  # of the files
    for score, row, column in zip(pairs.score_P, first_P, second_P, strict=True):
        if score <= threshold:
            return
        yield Mined(float(score), files[0][row], files[1][column])


def one_to_one(ahead: Neighbours, back: Neighbours, margin: str = "ratio") -> Pairs:
    """Candidates of both directions, greedily, each row at most once; of equal scores the first side's come first."""
    one, other = (found.cosine_Nk.mean(axis=1) for found in (ahead, back))
    forward_N, score_N = _best(ahead, one, other, margin)
    backward_M, score_M = _best(back, other, one, margin)
    first_P = np.concatenate([np.arange(len(forward_N)), backward_M])
    second_P = np.concatenate([forward_N, np.arange(len(backward_M))])
    score_P = np.concatenate([score_N, score_M])
    order_P = np.argsort(-score_P, kind="stable")
    free_first, free_second = bytearray(b"\1" * len(forward_N)), bytearray(b"\1" * len(backward_M))
    taken = []
    for place, row, column in zip(order_P.tolist(), first_P[order_P].tolist(), second_P[order_P].tolist(), strict=True):
        if free_first[row] and free_second[column]:
            free_first[row] = free_second[column] = 0
            taken.append(place)
    return Pairs(score_P[taken], first_P[taken], second_P[taken])


def check_margin(margin: str, k: int = NEIGHBOURS) -> None:
    if margin not in MARGINS:
        raise BadInput(f"margin {margin!r} is unknown{nearest(margin, MARGINS)}")
    if k < 1:
        raise BadInput(f"{k} neighbours: a margin needs 1 at least")


def _best(found: Neighbours, own_N: np.ndarray, other_M: np.ndarray, margin: str) -> tuple[np.ndarray, np.ndarray]:
    """For each row the neighbour with the largest score, and the score."""
    around_Nk = (own_N[:, None] + other_M[found.row_Nk]) / 2
    score_Nk = MARGINS[margin](found.cosine_Nk, around_Nk)
    best_N1 = score_Nk.argmax(axis=1)[:, None]
    row_N, score_N = (np.take_along_axis(values, best_N1, axis=1)[:, 0] for values in (found.row_Nk, score_Nk))
    return row_N, score_N


def _checked(sentences: Sentences, path: Path) -> Vectors:
    """The vectors of the distinct sentences."""
    values_ND = read_vectors(path)
    if len(values_ND) != len(sentences):
        counts = f"{len(values_ND)} vectors but {len(sentences)} lines in {sentences.file}"
        raise BadInput(f"{path}: {counts}; embed the file again")
    return Vectors(values_ND, sentences.distinct())
