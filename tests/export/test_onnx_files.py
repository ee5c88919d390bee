"""ONNX files compute the vectors of torch, at any batch size and length, with the names that others expect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from crossling import cli
from crossling.core.errors import BadInput, Failed
from crossling.export import export, onnx_files
from crossling.inference.load import load
from tests.tiny_encoder import SENTENCES, make_model, make_tokenizer

from .conftest import Train

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
TEXTS = [text for text in SENTENCES if text]


@pytest.fixture(scope="module")
def exported(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export of ours with gated relative positions, whose universal layer is below the last."""
    return export(train("xlm_e", "model.norm=pre"), tmp_path_factory.mktemp("ours") / "exported", onnx="both")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of Sentence Transformers with [CLS], a dense layer and normalization, and with a pickle."""
    folder = tmp_path_factory.mktemp("bert")
    make_model("bert").save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    names = ["", "1_Pooling", "2_Dense", "3_Normalize"]
    kinds = ["Transformer", "Pooling", "Dense", "Normalize"]
    modules = [{"idx": i, "path": name, "type": f"models.{kinds[i]}"} for i, name in enumerate(names)]
    (folder / "modules.json").write_text(json.dumps(modules))
    for name in names[1:]:
        (folder / name).mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "cls"}))
    dense = {"in_features": 16, "out_features": 8, "bias": True, "activation_function": "torch.nn.Tanh"}
    (folder / "2_Dense" / "config.json").write_text(json.dumps(dense))
    torch.manual_seed(0)
    save_file(
        {"linear.weight": torch.randn(8, 16), "linear.bias": torch.randn(8)}, folder / "2_Dense/model.safetensors"
    )
    (folder / "pytorch_model.bin").write_bytes(b"")
    return folder


def test_states_and_vectors_are_those_of_the_universal_layer(exported: Path, lines: list[str]) -> None:
    encoder = load(exported, device="cpu", precision="float32")
    assert encoder.universal_layer < encoder.num_layers
    inputs = dict(encoder.tokenizer(lines, return_tensors="np", padding=True))
    inputs = {name: inputs[name].astype(np.int64) for name in ("input_ids", "attention_mask")}
    states_BLD, vectors_BD = onnx_files.open_session(exported / "onnx" / "model.onnx").run(None, inputs)
    np.testing.assert_allclose(vectors_BD, encoder.encode(lines), atol=1e-5)
    valid_BL1 = inputs["attention_mask"][..., None]
    np.testing.assert_allclose((states_BLD * valid_BL1).sum(1) / valid_BL1.sum(1), vectors_BD, atol=1e-5)


def test_any_batch_size_and_length_up_to_the_longest(exported: Path) -> None:
    encoder = load(exported, device="cpu", precision="float32")
    run = onnx_files.open_session(exported / "onnx" / "model.onnx")
    for batch, length in ((1, 1), (1, encoder.max_length), (3, 7)):
        ids_BL = np.random.default_rng(0).integers(5, 60, (batch, length))
        [vectors_BD] = run.run(["sentence_embedding"], {"input_ids": ids_BL, "attention_mask": np.ones_like(ids_BL)})
        with torch.no_grad():
            states = encoder.model(torch.from_numpy(ids_BL), layers=encoder.universal_layer).last_hidden_state
        np.testing.assert_allclose(vectors_BD, states.mean(1).numpy(), atol=1e-5)


def test_names_axes_opset_and_record(exported: Path) -> None:
    assert {file.name for file in (exported / "onnx").iterdir()} == {*onnx_files.FILES.values()}
    run = onnx_files.open_session(exported / "onnx" / "model.onnx")
    assert [(each.name, each.shape[:2]) for each in run.get_inputs()] == [
        ("input_ids", ["batch", "length"]),
        ("attention_mask", ["batch", "length"]),
    ]
    assert [each.name for each in run.get_outputs()] == ["last_hidden_state", "sentence_embedding"]
    info = json.loads((exported / "export.json").read_text())
    assert [(each["file"], each["opset"]) for each in info["onnx"]] == [
        (name, 18) for name in onnx_files.FILES.values()
    ]
    assert all(each["cosine_distance"] < 1e-5 for each in info["onnx"])
    assert "- onnx\n" in (exported / "README.md").read_text()
    sizes = [(exported / "onnx" / name).stat().st_size for name in onnx_files.FILES.values()]
    assert sizes[1] < sizes[0]


def test_encoder_of_another_family_is_copied_and_computes_its_declared_vectors(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["crossling", "export", str(bert), "-o", str(tmp_path / "out"), "--onnx", "fp32"])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert done.value.code in (0, None)
    assert "onnx/model.onnx: largest cosine distance to torch" in capsys.readouterr().err
    names = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*") if file.is_file()}
    assert {"config.json", "2_Dense/model.safetensors", "export.json", "onnx/model.onnx"} <= names
    assert "pytorch_model.bin" not in names
    encoder = load(tmp_path / "out", device="cpu")
    ids = encoder.tokenizer(TEXTS)["input_ids"]
    vectors_ND = np.stack(onnx_files.run_onnx(onnx_files.open_session(tmp_path / "out/onnx/model.onnx"), ids, 1))
    np.testing.assert_allclose(vectors_ND, encoder.encode(TEXTS), atol=1e-5)


def test_file_with_other_vectors_is_refused(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exported: Path
) -> None:
    def trace(_: object, file: Path) -> None:
        shutil.copyfile(exported / "onnx" / "model.onnx", file)

    monkeypatch.setattr(onnx_files, "trace", trace)
    monkeypatch.setattr(onnx_files, "run_onnx", lambda _file, ids, _pad: list(np.ones((len(ids), 8), np.float32)))
    with pytest.raises(
        Failed, match=r"the vectors of fp32 have a cosine distance of .* above 0\.0001\. Export without"
    ):
        export(bert, tmp_path / "out", onnx="fp32")
    assert not (tmp_path / "out").exists()


def test_wrong_options(train: Train, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    with pytest.raises(BadInput, match=r"onnx=int4: no such kind of file; .*int8"):
        export(train("xlm_e", "model.norm=pre"), out, onnx="int4")
    with pytest.raises(BadInput, match=r"not a run, so its files are copied\. Omit options other than trim, onnx"):
        export(bert, out, onnx="fp32", precision="half")
    with pytest.raises(BadInput, match="not a run folder"):
        export(bert, out)
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(
        BadInput, match=r"needs the package onnxscript\. Install it with `pip install crossling\[onnx\]`"
    ):
        export(bert, out, onnx="fp32")


@pytest.mark.soak
@pytest.mark.parametrize("family", ["XLMRoberta", "Electra", "ModernBert", "DebertaV2", "Distilbert"])
def test_every_family_has_the_vectors_of_torch(family: str, tmp_path: Path) -> None:
    shape = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    shape |= {"vocab_size": 60, "initializer_range": 0.5, "max_position_embeddings": 66, "pad_token_id": 1}
    own: dict[str, dict[str, object]] = {
        "Electra": {"embedding_size": 8},
        "ModernBert": {
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
            **dict.fromkeys(("bos_token_id", "cls_token_id"), 0),
            **dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
        },
        "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
    }
    torch.manual_seed(0)
    name = {"Distilbert": "DistilBert"}.get(family, family)
    config = getattr(transformers, f"{name}Config")(**shape, **own.get(family, {}))
    getattr(transformers, f"{name}Model")(config).save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    export(tmp_path / "model", tmp_path / "out", onnx="fp32")
    encoder = load(tmp_path / "out", device="cpu")
    session = onnx_files.open_session(tmp_path / "out/onnx/model.onnx")
    vectors_ND = np.stack(onnx_files.run_onnx(session, encoder.tokenizer(TEXTS)["input_ids"], 1))
    np.testing.assert_allclose(vectors_ND, encoder.encode(TEXTS, layer=encoder.num_layers), atol=1e-4)
