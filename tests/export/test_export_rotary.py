"""A run with rotary positions, gated GELU and no biases: export, truncation, ONNX, and as an initial model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel

from crossling.core.errors import BadInput
from crossling.export import export
from crossling.inference.load import load
from crossling.recipes import adapt_recipe, get_recipe
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.network import load_run
from tests.tiny_encoder import SENTENCES

from .conftest import Train

SETTINGS = [
    *("model.norm=pre", "model.first_norm=false", "model.activation=geglu", "model.biases=false"),
    *("model.position=rotary", "model.rope_theta=160000"),
]


@pytest.fixture(scope="module")
def run(train: Train) -> Path:
    return train("xlm_e", *SETTINGS)


def test_exported_model_is_that_of_the_run(run: Path, tmp_path: Path) -> None:
    folder = export(run, tmp_path / "exported")
    model, net = AutoModel.from_pretrained(folder).eval(), load_run(run)
    assert (model.config.position_embedding_type, model.config.hidden_act) == ("rotary", "geglu")
    ids = torch.randint(5, 50, (2, 9))
    expected = net.encoder.eval()(ids, output_hidden_states=True).hidden_states
    assert_close(model(ids).last_hidden_state, expected[-1])
    shorter = AutoModel.from_pretrained(export(run, tmp_path / "shorter", layers=1)).eval()
    assert_close(shorter(ids).last_hidden_state, expected[1])
    assert load(export(run, tmp_path / "int8", precision="int8")).encode(["a sentence"]).shape[0] == 1
    with pytest.raises(BadInput, match="as XLM-R or ELECTRA"):
        export(run, tmp_path / "xlmr", as_="xlm-roberta")


def test_recipe_gets_the_architecture_of_an_initial_model(run: Path) -> None:
    model = InitialModel.load(run)
    chosen = adapt_recipe("xlm_e", model, "tiny")
    shape = chosen.model
    assert (shape.position, shape.activation, shape.rope_theta) == ("rotary", "geglu", 160_000.0)
    assert (shape.biases, shape.first_norm) == (False, False)
    assert chosen.model.to_config(100).position_embedding_type == "rotary"
    with pytest.raises(BadInput, match="cannot change"):
        adapt_recipe("xlm_e", model, "tiny", ["model.activation=gelu"])
    assert get_recipe("xlm_e", "tiny").model.position is None


@pytest.mark.soak
def test_onnx_file_computes_the_same_vectors(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = export(run, tmp_path / "exported", onnx="fp32")  # compares the vectors of sample sentences with torch
    assert (folder / "onnx" / "model.onnx").is_file()
    assert len(load(folder, device="cpu").encode(SENTENCES)) == len(SENTENCES)
