"""Cross-attention on and off, activation checkpointing, and self-attention against WavLM."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers.models.wavlm.modeling_wavlm import WavLMAttention

from crossling.model.attention import PositionBias, SelfAttention
from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from crossling.model.position import RelativePositionTable

WIDTH = 16


def model(**changes: object) -> CrosslingModel:
    torch.manual_seed(0)
    shape = {
        "vocab_size": 50,
        "hidden_size": WIDTH,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 24,
        "initializer_range": 0.3,
        "cross_attention": True,
        "dropout": 0.0,
    }
    return CrosslingModel(CrosslingConfig(**(shape | changes)))  # type: ignore[arg-type]


def gradients(network: CrosslingModel, states: list[Tensor]) -> dict[str, Tensor]:
    """Return the gradients of a random weighted sum of the states."""
    network.zero_grad()
    generator = torch.Generator().manual_seed(1)
    torch.stack([(state * torch.randn(state.shape, generator=generator)).sum() for state in states]).sum().backward()
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert_close(found[name], values, atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("query", ["attention", "hidden", None])
def test_queries_of_cross_attention(norm: str, query: str | None) -> None:
    """Eq. 6 of VECO takes them from the output of the layer below; by default they are self-attention's output."""
    network = model(norm=norm, cross_query=query, relative_positions=False).eval()
    ids, paired_BTD = torch.randint(4, 49, (2, 9)), torch.randn(2, 7, WIDTH)
    output = network(ids, encoder_hidden_states=paired_BTD, output_hidden_states=True, layers=2)
    block, below = network.blocks[1], output.hidden_states[1]
    if norm == "post":
        middle = block.attention_norm(below + block.attention(below, None, None))
        queries = below if query == "hidden" else middle
        middle = block.cross_norm(middle + block.cross(queries, paired_BTD, None))
        expected = block.feed_forward_norm(middle + block.feed_forward(middle))
    else:
        middle = below + block.attention(block.attention_norm(below), None, None)
        queries = below if query == "hidden" else middle
        middle = middle + block.cross(block.cross_norm(queries), paired_BTD, None)
        expected = middle + block.feed_forward(block.feed_forward_norm(middle))
    assert_close(output.last_hidden_state, expected)


# ---- without a paired sequence ---------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_without_a_pair_it_equals_an_encoder_without_cross_attention(norm: str) -> None:
    full, plain = model(norm=norm), model(norm=norm, cross_attention=False)
    missing, unexpected = plain.load_state_dict(full.state_dict(), strict=False)
    assert not missing
    assert len(unexpected) == 3 * 8
    assert all(".cross" in name for name in unexpected)
    ids = torch.randint(4, 49, (2, 9))
    found = full(ids).last_hidden_state
    assert torch.equal(found, plain(ids).last_hidden_state)
    assert_same(gradients(full, [found]), gradients(plain, [plain(ids).last_hidden_state]))


def test_cross_attention_parameters() -> None:
    full = model()
    owned = set(full.cross_attention_parameters())
    assert owned == {p for name, p in full.named_parameters() if ".cross" in name}
    assert not list(model(cross_attention=False).cross_attention_parameters())


def test_paired_states_need_cross_attention() -> None:
    with pytest.raises(ValueError, match="no cross-attention"):
        model(cross_attention=False)(torch.tensor([[5, 6]]), encoder_hidden_states=torch.zeros(1, 2, WIDTH))


# ---- with a paired sequence ------------------------------------------------------------------------------------


def test_paired_sequence_changes_every_layer() -> None:
    network, ids = model(), torch.randint(4, 49, (1, 7))
    one, other = (
        network(ids, encoder_hidden_states=paired, output_hidden_states=True).hidden_states
        for paired in torch.randn(2, 1, 5, WIDTH)
    )
    assert torch.equal(one[0], other[0])
    assert all((first - second).abs().max() > 1e-3 for first, second in zip(one[1:], other[1:], strict=True))


