"""Initial weights of translators: pre-trained, from scratch, or another translator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from crossling.core.errors import BadInput
from crossling.finetune.translation.translator import TRANSLATOR_INFO, Translator

from ..tiny_tasks import model_folder
from .tiny_parallel import SHORT, train_short, write_parallel


def test_from_scratch_uses_the_shape_of_the_model_only(encoder: Path, data: Path, tmp_path: Path) -> None:
    quiet = {"steps": 1, "lr": 1e-9, "warmup": 0}
    train_short(encoder, data, tmp_path / "pre-trained", **quiet)
    train_short(
        encoder, data, tmp_path / "from-scratch", from_scratch=True, seed=5, **quiet
    )  # seed 0 gives the weights of the encoder itself
    pretrained, scratch = (Translator.load(tmp_path / name).model for name in ("pre-trained", "from-scratch"))
    weights = load_file(encoder / "model.safetensors")
    for name, values in weights.items():
        copied = dict(pretrained.named_parameters())[f"encoder.{name}"]
        new = dict(scratch.named_parameters())[f"encoder.{name}"]
        torch.testing.assert_close(copied[: len(values)].detach(), values, atol=1e-6, rtol=0)
        if values.std() > 0.01:  # no norm or bias, which have equal initial values
            assert not torch.allclose(new[: len(values)], values, atol=1e-3)
    assert TRANSLATOR_INFO.read(tmp_path / "from-scratch").init == "from-scratch"


def test_training_of_a_translator_continues(mt: Path, data: Path, encoder: Path, tmp_path: Path) -> None:
    train_short(mt, data, tmp_path / "more", steps=1, lr=1e-9, warmup=0)
    info = TRANSLATOR_INFO.read(tmp_path / "more")
    assert (info.init, info.model) == ("translator", str(mt))
    one, other = (load_file(folder / "model.safetensors") for folder in (mt, tmp_path / "more"))
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)
    train_short(encoder, data, tmp_path / "one", directions="en-de", steps=1)
    assert TRANSLATOR_INFO.read(tmp_path / "one").tags == {}
    with pytest.raises(BadInput, match="one direction, without tags"):
        train_short(tmp_path / "one", data, tmp_path / "no")
    write_parallel(tmp_path / "fr", {"train": 9}, ("en", "fr"))
    with pytest.raises(BadInput, match="has no tag for 'fr'"):
        train_short(mt, tmp_path / "fr", tmp_path / "no", directions="en-fr")
    for change in ({"tied": False}, {"decoder_layers": 1}):
        with pytest.raises(BadInput, match=f"keeps its decoder when training continues. Omit {next(iter(change))}"):
            train_short(mt, data, tmp_path / "no", **change)
    train_short(
        mt, data, tmp_path / "same", steps=1, tied=True, decoder_layers=2, take="first"
    )  # all layers, from either end
    assert TRANSLATOR_INFO.read(tmp_path / "same").hyperparameters == {
        **info.hyperparameters,
        "lr": SHORT["lr"],
        "warmup": 0.1,
    }


def test_a_continued_translator_keeps_its_decoder_and_stores_its_settings(
    encoder: Path, data: Path, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"directions": "en-de", "steps": 1}
    train_short(encoder, data, tmp_path / "one", decoder_layers=1, take="first", tied=False, **changes)
    train_short(tmp_path / "one", data, tmp_path / "more", **changes)
    stored = TRANSLATOR_INFO.read(tmp_path / "more").hyperparameters
    assert (stored["decoder_layers"], stored["take"], stored["tied"]) == (1, "first", False)
    config = Translator.load(tmp_path / "more").model.config
    assert (list(config.decoder_blocks or ()), config.tied) == ([0], False)
    with pytest.raises(BadInput, match=r"keeps its decoder when training continues. Omit take"):
        train_short(tmp_path / "one", data, tmp_path / "no", take="last", **changes)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("changes", [{"decoder_layers": 1}, {"decoder_layers": 1, "take": "first", "tied": False}])
def test_shallow_and_untied_decoders(encoder: Path, data: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    train_short(encoder, data, tmp_path / "mt", directions="en-de", steps=1, **changes)
    stored = TRANSLATOR_INFO.read(tmp_path / "mt").hyperparameters
    assert (stored["take"], stored["tied"]) == (changes.get("take", "last"), changes.get("tied", True))
    config = Translator.load(tmp_path / "mt").model.config
    assert list(config.decoder_blocks or ()) == ([0] if changes.get("take") == "first" else [1])
    assert config.tied == changes.get("tied", True)


def test_an_encoder_of_transformers_becomes_a_translator(data: Path, tmp_path: Path) -> None:
    xlm_r = model_folder(tmp_path / "xlm-r", "xlm-roberta")
    assert train_short(xlm_r, data, tmp_path / "mt", directions="de-en", steps=2)
