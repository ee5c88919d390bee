"""Selection of positions of packed rows, in value and gradient."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from crossling.model.gather import gather_positions


def test_values_and_gradients_equal_indexing() -> None:
    torch.manual_seed(0)
    values_BLD = torch.randn(3, 4, 5, requires_grad=True)
    position_M, weights_MD = torch.tensor([7, 0, 11]), torch.randn(3, 5)
    found_MD = gather_positions(values_BLD, position_M)
    assert torch.equal(found_MD, values_BLD.flatten(0, 1)[position_M])
    [found] = torch.autograd.grad((found_MD * weights_MD).sum(), values_BLD)
    [expected] = torch.autograd.grad((values_BLD.flatten(0, 1)[position_M] * weights_MD).sum(), values_BLD)
    assert torch.equal(found, expected)


def test_padding_one_past_the_end_repeats_the_last_value_and_has_no_gradient() -> None:
    values_BL = torch.arange(6.0).view(2, 3).requires_grad_()
    found_M = gather_positions(values_BL, torch.tensor([2, 5, 6, 6]))
    assert_close(found_M, torch.tensor([2.0, 5.0, 5.0, 5.0]))
    (found_M * torch.tensor([1.0, 2.0, 4.0, 8.0])).sum().backward()
    assert_close(values_BL.grad, torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 2.0]]))
