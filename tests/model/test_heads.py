"""The heads as Hugging Face users meet them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossling.model.config import CrosslingConfig
from crossling.model.heads import CrosslingForMaskedLM, CrosslingForPreTraining
from crossling.model.transformer import CrosslingModel

SHAPE = CrosslingConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=8, initializer_range=0.3,
)  # fmt: skip
IDS, PRESENT = torch.tensor([[0, 7, 9, 2], [0, 8, 2, 1]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def test_a_loss_is_that_of_the_labels_and_of_no_others() -> None:
    torch.manual_seed(0)
    model = CrosslingForMaskedLM(SHAPE).eval()
    labels = torch.tensor([[-100, 7, -100, -100], [-100, -100, 2, -100]])
    found = model(IDS, attention_mask=PRESENT, labels=labels)
    chances = found.logits.log_softmax(-1)
    assert found.loss.item() == pytest.approx(-(chances[0, 1, 7] + chances[1, 2, 2]).item() / 2, rel=1e-5)


def test_a_detector_scores_what_is_labelled() -> None:
    torch.manual_seed(0)
    model = CrosslingForPreTraining(SHAPE).eval()
    labels = torch.tensor([[0, 1, 0, 0], [0, 0, 0, -100]])
    found = model(IDS, attention_mask=PRESENT, labels=labels)
    assert found.logits.shape == IDS.shape
    chance = torch.sigmoid(found.logits)
    kept = labels != -100
    expected = -torch.where(labels == 1, chance, 1 - chance)[kept].log().mean()
    assert found.loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_tuples_and_states_for_those_who_ask() -> None:
    model = CrosslingForMaskedLM(SHAPE).eval()
    found = model(IDS)
    [logits] = model(IDS, return_dict=False)
    assert torch.equal(logits, found.logits)
    assert found.hidden_states is None
    assert len(model(IDS, output_hidden_states=True).hidden_states) == 3
    asked = CrosslingModel(SHAPE.but(output_hidden_states=True))
    assert len(asked(IDS).hidden_states) == 3


def test_more_pieces_and_fewer() -> None:
    model = CrosslingForMaskedLM(SHAPE).eval()
    with torch.no_grad():
        model.lm_head.bias_V.uniform_(-1, 1)
        before = model(IDS).logits
        model.resize_token_embeddings(60)
        assert torch.equal(model(IDS).logits[..., :50], before)
        assert model(torch.tensor([[0, 59, 2]])).logits.shape[-1] == model.config.vocab_size == 60
        model.resize_token_embeddings(20)
        assert torch.equal(model(IDS).logits, before[..., :20])


def test_too_long_is_said() -> None:
    with pytest.raises(ValueError, match="9 tokens, and the model has 8 positions; cut the text"):
        CrosslingModel(SHAPE)(torch.zeros(1, 9, dtype=torch.long))


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_half_precision_sees_what_the_whole_sees(precision: torch.dtype) -> None:
    torch.manual_seed(0)
    model = CrosslingForMaskedLM(SHAPE).eval()
    with torch.no_grad():
        whole = model(IDS, attention_mask=PRESENT).logits
        half = model.to(precision)(IDS, attention_mask=PRESENT).logits
        changed = model(IDS.masked_fill(PRESENT == 0, 9), attention_mask=PRESENT).logits
    seen = PRESENT.bool()
    torch.testing.assert_close(half[seen].float(), whole[seen], atol=0.15, rtol=0.05)
    assert torch.equal(changed[seen], half[seen])  # padding is not seen


def test_a_head_that_a_folder_does_not_have_begins_as_new(tmp_path: Path) -> None:
    CrosslingForPreTraining(SHAPE).save_pretrained(tmp_path)
    filler = CrosslingForMaskedLM.from_pretrained(tmp_path)
    assert not filler.lm_head.bias_V.any()
    assert filler.lm_head.dense.weight.std().item() == pytest.approx(0.3, rel=0.2)
    assert torch.equal(filler.lm_head.norm.weight, torch.ones(16))


def test_a_smoothed_loss_and_its_gradients_are_those_of_a_slow_loop() -> None:
    torch.manual_seed(0)
    model = CrosslingForMaskedLM(SHAPE.but(vocab_size=50)).eval()
    with torch.no_grad():
        model.lm_head.bias_V.uniform_(-1, 1)
    hidden_MD, targets_M = torch.randn(6, 16, requires_grad=True), torch.tensor([3, 7, 7, 49, 0, 12])
    learned = [hidden_MD, *model.lm_head.parameters(), model.table_VD]

    def loop(part: float) -> Tensor:
        chances_MV = model.lm_head(hidden_MD, model.table_VD).double().log_softmax(-1)
        true = [(1 - part) * -chances_MV[place, piece] for place, piece in enumerate(targets_M)]
        shared = [part / 50 * -chance for row_V in chances_MV for chance in row_V]
        return torch.stack([*true, *shared]).sum()

    for part in (0.0, 0.1, 0.5):
        found = model.lm_head.predict(hidden_MD, model.table_VD, targets_M, smoothing=part).loss
        torch.testing.assert_close(found.double(), loop(part), atol=1e-4, rtol=1e-5)
        for fast, slow in zip(
            torch.autograd.grad(found, learned), torch.autograd.grad(loop(part), learned), strict=True
        ):
            torch.testing.assert_close(fast, slow, atol=1e-4, rtol=1e-4)
