"""Rotary positions, gated GELU and models without biases: equal to ModernBERT of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import AutoModel, ModernBertConfig, ModernBertModel

from crossling.core.errors import BadInput
from crossling.export.standalone import collect_sources
from crossling.inference.cpu_precision import PackedSelfAttention, pack_network
from crossling.model import attention
from crossling.model.config import CrosslingConfig
from crossling.model.convert import to_huggingface
from crossling.model.encoder_decoder import CrosslingForConditionalGeneration
from crossling.model.encoder_model import CrosslingModel
from crossling.model.fp8 import Fp8Linear
from crossling.model.model_shape import SIZES
from crossling.objectives.cost import encoder_flops
from crossling.train.muon import count_stacked_matrices
from crossling.train.parallel import compile_modules

SHAPE: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24,
    "initializer_range": 0.3,
}  # fmt: skip
MODERN: dict[str, Any] = SHAPE | {
    "norm": "pre", "first_norm": False, "hidden_act": "geglu", "biases": False, "position_embedding_type": "rotary",
    "rope_theta": 160_000.0, "max_position_embeddings": 64, "dropout": 0.0,
}  # fmt: skip


def make_modern(**changes: Any) -> CrosslingModel:
    torch.manual_seed(0)
    model = CrosslingModel(CrosslingConfig(**(MODERN | changes))).eval()
    randomize_norms(model)
    return model


@torch.no_grad()
def randomize_norms(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.uniform_(0.5, 1.5)


def make_modernbert() -> ModernBertModel:
    config = ModernBertConfig(
        **SHAPE, layer_types=["full_attention"] * 3, pad_token_id=1, bos_token_id=0, eos_token_id=2, norm_eps=1e-5,
        attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(1)
    model = ModernBertModel(config).eval()
    randomize_norms(model)
    return model


def pairs(ours: CrosslingModel, theirs: ModernBertModel) -> list[tuple[nn.Module, nn.Module]]:
    """Return the modules that are the same in both models."""
    found: list[tuple[nn.Module, Any]] = [
        (ours.embeddings.tokens, theirs.embeddings.tok_embeddings),
        (ours.embeddings.norm, theirs.embeddings.norm),
        (ours.final_norm, theirs.final_norm),  # type: ignore[list-item]
    ]
    for block, layer in zip(ours.blocks, theirs.layers, strict=True):
        feed_forward: Any = block.feed_forward
        found += [
            (block.attention_norm, layer.attn_norm),
            (block.attention.qkv, layer.attn.Wqkv),
            (block.attention.out, layer.attn.Wo),
            (block.feed_forward_norm, layer.mlp_norm),
            (feed_forward.into, layer.mlp.Wi),
            (feed_forward.out, layer.mlp.Wo),
        ]
    return found


def test_equals_modernbert_in_every_layer_and_gradient() -> None:
    theirs, ours = make_modernbert(), make_modern()
    for own, their in pairs(ours, theirs):
        own.load_state_dict(their.state_dict())
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    ids_BL = torch.randint(3, 50, (2, 40))
    mask_BL = torch.ones_like(ids_BL)
    mask_BL[1, 30:] = 0
    own, their = (model(ids_BL, mask_BL, output_hidden_states=True) for model in (ours, theirs))
    weights = torch.randn_like(own.last_hidden_state) * mask_BL[..., None]
    assert_close(own.last_hidden_state[mask_BL > 0], their.last_hidden_state[mask_BL > 0], atol=1e-5, rtol=1e-5)
    for number in range(3):
        at = [output.hidden_states[number][mask_BL > 0] for output in (own, their)]
        assert_close(*at, atol=1e-5, rtol=1e-5)
    for output in (own, their):
        (output.last_hidden_state * weights).sum().backward()
    for one, other in pairs(ours, theirs):
        for name, parameter in one.named_parameters():
            gradient = other.get_parameter(name).grad
            if isinstance(one, nn.Embedding):  # theirs has none for padding
                parameter.grad[1] = gradient[1]  # type: ignore[index]
            assert_close(parameter.grad, gradient, atol=1e-4, rtol=1e-4)


def slow_rotation(vector_K: Tensor, position: int, theta: float) -> Tensor:
    """Rotate one pair of elements at a time, by RoFormer, Eq. 34."""
    half = len(vector_K) // 2
    rotated = vector_K.clone()
    for k in range(half):
        angle = torch.tensor(position * theta ** (-2 * k / len(vector_K)), dtype=torch.float64)
        x, y = vector_K[k], vector_K[k + half]
        rotated[k], rotated[k + half] = x * angle.cos() - y * angle.sin(), y * angle.cos() + x * angle.sin()
    return rotated


def test_scores_are_those_of_a_slow_loop_and_depend_on_distance_alone() -> None:
    model = make_modern(num_hidden_layers=1).double()
    model.config.output_attentions = True
    ids = torch.randint(3, 50, (1, 6))
    [weights_BHLT] = model(ids).attentions
    hidden_LD = model.embeddings(ids)[0]
    query, key, _ = model.blocks[0].attention.qkv(hidden_LD).chunk(3, -1)
    for head, part in enumerate((slice(0, 8), slice(8, 16))):
        for shift in (0, 100):
            q, k = (
                torch.stack([slow_rotation(x[i, part], i + shift, 160_000.0) for i in range(6)]) for x in (query, key)
            )
            expected = torch.softmax(q @ k.T / 8**0.5, -1)
            assert_close(weights_BHLT[0, head], expected, atol=1e-6, rtol=1e-5)


def test_packed_sequences_restart_positions() -> None:
    """States and gradients of packed rows are those of each sequence alone."""
    model = make_modern()
    alone = [torch.randint(4, 49, (length,)) for length in (7, 9, 5)]
    ids, segments = torch.ones(2, 19, dtype=torch.long), torch.zeros(2, 19, dtype=torch.long)
    for number, ((row, start), sequence) in enumerate(zip([(0, 0), (0, 7), (1, 0)], alone, strict=True), start=1):
        ids[row, start : start + len(sequence)] = sequence
        segments[row, start : start + len(sequence)] = number
    hidden = model(ids, segments=segments).last_hidden_state
    gradients = []
    for states in (
        [hidden[segments == number] for number in (1, 2, 3)],
        [model(sequence[None]).last_hidden_state[0] for sequence in alone],
    ):
        model.zero_grad()
        torch.cat(states).cumsum(0).sin().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        if len(gradients) == 1:
            packed = torch.cat(states).detach()
    assert_close(packed, torch.cat(states), atol=1e-5, rtol=1e-4)
    assert_close(*gradients, atol=1e-3, rtol=1e-3)


def test_no_position_limit() -> None:
    model = make_modern(max_position_embeddings=8)
    assert model.embeddings.positions is None
    assert model.relative is None
    assert model(torch.randint(3, 50, (1, 20))).last_hidden_state.isfinite().all()


@pytest.mark.parametrize("precision", ["int8", "bfloat16"])
def test_packed_for_a_cpu(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packed attention computes what the module does, here with layers that are not rounded."""
    from crossling.inference import cpu_precision

    def plain(weight_OD: torch.Tensor, bias_O: torch.Tensor, _: bool) -> nn.Linear:
        layer = nn.Linear(*reversed(weight_OD.shape))
        layer.weight.data, layer.bias.data = weight_OD, bias_O
        return layer

    monkeypatch.setattr(cpu_precision, "pack_linear", lambda linear, *_, **__: linear)
    monkeypatch.setattr(cpu_precision, "PACKED", {"int8": plain})
    model = make_modern()
    packed = pack_network(model, "int8")
    assert isinstance(packed.blocks[0].attention, PackedSelfAttention)
    if precision == "bfloat16":
        packed.bfloat16()
    ids = torch.randint(3, 50, (2, 9))
    found, expected = packed(ids).last_hidden_state.float(), model(ids).last_hidden_state
    assert_close(found, expected, atol=1e-5 if precision == "int8" else 0.1, rtol=1e-5 if precision == "int8" else 0.1)


