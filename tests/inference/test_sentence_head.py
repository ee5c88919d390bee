"""A Sentence Transformers folder is measured as it declares: the vectors equal those of the library itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import crossling as xl
from crossling.core.errors import BadInput
from crossling.inference.sentence_head import POOLINGS, SentenceHead
from tests.tiny_encoder import make_model, make_tokenizer

library = pytest.importorskip("sentence_transformers")
models = pytest.importorskip("sentence_transformers.models")

Save = Callable[..., Path]
SENTENCES = ["the white house", "a", "One longer sentence with quite a few words in it", "zebra quilt"]
WIDTH = 16


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Return a function that saves a model with modules after the encoder."""

    def save_model(*modules: torch.nn.Module, max_length: int | None = None, **options: Any) -> Path:
        make_model().save_pretrained(tmp_path / "encoder")
        make_tokenizer().save_pretrained(tmp_path / "encoder")
        torch.manual_seed(0)
        encoder = models.Transformer(str(tmp_path / "encoder"))
        if max_length is not None:
            encoder.max_seq_length = max_length
        model = library.SentenceTransformer(modules=[encoder, *modules], device="cpu", **options)
        model.save(str(tmp_path / "model"))
        return tmp_path / "model"

    return save_model


def pooling(mode: str, **options: Any) -> torch.nn.Module:
    module: torch.nn.Module = models.Pooling(WIDTH, pooling_mode=mode, **options)
    return module


def dense(activation: torch.nn.Module | None = None) -> torch.nn.Module:
    module: torch.nn.Module = models.Dense(WIDTH, 8, activation_function=activation or torch.nn.Tanh())
    return module


def assert_equal(folder: Path, expected: dict[str, Any] | None = None, **options: Any) -> None:
    """Compare with the library."""
    found = xl.load(folder).encode(SENTENCES, **options)
    reference = library.SentenceTransformer(str(folder), device="cpu").encode(SENTENCES, **(expected or options))
    np.testing.assert_allclose(found, reference, atol=2e-6)


@pytest.mark.parametrize("mode", POOLINGS)
def test_poolings_equal_those_of_the_library(mode: str, save: Save) -> None:
    assert_equal(save(pooling(mode)))


def test_labse_has_cls_dense_and_normalization(save: Save) -> None:
    folder = save(pooling("cls"), dense(), models.Normalize())
    assert_equal(folder)
    model = xl.load(folder)
    assert str(model.head) == "cls + denselayer + normalize"
    assert model.encode(SENTENCES).shape == (4, 8)
    assert model.resolve_pooling("auto") == ("declared", model.num_layers)
    # A layer or a pooling that the user names is not what the folder declares.
    np.testing.assert_array_equal(model.encode(SENTENCES, pooling="mean", layer=1).shape, (4, WIDTH))
    np.testing.assert_array_equal(model.encode(SENTENCES, layer=2), model.encode(SENTENCES, layer=2, pooling="mean"))


@pytest.mark.parametrize("activation", [torch.nn.Identity(), torch.nn.GELU(), torch.nn.ReLU()], ids=type)
def test_activations_of_dense_layers(activation: torch.nn.Module, save: Save) -> None:
    assert_equal(save(pooling("mean"), dense(activation)))


def test_prompts_and_the_default_prompt(save: Save) -> None:
    prompts = {"query": "find the ", "passage": "the house "}
    folder = save(pooling("mean"), prompts=prompts, default_prompt_name="passage")
    assert_equal(folder)
    assert_equal(folder, prompt_name="query")
    assert_equal(folder, prompt="a house ")
    model = xl.load(folder)
    assert np.abs(model.encode(SENTENCES) - model.encode(SENTENCES, prompt="")).max() > 1e-3
    with pytest.raises(BadInput, match="prompt_name=quary: the model declares no such prompt; did you mean 'query'"):
        model.encode(SENTENCES, prompt_name="quary")
    with pytest.raises(BadInput, match=r"the folder declares no sentence vectors .*Omit prompt_name"):
        xl.load().encode(SENTENCES, prompt_name="query")


def test_a_prompt_that_is_not_pooled(save: Save) -> None:
    assert_equal(save(pooling("mean", include_prompt=False)), prompt="the house ")


def test_a_declared_length_cuts_sentences_off(save: Save) -> None:
    folder = save(pooling("mean"), max_length=6)
    with pytest.warns(UserWarning, match="longer than the 6 tokens"):
        assert_equal(folder)


