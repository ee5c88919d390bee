"""Encoder against a slow reference, and as a Hugging Face model."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModel

from crossling.model import attention
from crossling.model import encoder as encoder_module
from crossling.model.config import CrosslingConfig
from crossling.model.encoder import Block
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import LMHead, RTDHead
from crossling.model.model_shape import SIZES
from crossling.model.position import relative_position_bucket


def small(**changes: object) -> CrosslingModel:
    torch.manual_seed(0)
    shape = {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 24,
        "initializer_range": 0.2,
    }
    return CrosslingModel(CrosslingConfig(**(shape | changes))).eval()  # type: ignore[arg-type]


def norm(values: Tensor, layer: torch.nn.LayerNorm) -> Tensor:
    centred = values - values.mean(-1, keepdim=True)
    deviation = (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    return centred / deviation * layer.weight + layer.bias


def gelu(values: Tensor) -> Tensor:
    return values * 0.5 * (1 + torch.erf(values / math.sqrt(2)))


def feed_forward(block: Block, values: Tensor) -> Tensor:
    first, _, second = block.feed_forward
    return gelu(values @ first.weight.T + first.bias) @ second.weight.T + second.bias


def slow_block(block: Block, hidden_LD: Tensor, table_NH: Tensor | None, pre: bool) -> Tensor:
    """Compute one sequence, head and query at a time, by the equations of XLM-E, section 3.3."""

    def attend(inputs_LD: Tensor) -> Tensor:
        attention = block.attention
        length, width = inputs_LD.shape
        heads = attention.heads
        query, key, value = attention.qkv(inputs_LD).chunk(3, -1)
        mixed = torch.zeros(length, width)
        size = width // heads
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            for i in range(length):
                scores = query[i, part] @ key[:, part].T / math.sqrt(size)
                if table_NH is not None:
                    d = torch.stack(
                        [table_NH[relative_position_bucket(torch.tensor(j - i), 32, 128), h] for j in range(length)]
                    )
                    m = attention.gate(query[i, part][None, None, None].expand(1, heads, 1, -1))[0, h, 0]
                    scores = scores + m * d
                mixed[i, part] = torch.softmax(scores, -1) @ value[:, part]
        return attention.out(mixed)

    if pre:
        hidden_LD = hidden_LD + attend(norm(hidden_LD, block.attention_norm))
        return hidden_LD + feed_forward(block, norm(hidden_LD, block.feed_forward_norm))
    hidden_LD = norm(hidden_LD + attend(hidden_LD), block.attention_norm)
    return norm(hidden_LD + feed_forward(block, hidden_LD), block.feed_forward_norm)


@pytest.mark.parametrize("position", ["pre", "post"])
def test_every_layer_equals_a_slow_loop(position: str) -> None:
    model = small(norm=position)
    with torch.no_grad():  # trained norms are not the identity
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.5, 0.5)
    ids_BL = torch.randint(4, 49, (2, 7))
    states = model(ids_BL, output_hidden_states=True).hidden_states
    assert len(states) == 4
    for row in range(2):
        summed = model.embeddings.tokens.weight[ids_BL[row]] + model.embeddings.positions.weight[:7]
        hidden_LD = norm(summed, model.embeddings.norm)
        assert_close(states[0][row], hidden_LD)
        for number, block in enumerate(model.blocks, start=1):
            hidden_LD = slow_block(block, hidden_LD, model.relative.weight_NH, position == "pre")
            last = norm(hidden_LD, model.final_norm) if position == "pre" and number == 3 else hidden_LD
            assert_close(states[number][row], last, atol=2e-5, rtol=1e-4)


def test_padding_does_not_change_states() -> None:
    model = small()
    long, short = torch.randint(4, 49, (1, 20)), torch.randint(4, 49, (1, 9))
    ids = torch.ones(2, 20, dtype=torch.long)
    ids[0], ids[1, :9] = long, short
    both = model(ids, ids != 1).last_hidden_state
    assert_close(both[:1], model(long).last_hidden_state, atol=1e-5, rtol=1e-4)
    assert_close(both[1:, :9], model(short).last_hidden_state, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("absolute", [True, False])
def test_packed_sequences_are_independent(absolute: bool, relative: bool) -> None:
    """States and gradients are those of each sequence alone."""
    model = small(absolute_positions=absolute, relative_positions=relative)
    lengths = [7, 9, 5, 11]
    alone = [torch.randint(4, 49, (length,)) for length in lengths]
    ids, segments = torch.ones(2, 19, dtype=torch.long), torch.zeros(2, 19, dtype=torch.long)
    starts = [(0, 0), (0, 7), (1, 0), (1, 5)]  # row and start; three tokens of padding
    for number, ((row, start), sequence) in enumerate(zip(starts, alone, strict=True), start=1):
        ids[row, start : start + len(sequence)] = sequence
        segments[row, start : start + len(sequence)] = number
    weights = [torch.randn(length, 16) for length in lengths]

    def gradients(states: list[Tensor]) -> dict[str, Tensor]:
        model.zero_grad()
        sum((state * weight).sum() for state, weight in zip(states, weights, strict=True)).backward()  # type: ignore[union-attr]
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    hidden = model(ids, segments=segments).last_hidden_state
    packed = [hidden[segments == number] for number in range(1, 5)]
    separate = [model(sequence[None]).last_hidden_state[0] for sequence in alone]
    for one, other in zip(packed, separate, strict=True):
        assert_close(one, other, atol=1e-5, rtol=1e-4)
    found, expected = gradients(packed), gradients(separate)
    assert found.keys() == expected.keys()
    for name in found:
        assert_close(found[name], expected[name], atol=1e-4, rtol=1e-3)


def test_order_matters_only_with_position_information() -> None:
    ids = torch.tensor([[5, 6, 7, 8]])
    reversed_ids = torch.tensor([[8, 7, 6, 5]])
    for absolute, relative, matters in ((True, False, True), (False, True, True), (False, False, False)):
        model = small(absolute_positions=absolute, relative_positions=relative)
        difference = (model(ids).last_hidden_state - model(reversed_ids).last_hidden_state.flip(1)).abs().max()
        assert (difference > 1e-3) == matters


def test_gate_is_optional() -> None:
    assert all(block.attention.gate is None for block in small(gated=False).blocks)
    assert any("gate" in name for name, _ in small().named_parameters())


def test_layers_argument_returns_that_layer() -> None:
    model = small(norm="pre")
    ids = torch.randint(4, 49, (2, 7))
    states = model(ids, output_hidden_states=True).hidden_states
    for layer in range(4):
        assert_close(model(ids, layers=layer).last_hidden_state, states[layer])


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("layers", [0, 1, 3])
def test_the_last_layer_at_some_positions_equals_all_positions(norm: str, paired: bool, layers: int) -> None:
    """In values and in gradients of all weights and of the input of the paired sequence."""
    net = small(norm=norm, cross_attention=True, dropout=0.0, attention_dropout=0.0).train()
    ids_BL, segments_BL = torch.randint(5, 50, (2, 6)), torch.tensor([[1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 2, 0]])
    pair_BLD = torch.randn(2, 6, 16, requires_grad=True)
    extra = {"encoder_hidden_states": pair_BLD, "encoder_segments": segments_BL} if paired else {}
    position_M = torch.tensor([9, 0, 4, 7])
    weights_MD = torch.randn(4, 16)

    def states_and_gradients(positions: Tensor | None) -> tuple[Tensor, list[Tensor | None]]:
        output = net(ids_BL, segments=segments_BL, layers=layers, positions=positions, **extra).last_hidden_state
        states_MD = output if positions is not None else output.flatten(0, 1)[position_M]
        inputs = [*net.parameters(), pair_BLD]
        return states_MD, [*torch.autograd.grad((states_MD * weights_MD).sum(), inputs, allow_unused=True)]

    found_MD, found = states_and_gradients(position_M)
    expected_MD, expected = states_and_gradients(None)
    assert found_MD.shape == (4, 16)
    assert_close(found_MD, expected_MD)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert_close(one, other)


def test_gradients_equal_those_of_the_slow_loop() -> None:
    model = small(num_hidden_layers=1)
    ids = torch.randint(4, 49, (1, 6))
    upstream = torch.randn(6, 16)
    (model(ids).last_hidden_state[0] * upstream).sum().backward()
    fast = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    hidden_LD = slow_block(model.blocks[0], model.embeddings(ids)[0], model.relative.weight_NH, pre=False)
    (hidden_LD * upstream).sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert_close(fast[name], parameter.grad, atol=1e-5, rtol=1e-3)
    assert fast["relative.weight_NH"].abs().sum() > 0


def test_compiled_blocks_with_gradient_checkpointing_equal_plain_ones() -> None:
    encoder = small(num_hidden_layers=1, dropout=0.0, attention_dropout=0.0).train()
    ids = torch.randint(encoder.config.vocab_size, (2, 8))

    def gradients() -> dict[str, Tensor]:
        encoder.zero_grad()
        encoder(ids).last_hidden_state.cumsum(-1).sin().sum().backward()
        return {name: value.grad for name, value in encoder.named_parameters() if value.grad is not None}

    plain = gradients()
    encoder.gradient_checkpointing_enable()
    encoder.blocks[0].compile(backend="aot_eager")
    for name, value in gradients().items():
        assert_close(value, plain[name], msg=name)


def test_save_and_load_with_hugging_face(tmp_path: Path) -> None:
    model = small(norm="pre", universal_layer=2)
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    ids = torch.randint(4, 49, (2, 7))
    assert torch.equal(model(ids).last_hidden_state, again(ids).last_hidden_state)
    assert again.config.universal_layer == 2


def test_base_has_the_size_of_the_paper() -> None:
    """XLM-E Base has 279M parameters with a vocabulary of 250,002, without the generator."""
    with torch.device("meta"):
        model = CrosslingModel(SIZES["base"].to_config(250_002))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(279e6, rel=0.02)


def test_rtd_head_equals_electra() -> None:
    head = RTDHead(small().config)
    hidden = torch.randn(3, 5, 16)
    expected = gelu(hidden @ head.dense.weight.T + head.dense.bias) @ head.score.weight[0] + head.score.bias
    assert_close(head(hidden), expected)


def test_dropout_applies_to_embeddings_attention_and_branches_in_training() -> None:
    ids = torch.randint(4, 49, (2, 7))
    for part in ("embeddings", "attention", "branches"):
        model = small(dropout=0.5).train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        for block in model.blocks:
            block.attention.dropout = 0.5 if part == "attention" else 0.0
            block.dropout.p = 0.5 if part == "branches" else 0.0
        model.embeddings.dropout.p = 0.5 if part == "embeddings" else 0.0
        assert not torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state), part
        model.eval()
        assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)


def test_dropout_of_a_shape_reaches_every_module() -> None:
    model = CrosslingModel(replace(SIZES["tiny"], dropout=0.25, attention_dropout=0.125).to_config(50))
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}
    assert {block.attention.dropout for block in model.blocks} == {0.125}


def test_initial_weights_have_the_configured_deviation() -> None:
    for deviation in (0.02, 0.2):
        model = small(initializer_range=deviation, hidden_size=64, vocab_size=500)
        for weight in (model.embeddings.tokens.weight, model.blocks[0].attention.qkv.weight):
            assert weight.std().item() == pytest.approx(deviation, rel=0.05)
        assert model.blocks[0].attention.qkv.bias.abs().max() == 0


def test_default_universal_layer_is_at_two_thirds() -> None:
    assert SIZES["base"].to_config(50).universal_layer == 8
    assert replace(SIZES["base"], universal_layer=5).to_config(50).universal_layer == 5


def test_lm_head_is_dense_gelu_norm_and_token_table() -> None:
    model = small()
    head = LMHead(model.config)
    hidden = torch.randn(3, 16)
    table = model.embeddings.tokens.weight
    expected = head.norm(F.gelu(hidden @ head.dense.weight.T + head.dense.bias)) @ table.T + head.bias_V
    assert_close(head(hidden, table), expected)


def test_kernel_gets_the_bias_by_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    def fused_attention(query: Tensor, *_: Any, by_distance_HW: Tensor, **__: Any) -> Tensor:
        shapes.append((*by_distance_HW.shape,))
        return query[:, :, 0]

    kernel = SimpleNamespace(fused_attention=fused_attention, make_tiles=lambda *_, **__: "tiles")
    monkeypatch.setattr(attention, "kernel", kernel)
    for module in (attention, encoder_module):
        monkeypatch.setattr(module, "uses_attention_kernel", lambda *_: True)
    ids = torch.full((2, 7), 5)
    small()(ids)
    small()(ids, attention_mask=torch.ones_like(ids))
    assert shapes == [(2, 13)] * 6
