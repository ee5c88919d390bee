"""Commands run an encoder without the model classes of transformers, and compute the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from crossling import bundled
from crossling.core.errors import BadInput
from crossling.inference import cpu_precision
from crossling.inference.load import load
from crossling.inference.load_network import load_network
from crossling.inference.stored_weights import StoredEmbedding, StoredLinear
from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import CrosslingForMaskedLM
from crossling.model.int8 import quantize
from tests.tiny_encoder import make_model, make_tokenizer

SENTENCES = ["the white house", "la maison blanche est grande", "x"]
# Modules that an encoder does not need, by the time or memory that they take.
HEAVY = ("transformers.modeling_utils", "torch._dynamo", "torch.distributed.tensor", "torch.distributed.fsdp")
HEAVY += ("sympy", "scipy", "matplotlib", "triton", "crossling.recipes", "crossling.objectives", "crossling.train")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the bundled model that a test can damage."""
    return Path(shutil.copytree(bundled.folder(), tmp_path / "model"))


def test_the_bundled_model_computes_the_same() -> None:
    network, model = load_network(None), load()
    assert not isinstance(network.model, CrosslingModel)
    assert isinstance(model.model, CrosslingModel)
    np.testing.assert_array_equal(network.encode_layers(SENTENCES), model.encode_layers(SENTENCES))
    assert network.align("the white house", "la maison blanche") == model.align("the white house", "la maison blanche")
    assert network.fingerprint() == model.fingerprint()
    assert repr(network) == repr(model)
    assert network.max_length == model.max_length
    assert type(network.tokenizer) is type(model.tokenizer)
    assert network.tokenizer.backend_tokenizer.to_str() == model.tokenizer.backend_tokenizer.to_str()


def test_a_folder_with_a_head_computes_the_same(tmp_path: Path) -> None:
    encoder = load()
    model = CrosslingForMaskedLM(encoder.model.config)
    model.save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    network = load_network(str(tmp_path))
    assert not isinstance(network.model, CrosslingModel)
    np.testing.assert_array_equal(network.encode_layers(SENTENCES), load(tmp_path).encode_layers(SENTENCES))


def test_other_models_are_loaded_by_transformers(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    np.testing.assert_array_equal(
        load_network(str(tmp_path)).encode_layers(SENTENCES), load(tmp_path).encode_layers(SENTENCES)
    )


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "pre", "gate_input": "hidden"}, {"relative_positions": False, "absolute_positions": False}],
)
def test_weights_in_8_bits_compute_the_same(precision: str, options: dict[str, object], tmp_path: Path) -> None:
    if not {"float32": True, "bfloat16": cpu_precision._has_bfloat16(), "int8": cpu_precision._has_int8()}[precision]:
        pytest.skip("this CPU has no instructions for it")
    tokenizer = make_tokenizer()
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    torch.manual_seed(0)
    model = CrosslingModel(CrosslingConfig(vocab_size=len(tokenizer), **(sizes | options)))  # type: ignore[arg-type]
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights) * 0.2)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    save_file(quantize(model.state_dict()), tmp_path / "model.safetensors", {"format": "pt"})
    network, loaded = load_network(str(tmp_path), precision), load(tmp_path, precision=precision)
    np.testing.assert_array_equal(network.encode_layers(SENTENCES), loaded.encode_layers(SENTENCES))
    assert network.fingerprint() == loaded.fingerprint()
    kept = {type(module) for module in network.model.modules()} & {StoredEmbedding, StoredLinear}
    assert kept == ({StoredEmbedding} if precision == "float32" else {StoredEmbedding, StoredLinear})
    network.precision = "float32"  # the same weights in another precision
    expected = load(tmp_path, precision="float32").encode_layers(SENTENCES)
    np.testing.assert_array_equal(network.encode_layers(SENTENCES), expected)


def test_the_bundled_model_needs_no_weights_in_float32() -> None:
    network = load_network(None).model
    numbers = sum(weight.numel() for weight in network.parameters())
    if not {"bfloat16", "int8"} & {cpu_precision.fastest_precision()}:
        pytest.skip("this CPU computes in float32")
    assert 4 * numbers < 2**20  # bytes


def cut_off(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"cut off")


def remove_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["blocks.0.attention_norm.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def make_weight_infinite(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["blocks.0.attention_norm.weight"][3] = float("inf")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def change_width(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 64}))


def damage_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")


@pytest.mark.parametrize("damage", [cut_off, remove_weight, make_weight_infinite, change_width, damage_tokenizer])
def test_a_damaged_folder_gives_the_error_of_load(damage: object, folder: Path) -> None:
    damage(folder)  # type: ignore[operator]
    messages = []
    for loader in (load, load_network):
        with pytest.raises(BadInput) as error:
            loader(str(folder))
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_align_and_embed_import_no_heavy_modules(tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("the house ||| la maison\n", encoding="utf-8")
    program = f"""
import resource, sys, torch
torch.cuda.is_available = lambda: False
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from crossling import cli
for command in ("align pairs", "embed pairs -o vectors.npy"):
    sys.argv = ["crossling", *command.split()]
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code
    if command == "align pairs":
        print("MiB:", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
print(*sorted({{*{HEAVY!r}}} & {{*sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )
    lines = done.stdout.splitlines()
    assert lines[-1] == ""
    [mebibytes] = (float(line.removeprefix("MiB:")) for line in lines if line.startswith("MiB:"))
    assert mebibytes < 160  # beyond torch
