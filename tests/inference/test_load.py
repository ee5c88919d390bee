from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import (
    XLMRobertaForQuestionAnswering,
    XLMRobertaForSequenceClassification,
    XLMRobertaForTokenClassification,
)

from crossling.core.errors import BadInput
from crossling.inference.load import load, load_pretrained_encoder
from crossling.inference.sentence_encoder import Encoder
from tests.tiny_encoder import SENTENCES, make_model, make_tokenizer


def test_load_restores_a_saved_encoder(tmp_path: Path, encoder: Encoder) -> None:
    encoder.model.config.universal_layer = 1
    encoder.model.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="no tokenizer"):
        load_pretrained_encoder(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    for folder in (tmp_path, str(tmp_path)):
        loaded = load(folder)
        assert loaded.name == str(tmp_path)
        assert loaded.universal_layer == 1
    np.testing.assert_array_equal(loaded.encode_layers(SENTENCES), encoder.encode_layers(SENTENCES))


def test_load_drops_the_head_of_a_fine_tuned_model(tmp_path: Path) -> None:
    config = make_model().config
    config.num_labels = 3
    for kind in (XLMRobertaForSequenceClassification, XLMRobertaForTokenClassification, XLMRobertaForQuestionAnswering):
        tuned = kind(config).eval()
        tuned.save_pretrained(tmp_path)
        make_tokenizer().save_pretrained(tmp_path)
        expected = Encoder(tuned.roberta, make_tokenizer(), "tiny").encode_layers(SENTENCES)
        np.testing.assert_array_equal(load_pretrained_encoder(tmp_path).encode_layers(SENTENCES), expected)


def test_load_reports_incomplete_folders(tmp_path: Path, encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        load_pretrained_encoder(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"no config\.json"):
        load_pretrained_encoder(tmp_path)
    encoder.model.save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"no \.safetensors"):
        load_pretrained_encoder(tmp_path)
    make_model(layers=2).save_pretrained(tmp_path)
    config = (tmp_path / "config.json").read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3')
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(BadInput, match="weights are missing"):
        load_pretrained_encoder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(BadInput, match="transformers cannot load it"):
        load_pretrained_encoder(tmp_path)
