"""8-bit weights: what comes back is near what was there, and every class of ours opens them."""

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

from crossling.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.heads import CrosslingForMaskedLM
from crossling.model.int8 import quantised, restored
from crossling.model.pretrained import pretrained
from crossling.model.tasks import CrosslingForSequenceClassification
from crossling.model.transformer import CrosslingModel

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
    """Of the same model in 8 bits."""
    model.save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    save_file(quantised(load_file(file)), file, metadata={"format": "pt"})
    return tmp_path / "model"


@given(MATRICES)
def test_every_value_is_within_half_a_step_of_its_row(values: np.ndarray) -> None:
    weight = torch.from_numpy(values)
    found = restored(quantised({"weight": weight}))["weight"]
    step_R1 = weight.abs().amax(1, keepdim=True) / 127
    assert bool(((found - weight).abs() <= step_R1 * 0.5001 + 1e-37).all())
    assert bool((found[weight == 0] == 0).all())


@given(MATRICES)
def test_a_second_time_nothing_is_lost(values: np.ndarray) -> None:
    once = quantised({"weight": torch.from_numpy(values)})
    twice = quantised(restored(once))
    assert torch.equal(once["weight.int8"], twice["weight.int8"])


def test_rows_have_scales_of_their_own() -> None:
    weight = torch.stack([torch.linspace(-1, 1, 16), torch.linspace(-1e-4, 1e-4, 16)])
    stored = quantised({"weight": weight})
    assert stored["weight.int8"].dtype == torch.int8
    assert torch.equal(stored["weight.int8"][0], stored["weight.int8"][1])
    assert stored["weight.int8"].abs().max() == 127
    assert stored["weight.scale"].shape == (2, 1)


def test_vectors_and_short_rows_stay_as_they_are() -> None:
    weights = {"bias": torch.randn(16), "table": torch.randn(4, 15), "places": torch.arange(32).view(2, 16)}
    stored = quantised(weights)
    assert stored.keys() == weights.keys()
    assert all(torch.equal(stored[name], values) for name, values in weights.items())
    assert restored(stored).keys() == weights.keys()


def test_a_weight_may_be_called_scale() -> None:
    weights = {"layer.scale": torch.ones(4), "scale": torch.ones(2, 16)}
    assert restored(quantised(weights)).keys() == weights.keys()


def expected(model: CrosslingForMaskedLM) -> dict[str, Tensor]:
    return restored(quantised(model.state_dict()))


def test_all_ways_to_open_a_folder_give_the_same_weights(folder: Path, model: CrosslingForMaskedLM) -> None:
    near = expected(model)
    opened = AutoModelForMaskedLM.from_pretrained(folder)
    assert all(torch.equal(values, near[name]) for name, values in opened.state_dict().items())
    assert not all(torch.equal(values, near[name]) for name, values in model.state_dict().items())
    encoders = [
        AutoModel.from_pretrained(str(folder)),
        CrosslingModel.from_pretrained(folder),
        pretrained(folder, folder),
        AutoModel.from_pretrained(folder.parent, subfolder="model"),
    ]
    for encoder in encoders:
        assert isinstance(encoder, CrosslingModel)
        assert not encoder.training
        for name, values in encoder.state_dict().items():
            assert torch.equal(values, near[f"encoder.{name}"])
    half = AutoModel.from_pretrained(folder, dtype=torch.bfloat16)
    assert {values.dtype for values in half.parameters()} == {torch.bfloat16}


def test_options_and_names_are_those_of_any_other_folder(
    folder: Path, model: CrosslingForMaskedLM, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "single")
    other = tmp_path / "other"
    CONFIG.but(dropout=0.7).save_pretrained(other)
    for where in (tmp_path / "single", folder):
        labelled = CrosslingForSequenceClassification.from_pretrained(where, num_labels=5, dropout=0.3)
        assert (labelled.classifier.out.out_features, labelled.config.dropout) == (5, 0.3)
        found, told = CrosslingForMaskedLM.from_pretrained(where, output_loading_info=True, dtype=torch.bfloat16)
        assert not told["missing_keys"]
        assert {values.dtype for values in found.parameters()} == {torch.bfloat16}
        names = [found.name_or_path, found.config.name_or_path, found.encoder.name_or_path]
        assert names == [str(where)] * 3
        assert CrosslingModel.from_pretrained(where, config=other).config.dropout == 0.7
        with pytest.raises(TypeError):
            CrosslingModel.from_pretrained(where, no_such_option=1)


def test_what_was_opened_is_saved_as_any_other(folder: Path, tmp_path: Path) -> None:
    AutoModelForMaskedLM.from_pretrained(folder).save_pretrained(tmp_path / "again")
    stored = load_file(tmp_path / "again" / "model.safetensors")
    assert {values.dtype for values in stored.values()} == {torch.float32}
    assert not any(name.endswith((".int8", ".scale")) for name in stored)
    assert isinstance(pretrained(tmp_path / "again", "again"), CrosslingModel)


def test_those_who_do_not_know_of_it_miss_weights(folder: Path, model: CrosslingForMaskedLM) -> None:
    stored = load_file(folder / "model.safetensors")
    changed = [name for name, values in model.state_dict().items() if values.ndim == 2 and values.shape[1] >= 16]
    assert changed
    assert not {*changed} & {*stored}


@pytest.mark.parametrize("left_out", [".scale", ".int8"])
def test_a_folder_that_lacks_a_part_is_one_sentence(folder: Path, left_out: str) -> None:
    file = folder / "model.safetensors"
    stored = load_file(file)
    name = next(name for name in stored if name.endswith(left_out) and "blocks.0" in name)
    save_file({key: values for key, values in stored.items() if key != name}, file, metadata={"format": "pt"})
    with pytest.raises(BadInput, match=r"^mine: .*blocks\.0"):
        pretrained(folder, "mine")


def test_a_model_that_is_nowhere_is_told_by_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OSError):
        CrosslingModel.from_pretrained(tmp_path / "absent", local_files_only=True)
