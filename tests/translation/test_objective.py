"""The loss of translation is what a slow loop over every token of every pair says, whatever the batch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transfer.toys import make_model

from crossling.finetune.translation.feed import SUMS, BitextFeed
from crossling.finetune.translation.objective import Translating
from crossling.model.translator import CrosslingForConditionalGeneration, translator

PAIRS = [([0, 5, 6, 2], [7, 2]), ([0, 9, 2], [4, 5, 6, 7, 8, 2]), ([0, 9, 10, 11, 12, 13, 2], [20, 2])]


@pytest.fixture(scope="module")
def model() -> CrosslingForConditionalGeneration:
    made = translator(make_model(), None).eval()  # type: ignore[arg-type]
    torch.manual_seed(1)
    torch.nn.init.normal_(made.lm_head.bias_V)
    return made


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_loss_is_that_of_a_slow_loop(model: CrosslingForConditionalGeneration, smoothing: float) -> None:
    sources, targets = ([np.array(side, dtype=np.int32) for side in sides] for sides in zip(*PAIRS, strict=True))
    feed = BitextFeed(sources, targets, 100, 0, 1000, start=0, pad=1, longest=64)
    [(_, batch)] = feed[0].micro
    with torch.no_grad():
        found = Translating(smoothing).loss(SimpleNamespace(encoder=model), batch)
    loss, right = slow(model, smoothing)
    assert float(found[SUMS[0]]) == pytest.approx(loss, rel=1e-5)
    assert int(found[SUMS[1]]) == right


def slow(model: CrosslingForConditionalGeneration, smoothing: float) -> tuple[float, int]:
    """One pair, one token, one logit after the other."""
    loss, right = 0.0, 0
    for source, target in PAIRS:
        for place, token in enumerate(target):
            with torch.no_grad():
                output = model(torch.tensor([source]), decoder_input_ids=torch.tensor([[0, *target[:place]]]))
            logits = output.logits[0, -1].double()
            logs = [float(each) for each in logits - torch.logsumexp(logits, 0)]
            loss += (1 - smoothing) * -logs[token] + smoothing * sum(-each for each in logs) / len(logs)
            right += logs.index(max(logs)) == token
    return loss, right


def test_gradients_reach_every_part(model: CrosslingForConditionalGeneration) -> None:
    sources, targets = ([np.array(side, dtype=np.int32) for side in sides] for sides in zip(*PAIRS, strict=True))
    [(_, batch)] = BitextFeed(sources, targets, 100, 0, 1000, start=0, pad=1, longest=64)[0].micro
    model.zero_grad()
    Translating(0.1).loss(SimpleNamespace(encoder=model), batch)[SUMS[0]].backward()
    still = [name for name, values in model.named_parameters() if values.grad is None or not values.grad.any()]
    assert not [name for name in still if "cross" in name or "tokens" in name or "lm_head" in name]
