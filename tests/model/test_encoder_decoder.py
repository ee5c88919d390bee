"""Encoder-decoder against a slow reference, its initialization from an encoder, and as a Hugging Face model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForSeq2SeqLM

from crossling.core.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.embedding import DisentangledEmbedding
from crossling.model.encoder_decoder import CrosslingForConditionalGeneration, encoder_decoder_from_encoder
from crossling.model.encoder_model import CrosslingModel
from crossling.model.pretrained import load_pretrained
from tests.objectives import slow

from .small_encoder_decoder import (
    ABSOLUTE,
    LABELS,
    MASK,
    RELATIVE,
    SHAPE,
    SOURCE,
    make_encoder_and_head,
    make_encoder_decoder,
)


def slow_log_probabilities(model: CrosslingForConditionalGeneration, source: Tensor, target: Tensor) -> Tensor:
    """Return log p of every token at every position of one sentence, by the equations in float64."""
    encoder, length = model.encoder, len(target)
    paired_TD = slow.states(encoder, source)[-1]
    hidden_LD = slow.table(encoder)[target]
    if encoder.embeddings.positions is not None:
        hidden_LD = hidden_LD + encoder.embeddings.positions.weight.double()[:length]
    hidden_LD = slow.norm(hidden_LD, encoder.embeddings.norm)
    later_LL = torch.full((length, length), -1e6, dtype=torch.float64).triu(1)  # finite: it is multiplied by the gate
    bias_HLL = later_LL.expand(encoder.config.num_attention_heads, -1, -1)
    if encoder.relative is not None:
        bias_HLL = bias_HLL + slow.distances(encoder.relative.weight_NH.double(), length)
    for block in model.decoder_blocks:
        hidden_LD = slow.layer(block, hidden_LD, bias_HLL, paired_TD)
    if encoder.config.norm == "pre":
        hidden_LD = slow.norm(hidden_LD, (model.own_decoder or encoder).final_norm)
    return slow.language_model(model.lm_head, hidden_LD, slow.table(encoder)).log()


def slow_loss(model: CrosslingForConditionalGeneration) -> Tensor:
    losses = []
    for source, mask, labels in zip(SOURCE, MASK, LABELS, strict=True):
        target = labels[labels != -100]
        inputs = torch.cat([torch.tensor([0]), target[:-1]])
        log_p_LV = slow_log_probabilities(model, source[mask == 1], inputs)
        losses += [-log_p_LV[position, token] for position, token in enumerate(target)]
    return torch.stack(losses).mean()


FORMS = [
    pytest.param({}, ABSOLUTE, id="full"),
    pytest.param({}, RELATIVE, id="full, relative"),
    pytest.param({}, RELATIVE | {"gated": False, "norm": "pre"}, id="full, relative without gate, pre-norm"),
    pytest.param({"tied": False}, {}, id="untied, both kinds of positions"),
    pytest.param({"layers": 2, "take": "first"}, {"norm": "pre"}, id="first 2, pre-norm"),
    pytest.param({"layers": 2, "take": "last"}, ABSOLUTE, id="last 2"),
    pytest.param({"layers": 1, "tied": False}, RELATIVE | {"norm": "pre"}, id="last 1, untied, relative, pre-norm"),
]


@pytest.mark.parametrize(("options", "changes"), FORMS)
def test_loss_and_every_gradient_equal_a_slow_loop(options: dict[str, Any], changes: dict[str, Any]) -> None:
    model = make_encoder_decoder(options, **changes)
    slow.agree(model, model(SOURCE, MASK, labels=LABELS).loss, slow_loss(model))


@pytest.mark.parametrize(("options", "changes"), FORMS)
def test_logits_depend_on_earlier_tokens_and_the_source_only(options: dict[str, Any], changes: dict[str, Any]) -> None:
    model = make_encoder_decoder(options, **changes)
    target = torch.tensor([[0, 11, 12, 13], [0, 14, 15, 16]])
    before = model(SOURCE, MASK, target).logits
    later = target.clone()
    later[:, 2] = 20
    after = model(SOURCE, MASK, later).logits
    assert_close(after[:, :2], before[:, :2])
    assert (after[:, 2:] - before[:, 2:]).abs().amax(-1).min() > 1e-3
    other = SOURCE.clone()
    other[0, 3] = 20
    other[1, 4:] = 20  # padding
    difference = model(other, MASK, target).logits - before
    assert difference[0].abs().amax(-1).min() > 1e-3
    assert difference[1].abs().max() < 1e-5


# ---- initialized from an encoder -----------------------------------------------------------------------------


def test_default_decoder_has_all_layers() -> None:
    encoder, head = make_encoder_and_head()
    full = encoder_decoder_from_encoder(encoder, head)
    for take in ("first", "last"):
        same = encoder_decoder_from_encoder(encoder, head, layers=3, take=take)  # type: ignore[arg-type]
        assert same.config.decoder_blocks == full.config.decoder_blocks == (0, 1, 2)
        assert same.state_dict().keys() == full.state_dict().keys()
        assert torch.equal(same(SOURCE, MASK, labels=LABELS).logits, full(SOURCE, MASK, labels=LABELS).logits)


def test_decoder_has_the_first_or_last_layers() -> None:
    encoder, head = make_encoder_and_head()
    for take, numbers in (("first", (0, 1)), ("last", (1, 2))):
        for tied in (True, False):
            shallow = encoder_decoder_from_encoder(encoder, head, layers=2, take=take, tied=tied)  # type: ignore[arg-type]
            assert shallow.config.decoder_blocks == numbers
            for own, number in zip(shallow.decoder_blocks, numbers, strict=True):
                theirs = encoder.blocks[number].state_dict()
                assert own.state_dict().keys() == theirs.keys()
                for name, values in own.state_dict().items():
                    assert torch.equal(values, theirs[name])


def test_tied_blocks_share_weights_and_add_no_parameters() -> None:
    encoder, head = make_encoder_and_head()
    model = encoder_decoder_from_encoder(encoder, head)
    sizes = [sum(p.numel() for p in module.parameters()) for module in (model, encoder, head)]
    assert sizes[0] == sizes[1] + sizes[2]
    assert all(own is block for own, block in zip(model.decoder_blocks, model.encoder.blocks, strict=True))
    shallow = encoder_decoder_from_encoder(encoder, head, layers=1)
    # Blocks that the decoder does not use have no cross-attention.
    assert [block.has_cross_attention for block in shallow.encoder.blocks] == [False, False, True]
    counts = [len([*each.cross_attention_parameters()]) for each in (shallow.encoder, encoder)]
    assert counts[0] * 3 == counts[1]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_untied_decoder_starts_equal_and_has_its_own_weights(norm: str) -> None:
    encoder, head = make_encoder_and_head(norm=norm)
    tied, untied = (encoder_decoder_from_encoder(encoder, head, layers=2, tied=tied).eval() for tied in (True, False))
    expected = tied(SOURCE, MASK, labels=LABELS)
    assert torch.equal(untied(SOURCE, MASK, labels=LABELS).logits, expected.logits)
    assert not any(block.has_cross_attention for block in untied.encoder.blocks)
    encoded = untied.encoder(SOURCE, MASK)
    with torch.no_grad():
        for model in (tied, untied):
            model.encoder.blocks[2].attention.qkv.weight.mul_(1.5)
            model.encoder.blocks[2].feed_forward[0].weight.mul_(1.5)
            if norm == "pre":
                model.encoder.final_norm.weight.mul_(1.5)
    same, other = (model(None, MASK, encoder_outputs=encoded, labels=LABELS).logits for model in (untied, tied))
    assert torch.equal(same, expected.logits)
    assert not torch.allclose(other, expected.logits, atol=1e-3)


def test_cross_attention_is_copied_or_new() -> None:
    encoder, head = make_encoder_and_head()
    model = encoder_decoder_from_encoder(encoder, head)
    for own, theirs in zip(model.decoder_blocks, encoder.blocks, strict=True):
        assert torch.equal(own.cross.key_value.weight, theirs.cross.key_value.weight)
        assert torch.equal(own.cross_norm.weight, theirs.cross_norm.weight)
    plain, head = make_encoder_and_head(cross_attention=False)
    state = torch.get_rng_state()
    one, same, other = (encoder_decoder_from_encoder(plain, head, layers=2, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)  # the global random state is unchanged
    weights = [model.decoder_blocks[0].cross.key_value.weight for model in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert weights[0].std().item() == pytest.approx(0.3, rel=0.1)
    for name, values in plain.state_dict().items():
        assert torch.equal(one.encoder.state_dict()[name], values)
    assert torch.equal(one.lm_head.dense.weight, head.dense.weight)
    assert torch.equal(one.lm_head.bias_V, head.bias_V)


def test_missing_head_is_initialized_at_random() -> None:
    encoder, head = make_encoder_and_head()
    one, other = (encoder_decoder_from_encoder(encoder, None, seed=seed) for seed in (0, 1))
    assert not one.lm_head.bias_V.any()
    assert not torch.equal(one.lm_head.dense.weight, other.lm_head.dense.weight)
    assert not torch.equal(one.lm_head.dense.weight, head.dense.weight)
    assert torch.equal(one.decoder_blocks[0].cross.query.weight, encoder.blocks[0].cross.query.weight)


def test_new_weights_differ_from_those_of_an_encoder_with_the_same_seed() -> None:
    torch.manual_seed(0)
    encoder = CrosslingModel(CrosslingConfig(**(SHAPE | {"cross_attention": False})))
    model = encoder_decoder_from_encoder(encoder, None, seed=0)
    initial = torch.cat([values.flatten() for values in encoder.parameters() if values.dim() == 2])
    for new in (model.decoder_blocks[0].cross.query, model.decoder_blocks[2].cross.out, model.lm_head.dense):
        assert not torch.isin(new.weight, initial).any()


def test_new_token_rows_are_the_mean_of_the_old_ones() -> None:
    encoder, head = make_encoder_and_head()
    model = encoder_decoder_from_encoder(encoder, head, vocab_size=43).eval()
    table_VD = encoder.embeddings.tokens.weight
    assert model.config.vocab_size == len(model.lm_head.bias_V) == 43
    assert torch.equal(model.table_VD[:40], table_VD)
    assert_close(model.table_VD[40:], table_VD.mean(0).expand(3, -1))
    assert_close(model.lm_head.bias_V[40:], head.bias_V.mean().expand(3))
    before = encoder_decoder_from_encoder(encoder, head).eval()(SOURCE, MASK, labels=LABELS).logits
    assert_close(model(SOURCE, MASK, labels=LABELS).logits[..., :40], before)


def test_disentangled_token_table_is_copied_as_its_sum() -> None:
    encoder, head = make_encoder_and_head()
    expected = encoder_decoder_from_encoder(encoder, head)(SOURCE, MASK, labels=LABELS).logits
    plain = encoder.embeddings.tokens
    base = torch.nn.Embedding.from_pretrained(torch.ones(40, 16))
    encoder.embeddings.tokens = DisentangledEmbedding(base)
    encoder.embeddings.tokens.set_weight(plain.weight)
    assert_close(
        encoder_decoder_from_encoder(encoder, head)(SOURCE, MASK, labels=LABELS).logits,
        expected,
        atol=1e-5,
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"layers": 0}, r"decoder of 0 layers: the encoder has 3\. Give a number from 1 to 3"),
        ({"layers": 4}, "of 4 layers"),
        ({"take": "middle"}, "expected first or last"),
        ({"vocab_size": 39}, "the encoder has 40 tokens"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        make_encoder_decoder(options)


def test_source_encoder_is_unchanged() -> None:
    encoder, head = make_encoder_and_head()
    before = {name: values.clone() for name, values in encoder.state_dict().items()}
    model = encoder_decoder_from_encoder(encoder, head, layers=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert all(torch.equal(values, before[name]) for name, values in encoder.state_dict().items())
    assert not encoder.config.is_encoder_decoder
    assert encoder.config.decoder_blocks is None


# ---- as a Hugging Face model ---------------------------------------------------------------------------------


def test_labels_give_decoder_inputs_and_mean_loss() -> None:
    model = make_encoder_decoder()
    found = model(SOURCE, MASK, labels=LABELS)
    inputs = torch.tensor([[0, 11, 12, 13], [0, 14, 2, 1]])
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(LABELS), inputs)
    log_p = model(SOURCE, MASK, inputs).logits.log_softmax(-1)
    positions = ((0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1))
    targets = [log_p[row, position, LABELS[row, position]] for row, position in positions]
    assert found.loss.item() == pytest.approx(-sum(targets).item() / 6, rel=1e-5)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"decoder_input_ids: missing\. Give them or labels"):
        model(SOURCE, MASK)


def test_hidden_states_and_tuples_on_request() -> None:
    model = make_encoder_decoder({"layers": 2})
    found = model(SOURCE, MASK, labels=LABELS, output_hidden_states=True)
    assert [len(found.decoder_hidden_states), len(found.encoder_hidden_states)] == [3, 4]
    assert torch.equal(model.lm_head(found.decoder_hidden_states[-1], model.table_VD), found.logits)
    assert model(SOURCE, MASK, labels=LABELS).decoder_hidden_states is None
    loss, logits, encoded = model(SOURCE, MASK, labels=LABELS, return_dict=False)
    assert (loss, logits.shape, encoded.shape) == (found.loss, (2, 4, 40), (2, 6, 16))
    again = model(None, MASK, labels=LABELS, encoder_outputs=(found.encoder_last_hidden_state,))
    assert torch.equal(again.logits, found.logits)


@pytest.mark.parametrize("options", [{}, {"layers": 2}, {"layers": 2, "tied": False}], ids=str)
def test_save_and_load(options: dict[str, Any], tmp_path: Path) -> None:
    model = make_encoder_decoder(options, norm="pre")
    model.save_pretrained(tmp_path)
    expected = model(SOURCE, MASK, labels=LABELS).logits
    for again in (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval(),
        load_pretrained(tmp_path, "name", AutoModelForSeq2SeqLM).eval(),
    ):
        assert type(again) is CrosslingForConditionalGeneration
        assert again.config.decoder_blocks == model.config.decoder_blocks
        assert_close(again(SOURCE, MASK, labels=LABELS).logits, expected, atol=1e-6, rtol=1e-5)
        assert again.generation_config.max_length == 24
        assert again.generation_config.decoder_start_token_id == 0
        tied = [own is each for own in again.decoder_blocks for each in again.encoder.blocks]
        assert any(tied) == options.get("tied", True)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:  # each weight once
        assert sum(file.get_tensor(name).numel() for name in file.keys()) == sum(p.numel() for p in model.parameters())  # noqa: SIM118
    encoder = AutoModel.from_pretrained(tmp_path).eval()
    assert_close(encoder(SOURCE, MASK).last_hidden_state, model.encoder(SOURCE, MASK).last_hidden_state)


def test_plain_transformers_opens_it_and_writes(tmp_path: Path) -> None:
    model = make_encoder_decoder({"layers": 2})
    model.save_pretrained(tmp_path)
    expected = model.generate(SOURCE, attention_mask=MASK, num_beams=2, max_length=10)
    program = f"""
