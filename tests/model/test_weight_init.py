"""Rows of token tables for another vocabulary."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from crossling.model.embedding import remap_rows


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_one_origin_is_copied_exactly_and_several_are_averaged() -> None:
    table_VD = torch.randn(50, 8)
    rows = remap_rows(table_VD, [[7], [3, 4], [0], [9, 9, 2]], seeded(0))
    assert torch.equal(rows[[0, 2]], table_VD[[7, 0]])
    assert_close(rows[1], (table_VD[3] + table_VD[4]) / 2)
    assert_close(rows[3], (2 * table_VD[9] + table_VD[2]) / 3)


def test_bias_is_remapped_like_an_embedding() -> None:
    bias_V = torch.randn(50)
    assert torch.equal(
        remap_rows(bias_V, [[7], [], [3, 4]], seeded(0))[[0, 2]], torch.stack([bias_V[7], bias_V[3:5].mean()])
    )
    assert remap_rows(bias_V, [[7], []], seeded(0)).shape == (2,)


def test_rows_without_origin_have_the_mean_and_deviation_of_the_old_rows() -> None:
    torch.manual_seed(0)
    mean_D, deviation_D = torch.tensor([5.0, -2.0, 0.0]), torch.tensor([0.1, 3.0, 1.0])
    table_VD = torch.nn.Parameter(mean_D + deviation_D * torch.randn(4000, 3))
    rows = remap_rows(table_VD, [[]] * 4000, seeded(1))
    assert not rows.requires_grad
    assert_close(rows.mean(0), mean_D, atol=0.15, rtol=0)
    assert_close(rows.std(0), deviation_D, atol=0, rtol=0.05)
    assert len(rows.unique(dim=0)) == 4000


def test_sampled_rows_depend_on_the_generator_only() -> None:
    table_VD = torch.randn(50, 8)
    one, same, other = (remap_rows(table_VD, [[], [1], []], seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
