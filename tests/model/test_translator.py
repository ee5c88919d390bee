"""The encoder-decoder against a slow one, how it is made of an encoder, and its manners as a Hugging Face model.

How it writes, with and without a cache, is in test_translator_generation.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from objectives import slow
from safetensors import safe_open
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForSeq2SeqLM

from crossling.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.pretrained import pretrained
from crossling.model.tables import DisentangledEmbedding
from crossling.model.transformer import CrosslingModel
from crossling.model.translator import CrosslingForConditionalGeneration, translator

from .translators import ABSOLUTE, LABELS, PRESENT, RELATIVE, SHAPE, SOURCE, made, parts


def slow_log_chances(model: CrosslingForConditionalGeneration, source: Tensor, target: Tensor) -> Tensor:
    """log p of every piece at every place of one sentence, by the equations and in float64."""
    encoder, length = model.encoder, len(target)
    paired_TD = slow.states(encoder, source)[-1]
    hidden_LD = slow.table(encoder)[target]
    if encoder.embeddings.positions is not None:
        hidden_LD = hidden_LD + encoder.embeddings.positions.weight.double()[:length]
    hidden_LD = slow.norm(hidden_LD, encoder.embeddings.norm)
    later_LL = torch.full((length, length), -1e6, dtype=torch.float64).triu(1)  # a number: it is multiplied by the gate
    bias_HLL = later_LL.expand(encoder.config.num_attention_heads, -1, -1)
    if encoder.relative is not None:
        bias_HLL = bias_HLL + slow.distances(encoder.relative.weight_NH.double(), length)
    for block in model.decoder_blocks:
        hidden_LD = slow.layer(block, hidden_LD, bias_HLL, paired_TD)
    if encoder.config.norm == "pre":
        hidden_LD = slow.norm(hidden_LD, (model.own_decoder or encoder).final_norm)
    return slow.language_model(model.lm_head, hidden_LD, slow.table(encoder)).log()


def slow_loss(model: CrosslingForConditionalGeneration) -> Tensor:
    taught = []
    for source, present, labels in zip(SOURCE, PRESENT, LABELS, strict=True):
        own = labels[labels != -100]
        read = torch.cat([torch.tensor([0]), own[:-1]])
        chances_LV = slow_log_chances(model, source[present == 1], read)
        taught += [-chances_LV[place, piece] for place, piece in enumerate(own)]
    return torch.stack(taught).mean()


FORMS = [
    pytest.param({}, ABSOLUTE, id="full"),
    pytest.param({}, RELATIVE, id="full, relative"),
    pytest.param({}, RELATIVE | {"gated": False, "norm": "pre"}, id="full, relative without gate, pre-norm"),
    pytest.param({"tied": False}, {}, id="untied, both kinds of positions"),
    pytest.param({"layers": 2, "take": "first"}, {"norm": "pre"}, id="first 2, pre-norm"),
    pytest.param({"layers": 2, "take": "last"}, ABSOLUTE, id="last 2"),
    pytest.param({"layers": 1, "tied": False}, RELATIVE | {"norm": "pre"}, id="last 1, untied, relative, pre-norm"),
]


@pytest.mark.parametrize(("how", "changes"), FORMS)
def test_loss_and_every_gradient_equal_a_slow_loop(how: dict[str, Any], changes: dict[str, Any]) -> None:
    model = made(how, **changes)
    slow.agree(model, model(SOURCE, PRESENT, labels=LABELS).loss, slow_loss(model))


@pytest.mark.parametrize(("how", "changes"), FORMS)
def test_a_place_sees_its_past_and_the_source_and_nothing_else(how: dict[str, Any], changes: dict[str, Any]) -> None:
    model = made(how, **changes)
    target = torch.tensor([[0, 11, 12, 13], [0, 14, 15, 16]])
    before = model(SOURCE, PRESENT, target).logits
    later = target.clone()
    later[:, 2] = 20
    after = model(SOURCE, PRESENT, later).logits
    assert_close(after[:, :2], before[:, :2])
    assert (after[:, 2:] - before[:, 2:]).abs().amax(-1).min() > 1e-3
    other = SOURCE.clone()
    other[0, 3] = 20
    other[1, 4:] = 20  # padding
    moved = model(other, PRESENT, target).logits - before
    assert moved[0].abs().amax(-1).min() > 1e-3
    assert moved[1].abs().max() < 1e-5


# ---- made of an encoder --------------------------------------------------------------------------------------


def test_all_layers_are_the_full_form() -> None:
    encoder, head = parts()
    full = translator(encoder, head)
    for take in ("first", "last"):
        same = translator(encoder, head, layers=3, take=take)  # type: ignore[arg-type]
        assert same.config.decoder_blocks == full.config.decoder_blocks == (0, 1, 2)
        assert same.state_dict().keys() == full.state_dict().keys()
        assert torch.equal(same(SOURCE, PRESENT, labels=LABELS).logits, full(SOURCE, PRESENT, labels=LABELS).logits)


def test_first_and_last_layers_are_those() -> None:
    encoder, head = parts()
    for take, numbers in (("first", (0, 1)), ("last", (1, 2))):
        for tied in (True, False):
            shallow = translator(encoder, head, layers=2, take=take, tied=tied)  # type: ignore[arg-type]
            assert shallow.config.decoder_blocks == numbers
            for own, number in zip(shallow.decoder_blocks, numbers, strict=True):
                theirs = encoder.blocks[number].state_dict()
                assert own.state_dict().keys() == theirs.keys()
                for name, values in own.state_dict().items():
                    assert torch.equal(values, theirs[name])


def test_tied_blocks_are_the_same_memory_and_nothing_is_added() -> None:
    encoder, head = parts()
    model = translator(encoder, head)
    sizes = [sum(p.numel() for p in each.parameters()) for each in (model, encoder, head)]
    assert sizes[0] == sizes[1] + sizes[2]
    assert all(own is block for own, block in zip(model.decoder_blocks, model.encoder.blocks, strict=True))
    shallow = translator(encoder, head, layers=1)
    assert [block.crossed for block in shallow.encoder.blocks] == [False, False, True]  # what nobody uses is not there
    assert sum(1 for _ in shallow.encoder.cross_parameters()) * 3 == sum(1 for _ in encoder.cross_parameters())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_untied_begins_as_tied_and_goes_its_own_way(norm: str) -> None:
    encoder, head = parts(norm=norm)
    tied, untied = (translator(encoder, head, layers=2, tied=tied).eval() for tied in (True, False))
    expected = tied(SOURCE, PRESENT, labels=LABELS)
    assert torch.equal(untied(SOURCE, PRESENT, labels=LABELS).logits, expected.logits)
    assert not any(block.crossed for block in untied.encoder.blocks)
    read = untied.encoder(SOURCE, PRESENT)
    with torch.no_grad():
        for model in (tied, untied):
            model.encoder.blocks[2].attention.qkv.weight.mul_(1.5)
            model.encoder.blocks[2].feed_forward[0].weight.mul_(1.5)
            if norm == "pre":
                model.encoder.final_norm.weight.mul_(1.5)
    same, other = (model(None, PRESENT, encoder_outputs=read, labels=LABELS).logits for model in (untied, tied))
    assert torch.equal(same, expected.logits)
    assert not torch.allclose(other, expected.logits, atol=1e-3)


def test_cross_attention_is_taken_over_or_new() -> None:
    encoder, head = parts()
    model = translator(encoder, head)
    for own, theirs in zip(model.decoder_blocks, encoder.blocks, strict=True):
        assert torch.equal(own.cross.key_value.weight, theirs.cross.key_value.weight)
        assert torch.equal(own.cross_norm.weight, theirs.cross_norm.weight)
    plain, head = parts(cross_attention=False)
    state = torch.get_rng_state()
    one, same, other = (translator(plain, head, layers=2, fresh_cross_seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)  # nobody else's numbers were drawn
    weights = [each.decoder_blocks[0].cross.key_value.weight for each in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert weights[0].std().item() == pytest.approx(0.3, rel=0.1)
    for name, values in plain.state_dict().items():
        assert torch.equal(one.encoder.state_dict()[name], values)
    assert torch.equal(one.lm_head.dense.weight, head.dense.weight)
    assert torch.equal(one.lm_head.bias_V, head.bias_V)


def test_without_a_head_one_is_new() -> None:
    encoder, head = parts()
    one, other = (translator(encoder, None, fresh_cross_seed=seed) for seed in (0, 1))
    assert not one.lm_head.bias_V.any()
    assert not torch.equal(one.lm_head.dense.weight, other.lm_head.dense.weight)
    assert not torch.equal(one.lm_head.dense.weight, head.dense.weight)
    assert torch.equal(one.decoder_blocks[0].cross.query.weight, encoder.blocks[0].cross.query.weight)


def test_what_is_new_shares_no_number_with_a_new_encoder_of_the_same_seed() -> None:
    torch.manual_seed(0)
    encoder = CrosslingModel(CrosslingConfig(**(SHAPE | {"cross_attention": False})))
    made = translator(encoder, None, fresh_cross_seed=0)
    drawn = torch.cat([values.flatten() for values in encoder.parameters() if values.dim() == 2])
    for new in (made.decoder_blocks[0].cross.query, made.decoder_blocks[2].cross.out, made.lm_head.dense):
        assert not torch.isin(new.weight, drawn).any()


def test_new_rows_are_the_mean_and_old_ones_stay() -> None:
    encoder, head = parts()
    model = translator(encoder, head, tokens=43).eval()
    table_VD = encoder.embeddings.tokens.weight
    assert model.config.vocab_size == len(model.lm_head.bias_V) == 43
    assert torch.equal(model.table_VD[:40], table_VD)
    assert_close(model.table_VD[40:], table_VD.mean(0).expand(3, -1))
    assert_close(model.lm_head.bias_V[40:], head.bias_V.mean().expand(3))
    before = translator(encoder, head).eval()(SOURCE, PRESENT, labels=LABELS).logits
    assert_close(model(SOURCE, PRESENT, labels=LABELS).logits[..., :40], before)


def test_a_table_that_is_a_difference_is_taken_as_it_is_seen() -> None:
    encoder, head = parts()
    expected = translator(encoder, head)(SOURCE, PRESENT, labels=LABELS).logits
    plain = encoder.embeddings.tokens
    base = torch.nn.Embedding.from_pretrained(torch.ones(40, 16))
    encoder.embeddings.tokens = DisentangledEmbedding(base)
    encoder.embeddings.tokens.assign(plain.weight)
    assert_close(translator(encoder, head)(SOURCE, PRESENT, labels=LABELS).logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"layers": 0}, "of 0 layers cannot be made of an encoder with 3; give 1 to 3"),
        ({"layers": 4}, "of 4 layers"),
        ({"take": "middle"}, "the first or the last layers"),
        ({"tokens": 39}, "fewer than the 40"),
    ],
)
def test_what_cannot_be_made_is_refused(how: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        made(how)


def test_the_source_keeps_its_weights_and_configuration() -> None:
    encoder, head = parts()
    before = {name: values.clone() for name, values in encoder.state_dict().items()}
    model = translator(encoder, head, layers=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert all(torch.equal(values, before[name]) for name, values in encoder.state_dict().items())
    assert not encoder.config.is_encoder_decoder
    assert encoder.config.decoder_blocks is None


# ---- as a Hugging Face model ---------------------------------------------------------------------------------


def test_labels_make_what_is_read_and_the_mean_loss() -> None:
    model = made()
    found = model(SOURCE, PRESENT, labels=LABELS)
    read = torch.tensor([[0, 11, 12, 13], [0, 14, 2, 1]])
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(LABELS), read)
    chances = model(SOURCE, PRESENT, read).logits.log_softmax(-1)
    taught = [
        chances[row, place, LABELS[row, place]] for row, place in ((0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1))
    ]
    assert found.loss.item() == pytest.approx(-sum(taught).item() / 6, rel=1e-5)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="give labels or decoder_input_ids"):
        model(SOURCE, PRESENT)


def test_states_and_tuples_for_those_who_ask() -> None:
    model = made({"layers": 2})
    found = model(SOURCE, PRESENT, labels=LABELS, output_hidden_states=True)
    assert [len(found.decoder_hidden_states), len(found.encoder_hidden_states)] == [3, 4]
    assert torch.equal(model.lm_head(found.decoder_hidden_states[-1], model.table_VD), found.logits)
    assert model(SOURCE, PRESENT, labels=LABELS).decoder_hidden_states is None
    loss, logits, read = model(SOURCE, PRESENT, labels=LABELS, return_dict=False)
    assert (loss, logits.shape, read.shape) == (found.loss, (2, 4, 40), (2, 6, 16))
    again = model(None, PRESENT, labels=LABELS, encoder_outputs=(found.encoder_last_hidden_state,))
    assert torch.equal(again.logits, found.logits)


@pytest.mark.parametrize("how", [{}, {"layers": 2}, {"layers": 2, "tied": False}], ids=str)
def test_a_folder_opens_as_the_same_model(how: dict[str, Any], tmp_path: Path) -> None:
    model = made(how, norm="pre")
    model.save_pretrained(tmp_path)
    expected = model(SOURCE, PRESENT, labels=LABELS).logits
    for again in (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval(),
        pretrained(tmp_path, "name", AutoModelForSeq2SeqLM).eval(),
    ):
        assert type(again) is CrosslingForConditionalGeneration
        assert again.config.decoder_blocks == model.config.decoder_blocks
        assert_close(again(SOURCE, PRESENT, labels=LABELS).logits, expected, atol=1e-6, rtol=1e-5)
        assert again.generation_config.max_length == 24
        assert again.generation_config.decoder_start_token_id == 0
        tied = [own is each for own in again.decoder_blocks for each in again.encoder.blocks]
        assert any(tied) == how.get("tied", True)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:  # each weight once
        assert sum(file.get_tensor(name).numel() for name in file.keys()) == sum(p.numel() for p in model.parameters())  # noqa: SIM118
    encoder = AutoModel.from_pretrained(tmp_path).eval()
    assert_close(encoder(SOURCE, PRESENT).last_hidden_state, model.encoder(SOURCE, PRESENT).last_hidden_state)


def test_plain_transformers_opens_it_and_writes(tmp_path: Path) -> None:
    model = made({"layers": 2})
    model.save_pretrained(tmp_path)
    expected = model.generate(SOURCE, attention_mask=PRESENT, num_beams=2, max_length=10)
    program = f"""
