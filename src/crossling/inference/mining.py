"""Bitext mining by margin (Artetxe and Schwenk 2019), as in LASER and XTREME.

    score(x, y) = margin(cos(x, y), (mean cosine of x and its k nearest + mean cosine of y and its k nearest) / 2)

The best neighbor of every sentence of either side is a candidate. LASER's four ways of retrieval select pairs:

- `max`: candidates of both sides in the order of their scores, if neither sentence is part of an accepted pair.
- `forward`, `backward`: the candidates of the first or of the second side, so a sentence of the other may repeat.
- `intersection`: pairs that are candidates of both sides.
"""
# N sentences of the first side, B of a block of it, M of the second, C of a block of it, k neighbors, P pairs, D width

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from crossling.core.errors import BadInput, suggestion
from crossling.core.progress import Progress
from crossling.inference.encode_file import SentenceFile, read_vectors, write_vectors
from crossling.inference.pooling import check_pooling

if TYPE_CHECKING:
    from crossling.inference.sentence_encoder import Encoder

# A block of similarities takes 128 MiB. The second side is read once for each block of the first, so these are longer.
FIRST_BLOCK = 16_384
SECOND_BLOCK = 2_048
MIN_CLUSTERED = 10_000  # vectors; fewer are searched without clusters
PROBED_CLUSTERS = 32


@dataclass(frozen=True)
class VectorRows:
    """Some rows of an array, which may be memory-mapped."""

    values_ND: np.ndarray  # float16 or float32
    rows: np.ndarray

    @classmethod
    def all(cls, values_ND: np.ndarray) -> VectorRows:
        """Select all rows."""
        return cls(values_ND, np.arange(len(values_ND)))

    def __len__(self) -> int:
        return len(self.rows)

    def normalized(self, start: int, stop: int, device: torch.device | None = None) -> Tensor:
        """Return some of the vectors at length one, in float32."""
        block = torch.from_numpy(self.values_ND[self.rows[start:stop]].astype(np.float32)).to(device)
        return torch.nn.functional.normalize(block, dim=1)


@dataclass(frozen=True)
class Neighbors:
    """Neighbors of each vector, nearest first."""

    cosine_Nk: np.ndarray
    row_Nk: np.ndarray  # positions among the vectors of the other side


def find_neighbors(
    first: VectorRows, second: VectorRows, k: int, *, device: torch.device | None = None, title: str | None = None
) -> tuple[Neighbors, Neighbors]:
    """Return the k nearest vectors of the second side for each of the first, and the reverse.

    Returns all vectors of a side that has fewer than k. Shows a progress bar if `title` is given.
    """
    forward, backward = _TopK(len(first), min(k, len(second)), device), _TopK(len(second), min(k, len(first)), device)
    with Progress(title or "", len(first), enabled=title is not None) as progress:
        for start in range(0, len(first), FIRST_BLOCK):
            stop = min(start + FIRST_BLOCK, len(first))
            first_BD = first.normalized(start, stop, device)
            for second_start in range(0, len(second), SECOND_BLOCK):
                second_stop = min(second_start + SECOND_BLOCK, len(second))
                cosine_BC = first_BD @ second.normalized(second_start, second_stop, device).T
                forward.add(slice(start, stop), cosine_BC, second_start)
                backward.add(slice(second_start, second_stop), cosine_BC.T.contiguous(), start)
            progress.update(stop, "sentences")
    return forward.neighbors(), backward.neighbors()


def find_neighbors_faiss(first: VectorRows, second: VectorRows, k: int) -> tuple[Neighbors, Neighbors]:
    """Do the same with faiss, which searches the nearest clusters only and misses some neighbors.

    On a CPU it is faster from some hundred thousand vectors on. It keeps one side in memory.
    """
    if not find_spec("faiss"):
        raise BadInput("faiss=true: the package faiss is not installed. Run pip install faiss-cpu, or omit faiss.")
    return _search_index(first, second, k), _search_index(second, first, k)


class _TopK:
    """The k largest similarities of each row so far."""

    def __init__(self, rows: int, k: int, device: torch.device | None) -> None:
        self.cosine = torch.full((rows, k), -torch.inf, device=device)
        self.row = torch.zeros((rows, k), dtype=torch.long, device=device)

    def add(self, rows: slice, cosine_BC: Tensor, offset: int) -> None:
        k = self.cosine.shape[1]
        cosine_Bk, position_Bk = cosine_BC.topk(min(k, cosine_BC.shape[1]), dim=1)
        merged = torch.cat([self.cosine[rows], cosine_Bk], dim=1)
        self.cosine[rows], selected_Bk = merged.topk(k, dim=1)
        self.row[rows] = torch.cat([self.row[rows], position_Bk + offset], dim=1).gather(1, selected_Bk)

    def neighbors(self) -> Neighbors:
        return Neighbors(self.cosine.cpu().numpy(), self.row.cpu().numpy())


