"""Fingerprints of models."""

from __future__ import annotations

import torch
from torch import nn

from crossling.model.fingerprint import model_fingerprint


def make_module(width: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 2000), nn.Linear(2000, width))


def test_equal_weights_have_equal_fingerprints() -> None:
    assert model_fingerprint(make_module()) == model_fingerprint(make_module())


def test_every_value_shape_type_and_name_changes_the_fingerprint() -> None:
    base = model_fingerprint(make_module())
    changed = make_module()
    with torch.no_grad():
        changed[0].weight[-1, -1] += 1e-6  # beyond the first thousand values
    reshaped = make_module()
    reshaped[0].weight = nn.Parameter(reshaped[0].weight.detach().reshape(3, 2000))
    renamed = nn.ModuleDict(dict(zip("ab", make_module(), strict=True)))
    prints = [model_fingerprint(module) for module in (changed, reshaped, make_module().half(), renamed)]
    assert len({base, *prints}) == 5
