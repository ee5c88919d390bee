"""Cross-attention that can be plugged in and out, recomputed activations, and the gate beside WavLM's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers.models.wavlm.modeling_wavlm import WavLMAttention

from crossling.model.attention import Bias, SelfAttention
from crossling.model.config import CrosslingConfig
from crossling.model.position import RelativePositionTable
from crossling.model.transformer import CrosslingModel

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
    """Of a different sum for every number of the states."""
    network.zero_grad()
    generator = torch.Generator().manual_seed(1)
    torch.stack([(each * torch.randn(each.shape, generator=generator)).sum() for each in states]).sum().backward()
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert_close(found[name], values, atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


# ---- plugged out -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_plugged_out_it_is_the_encoder_without_the_module(norm: str) -> None:
    full, plain = model(norm=norm), model(norm=norm, cross_attention=False)
    absent, extra = plain.load_state_dict(full.state_dict(), strict=False)
    assert not absent
    assert len(extra) == 3 * 8
    assert all(".cross" in name for name in extra)
    ids = torch.randint(4, 49, (2, 9))
    found = full(ids).last_hidden_state
    assert torch.equal(found, plain(ids).last_hidden_state)
    assert_same(gradients(full, [found]), gradients(plain, [plain(ids).last_hidden_state]))


def test_what_the_module_owns_is_named() -> None:
    full = model()
    owned = set(full.cross_parameters())
    assert owned == {p for name, p in full.named_parameters() if ".cross" in name}
    assert not list(model(cross_attention=False).cross_parameters())


def test_without_the_module_nothing_can_be_plugged_in() -> None:
    with pytest.raises(ValueError, match="no cross-attention"):
        model(cross_attention=False)(torch.tensor([[5, 6]]), encoder_hidden_states=torch.zeros(1, 2, WIDTH))


# ---- plugged in ------------------------------------------------------------------------------------------------


def test_the_paired_sequence_is_felt_in_every_layer() -> None:
    network, ids = model(), torch.randint(4, 49, (1, 7))
    one, other = (
        network(ids, encoder_hidden_states=paired, output_hidden_states=True).hidden_states
        for paired in torch.randn(2, 1, 5, WIDTH)
    )
    assert torch.equal(one[0], other[0])
    assert all((first - second).abs().max() > 1e-3 for first, second in zip(one[1:], other[1:], strict=True))


def test_places_of_the_paired_sequence_mean_nothing() -> None:
    """No position bias between two sequences: its states may come in any order."""
    network, ids, paired = model(), torch.randint(4, 49, (1, 7)), torch.randn(1, 5, WIDTH)
    one = network(ids, encoder_hidden_states=paired).last_hidden_state
    assert_close(network(ids, encoder_hidden_states=paired.flip(1)).last_hidden_state, one, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padded_packed_and_one_by_one_are_equal(norm: str) -> None:
    """States and gradients, those of the paired sequence too."""
    network = model(norm=norm)
    lengths = [(7, 3), (9, 8), (5, 11), (11, 4)]  # of a sequence and of its pair
    ids = [torch.randint(4, 49, (length,)) for length, _ in lengths]
    paired = [torch.randn(length, WIDTH, requires_grad=True) for _, length in lengths]

    def padded() -> list[Tensor]:
        ids_BL, present_BT = torch.ones(4, 12, dtype=torch.long), torch.zeros(4, 13, dtype=torch.bool)
        paired_BTD = torch.full((4, 13, WIDTH), 7.0)
        for row, (own, other) in enumerate(zip(ids, paired, strict=True)):
            ids_BL[row, : len(own)], paired_BTD[row, : len(other)] = own, other
            present_BT[row, : len(other)] = True
        states = network(
            ids_BL, ids_BL != 1, encoder_hidden_states=paired_BTD, encoder_attention_mask=present_BT
        ).last_hidden_state
        return [states[row, : len(own)] for row, own in enumerate(ids)]

    def packed() -> list[Tensor]:
        """Two in a row, and not in the same order as their pairs."""
        ids_BL, segments_BL = torch.ones(2, 19, dtype=torch.long), torch.zeros(2, 19, dtype=torch.long)
        paired_BTD, segments_BT = torch.full((2, 17, WIDTH), 7.0), torch.zeros(2, 17, dtype=torch.long)
        for row, (first, second) in enumerate(((0, 1), (3, 2))):
            for array, numbers, parts in (
                (ids_BL, segments_BL, [(first, ids[first]), (second, ids[second])]),
                (paired_BTD, segments_BT, [(second, paired[second]), (first, paired[first])]),
            ):
                place = 0
                for number, values in parts:
                    array[row, place : place + len(values)] = values
                    numbers[row, place : place + len(values)] = number + 1
                    place += len(values)
        states = network(
            ids_BL, segments=segments_BL, encoder_hidden_states=paired_BTD, encoder_segments=segments_BT
        ).last_hidden_state
        return [states[segments_BL == number] for number in range(1, 5)]

    def one_by_one() -> list[Tensor]:
        return [
            network(own[None], encoder_hidden_states=other[None]).last_hidden_state[0]
            for own, other in zip(ids, paired, strict=True)
        ]

    def learned(states: list[Tensor]) -> dict[str, Tensor]:
        for each in paired:
            each.grad = None
        found = gradients(network, states)
        return found | {f"paired {i}": each.grad.clone() for i, each in enumerate(paired)}  # type: ignore[union-attr]

    expected = one_by_one()
    for form in (padded, packed):
        for found, wanted in zip(form(), expected, strict=True):
            assert_close(found, wanted, atol=1e-5, rtol=1e-4)
        assert_same(learned(form()), learned(one_by_one()))


# ---- recomputed activations --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("crossed", [False, True], ids=["alone", "with a pair"])
def test_recomputed_activations_give_the_same_gradients(crossed: bool, dropout: float) -> None:
    """Dropout too is drawn again as it was."""
    ids, states = torch.randint(4, 49, (2, 9)), torch.randn(2, 6, WIDTH)
    found = []
    for recompute in (False, True):
        network = model(dropout=dropout).train()
        if recompute:
            network.gradient_checkpointing_enable()
        calls = count_calls(network)
        paired = states.clone().requires_grad_()
        torch.manual_seed(5)
        output = network(ids, encoder_hidden_states=paired if crossed else None).last_hidden_state
        learned = gradients(network, [output])
        assert calls == [1 + recompute] * 3  # every block, once more on the way back
        found.append(learned | ({"paired": paired.grad} if crossed else {}) | {"output": output.detach()})
    assert_same(found[1], found[0])


def test_recomputed_activations_teach_cross_attention_alone() -> None:
    """While the rest is frozen no input of a block has a gradient, and its cross-attention learns all the same."""
    ids, paired = torch.randint(4, 49, (2, 9)), torch.randn(2, 6, WIDTH)
    found = []
    for recompute in (False, True):
        network = model().train()
        for parameter in network.parameters():
            parameter.requires_grad_(False)
        for parameter in network.cross_parameters():
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


# ---- the gate, beside the one its authors released ----------------------------------------------------------------


def test_self_attention_is_wavlms_with_the_update_gate_flipped() -> None:
    """transformers' WavLM computes 2 - a + a b w where XLM-E has a = 1 - g_u: the same from the negated first gate. Its
    gate looks at the layer's input, as ours does with gate_input = "hidden"."""
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
    assert_close(ours(hidden, Bias.of(table(40), table.far, by_kernel=False), None), expected, atol=1e-5, rtol=1e-4)
    by_query = SelfAttention(config.but(gate_input="query"))
    by_query.load_state_dict(ours.state_dict())
    assert (by_query(hidden, Bias.of(table(40), table.far, by_kernel=False), None) - expected).abs().max() > 1e-2