def test_early_folders_have_the_encoder_inside_and_other_names_of_poolings(save: Save) -> None:
    folder = save(pooling("cls"), dense())
    expected = library.SentenceTransformer(str(folder), device="cpu").encode(SENTENCES)
    inner = folder / "0_Transformer"
    inner.mkdir()
    for file in folder.iterdir():
        if file.is_file() and file.name != "modules.json":
            file.rename(inner / file.name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    modules = [{**each, "type": f"sentence_transformers.models.{each['type'].rpartition('.')[2]}"} for each in modules]
    (folder / "modules.json").write_text(json.dumps(modules))
    old = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(old))
    np.testing.assert_allclose(xl.load(folder).encode(SENTENCES), expected, atol=2e-6)


@pytest.mark.parametrize("family", ["roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"])
def test_early_folders_name_the_file_of_the_length_after_the_family(family: str, save: Save) -> None:
    folder = save(pooling("mean"))
    (folder / "sentence_bert_config.json").unlink()
    limits = {"max_seq_length": 6, "do_lower_case": True}
    (folder / f"sentence_{family}_config.json").write_text(json.dumps(limits))
    head = xl.load(folder).head
    assert head is not None
    assert (head.max_length, head.lowercases) == (6, True)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9}))
    head = xl.load(folder).head
    assert head is not None
    assert (head.max_length, head.lowercases) == (9, False)


def test_a_dense_layer_has_a_bias_and_tanh_by_default(save: Save) -> None:
    folder = save(pooling("cls"), dense())
    expected = xl.load(folder).encode(SENTENCES)
    remove_settings(folder, "bias", "activation_function")
    assert_equal(folder)
    np.testing.assert_array_equal(xl.load(folder).encode(SENTENCES), expected)


def change_modules(folder: Path, **changes: str) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[2].update(changes)
    (folder / "modules.json").write_text(json.dumps(modules))


def remove_safetensors(folder: Path) -> None:
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "pytorch_model.bin")


def remove_settings(folder: Path, *names: str) -> None:
    file = folder / "2_Dense" / "config.json"
    kept = {key: value for key, value in json.loads(file.read_text()).items() if key not in names}
    file.write_text(json.dumps(kept))


def change_dense(folder: Path, **changes: object) -> None:
    file = folder / "2_Dense" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def change_width(folder: Path) -> None:
    change_dense(folder, out_features=4)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: change_modules(folder, type="evil.Module"), "modules.json: Module is not supported"),
        (lambda folder: change_modules(folder, path="../../etc"), r"\.\./\.\./etc.* leads out of the folder"),
        (remove_safetensors, r"2_Dense: no model.safetensors. Other files may run code"),
        (lambda folder: remove_settings(folder, "in_features"), "2_Dense/config.json: in_features is None, expected a"),
        (lambda folder: remove_settings(folder, "out_features"), "out_features is None, expected a number. Download"),
        (lambda folder: change_dense(folder, use_residual=True), "2_Dense: a dense layer with a residual connection"),
        (change_width, "2_Dense: the weights do not fit its config.json"),
        (lambda folder: (folder / "modules.json").write_text("{}"), "modules.json: expected a list of modules"),
    ],
)
def test_a_damaged_or_foreign_folder_is_refused(damage: Callable[[Path], Any], message: str, save: Save) -> None:
    folder = save(pooling("cls"), dense())
    damage(folder)
    with pytest.raises(BadInput, match=message):
        xl.load(folder)


def test_files_and_mining_use_the_declared_vectors(save: Save, tmp_path: Path) -> None:
    folder = save(pooling("cls"), dense(), models.Normalize())
    model = xl.load(folder)
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    vectors = np.load(xl.encode_file(model, tmp_path / "text.txt", tmp_path / "vectors.npy"))
    np.testing.assert_allclose(vectors, model.encode(SENTENCES), atol=1e-6)
    plain = np.load(xl.encode_file(model, tmp_path / "text.txt", tmp_path / "plain.npy", pooling="mean"))
    assert plain.shape == (4, WIDTH)
    assert [pair.target for pair in model.mine(SENTENCES[:1], SENTENCES)] == SENTENCES[:1]


def test_the_weights_of_dense_layers_are_in_the_fingerprint(save: Save) -> None:
    model = xl.load(save(pooling("cls"), dense()))
    before = model.fingerprint()
    assert isinstance(model.head, SentenceHead)
    model.head.layers[0].weight.data += 1
    assert model.fingerprint() != before


def test_an_export_of_ours_keeps_its_universal_layer() -> None:
    assert xl.load().head is None
