"""8-bit weights: rounding, and loading by all model classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM

from crossling.core.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import CrosslingForMaskedLM
from crossling.model.int8 import dequantize, quantize
from crossling.model.pretrained import load_pretrained
from crossling.model.task_heads import CrosslingForSequenceClassification

CONFIG = CrosslingConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
)
MATRICES = arrays(np.float32, (3, 16), elements=st.floats(-1e3, 1e3, width=32))


@pytest.fixture
def model() -> CrosslingForMaskedLM:
    torch.manual_seed(0)
    return CrosslingForMaskedLM(CONFIG).eval()


@pytest.fixture
def folder(model: CrosslingForMaskedLM, tmp_path: Path) -> Path:
    """Return a folder with the same model in 8 bits."""
    model.save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    save_file(quantize(load_file(file)), file, metadata={"format": "pt"})
    return tmp_path / "model"


@given(MATRICES)
def test_every_value_is_within_half_a_step_of_its_row(values: np.ndarray) -> None:
    weight = torch.from_numpy(values)
    found = dequantize(quantize({"weight": weight}))["weight"]
    step_R1 = weight.abs().amax(1, keepdim=True) / 127
    assert bool(((found - weight).abs() <= step_R1 * 0.5001 + 1e-37).all())
    assert bool((found[weight == 0] == 0).all())


@given(MATRICES)
def test_quantizing_again_changes_nothing(values: np.ndarray) -> None:
    once = quantize({"weight": torch.from_numpy(values)})
    twice = quantize(dequantize(once))
    assert torch.equal(once["weight.int8"], twice["weight.int8"])


def test_each_row_has_its_own_scale() -> None:
    weight = torch.stack([torch.linspace(-1, 1, 16), torch.linspace(-1e-4, 1e-4, 16)])
    stored = quantize({"weight": weight})
    assert stored["weight.int8"].dtype == torch.int8
    assert torch.equal(stored["weight.int8"][0], stored["weight.int8"][1])
    assert stored["weight.int8"].abs().max() == 127
    assert stored["weight.scale"].shape == (2, 1)


def test_vectors_and_short_rows_are_not_quantized() -> None:
    weights = {"bias": torch.randn(16), "table": torch.randn(4, 15), "positions": torch.arange(32).view(2, 16)}
    stored = quantize(weights)
    assert stored.keys() == weights.keys()
    assert all(torch.equal(stored[name], values) for name, values in weights.items())
    assert dequantize(stored).keys() == weights.keys()


def test_weight_may_be_named_scale() -> None:
    weights = {"layer.scale": torch.ones(4), "scale": torch.ones(2, 16)}
    assert dequantize(quantize(weights)).keys() == weights.keys()


def round_weights(model: CrosslingForMaskedLM) -> dict[str, Tensor]:
    return dequantize(quantize(model.state_dict()))


def test_all_loading_functions_give_the_same_weights(folder: Path, model: CrosslingForMaskedLM) -> None:
    rounded = round_weights(model)
    loaded = AutoModelForMaskedLM.from_pretrained(folder)
    assert all(torch.equal(values, rounded[name]) for name, values in loaded.state_dict().items())
    assert not all(torch.equal(values, rounded[name]) for name, values in model.state_dict().items())
    encoders = [
        AutoModel.from_pretrained(str(folder)),
        CrosslingModel.from_pretrained(folder),
        load_pretrained(folder, folder),
        AutoModel.from_pretrained(folder.parent, subfolder="model"),
    ]
    for encoder in encoders:
        assert isinstance(encoder, CrosslingModel)
        assert not encoder.training
        for name, values in encoder.state_dict().items():
            assert torch.equal(values, rounded[f"encoder.{name}"])
    half = AutoModel.from_pretrained(folder, dtype=torch.bfloat16)
    assert {values.dtype for values in half.parameters()} == {torch.bfloat16}


def test_options_and_names_are_as_for_single_precision(
    folder: Path, model: CrosslingForMaskedLM, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "single")
    other = tmp_path / "other"
    CONFIG.replace(dropout=0.7).save_pretrained(other)
    for path in (tmp_path / "single", folder):
        classifier = CrosslingForSequenceClassification.from_pretrained(path, num_labels=5, dropout=0.3)
        assert (classifier.classifier.out.out_features, classifier.config.dropout) == (5, 0.3)
        loaded, info = CrosslingForMaskedLM.from_pretrained(path, output_loading_info=True, dtype=torch.bfloat16)
        assert not info["missing_keys"]
        assert {values.dtype for values in loaded.parameters()} == {torch.bfloat16}
        names = [loaded.name_or_path, loaded.config.name_or_path, loaded.encoder.name_or_path]
        assert names == [str(path)] * 3
        assert CrosslingModel.from_pretrained(path, config=other).config.dropout == 0.7
        with pytest.raises(TypeError):
            CrosslingModel.from_pretrained(path, no_such_option=1)


def test_loaded_model_is_saved_in_single_precision(folder: Path, tmp_path: Path) -> None:
    AutoModelForMaskedLM.from_pretrained(folder).save_pretrained(tmp_path / "again")
    stored = load_file(tmp_path / "again" / "model.safetensors")
    assert {values.dtype for values in stored.values()} == {torch.float32}
    assert not any(name.endswith((".int8", ".scale")) for name in stored)
    assert isinstance(load_pretrained(tmp_path / "again", "again"), CrosslingModel)


def test_quantized_weights_have_other_names(folder: Path, model: CrosslingForMaskedLM) -> None:
    stored = load_file(folder / "model.safetensors")
    changed = [name for name, values in model.state_dict().items() if values.ndim == 2 and values.shape[1] >= 16]
    assert changed
    assert not {*changed} & {*stored}


@pytest.mark.parametrize("missing", [".scale", ".int8"])
def test_missing_scale_or_integers_are_refused(folder: Path, missing: str) -> None:
    file = folder / "model.safetensors"
    stored = load_file(file)
    name = next(name for name in stored if name.endswith(missing) and "blocks.0" in name)
    save_file({key: values for key, values in stored.items() if key != name}, file, metadata={"format": "pt"})
    with pytest.raises(BadInput, match=r"^mine: .*blocks\.0"):
        load_pretrained(folder, "mine")


def test_missing_model_raises_the_error_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OSError):
        CrosslingModel.from_pretrained(tmp_path / "absent", local_files_only=True)
