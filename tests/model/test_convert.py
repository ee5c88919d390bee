"""Converted models compute what `transformers` computes, and convert back to the same weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModel, PreTrainedModel

from crossling.core.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.convert import FAMILIES, ConvertedModel, from_huggingface, to_huggingface
from crossling.model.embedding import DisentangledEmbedding
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import CrosslingForMaskedLM, CrosslingForPreTraining, LMHead, RTDHead

SHAPE: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 26,
    "initializer_range": 0.2,
}
NAMES = {
    "xlm-roberta": "XLMRoberta",
    "roberta": "Roberta",
    "camembert": "Camembert",
    "bert": "Bert",
    "electra": "Electra",
}
OURS = {"Model": CrosslingModel, "ForMaskedLM": CrosslingForMaskedLM, "ForPreTraining": CrosslingForPreTraining}
KINDS = [
    *((family, kind) for family in (*FAMILIES, "crossling") for kind in ("Model", "ForMaskedLM")),
    *((family, "ForPreTraining") for family in ("bert", "electra", "crossling")),
]
HEADS = {
    "Model": (False, False),
    "ForMaskedLM": (True, False),
    "ForPreTraining": (False, True),
    "BertForPreTraining": (True, False),
}  # has an LM head, has an RTD head


def randomize(network: torch.nn.Module) -> Any:
    """Give biases and norms different values, as after training."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).uniform_(-0.3, 0.3))
            elif "embeddings" in name:
                parameter.normal_(std=0.5)  # including the padding row
    return network.eval()


