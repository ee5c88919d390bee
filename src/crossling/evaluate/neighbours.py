"""The nearest vectors by cosine, both ways from one product, in blocks: never N x M numbers at once."""
# N vectors of the first side, B of a block of it, M of the second, C of a block of it, k neighbours of each, D width

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from crossling.errors import BadInput
from crossling.progress import Progress

# A block of similarities is 128 MiB. The second side is read once for each block of the first, hence the long blocks
# of the first.
FIRST_AT_ONCE = 16_384
SECOND_AT_ONCE = 2_048
FEW = 10_000  # vectors that need no clusters
PROBES = 32  # clusters that are looked into


@dataclass(frozen=True)
class Vectors:
    """Some rows of an array that may lie on disk."""

    values_ND: np.ndarray  # float16 or float32
    rows: np.ndarray

    @classmethod
    def all(cls, values_ND: np.ndarray) -> Vectors:
        return cls(values_ND, np.arange(len(values_ND)))

    def __len__(self) -> int:
        return len(self.rows)

    def unit(self, start: int, stop: int, device: torch.device | None = None) -> Tensor:
        """Some of them, at length one, in float32."""
        block = torch.from_numpy(self.values_ND[self.rows[start:stop]].astype(np.float32)).to(device)
        return torch.nn.functional.normalize(block, dim=1)


@dataclass(frozen=True)
class Neighbours:
    """Of each vector, nearest first."""

    cosine_Nk: np.ndarray
    row_Nk: np.ndarray  # places among the vectors of the other side


def neighbours(
    first: Vectors, second: Vectors, k: int, device: torch.device | None = None, title: str | None = None
) -> tuple[Neighbours, Neighbours]:
    """The k nearest of the second side for each of the first, and of the first for each of the second; all if there are
    fewer. With a title, progress is shown."""
    ahead, back = _Best(len(first), min(k, len(second)), device), _Best(len(second), min(k, len(first)), device)
    with Progress(title or "", len(first), shown=title is not None) as progress:
        for start in range(0, len(first), FIRST_AT_ONCE):
            stop = min(start + FIRST_AT_ONCE, len(first))
            first_BD = first.unit(start, stop, device)
            for other in range(0, len(second), SECOND_AT_ONCE):
                beyond = min(other + SECOND_AT_ONCE, len(second))
                cosine_BC = first_BD @ second.unit(other, beyond, device).T
                ahead.add(slice(start, stop), cosine_BC, other)
                back.add(slice(other, beyond), cosine_BC.T.contiguous(), start)
            progress.update(stop, "sentences")
    return ahead.found(), back.found()


def approximate(first: Vectors, second: Vectors, k: int) -> tuple[Neighbours, Neighbours]:
    """The same by faiss, which looks only into the nearest clusters of vectors: on a CPU it pays from some hundred
    thousand sentences, and misses some neighbours. It holds one side in memory."""
    if not find_spec("faiss"):
        raise BadInput("the approximate search needs faiss; install faiss-cpu, or search exactly")
    return _indexed(first, second, k), _indexed(second, first, k)


class _Best:
    """The k largest similarities of each row so far."""

    def __init__(self, rows: int, k: int, device: torch.device | None) -> None:
        self.cosine = torch.full((rows, k), -torch.inf, device=device)
        self.row = torch.zeros((rows, k), dtype=torch.long, device=device)

    def add(self, rows: slice, cosine_BC: Tensor, offset: int) -> None:
        k = self.cosine.shape[1]
        cosine_Bk, place_Bk = cosine_BC.topk(min(k, cosine_BC.shape[1]), dim=1)
        both = torch.cat([self.cosine[rows], cosine_Bk], dim=1)
        self.cosine[rows], chosen_Bk = both.topk(k, dim=1)
        self.row[rows] = torch.cat([self.row[rows], place_Bk + offset], dim=1).gather(1, chosen_Bk)

    def found(self) -> Neighbours:
        return Neighbours(self.cosine.cpu().numpy(), self.row.cpu().numpy())


def _indexed(query: Vectors, base: Vectors, k: int) -> Neighbours:
    import faiss

    clusters = round(4 * len(base) ** 0.5)
    kind = "Flat" if len(base) < FEW else f"IVF{clusters},Flat"
    index = faiss.index_factory(base.values_ND.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    sample = Vectors(base.values_ND, base.rows[:: max(1, len(base) // (64 * clusters))])
    index.train(sample.unit(0, len(sample)).numpy())
    for start in range(0, len(base), FIRST_AT_ONCE):
        index.add(base.unit(start, start + FIRST_AT_ONCE).numpy())
    if len(base) >= FEW:
        index.nprobe = PROBES  # type: ignore[attr-defined]
    found = [
        index.search(query.unit(start, start + FIRST_AT_ONCE).numpy(), min(k, len(base)))
        for start in range(0, len(query), FIRST_AT_ONCE)
    ]
    cosine_Nk, row_Nk = (np.concatenate(part) for part in zip(*found, strict=True))
    return Neighbours(np.where(row_Nk < 0, -1, cosine_Nk), np.maximum(row_Nk, 0))  # -1: fewer than k were met
