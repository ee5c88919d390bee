"""Smaller exports: half precision, 8-bit weights, and the first layers only."""

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
from crossling.core.errors import BadInput
from crossling.export import export
from crossling.inference.load import load
from crossling.inference.pooling import normalize_vectors
from crossling.model.encoder_model import CrosslingModel
from crossling.recipes.network import load_run
from crossling.vocabulary.reuse_vocabulary import load_vocabulary
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Train
from .test_standalone import python

LOAD_WITHOUT_CROSSLING = """
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
    return np.einsum("nd,nd->n", normalize_vectors(one), normalize_vectors(other))


# ---- precision ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "minimum"), [("half", 0.99999), ("int8", 0.9995)])
def test_vectors_are_close_to_single_precision(
    precision: str, minimum: float, train: Train, lines: list[str], tmp_path: Path
) -> None:
    run = train("xlm_e", "model.norm=pre")
    single, small = export(run, tmp_path / "single"), export(run, tmp_path / "small", precision=precision)
    before, after = load(single).encode_layers(lines), load(small).encode_layers(lines)
    assert not np.array_equal(before, after)
    for layer in range(len(before)):
        assert cosines(before[layer], after[layer]).min() > minimum
    ratio = {"half": 0.55, "int8": 0.45}[precision]  # rows are short here, so scales take much of the file
    for name in ("model.safetensors", "generator/model.safetensors"):
        assert (small / name).stat().st_size < ratio * (single / name).stat().st_size
    assert json.loads((small / "export.json").read_text())["precision"] == precision
    row = "| weights | int8 in the file" if precision == "int8" else "| weights | float16 |"
    assert row in (small / "README.md").read_text()
    assert row not in (single / "README.md").read_text()


def test_int8_loads_with_heads_and_in_sentence_transformers(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("xlm_e")
    folder = export(run, tmp_path / "small", precision="int8")
    inputs = dict(AutoTokenizer.from_pretrained(folder)(lines, return_tensors="pt", padding=True))
    for auto_class, path in ((AutoModelForPreTraining, folder), (AutoModelForMaskedLM, folder / "generator")):
        assert torch.isfinite(auto_class.from_pretrained(path)(**inputs).logits).all()
    encoder = load(folder).model
    assert torch.equal(AutoModel.from_pretrained(folder).embeddings.tokens.weight, encoder.embeddings.tokens.weight)
    sentences = pytest.importorskip("sentence_transformers")
    found = sentences.SentenceTransformer(str(folder), device="cpu").encode(lines)
    np.testing.assert_allclose(found, load(folder, precision="float32").encode(lines), atol=1e-5)


def test_int8_loads_without_crossling(train: Train, tmp_path: Path) -> None:
    folder = export(train("xlm_e"), tmp_path / "small", precision="int8", standalone=True, layers=2)
    total, dtype = python(LOAD_WITHOUT_CROSSLING, folder, home=tmp_path).split()
    weight = load(folder).model.embeddings.tokens.weight.detach()
    assert (float(total), dtype) == (float(weight.double().sum()), "torch.float32")


def test_int8_export_of_non_finite_weights_is_refused(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossling.export import export_folder

    def load_broken_run(run: Path) -> Any:
        net = load_run(run)
        net.encoder.blocks[0].feed_forward[0].weight.data[0, 0] = torch.nan
        return net

    monkeypatch.setattr(export_folder, "load_run", load_broken_run)
    with pytest.raises(BadInput, match=r"blocks\.0\.feed_forward\.0\.weight has non-finite values"):
        export(train("xlm_r"), tmp_path / "small", precision="int8")
    assert not list(tmp_path.iterdir())


# ---- the first layers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "differences"),
    [("xlm_e", ["model.universal_layer=2", "model.token_table=gdes"]), ("infoxlm", []), ("xlm", ["model.norm=pre"])],
)
def test_first_layers_equal_those_of_the_run(
    name: str, differences: list[str], train: Train, lines: list[str], tmp_path: Path
) -> None:
    run = train(name, *differences)
    folder = export(run, tmp_path / "short", layers=2)
    short, full = load(folder), load(run)
    assert (short.num_layers, full.num_layers) == (2, 3)
    assert short.universal_layer == full.universal_layer == 2
    np.testing.assert_array_equal(short.encode_layers(lines), full.encode_layers(lines)[:3])
    assert not (folder / "generator").exists()
    config = json.loads((folder / "config.json").read_text())
    assert (config["architectures"], config["num_hidden_layers"]) == (["CrosslingModel"], 2)
    assert not any("head" in key or "blocks.2" in key for key in load_file(folder / "model.safetensors"))


def test_card_of_the_first_layers_reports_the_full_training_cost(train: Train, tmp_path: Path) -> None:
    full, short = (
        (export(train("xlm_r"), tmp_path / str(layers), layers=layers) / "README.md").read_text()
        for layers in (None, 1)
    )
    flops = [re.findall(r"\S+ FLOPs", text) for text in (full, short)]
    assert flops[0] == flops[1] != []
    assert "CrosslingModel: 1 layers, width 16" in short
    assert "| removed after training | layers 2 to 3 and the heads |" in short
    assert "removed after training" not in full
    assert "the mean of layer 1" in short  # the universal layer of the run is 2


def test_missing_universal_layer_is_reported(train: Train, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the universal layer 2 is not exported"):
        export(train("xlm_r"), tmp_path / "short", layers=1)


def test_export_of_all_layers_has_no_head(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("xlm_e", "model.norm=pre")
    folder = export(run, tmp_path / "bare", layers=3)
    assert type(AutoModel.from_pretrained(folder)) is CrosslingModel
    np.testing.assert_array_equal(load(folder).encode_layers(lines), load(run).encode_layers(lines))
    assert "removed after training" not in (folder / "README.md").read_text()


@pytest.mark.parametrize(("alias", "precision"), [("fp16", "half"), ("float32", "single")])
def test_precision_has_conventional_aliases(alias: str, precision: str, train: Train, tmp_path: Path) -> None:
    folder = export(train("xlm_r"), tmp_path / "exported", precision=alias)
    assert json.loads((folder / "export.json").read_text())["precision"] == precision


# ---- options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"precision": "int4"}, "precision int4: not supported; did you mean 'int8'?"),
        ({"precision": "singel"}, "did you mean 'single'?"),
        ({"precision": "int8", "as_": "xlm-roberta"}, "transformers cannot load it as xlm-roberta"),
        ({"layers": 4}, "has 3 layers. Give a number from 1 to 3."),
        ({"layers": 0}, "has 3 layers. Give a number from 1 to 3."),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], expected: str, train: Train, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        export(train("xlm_e"), tmp_path / "exported", **options)
    assert expected in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_command_line(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, out = str(train("xlm_r")), str(tmp_path / "small")
    monkeypatch.setattr("sys.argv", ["crossling", "export", run, "-o", out, "--precision", "int8", "--layers", "1"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert load(out).num_layers == 1
    assert json.loads((tmp_path / "small" / "export.json").read_text())["layers"] == 1


def test_tokenizer_json_is_compact_and_complete(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("xlm_r")
    folder = export(run, tmp_path / "small")
    (folder / "sentencepiece.model").unlink()
    assert "\n" not in (folder / "tokenizer.json").read_text()
    assert load_vocabulary(folder) == Vocabulary.load(run / "vocab")
    assert load(folder).tokenizer(lines)["input_ids"] == load(run).tokenizer(lines)["input_ids"]


def test_matryoshka_export_can_be_truncated(train: Train, lines: list[str], tmp_path: Path) -> None:
    sentences = pytest.importorskip("sentence_transformers")
    folder = export(train("infoxlm", "xlco.matryoshka=4,8", "mlm=off", "tlm=off"), tmp_path / "exported")
    found = sentences.SentenceTransformer(str(folder), device="cpu", truncate_dim=4).encode(lines)
    np.testing.assert_allclose(found, load(folder).encode(lines, truncate_dim=4), atol=1e-5)
    assert "`truncate_dim=4`" in (folder / "README.md").read_text()