import crossling, torch
from transformers import AutoModelForSeq2SeqLM
model = AutoModelForSeq2SeqLM.from_pretrained({str(tmp_path)!r})
source = torch.tensor({SOURCE.tolist()})
print(model.generate(source, attention_mask=(source != 1).long(), num_beams=2, max_length=10).tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(expected.tolist())


def test_default_configuration_is_an_encoder() -> None:
    config = CrosslingConfig()
    assert (config.decoder_blocks, config.is_encoder_decoder) == (None, False)
    assert list(CrosslingConfig(cross_attention=True).cross_attention_blocks) == [*range(12)]
    with pytest.raises(ValueError, match="decoder_blocks None: the encoder has 1 layers"):
        CrosslingForConditionalGeneration(config.replace(num_hidden_layers=1))
    with pytest.raises(ValueError, match=r"decoder_blocks \(1,\): the encoder has 1"):
        CrosslingForConditionalGeneration(config.replace(num_hidden_layers=1, decoder_blocks=[1]))


def test_resize_token_embeddings() -> None:
    model = make_encoder_decoder()
    before = model(SOURCE, MASK, labels=LABELS).logits
    model.resize_token_embeddings(44, mean_resizing=False)
    assert torch.equal(model(SOURCE, MASK, labels=LABELS).logits[..., :40], before)


def test_encoder_with_cross_attention_in_some_blocks_refuses_a_pair() -> None:
    shallow = make_encoder_decoder({"layers": 1}).encoder
    with pytest.raises(ValueError, match="no cross-attention"):
        shallow(SOURCE, encoder_hidden_states=torch.zeros(2, 3, 16))


# ---- in training ---------------------------------------------------------------------------------------------


def train(model: CrosslingForConditionalGeneration, is_half: bool, steps: int = 60) -> list[float]:
    """Train to copy the source, which needs cross-attention. Return the losses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    losses = []
    for _ in range(steps):
        words = torch.randint(4, 12, (16, 4))
        labels = torch.nn.functional.pad(words, (0, 1), value=2)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            loss = model(words, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("changes", [ABSOLUTE, RELATIVE], ids=["absolute", "relative"])
def test_training_in_half_precision_is_close_to_full_precision(changes: dict[str, Any]) -> None:
    found = [
        train(make_encoder_decoder({"layers": 2}, **(changes | {"initializer_range": 0.1})), is_half)
        for is_half in (False, True)
    ]
    for losses in found:
        assert losses[-1] < 0.75 * losses[0]
    assert found[1][-1] == pytest.approx(found[0][-1], rel=0.1)


def test_generate_with_half_precision_weights() -> None:
    model = make_encoder_decoder(initializer_range=0.1).bfloat16()
    assert model(SOURCE, MASK, labels=LABELS).logits.dtype == torch.bfloat16
    assert model.generate(SOURCE, attention_mask=MASK, num_beams=3, max_length=8).shape[0] == 2


@pytest.mark.parametrize("options", [{}, {"tied": False}], ids=["tied", "untied"])
def test_activation_checkpointing_gives_the_same_gradients(options: dict[str, Any]) -> None:
    model = make_encoder_decoder(options).train()
    expected = slow.gradients(model, model(SOURCE, MASK, labels=LABELS).loss)
    model.gradient_checkpointing_enable()
    found = slow.gradients(model, model(SOURCE, MASK, labels=LABELS, use_cache=True).loss)
    for name, values in expected.items():
        assert_close(found[name], values, msg=name)
