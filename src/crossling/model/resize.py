"""The rows of a table for another vocabulary."""
# V vocabulary, D width

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor


@torch.no_grad()
def moved(table: Tensor, origins: Sequence[Sequence[int]], generator: torch.Generator) -> Tensor:
    """The row of every new piece, the mean of the old rows it comes from; for embeddings, and for an output bias.

    A row that comes from none is drawn, normal with the mean and the deviation that the old rows have in each column.
    Trained rows lie in one place, of a size far from that of new weights: there the layers above know what to do with
    a row, and as an output it takes no more of the probability than the others do (a row near zero would stand out).
    """
    old_VD = table.unsqueeze(1) if table.dim() == 1 else table
    counts_V = torch.tensor([len(ids) for ids in origins], device=table.device)
    ids_N = torch.tensor(list(chain.from_iterable(origins)), dtype=torch.long, device=table.device)
    new_VD = F.embedding_bag(ids_N, old_VD, counts_V.cumsum(0) - counts_V, mode="mean")
    without_V = counts_V == 0
    drawn_MD = torch.randn(int(without_V.sum()), old_VD.shape[1], generator=generator, device=generator.device)
    new_VD[without_V] = old_VD.mean(0) + old_VD.std(0) * drawn_MD.to(table)
    return new_VD.view(-1, *table.shape[1:])