import crossling, torch
from transformers import AutoModelForSeq2SeqLM
model = AutoModelForSeq2SeqLM.from_pretrained({str(tmp_path)!r})
source = torch.tensor({SOURCE.tolist()})
print(model.generate(source, attention_mask=(source != 1).long(), num_beams=2, max_length=10).tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(expected.tolist())


def test_folders_without_the_new_settings_are_encoders() -> None:
    config = CrosslingConfig()
    assert (config.decoder_blocks, config.is_encoder_decoder) == (None, False)
    assert list(CrosslingConfig(cross_attention=True).crossed) == [*range(12)]
    with pytest.raises(ValueError, match="a decoder of the blocks None"):
        CrosslingForConditionalGeneration(config.but(num_hidden_layers=1))
    with pytest.raises(ValueError, match=r"blocks \(1,\) of an encoder with 1"):
        CrosslingForConditionalGeneration(config.but(num_hidden_layers=1, decoder_blocks=[1]))


def test_more_tokens_by_the_hands_of_transformers() -> None:
    model = made()
    before = model(SOURCE, PRESENT, labels=LABELS).logits
    model.resize_token_embeddings(44, mean_resizing=False)
    assert torch.equal(model(SOURCE, PRESENT, labels=LABELS).logits[..., :40], before)


def test_an_encoder_that_is_crossed_in_part_takes_no_pair() -> None:
    shallow = made({"layers": 1}).encoder
    with pytest.raises(ValueError, match="no cross-attention"):
        shallow(SOURCE, encoder_hidden_states=torch.zeros(2, 3, 16))


# ---- in training ---------------------------------------------------------------------------------------------


def teach(model: CrosslingForConditionalGeneration, half: bool, steps: int = 60) -> list[float]:
    """To copy, which takes cross-attention."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    losses = []
    for _ in range(steps):
        words = torch.randint(4, 12, (16, 4))
        labels = torch.nn.functional.pad(words, (0, 1), value=2)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = model(words, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("changes", [ABSOLUTE, RELATIVE], ids=["absolute", "relative"])
def test_it_learns_in_half_precision_as_in_full(changes: dict[str, Any]) -> None:
    found = [teach(made({"layers": 2}, **(changes | {"initializer_range": 0.1})), half) for half in (False, True)]
    for losses in found:
        assert losses[-1] < 0.75 * losses[0]
    assert found[1][-1] == pytest.approx(found[0][-1], rel=0.1)


def test_half_precision_weights_write_too() -> None:
    model = made(initializer_range=0.1).bfloat16()
    assert model(SOURCE, PRESENT, labels=LABELS).logits.dtype == torch.bfloat16
    assert model.generate(SOURCE, attention_mask=PRESENT, num_beams=3, max_length=8).shape[0] == 2


@pytest.mark.parametrize("how", [{}, {"tied": False}], ids=["tied", "untied"])
def test_recomputed_activations_give_the_same_gradient(how: dict[str, Any]) -> None:
    model = made(how).train()
    expected = slow.gradients(model, model(SOURCE, PRESENT, labels=LABELS).loss)
    model.gradient_checkpointing_enable()
    found = slow.gradients(model, model(SOURCE, PRESENT, labels=LABELS, use_cache=True).loss)
    for name, values in expected.items():
        assert_close(found[name], values, msg=name)
