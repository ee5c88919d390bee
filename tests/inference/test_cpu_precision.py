"""Inference in bfloat16 and int8 on a CPU equals that in float32 within their rounding."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from crossling.core.errors import BadInput
from crossling.evaluate import evaluate as evaluate_module
from crossling.inference import cpu_precision
from crossling.inference.cpu_precision import (
    fastest_precision,
    in_float32,
    pack_linear,
    pack_network,
    resolve_precision,
)
from crossling.inference.load import load
from crossling.inference.pooling import normalize_vectors
from crossling.inference.sentence_encoder import Encoder
from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from crossling.model.int8 import dequantize, quantize
from tests.tiny_encoder import SENTENCES, make_model, make_tokenizer

CPU = torch.device("cpu")
SUPPORTED = [
    name for name, here in (("bfloat16", cpu_precision._has_bfloat16()), ("int8", cpu_precision._has_int8())) if here
]


def make_crossling(precision: str, **options: object) -> Encoder:
    tokenizer = make_tokenizer()
    settings = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    torch.manual_seed(0)
    model = CrosslingModel(CrosslingConfig(vocab_size=len(tokenizer), **(settings | options))).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights) * 0.2)  # gates and bias differ from their initial constants
    return Encoder(model, tokenizer, "tiny", precision=precision)


@pytest.mark.parametrize("precision", SUPPORTED)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "pre"},
        {"gate_input": "hidden"},
        {"gated": False},
        {"relative_positions": False, "absolute_positions": True},
        {"position_embedding_type": "rotary", "hidden_act": "geglu"},
        {"biases": False},
    ],
)
def test_vectors_are_close_to_float32(precision: str, options: dict[str, object]) -> None:
    encoder = make_crossling(precision, **options)
    expected = normalize_vectors(in_float32(encoder).encode_layers(SENTENCES))
    found = normalize_vectors(encoder.encode_layers(SENTENCES))
    assert (expected * found).sum(-1).min() > 0.995
    assert not np.array_equal(expected, found)


@pytest.mark.parametrize("precision", SUPPORTED)
def test_vectors_do_not_depend_on_the_batch(precision: str) -> None:
    encoder = make_crossling(precision)
    alone = np.concatenate([encoder.encode([sentence]) for sentence in SENTENCES])
    np.testing.assert_allclose(encoder.encode(SENTENCES), alone, rtol=0, atol=0.05)


@pytest.mark.parametrize("precision", SUPPORTED)
def test_models_of_transformers_are_packed(precision: str) -> None:
    model = make_model().eval()
    encoder = Encoder(model, make_tokenizer(), "tiny", precision=precision)
    expected = normalize_vectors(in_float32(encoder).encode(SENTENCES))
    assert (expected * normalize_vectors(encoder.encode(SENTENCES))).sum(-1).min() > 0.995


@pytest.mark.parametrize("precision", SUPPORTED)
def test_packing_leaves_the_model_as_it_is(precision: str) -> None:
    encoder = make_crossling(precision)
    before = encoder.fingerprint()
    encoder.encode(SENTENCES)
    assert encoder.fingerprint() == before
    assert all(weights.dtype == torch.float32 and weights.requires_grad for weights in encoder.model.parameters())
    assert in_float32(encoder).precision == "float32"
    assert encoder.precision == precision
    assert f"precision='{precision}'" in repr(encoder)


@pytest.mark.skipif("int8" not in SUPPORTED, reason="needs VNNI")
def test_int8_layers_equal_integer_arithmetic() -> None:
    torch.manual_seed(0)
    linear, hidden_ND = nn.Linear(64, 32), torch.randn(5, 64) * torch.tensor([[1e-3], [1.0], [50.0], [0.0], [3.0]])
    weight_OD = dequantize(quantize({"weight": linear.weight.detach()}))["weight"]
    scale_N1 = (hidden_ND.abs().amax(1, keepdim=True) / 127).clamp(min=1e-12)
    expected = (hidden_ND / scale_N1).round() * scale_N1 @ weight_OD.T + linear.bias.detach()
    found = pack_linear(linear, "int8")(hidden_ND)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    found = pack_linear(linear, "int8", has_gelu=True)(hidden_ND)
    torch.testing.assert_close(found, nn.functional.gelu(expected), rtol=1e-4, atol=1e-4)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGILL)


def hang() -> None:
    signal.pause()


@pytest.mark.parametrize(("product", "works"), [(None, True), (crash, False), (hang, False)])
def test_a_cpu_that_reports_amx_and_cannot_use_it_computes_in_float32(
    product: Callable[[], None] | None, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_precision.amx_works.cache_clear()
    if product is not None:
        monkeypatch.setattr(cpu_precision, "_multiply_in_bfloat16", product)
    if product is hang:
        monkeypatch.setattr(cpu_precision, "PROBE_SECONDS", 0.0)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(cpu_precision, "_has_bfloat16", lambda: True)
    assert fastest_precision() == ("bfloat16" if works else "float32")
    cpu_precision.amx_works.cache_clear()


def test_auto_depends_on_the_weights_and_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_precision, "amx_works", lambda: True)
    for amx, vnni, expected in ((True, True, "bfloat16"), (False, True, "int8"), (False, False, "float32")):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda amx=amx: amx)
        monkeypatch.setattr(cpu_precision, "_has_bfloat16", lambda: True)
        monkeypatch.setattr(cpu_precision, "_has_int8", lambda vnni=vnni: vnni)
        assert resolve_precision("auto", CPU, has_int8_weights=True) == expected
        assert resolve_precision("auto", CPU, has_int8_weights=False) == "float32"
        assert resolve_precision("auto", torch.device("cuda"), has_int8_weights=True) == "float32"
    with pytest.raises(BadInput, match="no instructions"):
        resolve_precision("int8", CPU, has_int8_weights=True)
    with pytest.raises(BadInput, match="expected a model on the CPU"):
        resolve_precision("int8", torch.device("cuda"), has_int8_weights=True)


def test_load_resolves_the_precision(tmp_path: Path) -> None:
    assert load().precision == resolve_precision("auto", CPU, has_int8_weights=True)
    assert load(precision="float32").precision == "float32"
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert load(tmp_path).precision == "float32"
    with pytest.raises(BadInput, match="precision=int4: no such precision"):
        load(tmp_path, precision="int4")


def test_scores_are_computed_in_float32(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    encoder, used = make_crossling("int8"), []
    monkeypatch.setattr(evaluate_module, "evaluate_tatoeba", lambda model, *_: used.append(model.precision) or [])
    monkeypatch.setattr(evaluate_module.EvaluationRequest, "check", lambda _: {"tatoeba": None})
    evaluate_module.evaluate(encoder, ["tatoeba"], tmp_path)
    assert used == ["float32"]


def test_layers_above_the_requested_one_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = make_crossling("float32", norm="pre")
    expected = encoder.encode_layers(SENTENCES)
    monkeypatch.setattr(encoder.model.blocks[2], "forward", None)  # calling it would fail
    for layer in (0, 1, 2):
        np.testing.assert_array_equal(encoder.encode(SENTENCES, layer=layer), expected[layer])


@pytest.mark.skipif(not SUPPORTED, reason="needs packed layers")
def test_packed_networks_need_no_gradients() -> None:
    packed = pack_network(make_crossling(SUPPORTED[0]).model, SUPPORTED[0])
    assert not any(weights.requires_grad for weights in packed.parameters())


@pytest.mark.parametrize("precision", SUPPORTED)
def test_a_used_encoder_can_be_pickled_and_follows_its_weights(precision: str) -> None:
    encoder = make_crossling(precision)
    before = encoder.encode(SENTENCES)
    for other in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder)):
        np.testing.assert_array_equal(other.encode(SENTENCES), before)
    with torch.no_grad():
        for weight in encoder.model.parameters():
            weight.mul_(0.5)
    fresh = make_crossling(precision)
    fresh.model.load_state_dict(encoder.model.state_dict())
    np.testing.assert_array_equal(encoder.encode(SENTENCES), fresh.encode(SENTENCES))


def test_amx_is_probed_where_signals_of_children_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_precision.amx_works.cache_clear()
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert cpu_precision.amx_works() or not cpu_precision._has_bfloat16()
    finally:
        signal.signal(signal.SIGCHLD, before)
        cpu_precision.amx_works.cache_clear()
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(cpu_precision, "amx_works", lambda: False)
    for precision in ("bfloat16", "int8"):
        with pytest.raises(BadInput, match="no instructions"):
            resolve_precision(precision, CPU, has_int8_weights=True)
