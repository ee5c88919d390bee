"""The encoder against a slow one, and its manners as a Hugging Face model."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModel

from crossling.model.position import bucket
from crossling.model.shape import SIZES
from crossling.model.transformer import Block, CrosslingConfig, CrosslingModel, LMHead


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


def slow_block(block: Block, hidden_LD: Tensor, table_NH: Tensor | None, pre: bool) -> Tensor:
    """One sequence, one head, one query at a time, from the equations of XLM-E §3.3."""

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
                    d = torch.stack([table_NH[bucket(torch.tensor(j - i), 32, 128), h] for j in range(length)])
                    m = attention.gate(query[i, part][None, None, None].expand(1, heads, 1, -1))[0, h, 0]
                    scores = scores + m * d
                mixed[i, part] = torch.softmax(scores, -1) @ value[:, part]
        return attention.out(mixed)

    if pre:
        hidden_LD = hidden_LD + attend(block.attention_norm(hidden_LD))
        return hidden_LD + block.feed_forward(block.feed_forward_norm(hidden_LD))
    hidden_LD = block.attention_norm(hidden_LD + attend(hidden_LD))
    return block.feed_forward_norm(hidden_LD + block.feed_forward(hidden_LD))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_layer_equals_a_slow_loop(norm: str) -> None:
    model = small(norm=norm)
    ids_BL = torch.randint(4, 49, (2, 7))
    states = model(ids_BL, output_hidden_states=True).hidden_states
    assert len(states) == 4
    for row in range(2):
        hidden_LD = model.embeddings(ids_BL[row : row + 1])[0]
        assert_close(states[0][row], hidden_LD)
        for number, block in enumerate(model.blocks, start=1):
            hidden_LD = slow_block(block, hidden_LD, model.relative.weight_NH, norm == "pre")
            last = model.final_norm(hidden_LD) if norm == "pre" and number == 3 else hidden_LD
            assert_close(states[number][row], last, atol=2e-5, rtol=1e-4)


def test_padding_changes_nothing() -> None:
    model = small()
    long, short = torch.randint(4, 49, (1, 20)), torch.randint(4, 49, (1, 9))
    ids = torch.ones(2, 20, dtype=torch.long)
    ids[0], ids[1, :9] = long, short
    both = model(ids, ids != 1).last_hidden_state
    assert_close(both[:1], model(long).last_hidden_state, atol=1e-5, rtol=1e-4)
    assert_close(both[1:, :9], model(short).last_hidden_state, atol=1e-5, rtol=1e-4)


def test_positions_are_felt_through_either_kind_and_only_through_them() -> None:
    ids = torch.tensor([[5, 6, 7, 8]])
    turned = torch.tensor([[8, 7, 6, 5]])
    for absolute, relative, felt in ((True, False, True), (False, True, True), (False, False, False)):
        model = small(absolute_positions=absolute, relative_positions=relative)
        difference = (model(ids).last_hidden_state - model(turned).last_hidden_state.flip(1)).abs().max()
        assert (difference > 1e-3) == felt


def test_the_gate_can_be_left_out() -> None:
    assert all(block.attention.gate is None for block in small(gated=False).blocks)
    assert any("gate" in name for name, _ in small().named_parameters())


def test_stopping_early_gives_that_layer() -> None:
    model = small(norm="pre")
    ids = torch.randint(4, 49, (2, 7))
    states = model(ids, output_hidden_states=True).hidden_states
    for layer in range(4):
        assert_close(model(ids, layers=layer).last_hidden_state, states[layer])


def test_the_bias_learns_in_value_and_gradient_like_the_slow_loop() -> None:
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


def test_hugging_face_saves_and_loads_it(tmp_path: Path) -> None:
    model = small(norm="pre", universal_layer=2)
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    ids = torch.randint(4, 49, (2, 7))
    assert torch.equal(model(ids).last_hidden_state, again(ids).last_hidden_state)
    assert again.config.universal_layer == 2


def test_base_has_the_papers_size() -> None:
    """XLM-E Base counts 279M with 250,002 pieces (discriminator alone); counted without allocating."""
    with torch.device("meta"):
        model = CrosslingModel(SIZES["base"].config(250_002))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(279e6, rel=0.02)


def test_the_language_model_head_is_dense_gelu_norm_and_the_table() -> None:
    model = small()
    head = LMHead(model.config)
    hidden = torch.randn(3, 16)
    table = model.embeddings.tokens.weight
    expected = head.norm(F.gelu(hidden @ head.dense.weight.T + head.dense.bias)) @ table.T + head.bias_V
    assert_close(head(hidden, table), expected)
