"""What the processes of one run tell each other. A process that is alone hears itself."""
# N rows of this process, R of all processes

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as with_gradient
from torch import Tensor


def gathered(rows: Tensor) -> tuple[Tensor, int]:
    """The rows of all processes in the order of their ranks, with gradient, and where ours begin.

    Processes may have different numbers of rows.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return rows, 0
    lengths = [torch.zeros((), dtype=torch.long, device=rows.device) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor(len(rows), device=rows.device))
    counts = [int(length) for length in lengths]
    padded = torch.cat([rows, rows.new_zeros(max(counts) - len(rows), *rows.shape[1:])])
    if padded.requires_grad:
        parts = list(with_gradient.all_gather(padded))
    else:
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
    together = torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
    return together, sum(counts[: dist.get_rank()])
