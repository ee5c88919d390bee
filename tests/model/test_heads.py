"""Pre-training heads as Hugging Face models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import CrosslingForMaskedLM, CrosslingForPreTraining

SHAPE = CrosslingConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=8, initializer_range=0.3,
)  # fmt: skip
IDS, MASK = torch.tensor([[0, 7, 9, 2], [0, 8, 2, 1]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def test_mlm_loss_is_the_mean_over_labelled_positions() -> None:
    torch.manual_seed(0)
    model = CrosslingForMaskedLM(SHAPE).eval()
    labels = torch.tensor([[-100, 7, -100, -100], [-100, -100, 2, -100]])
    found = model(IDS, attention_mask=MASK, labels=labels)
    log_probabilities = found.logits.log_softmax(-1)
    assert found.loss.item() == pytest.approx(
        -(log_probabilities[0, 1, 7] + log_probabilities[1, 2, 2]).item() / 2, rel=1e-5
    )


def test_rtd_loss_is_the_mean_over_labelled_positions() -> None:
    torch.manual_seed(0)
    model = CrosslingForPreTraining(SHAPE).eval()
    labels = torch.tensor([[0, 1, 0, 0], [0, 0, 0, -100]])
    found = model(IDS, attention_mask=MASK, labels=labels)
    assert found.logits.shape == IDS.shape
    probability = torch.sigmoid(found.logits)
    has_label = labels != -100
    expected = -torch.where(labels == 1, probability, 1 - probability)[has_label].log().mean()
    assert found.loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_tuples_and_hidden_states_on_request() -> None:
    model = CrosslingForMaskedLM(SHAPE).eval()
    found = model(IDS)
    [logits] = model(IDS, return_dict=False)
    assert torch.equal(logits, found.logits)
    assert found.hidden_states is None
    assert len(model(IDS, output_hidden_states=True).hidden_states) == 3
    with_states = CrosslingModel(SHAPE.replace(output_hidden_states=True))
    assert len(with_states(IDS).hidden_states) == 3


def test_resize_token_embeddings_to_more_and_fewer() -> None:
    model = CrosslingForMaskedLM(SHAPE).eval()
    with torch.no_grad():
        model.lm_head.bias_V.uniform_(-1, 1)
        before = model(IDS).logits
        model.resize_token_embeddings(60)
        assert torch.equal(model(IDS).logits[..., :50], before)
        assert model(torch.tensor([[0, 59, 2]])).logits.shape[-1] == model.config.vocab_size == 60
        model.resize_token_embeddings(20)
        assert torch.equal(model(IDS).logits, before[..., :20])


def test_too_long_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sequence of 9 tokens: the model has 8 positions\. Truncate the text"):
        CrosslingModel(SHAPE)(torch.zeros(1, 9, dtype=torch.long))


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_half_precision_is_close_to_single_precision(precision: torch.dtype) -> None:
    torch.manual_seed(0)
    model = CrosslingForMaskedLM(SHAPE).eval()
    with torch.no_grad():
        single = model(IDS, attention_mask=MASK).logits
        half = model.to(precision)(IDS, attention_mask=MASK).logits
        changed = model(IDS.masked_fill(MASK == 0, 9), attention_mask=MASK).logits
    visible = MASK.bool()
    torch.testing.assert_close(half[visible].float(), single[visible], atol=0.15, rtol=0.05)
    assert torch.equal(changed[visible], half[visible])  # padding has no influence


def test_missing_head_is_initialized_at_random(tmp_path: Path) -> None:
    CrosslingForPreTraining(SHAPE).save_pretrained(tmp_path)
    model = CrosslingForMaskedLM.from_pretrained(tmp_path)
    assert not model.lm_head.bias_V.any()
    assert model.lm_head.dense.weight.std().item() == pytest.approx(0.3, rel=0.2)
    assert torch.equal(model.lm_head.norm.weight, torch.ones(16))


def test_label_smoothing_equals_a_slow_loop() -> None:
    torch.manual_seed(0)
    model = CrosslingForMaskedLM(SHAPE.replace(vocab_size=50)).eval()
    with torch.no_grad():
        model.lm_head.bias_V.uniform_(-1, 1)
    hidden_MD, targets_M = torch.randn(6, 16, requires_grad=True), torch.tensor([3, 7, 7, 49, 0, 12])
    learned = [hidden_MD, *model.lm_head.parameters(), model.table_VD]

    def slow_loss(smoothing: float) -> Tensor:
        log_probabilities_MV = model.lm_head(hidden_MD, model.table_VD).double().log_softmax(-1)
        target = [(1 - smoothing) * -log_probabilities_MV[row, token] for row, token in enumerate(targets_M)]
        uniform = [smoothing / 50 * -value for row_V in log_probabilities_MV for value in row_V]
        return torch.stack([*target, *uniform]).sum()

    for smoothing in (0.0, 0.1, 0.5):
        found = model.lm_head.predict(hidden_MD, model.table_VD, targets_M, label_smoothing=smoothing).loss
        torch.testing.assert_close(found.double(), slow_loss(smoothing), atol=1e-4, rtol=1e-5)
        for fast, slow in zip(
            torch.autograd.grad(found, learned), torch.autograd.grad(slow_loss(smoothing), learned), strict=True
        ):
            torch.testing.assert_close(fast, slow, atol=1e-4, rtol=1e-4)