def test_fp8_and_muon_know_the_linear_layers() -> None:
    model = make_modern(hidden_size=32, intermediate_size=48, initializer_range=0.05).train()
    stacked = count_stacked_matrices(model)
    feed_forward: Any = model.blocks[0].feed_forward
    assert stacked[feed_forward.into.weight] == 2
    assert len(stacked) == 3 * 4
    ids = torch.randint(3, 50, (2, 9))
    expected = model(ids).last_hidden_state
    model.enable_fp8()
    assert isinstance(feed_forward.into, Fp8Linear)
    error = (model(ids).last_hidden_state - expected).norm() / expected.norm()
    assert 0 < error < 0.1


@pytest.mark.soak
def test_compiled_equals_eager() -> None:
    model = make_modern()
    ids, segments = torch.randint(3, 50, (2, 12)), torch.tensor([[1] * 5 + [2] * 7, [1] * 9 + [0] * 3])
    expected = model(ids, segments=segments).last_hidden_state
    compile_modules(nn.ModuleDict({"encoder": model}))
    found = model(ids, segments=segments).last_hidden_state
    assert_close(found[segments > 0], expected[segments > 0], atol=1e-5, rtol=1e-4)


def test_kernel_reads_rotated_queries_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gets one packed tensor, as without rotary positions, and no bias."""
    model, seen = make_modern(), []

    class Kernel:
        @staticmethod
        def make_tiles(*_: Any, **__: Any) -> str:
            return "tiles"

        @staticmethod
        def fused_attention(packed: Tensor, key: None, value: None, **options: Any) -> Tensor:
            assert key is None
            assert value is None
            seen.append(options)
            q, k, v = (each.transpose(1, 2) for each in packed.unbind(2))
            return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

    ids = torch.randint(3, 50, (2, 9))
    expected = model(ids).last_hidden_state
    monkeypatch.setattr(attention, "kernel", Kernel)
    monkeypatch.setattr(attention, "uses_attention_kernel", lambda *_: True)
    monkeypatch.setattr("crossling.model.encoder.uses_attention_kernel", lambda *_: True)
    assert_close(model(ids, segments=torch.ones_like(ids)).last_hidden_state, expected, atol=1e-5, rtol=1e-4)
    assert [options["by_distance_HW"] for options in seen] == [None] * 3


def test_decoder_with_a_cache_equals_one_without() -> None:
    torch.manual_seed(0)
    config = CrosslingConfig(
        **MODERN, cross_attention=True, decoder_blocks=(0, 2), is_encoder_decoder=True, decoder_start_token_id=0,
        tied=False,
    )  # fmt: skip
    model = CrosslingForConditionalGeneration(config).eval()
    source, target = torch.randint(3, 50, (2, 7)), torch.randint(3, 50, (2, 5))
    whole = model(source, decoder_input_ids=target).logits
    cache, steps = None, []
    for at in range(5):
        output = model(source, decoder_input_ids=target[:, at : at + 1], past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        steps.append(output.logits)
    assert_close(torch.cat(steps, 1), whole, atol=1e-5, rtol=1e-4)


def test_cross_attention_runs_with_rotary_positions() -> None:
    model = make_modern(cross_attention=True)
    ids = torch.randint(3, 50, (2, 7))
    assert model(ids, encoder_hidden_states=torch.randn(2, 5, 16)).last_hidden_state.isfinite().all()


def test_saved_and_loaded(tmp_path: Any) -> None:
    model = make_modern()
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    ids = torch.randint(3, 50, (2, 7))
    assert torch.equal(again(ids).last_hidden_state, model(ids).last_hidden_state)
    assert "class RotaryAngles" in collect_sources()["position.py"]


def test_cannot_be_exported_as_another_family() -> None:
    with pytest.raises(BadInput, match="as XLM-R or ELECTRA"):
        to_huggingface(make_modern())
    with pytest.raises(BadInput, match="hidden_act='geglu'"):
        to_huggingface(CrosslingModel(CrosslingConfig(**SHAPE, relative_positions=False, hidden_act="geglu")))


def test_flops_count_the_gate() -> None:
    """Weights of 4 D^2 + 3 D F in each layer, twice, and attention."""
    width, inner, length = 16, 24, 10
    assert encoder_flops(make_modern(), length) == 3 * (2 * (4 * width**2 + 3 * width * inner) + 4 * length * width)


def test_settings_of_a_recipe() -> None:
    from dataclasses import replace

    shape = replace(SIZES["tiny"], position="rotary", activation="geglu", biases=False, first_norm=False, norm="pre")
    config = shape.to_config(100)
    assert (config.position_embedding_type, config.hidden_act) == ("rotary", "geglu")
    assert (config.biases, config.first_norm, config.rope_theta) == (False, False, 10_000.0)
    assert (config.absolute_positions, config.relative_positions) == (False, False)
    assert [*shape.problems()] == []
    wrong = {
        "rope_theta": replace(SIZES["tiny"], rope_theta=500.0),
        "first_norm": replace(SIZES["tiny"], first_norm=False),
        "plain_gate": replace(shape, plain_gate=True),
        "odd": replace(shape, width=12, heads=4),
    }
    for word, each in wrong.items():
        assert word in " ".join(each.problems())