def test_order_of_the_paired_sequence_does_not_matter() -> None:
    """There is no position bias between two sequences."""
    network, ids, paired = model(), torch.randint(4, 49, (1, 7)), torch.randn(1, 5, WIDTH)
    one = network(ids, encoder_hidden_states=paired).last_hidden_state
    assert_close(network(ids, encoder_hidden_states=paired.flip(1)).last_hidden_state, one, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padded_packed_and_separate_sequences_are_equal(norm: str) -> None:
    """States and gradients, including those of the paired sequence."""
    network = model(norm=norm)
    lengths = [(7, 3), (9, 8), (5, 11), (11, 4)]  # of a sequence and of its pair
    ids = [torch.randint(4, 49, (length,)) for length, _ in lengths]
    paired = [torch.randn(length, WIDTH, requires_grad=True) for _, length in lengths]

    def padded() -> list[Tensor]:
        ids_BL, mask_BT = torch.ones(4, 12, dtype=torch.long), torch.zeros(4, 13, dtype=torch.bool)
        paired_BTD = torch.full((4, 13, WIDTH), 7.0)
        for row, (own, other) in enumerate(zip(ids, paired, strict=True)):
            ids_BL[row, : len(own)], paired_BTD[row, : len(other)] = own, other
            mask_BT[row, : len(other)] = True
        states = network(
            ids_BL, ids_BL != 1, encoder_hidden_states=paired_BTD, encoder_attention_mask=mask_BT
        ).last_hidden_state
        return [states[row, : len(own)] for row, own in enumerate(ids)]

    def packed() -> list[Tensor]:
        """Pack two sequences per row, in another order than their pairs."""
        ids_BL, segments_BL = torch.ones(2, 19, dtype=torch.long), torch.zeros(2, 19, dtype=torch.long)
        paired_BTD, segments_BT = torch.full((2, 17, WIDTH), 7.0), torch.zeros(2, 17, dtype=torch.long)
        for row, (first, second) in enumerate(((0, 1), (3, 2))):
            for array, numbers, parts in (
                (ids_BL, segments_BL, [(first, ids[first]), (second, ids[second])]),
                (paired_BTD, segments_BT, [(second, paired[second]), (first, paired[first])]),
            ):
                start = 0
                for number, values in parts:
                    array[row, start : start + len(values)] = values
                    numbers[row, start : start + len(values)] = number + 1
                    start += len(values)
        states = network(
            ids_BL, segments=segments_BL, encoder_hidden_states=paired_BTD, encoder_segments=segments_BT
        ).last_hidden_state
        return [states[segments_BL == number] for number in range(1, 5)]

    def separate() -> list[Tensor]:
        return [
            network(own[None], encoder_hidden_states=other[None]).last_hidden_state[0]
            for own, other in zip(ids, paired, strict=True)
        ]

    def all_gradients(states: list[Tensor]) -> dict[str, Tensor]:
        for state in paired:
            state.grad = None
        own = gradients(network, states)
        return own | {f"paired {i}": state.grad.clone() for i, state in enumerate(paired)}  # type: ignore[union-attr]

    expected = separate()
    for form in (padded, packed):
        for found, wanted in zip(form(), expected, strict=True):
            assert_close(found, wanted, atol=1e-5, rtol=1e-4)
        assert_same(all_gradients(form()), all_gradients(separate()))


# ---- activation checkpointing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("has_pair", [False, True], ids=["alone", "with a pair"])
def test_activation_checkpointing_gives_the_same_gradients(has_pair: bool, dropout: float) -> None:
    """The second forward pass has the same dropout masks."""
    ids, states = torch.randint(4, 49, (2, 9)), torch.randn(2, 6, WIDTH)
    found = []
    for recompute in (False, True):
        network = model(dropout=dropout).train()
        if recompute:
            network.gradient_checkpointing_enable()
        calls = count_calls(network)
        paired = states.clone().requires_grad_()
        torch.manual_seed(5)
        output = network(ids, encoder_hidden_states=paired if has_pair else None).last_hidden_state
        learned = gradients(network, [output])
        assert calls == [1 + recompute] * 3  # every block runs again in the backward pass
        found.append(learned | ({"paired": paired.grad} if has_pair else {}) | {"output": output.detach()})
    assert_same(found[1], found[0])


def test_activation_checkpointing_with_only_cross_attention_trained() -> None:
    """Frozen parameters leave the input of a block without a gradient. Its cross-attention still has one."""
    ids, paired = torch.randint(4, 49, (2, 9)), torch.randn(2, 6, WIDTH)
    found = []
    for recompute in (False, True):
        network = model().train()
        for parameter in network.parameters():
            parameter.requires_grad_(False)
        for parameter in network.cross_attention_parameters():
            parameter.requires_grad_(True)
        if recompute:
            network.gradient_checkpointing_enable()
        found.append(gradients(network, [network(ids, encoder_hidden_states=paired).last_hidden_state]))
    assert len(found[0]) == 3 * 8
    assert_same(found[1], found[0])


def count_calls(network: CrosslingModel) -> list[int]:
    calls = [0] * len(network.blocks)
    for number, block in enumerate(network.blocks):

        def counted(*_: object, number: int = number) -> None:
            calls[number] += 1

        block.feed_forward.register_forward_pre_hook(counted)
    return calls


# ---- the gate of the authors' released model ----------------------------------------------------------------


def test_self_attention_equals_wavlm_with_the_update_gate_flipped() -> None:
    """transformers' WavLM computes 2 - a + a b w where XLM-E has a = 1 - g_u: the same from the negated first gate.

    The input of its gate is the layer's input, as with gate_input = "hidden".
    """
    torch.manual_seed(0)
    config = CrosslingConfig(hidden_size=24, num_attention_heads=3, gate_input="hidden", dropout=0.0)
    ours, table = SelfAttention(config), RelativePositionTable(buckets=32, max_distance=128, heads=3)
    theirs = WavLMAttention(embed_dim=24, num_heads=3, num_buckets=32, max_distance=128)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.5)
        for kind in ("weight", "bias"):
            projections = [getattr(getattr(theirs, f"{part}_proj"), kind) for part in "qkv"]
            getattr(ours.qkv, kind).copy_(torch.cat(projections))
            getattr(ours.out, kind).copy_(getattr(theirs.out_proj, kind))
            getattr(ours.gate.map, kind).copy_(getattr(theirs.gru_rel_pos_linear, kind))
            getattr(ours.gate.map, kind)[:4] *= -1
        ours.gate.scale_H.copy_(theirs.gru_rel_pos_const.flatten())
        table.weight_NH.copy_(theirs.rel_attn_embed.weight)
    hidden = torch.randn(2, 40, 24)
    expected, _, _ = theirs(hidden)
    assert_close(
        ours(hidden, PositionBias.create(table(40), table.saturation_distance, for_kernel=False), None),
        expected,
        atol=1e-5,
        rtol=1e-4,
    )
    by_query = SelfAttention(config.replace(gate_input="query"))
    by_query.load_state_dict(ours.state_dict())
    assert (
        by_query(hidden, PositionBias.create(table(40), table.saturation_distance, for_kernel=False), None) - expected
    ).abs().max() > 1e-2
