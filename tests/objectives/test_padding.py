"""Rows and masked positions that pad a batch to one of few shapes change neither losses nor gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from torch.testing import assert_close

from crossling.data import packing
from crossling.objectives import (
    CAMLM,
    CATLM,
    MLM,
    MRTD,
    TLM,
    TRTD,
    Denoising,
    Distillation,
    PairDenoising,
    PretrainingObjective,
    XLCo,
)

from . import slow
from .conftest import corrupted, network, packed, pairs_of, text_of

OBJECTIVES = {
    "mlm": MLM(rate=0.3),
    "tlm": TLM(rate=0.3),
    "mrtd": MRTD(rate=0.3),
    "trtd": TRTD(rate=0.3),
    "ca_mlm": CAMLM(rate=0.3),
    "ca_tlm": CATLM(rate=0.3),
    "denoising": Denoising(),
    "pair_denoising": PairDenoising(),
    "distillation": Distillation(width=6),
    "in the batch": XLCo(queue=0, momentum=0.0, mixup=False, pooling="mean", symmetric=True),
    "identity": XLCo(queue=0, momentum=0.0, mixup=False, pooling="mean", projection="identity"),
    "queue": replace(XLCo(), queue=8, mixup=True),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_padding_changes_neither_losses_nor_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objective: PretrainingObjective = OBJECTIVES[name]
    net = network(objective, cross_attention=name.startswith("ca_"))
    sentences = replace(text_of(5), vector_NE=np.ones((5, 6)))
    examples = {"pairs": pairs_of(6), "text": text_of(5), "sentences": sentences}
    step = corrupted(objective, examples[objective.stream])
    plain = packed(step)
    monkeypatch.setattr(packing, "bucket_size", lambda number: number + 3)
    padded = packed(step, has_bucketed_shapes=True)
    assert any(len(padded[key]) == len(plain[key]) + 3 for key in plain)
    assert objective.counts(padded) == objective.counts(plain)

    found, expected = objective.loss(net, padded), objective.loss(net, plain)

    assert found.keys() == expected.keys()
    for term in found:
        assert_close(found[term], expected[term])
    for term in objective.loss_weights:
        gradients = [slow.gradients(net, objective.loss(net, batch)[term]) for batch in (padded, plain)]
        slow.same_gradients(*gradients)
