"""Prefixes of sentence vectors that are trained to be vectors of their own (Kusupati et al. 2022, Eq. 1).

    L = mean over m in M of L(first m dimensions),    M = the given widths and the full width

The projection of a prefix is the leading block of the matrix, so that it reads the first m dimensions of the pooled
states only. The pooled states are what remains after training, and their prefixes are what users keep.
"""
# N vectors, D width, K prefixes, S sum of their widths

from __future__ import annotations

from typing import TYPE_CHECKING

from crossling.core.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor, nn


def parse_widths(text: str, where: str) -> list[int]:
    """Return the widths of `64,128,256`, the smallest first.

    Raises:
        BadInput: If they are not distinct numbers of at least 1.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise BadInput(f"{where}={text}: expected numbers separated by commas, as 64,128,256.")
    widths = sorted({int(part) for part in parts})
    if len(widths) < len(parts) or widths[0] < 1:
        raise BadInput(f"{where}={text}: expected distinct numbers of at least 1, as 64,128,256.")
    return widths


def project_prefixes(projection: nn.Module, pooled_ND: Tensor, widths: list[int], normalize: bool) -> Tensor:
    """Return the projections of all prefixes side by side, [N, S]. Each has length one with `normalize`."""
    import torch
    import torch.nn.functional as F

    position_D = torch.arange(pooled_ND.shape[-1], device=pooled_ND.device)
    # The module computes all prefixes in one call: with FSDP its weights exist in that call only.
    prefix_KND = torch.stack([torch.where(position_D < width, pooled_ND, 0) for width in widths])
    vectors = [projected_ND[:, :width] for width, projected_ND in zip(widths, projection(prefix_KND), strict=True)]
    return torch.cat([F.normalize(each, dim=-1) if normalize else each for each in vectors], dim=-1)