def _search_index(query: VectorRows, base: VectorRows, k: int) -> Neighbors:
    import faiss

    clusters = round(4 * len(base) ** 0.5)
    kind = "Flat" if len(base) < MIN_CLUSTERED else f"IVF{clusters},Flat"
    index = faiss.index_factory(base.values_ND.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    sample = VectorRows(base.values_ND, base.rows[:: max(1, len(base) // (64 * clusters))])
    index.train(sample.normalized(0, len(sample)).numpy())
    for start in range(0, len(base), FIRST_BLOCK):
        index.add(base.normalized(start, start + FIRST_BLOCK).numpy())
    if len(base) >= MIN_CLUSTERED:
        index.nprobe = PROBED_CLUSTERS  # type: ignore[attr-defined]
    found = [
        index.search(query.normalized(start, start + FIRST_BLOCK).numpy(), min(k, len(base)))
        for start in range(0, len(query), FIRST_BLOCK)
    ]
    cosine_Nk, row_Nk = (np.concatenate(part) for part in zip(*found, strict=True))
    return Neighbors(np.where(row_Nk < 0, -1, cosine_Nk), np.maximum(row_Nk, 0))  # row -1: found fewer than k


DEFAULT_NEIGHBORS = 4
RETRIEVALS = ("max", "forward", "backward", "intersection")
SCORE_TOLERANCE = 1e-6  # rounding error of float32: a pair no closer than its neighbors has a distance of 0 +- 1e-7
MARGINS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ratio": lambda cosine, mean: np.divide(cosine, mean, out=np.zeros_like(cosine), where=mean != 0),
    "distance": lambda cosine, mean: cosine - mean,
    "absolute": lambda cosine, _: cosine,
}


@dataclass(frozen=True)
class MinedPair:
    """Two sentences that probably are translations, with their margin score.

    Example:
        >>> pair = crossling.MinedPair(1.2, "ein Satz", "a sentence")
    """

    score: float
    source: str
    target: str


@dataclass(frozen=True)
class CandidatePairs:
    """Rows of the two sides and their scores, best first."""

    score_P: np.ndarray
    first_P: np.ndarray
    second_P: np.ndarray

    def take(self, positions: np.ndarray) -> CandidatePairs:
        """Select some of the pairs."""
        return CandidatePairs(self.score_P[positions], self.first_P[positions], self.second_P[positions])


def mine(
    model: Encoder | str | os.PathLike[str] | None,
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *,
    layer: int | None = None,
    pooling: str = "auto",
    margin: str = "ratio",
    k: int = DEFAULT_NEIGHBORS,
    threshold: float = 0.0,
    retrieval: str = "max",
    vectors: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
    faiss: bool = False,
) -> Iterator[MinedPair]:
    """Find translations in two files of sentences. Works in bounded memory.

    Args:
        model: Encoder, or a name that `load` takes. None if `vectors` is given.
        first: One sentence per line, plain or compressed.
        second: Sentences in the other language.
        layer: Layer of the sentence vectors. [default: the universal layer of the model]
        pooling: "auto", "mean" or "cls", as in `Encoder.encode`.
        margin: "ratio", "distance" or "absolute".
        k: Number of neighbors in the margin.
        threshold: Return pairs whose score is larger by more than 1e-6, the rounding error.
        retrieval: "max", "forward", "backward" or "intersection", as in LASER.
        vectors: Vectors of both files that `encode_file` wrote, in place of a model.
        faiss: Search clusters of vectors with faiss: faster, approximate.

    Returns:
        An iterator over pairs with `score`, `source` and `target`, best first. Each sentence occurs at most once,
        except on the searched side of "forward" and "backward".

    Raises:
        BadInput: If a file or an option is invalid.

    Example:
        >>> for pair in mine("runs/xlm_e", "german.txt", "english.txt", threshold=1.05):
        ...     print(pair.score, pair.source, pair.target)
    """
    check_margin(margin, k, retrieval)
    check_pooling(pooling)
    if model is None and vectors is None:
        raise BadInput("mine: no model and no vectors. Give a model, or the vectors of both files.")
    files = SentenceFile(Path(first)), SentenceFile(Path(second))
    with tempfile.TemporaryDirectory(prefix="crossling-mine-") as folder:
        if vectors is None and model is not None:
            from crossling.inference.load_network import as_encoder  # imports this module

            encoder = as_encoder(model)
            vectors = Path(folder) / "first.npy", Path(folder) / "second.npy"
            for file, path in zip(files, vectors, strict=True):
                write_vectors(encoder, file, Path(path), *encoder.resolve_pooling(pooling, layer), np.float32)
        assert vectors is not None
        one, other = (_read_distinct(file, Path(path)) for file, path in zip(files, vectors, strict=True))
        if one.values_ND.shape[1] != other.values_ND.shape[1]:
            widths = f"widths {one.values_ND.shape[1]} and {other.values_ND.shape[1]}"
            raise BadInput(f"{vectors[0]} and {vectors[1]}: {widths}. Encode both files with one model.")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        search = find_neighbors_faiss if faiss else partial(find_neighbors, device=device, title="search")
        pairs = retrieve_pairs(*search(one, other, k), margin, retrieval)
        pairs = CandidatePairs(pairs.score_P, one.rows[pairs.first_P], other.rows[pairs.second_P])  # rows of the files
    return iter_pairs(pairs, *files, threshold)


def retrieve_pairs(
    forward: Neighbors, backward: Neighbors, margin: str = "ratio", retrieval: str = "max"
) -> CandidatePairs:
    """Select pairs from the candidates of both sides, best first. Of equal scores, those of the first side come first.

    Args:
        forward: Neighbors of each row of the first side.
        backward: Neighbors of each row of the second side.
        margin: Name of the margin.
        retrieval: Way of selection, see the head of this module.
    """
    first_mean, second_mean = (neighbors.cosine_Nk.mean(axis=1) for neighbors in (forward, backward))
    best_second_N, score_N = _best_candidates(forward, first_mean, second_mean, margin)
    best_first_M, score_M = _best_candidates(backward, second_mean, first_mean, margin)
    first_N, second_M = np.arange(len(best_second_N)), np.arange(len(best_first_M))
    if retrieval == "forward":
        pairs = CandidatePairs(score_N, first_N, best_second_N)
    elif retrieval == "backward":
        pairs = CandidatePairs(score_M, best_first_M, second_M)
    elif retrieval == "intersection":
        pairs = CandidatePairs(score_N, first_N, best_second_N).take(best_first_M[best_second_N] == first_N)
    else:
        joined = (score_N, score_M), (first_N, best_first_M), (best_second_N, second_M)
        pairs = CandidatePairs(*map(np.concatenate, joined))
    pairs = pairs.take(np.argsort(-pairs.score_P, kind="stable"))
    return _match_one_to_one(pairs, len(first_N), len(second_M)) if retrieval == "max" else pairs


def _match_one_to_one(pairs: CandidatePairs, first_rows: int, second_rows: int) -> CandidatePairs:
    """Accept pairs greedily, each row at most once."""
    free_first, free_second = bytearray(b"\1" * first_rows), bytearray(b"\1" * second_rows)
    accepted = []
    for position, (first, second) in enumerate(zip(pairs.first_P.tolist(), pairs.second_P.tolist(), strict=True)):
        if free_first[first] and free_second[second]:
            free_first[first] = free_second[second] = 0
            accepted.append(position)
    return pairs.take(np.array(accepted, dtype=np.int64))


def check_margin(margin: str, k: int = DEFAULT_NEIGHBORS, retrieval: str = "max") -> None:
    """Raise BadInput if there is no such margin or way of retrieval, or `k` is below 1."""
    if margin not in MARGINS:
        raise BadInput(f"margin={margin}: no such margin{suggestion(margin, MARGINS)}")
    if retrieval not in RETRIEVALS:
        raise BadInput(f"retrieval={retrieval}: no such retrieval{suggestion(retrieval, RETRIEVALS)}")
    if k < 1:
        raise BadInput(f"k={k}: expected at least 1 neighbor.")


def iter_pairs(
    pairs: CandidatePairs, sources: SentenceFile | list[str], targets: SentenceFile | list[str], threshold: float
) -> Iterator[MinedPair]:
    """Yield the sentences of pairs with a score above the threshold. A difference of 1e-6 counts as equal."""
    for score, first, second in zip(pairs.score_P, pairs.first_P, pairs.second_P, strict=True):
        if score <= threshold + SCORE_TOLERANCE:  # the best come first
            return
        yield MinedPair(float(score), sources[first], targets[second])


def _best_candidates(
    neighbors: Neighbors, own_mean_N: np.ndarray, other_mean_M: np.ndarray, margin: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the neighbor with the largest score for each row, and the score."""
    mean_Nk = (own_mean_N[:, None] + other_mean_M[neighbors.row_Nk]) / 2
    score_Nk = MARGINS[margin](neighbors.cosine_Nk, mean_Nk)
    best_N1 = score_Nk.argmax(axis=1)[:, None]
    row_N, score_N = (np.take_along_axis(values, best_N1, axis=1)[:, 0] for values in (neighbors.row_Nk, score_Nk))
    return row_N, score_N


def _read_distinct(sentences: SentenceFile, path: Path) -> VectorRows:
    """Return the vectors of the distinct sentences of a file."""
    values_ND = read_vectors(path)
    if len(values_ND) != len(sentences):
        counts = f"{len(values_ND)} vectors, but {sentences.file} has {len(sentences)} lines"
        raise BadInput(f"{path}: {counts}. Encode the file again.")
    return VectorRows(values_ND, sentences.distinct())