def make(family: str, kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    if family == "crossling":
        return randomize(OURS[kind](CrosslingConfig(**(SHAPE | {"norm": "pre"} | changes))))
    own = {"embedding_size": SHAPE["hidden_size"]} if family == "electra" else {}
    config = getattr(transformers, f"{NAMES[family]}Config")(**(SHAPE | own | {"layer_norm_eps": 1e-3} | changes))
    return randomize(getattr(transformers, NAMES[family] + kind)(config))


def save(network: PreTrainedModel, folder: Path) -> Path:
    network.save_pretrained(folder)
    return folder


def make_batch(padding: int) -> tuple[Tensor, Tensor]:
    """Return rows of 24 and 9 tokens and their padding mask."""
    torch.manual_seed(2)
    ids_BL = torch.randint(4, SHAPE["vocab_size"], (2, 24))
    ids_BL[1, 9:] = padding
    mask_BL = torch.ones_like(ids_BL)
    mask_BL[1, 9:] = 0
    return ids_BL, mask_BL


@torch.no_grad()
def difference(theirs: Any, ours: ConvertedModel) -> dict[str, float]:
    """Return the largest difference over all layers, and over all logits."""
    ids_BL, mask_BL = make_batch(theirs.config.pad_token_id)
    expected = theirs(ids_BL, attention_mask=mask_BL, output_hidden_states=True)
    found = ours.encoder(ids_BL, attention_mask=mask_BL, output_hidden_states=True)
    visible = mask_BL.bool()
    assert len(expected.hidden_states) == len(found.hidden_states) == SHAPE["num_hidden_layers"] + 1
    states = zip(expected.hidden_states, found.hidden_states, strict=True)
    largest = {"states": max(largest_difference(one[visible], other[visible]) for one, other in states)}
    if ours.lm_head is not None:
        logits = expected.prediction_logits if "prediction_logits" in expected else expected.logits
        table_VD = ours.encoder.embeddings.tokens.weight
        largest["logits"] = largest_difference(
            logits[visible], ours.lm_head(found.last_hidden_state, table_VD)[visible]
        )
    if ours.rtd_head is not None:
        largest["logits"] = largest_difference(
            expected.logits[visible], ours.rtd_head(found.last_hidden_state)[visible]
        )
    return largest


def largest_difference(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    assert one.std() > 0.3, "constant values would hide a difference"
    return float((one - other).abs().max())


def show(name: str, largest: dict[str, float]) -> None:
    print(f"\n{name:32}", *(f"{part} {value:.1e}" for part, value in largest.items()))


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_states_and_logits_equal_transformers(family: str, kind: str, tmp_path: Path) -> None:
    theirs = make(family, kind)
    ours = from_huggingface(save(theirs, tmp_path))
    heads = HEADS.get(type(theirs).__name__, HEADS[kind])
    assert (ours.lm_head is not None, ours.rtd_head is not None) == heads
    largest = difference(theirs, ours)
    show(f"{family} {kind}", largest)
    assert max(largest.values()) < 1e-5
    assert ours.config is ours.encoder.config
    assert not ours.encoder.training


@pytest.mark.parametrize(("family", "kind"), [key for key in KINDS if key[0] != "crossling"])
def test_import_and_export_give_the_same_model(family: str, kind: str, tmp_path: Path) -> None:
    """The exported model is the same network for transformers, and imports with the same bits."""
    theirs = make(family, kind)
    ours = from_huggingface(save(theirs, tmp_path / "in"))
    out = to_huggingface(ours.encoder, ours.lm_head, ours.rtd_head)
    largest = difference(out, ours)
    show(f"{family} {kind}, out as {type(out).__name__}", largest)
    assert max(largest.values()) < 1e-5
    again = from_huggingface(save(out, tmp_path / "out"))
    assert_same(again, ours)
    loaded = AutoModel.from_pretrained(tmp_path / "out")
    assert difference(loaded, ConvertedModel(ours.config, ours.encoder))["states"] < 1e-5


def assert_same(one: ConvertedModel, other: ConvertedModel) -> None:
    for name in ("encoder", "lm_head", "rtd_head"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None) == (second is None)
        if first is not None:
            assert first.state_dict().keys() == second.state_dict().keys()
            assert all(torch.equal(first.state_dict()[key], value) for key, value in second.state_dict().items())
    settings = [config.to_dict() for config in (one.config, other.config)]
    assert settings[0] == settings[1]


def make_convertible(**changes: Any) -> CrosslingModel:
    torch.manual_seed(0)
    shape = {"relative_positions": False, "gated": False, "universal_layer": 1, "layer_norm_eps": 1e-3, "dropout": 0.3}
    return randomize(CrosslingModel(CrosslingConfig(**(SHAPE | shape | changes))))


@pytest.mark.parametrize("padding", [0, 1, 5])
@pytest.mark.parametrize("head", [None, LMHead, RTDHead])
def test_export_and_import_give_the_same_bits(
    head: type[LMHead] | type[RTDHead] | None, padding: int, tmp_path: Path
) -> None:
    encoder = make_convertible(pad_token_id=padding)
    heads: dict[str, Any] = {}
    if head is not None:
        heads["lm_head" if head is LMHead else "rtd_head"] = randomize(head(encoder.config))
    ours = ConvertedModel(encoder.config, encoder, **heads)
    out = to_huggingface(encoder, **heads)
    assert max(difference(out, ours).values()) < 1e-5
    assert_same(from_huggingface(save(out, tmp_path)), ours)


def test_disentangled_token_table_is_exported_as_its_sum() -> None:
    encoder = make_convertible()
    assert isinstance(encoder.embeddings.tokens, torch.nn.Embedding)
    encoder.embeddings.tokens = DisentangledEmbedding(encoder.embeddings.tokens)
    torch.nn.init.normal_(encoder.embeddings.tokens.delta_VD)
    out = to_huggingface(encoder)
    assert torch.equal(out.get_input_embeddings().weight, encoder.embeddings.tokens.weight)
    assert difference(out, ConvertedModel(encoder.config, encoder))["states"] < 1e-5


def test_settings_are_converted(tmp_path: Path) -> None:
    theirs = make("roberta", "Model", hidden_dropout_prob=0.25, pad_token_id=3, bos_token_id=7, eos_token_id=8)
    config = from_huggingface(save(theirs, tmp_path)).config
    assert config.max_position_embeddings == 26 - 4
    assert (config.dropout, config.layer_norm_eps, config.initializer_range) == (0.25, 1e-3, 0.2)
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (3, 7, 8)
    assert (config.norm, config.absolute_positions, config.relative_positions) == ("post", True, False)
    assert config.universal_layer == 2


def test_encoder_of_a_classifier_is_imported(tmp_path: Path) -> None:
    theirs = make("xlm-roberta", "ForSequenceClassification")
    ours = from_huggingface(save(theirs, tmp_path))
    assert (ours.lm_head, ours.rtd_head) == (None, None)
    assert difference(theirs, ours)["states"] < 1e-5


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_first_token_type_is_imported(family: str, tmp_path: Path) -> None:
    theirs = make(family, "Model")
    ours = from_huggingface(save(theirs, tmp_path)).encoder
    ids_BL = torch.tensor([[5, 6, 7]])
    first, second = (theirs(ids_BL, token_type_ids=torch.full_like(ids_BL, kind)).last_hidden_state for kind in (0, 1))
    assert_close(ours(ids_BL).last_hidden_state, first, atol=1e-5, rtol=0)
    assert (first - second).abs().max() > 0.1


# ---- refused models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "kind", "change", "sentence"),
    [
        ("bert", "Model", {"hidden_act": "gelu_new"}, r"hidden_act is 'gelu_new'\. Give a model with 'gelu'"),
        ("electra", "Model", {"embedding_size": 16}, r"embedding_size is 16\. Give a model with 32"),
        ("roberta", "Model", {"is_decoder": True}, r"is_decoder is True\. Give a model with False"),
        ("bert", "Model", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ("bert", "ForMaskedLM", {"tie_word_embeddings": False}, "output embeddings differ.*tie_word_embeddings=True"),
    ],
)
def test_import_of_another_architecture_is_refused(
    family: str, kind: str, change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    save(make(family, kind, **change), tmp_path)
    with pytest.raises(BadInput, match=sentence) as caught:
        from_huggingface(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: ")


def test_untied_embeddings_without_a_head_are_imported(tmp_path: Path) -> None:
    theirs = make("bert", "Model", tie_word_embeddings=False)
    assert difference(theirs, from_huggingface(save(theirs, tmp_path)))["states"] < 1e-5


def test_another_model_type_is_refused(tmp_path: Path) -> None:
    transformers.GPT2Model(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2)).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match=r"model type gpt2 is not supported\. Give one of xlm-roberta, roberta"):
        from_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"norm": "pre"}, "norm='pre' .* which have 'post'"),
        ({"relative_positions": True}, "relative_positions=True"),
        ({"absolute_positions": False}, "absolute_positions=False"),
        ({"cross_attention": True}, "cross_attention=True"),
        ({"output_layer": 1}, "output_layer=1"),
    ],
)
def test_export_of_another_architecture_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        to_huggingface(make_convertible(**change))


