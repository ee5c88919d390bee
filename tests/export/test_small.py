"""Exports that take less room: half and 8-bit weights, and the first layers alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from crossling import cli
from crossling.errors import BadInput
from crossling.evaluate.cosine import unit
from crossling.export import export
from crossling.load import load
from crossling.model.transformer import CrosslingModel
from crossling.recipe import load_run
from crossling.vocabulary.reuse import reuse
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Train
from .test_standalone import python

OPENED_WITHOUT_CROSSLING = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "crossling":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from transformers import AutoModel
model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
print(float(model.embeddings.tokens.weight.double().sum()), model.embeddings.tokens.weight.dtype)
"""


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.einsum("nd,nd->n", unit(one), unit(other))


# ---- precision ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "least"), [("half", 0.99999), ("int8", 0.9995)])
def test_vectors_stay_where_they_were(
    precision: str, least: float, train: Train, lines: list[str], tmp_path: Path
) -> None:
    run = train("xlm_e", "model.norm=pre")
    single, small = export(run, tmp_path / "single"), export(run, tmp_path / "small", precision=precision)
    before, after = load(single).pooled(lines), load(small).pooled(lines)
    assert not np.array_equal(before, after)
    for layer in range(len(before)):
        assert cosines(before[layer], after[layer]).min() > least
    share = {"half": 0.55, "int8": 0.45}[precision]  # these rows are short: a quarter and the scales
    for name in ("model.safetensors", "generator/model.safetensors"):
        assert (small / name).stat().st_size < share * (single / name).stat().st_size
    assert json.loads((small / "export.json").read_text())["precision"] == precision
    said = "8-bit integers in the file" if precision == "int8" else "| weights | float16 |"
    assert said in (small / "README.md").read_text()
    assert said not in (single / "README.md").read_text()


def test_int8_opens_with_heads_in_other_hands_and_to_train_on(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("xlm_e")
    folder = export(run, tmp_path / "small", precision="int8")
    inputs = dict(AutoTokenizer.from_pretrained(folder)(lines, return_tensors="pt", padding=True))
    for kind, place in ((AutoModelForPreTraining, folder), (AutoModelForMaskedLM, folder / "generator")):
        assert torch.isfinite(kind.from_pretrained(place)(**inputs).logits).all()
    encoder = load(folder).model
    assert torch.equal(AutoModel.from_pretrained(folder).embeddings.tokens.weight, encoder.embeddings.tokens.weight)
    sentences = pytest.importorskip("sentence_transformers")
    found = sentences.SentenceTransformer(str(folder), device="cpu").encode(lines)
    np.testing.assert_allclose(found, load(folder).embed(lines), atol=1e-5)


def test_int8_opens_without_crossling(train: Train, tmp_path: Path) -> None:
    folder = export(train("xlm_e"), tmp_path / "small", precision="int8", standalone=True, layers=2)
    total, dtype = python(OPENED_WITHOUT_CROSSLING, folder, home=tmp_path).split()
    weight = load(folder).model.embeddings.tokens.weight.detach()
    assert (float(total), dtype) == (float(weight.double().sum()), "torch.float32")


def test_a_network_that_is_no_numbers_has_no_8_bits(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossling.export import folder

    def broken(run: Path) -> Any:
        net = load_run(run)
        net.encoder.blocks[0].feed_forward[0].weight.data[0, 0] = torch.nan
        return net

    monkeypatch.setattr(folder, "load_run", broken)
    with pytest.raises(BadInput, match=r"blocks\.0\.feed_forward\.0\.weight holds values that are no numbers"):
        export(train("xlm_r"), tmp_path / "small", precision="int8")
    assert not list(tmp_path.iterdir())


# ---- the first layers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "differences"),
    [("xlm_e", ["model.universal_layer=2", "model.token_table=gdes"]), ("infoxlm", []), ("xlm", ["model.norm=pre"])],
)
def test_the_layers_that_are_kept_are_those_of_the_run(
    name: str, differences: list[str], train: Train, lines: list[str], tmp_path: Path
) -> None:
    run = train(name, *differences)
    folder = export(run, tmp_path / "short", layers=2)
    ours, whole = load(folder), load(run)
    assert (ours.layers, whole.layers) == (2, 3)
    assert ours.universal_layer == whole.universal_layer == 2
    np.testing.assert_array_equal(ours.pooled(lines), whole.pooled(lines)[:3])
    assert not (folder / "generator").exists()
    config = json.loads((folder / "config.json").read_text())
    assert (config["architectures"], config["num_hidden_layers"]) == (["CrosslingModel"], 2)
    assert not any("head" in key or "blocks.2" in key for key in load_file(folder / "model.safetensors"))


def test_the_card_of_the_first_layers_tells_what_training_cost(train: Train, tmp_path: Path) -> None:
    whole, short = (
        (export(train("xlm_r"), tmp_path / str(layers), layers=layers) / "README.md").read_text()
        for layers in (None, 1)
    )
    flops = [re.findall(r"\S+ FLOPs", text) for text in (whole, short)]
    assert flops[0] == flops[1] != []
    assert "CrosslingModel: 1 layers of 16" in short
    assert "| left out | layers 2 to 3, with which it was trained" in short
    assert "left out" not in whole
    assert "layer 1 as the vector" in short  # the universal layer of the run is 2


def test_a_universal_layer_that_is_left_out_is_told(train: Train, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the universal layer, 2, is left out: sentence vectors are those of layer 1"):
        export(train("xlm_r"), tmp_path / "short", layers=1)


def test_all_layers_are_the_bare_encoder(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("xlm_e", "model.norm=pre")
    folder = export(run, tmp_path / "bare", layers=3)
    assert type(AutoModel.from_pretrained(folder)) is CrosslingModel
    np.testing.assert_array_equal(load(folder).pooled(lines), load(run).pooled(lines))
    assert "left out" not in (folder / "README.md").read_text()


# ---- what cannot be had -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"precision": "int4"}, "--precision int4: expected one of single, half, int8"),
        ({"precision": "singel"}, "did you mean 'single'?"),
        ({"precision": "int8", "family": "xlm-roberta"}, "xlm-roberta of transformers cannot read it"),
        ({"layers": 4}, "has layers 1 to 3; give one of them"),
        ({"layers": 0}, "has layers 1 to 3; give one of them"),
    ],
)
def test_one_sentence(options: dict[str, Any], expected: str, train: Train, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        export(train("xlm_e"), tmp_path / "exported", **options)
    assert expected in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_by_command(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, out = str(train("xlm_r")), str(tmp_path / "small")
    monkeypatch.setattr("sys.argv", ["crossling", "export", run, "-o", out, "--precision", "int8", "--layers", "1"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert load(out).layers == 1
    assert json.loads((tmp_path / "small" / "export.json").read_text())["layers"] == 1


def test_the_tokenizer_is_compact_and_enough(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("xlm_r")
    folder = export(run, tmp_path / "small")
    (folder / "sentencepiece.model").unlink()
    assert "\n" not in (folder / "tokenizer.json").read_text()
    assert reuse(folder) == Vocabulary.load(run / "vocab")
    assert load(folder).tokenizer(lines)["input_ids"] == load(run).tokenizer(lines)["input_ids"]
