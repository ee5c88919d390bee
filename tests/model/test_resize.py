"""Rows follow their pieces; those of pieces never seen are like the others."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from crossling.model.resize import moved


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_one_origin_is_copied_in_every_bit_and_more_are_averaged() -> None:
    table_VD = torch.randn(50, 8)
    rows = moved(table_VD, [[7], [3, 4], [0], [9, 9, 2]], seeded(0))
    assert torch.equal(rows[[0, 2]], table_VD[[7, 0]])
    assert_close(rows[1], (table_VD[3] + table_VD[4]) / 2)
    assert_close(rows[3], (2 * table_VD[9] + table_VD[2]) / 3)


def test_a_bias_moves_like_an_embedding() -> None:
    bias_V = torch.randn(50)
    assert torch.equal(
        moved(bias_V, [[7], [], [3, 4]], seeded(0))[[0, 2]], torch.stack([bias_V[7], bias_V[3:5].mean()])
    )
    assert moved(bias_V, [[7], []], seeded(0)).shape == (2,)


def test_rows_without_origin_are_drawn_where_the_old_ones_lie() -> None:
    torch.manual_seed(0)
    place_D, size_D = torch.tensor([5.0, -2.0, 0.0]), torch.tensor([0.1, 3.0, 1.0])
    table_VD = torch.nn.Parameter(place_D + size_D * torch.randn(4000, 3))
    rows = moved(table_VD, [[]] * 4000, seeded(1))
    assert not rows.requires_grad
    assert_close(rows.mean(0), place_D, atol=0.15, rtol=0)
    assert_close(rows.std(0), size_D, atol=0, rtol=0.05)
    assert len(rows.unique(dim=0)) == 4000


def test_what_is_drawn_depends_on_the_generator_alone() -> None:
    table_VD = torch.randn(50, 8)
    one, same, other = (moved(table_VD, [[], [1], []], seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