def test_pickled_weights_are_not_loaded(tmp_path: Path) -> None:
    theirs = make("bert", "Model")
    theirs.config.save_pretrained(tmp_path)
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"no \.safetensors weights"):
        from_huggingface(tmp_path)
    save_file({"other": torch.zeros(1)}, tmp_path / "adapter.safetensors")
    with pytest.raises(BadInput, match=r"cannot load it \(.*safetensors"):
        from_huggingface(tmp_path)


def test_code_of_a_model_is_not_run(tmp_path: Path) -> None:
    theirs = make("bert", "ForMaskedLM")
    save(theirs, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["auto_map"] = dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForMaskedLM"), "evil.Evil")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    assert max(difference(theirs, from_huggingface(tmp_path)).values()) < 1e-5
    config["model_type"] = "evil"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="cannot load it"):
        from_huggingface(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.fixture(scope="module")
def valid_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("valid")
    return {
        "bert": save(make("bert", "ForMaskedLM"), root / "bert"),
        "crossling": save(make("crossling", "ForPreTraining"), root / "crossling"),
    }


def truncate(content: bytes, position: int, _: int) -> bytes:
    return content[: position % len(content)]


def corrupt(content: bytes, position: int, byte: int) -> bytes:
    position %= min(len(content), 1500)  # only the header of a weights file can be recognized as damaged
    return content[:position] + bytes([byte]) + content[position + 1 :]


@settings(max_examples=60, deadline=None)
@given(
    family=st.sampled_from(["bert", "crossling"]),
    file=st.sampled_from(["config.json", "model.safetensors"]),
    damage=st.sampled_from([truncate, corrupt]),
    position=st.integers(0, 100_000),
    byte=st.integers(0, 255),
)
def test_damaged_folder_is_loaded_or_refused_in_one_line(
    valid_folders: dict[str, Path],
    family: str,
    file: str,
    damage: Callable[[bytes, int, int], bytes],
    position: int,
    byte: int,
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(shutil.copytree(valid_folders[family], Path(name) / "model"))
        (folder / file).write_bytes(damage((folder / file).read_bytes(), position, byte))
        fault = ""
        try:
            from_huggingface(folder)
        except BadInput as error:
            fault = str(error)
        assert not fault or (fault.startswith(f"{folder}: ") and "\n" not in fault)
