"""What comes in computes what `transformers` computes, and goes out as it came."""

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

from crossling.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.convert import FAMILIES, Imported, exported, imported
from crossling.model.heads import CrosslingForMaskedLM, CrosslingForPreTraining, LMHead, RTDHead
from crossling.model.tables import DisentangledEmbedding
from crossling.model.transformer import CrosslingModel

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
}  # whether there is one for words, and one for replaced tokens


def unlike_new(network: torch.nn.Module) -> Any:
    """As after training: no bias is zero and no norm the identity, nor any two alike."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.empty_like(parameter).uniform_(-0.3, 0.3))
            elif "embeddings" in name:
                parameter.normal_(std=0.5)  # padding too
    return network.eval()


def made(family: str, kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    if family == "crossling":
        return unlike_new(OURS[kind](CrosslingConfig(**(SHAPE | {"norm": "pre"} | changes))))
    own = {"embedding_size": SHAPE["hidden_size"]} if family == "electra" else {}
    config = getattr(transformers, f"{NAMES[family]}Config")(**(SHAPE | own | {"layer_norm_eps": 1e-3} | changes))
    return unlike_new(getattr(transformers, NAMES[family] + kind)(config))


def folder_of(network: PreTrainedModel, folder: Path) -> Path:
    network.save_pretrained(folder)
    return folder


def padded(padding: int) -> tuple[Tensor, Tensor]:
    """Rows of 24 and 9 tokens."""
    torch.manual_seed(2)
    ids_BL = torch.randint(4, SHAPE["vocab_size"], (2, 24))
    ids_BL[1, 9:] = padding
    valid_BL = torch.ones_like(ids_BL)
    valid_BL[1, 9:] = 0
    return ids_BL, valid_BL


@torch.no_grad()
def difference(theirs: Any, ours: Imported) -> dict[str, float]:
    """The largest one over all layers, and over all logits."""
    ids_BL, valid_BL = padded(theirs.config.pad_token_id)
    expected = theirs(ids_BL, attention_mask=valid_BL, output_hidden_states=True)
    found = ours.encoder(ids_BL, attention_mask=valid_BL, output_hidden_states=True)
    seen = valid_BL.bool()
    assert len(expected.hidden_states) == len(found.hidden_states) == SHAPE["num_hidden_layers"] + 1
    states = zip(expected.hidden_states, found.hidden_states, strict=True)
    largest = {"states": max(far(one[seen], other[seen]) for one, other in states)}
    if ours.lm_head is not None:
        logits = expected.prediction_logits if "prediction_logits" in expected else expected.logits
        table_VD = ours.encoder.embeddings.tokens.weight
        largest["logits"] = far(logits[seen], ours.lm_head(found.last_hidden_state, table_VD)[seen])
    if ours.rtd_head is not None:
        largest["logits"] = far(expected.logits[seen], ours.rtd_head(found.last_hidden_state)[seen])
    return largest


def far(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    assert one.std() > 0.3, "everything alike: nothing would be seen"
    return float((one - other).abs().max())


def show(what: str, largest: dict[str, float]) -> None:
    print(f"\n{what:32}", *(f"{name} {value:.1e}" for name, value in largest.items()))


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_states_and_logits_are_those_of_transformers(family: str, kind: str, tmp_path: Path) -> None:
    theirs = made(family, kind)
    ours = imported(folder_of(theirs, tmp_path))
    heads = HEADS.get(type(theirs).__name__, HEADS[kind])
    assert (ours.lm_head is not None, ours.rtd_head is not None) == heads
    largest = difference(theirs, ours)
    show(f"{family} {kind}", largest)
    assert max(largest.values()) < 1e-5
    assert ours.config is ours.encoder.config
    assert not ours.encoder.training


@pytest.mark.parametrize(("family", "kind"), [key for key in KINDS if key[0] != "crossling"])
def test_what_came_in_goes_out_again(family: str, kind: str, tmp_path: Path) -> None:
    """Saved, read by transformers, and read by us: the same network each time, the last time in every bit."""
    theirs = made(family, kind)
    ours = imported(folder_of(theirs, tmp_path / "in"))
    out = exported(ours.encoder, ours.lm_head, ours.rtd_head)
    largest = difference(out, ours)
    show(f"{family} {kind}, out as {type(out).__name__}", largest)
    assert max(largest.values()) < 1e-5
    again = imported(folder_of(out, tmp_path / "out"))
    same(again, ours)
    read = AutoModel.from_pretrained(tmp_path / "out")
    assert difference(read, Imported(ours.config, ours.encoder))["states"] < 1e-5


def same(one: Imported, other: Imported) -> None:
    for name in ("encoder", "lm_head", "rtd_head"):
        mine, yours = getattr(one, name), getattr(other, name)
        assert (mine is None) == (yours is None)
        if mine is not None:
            assert mine.state_dict().keys() == yours.state_dict().keys()
            assert all(torch.equal(mine.state_dict()[key], value) for key, value in yours.state_dict().items())
    settings = [config.to_dict() for config in (one.config, other.config)]
    assert settings[0] == settings[1]


def ours_in_their_shape(**changes: Any) -> CrosslingModel:
    torch.manual_seed(0)
    shape = {"relative_positions": False, "gated": False, "universal_layer": 1, "layer_norm_eps": 1e-3, "dropout": 0.3}
    return unlike_new(CrosslingModel(CrosslingConfig(**(SHAPE | shape | changes))))


@pytest.mark.parametrize("padding", [0, 1, 5])
@pytest.mark.parametrize("head", [None, LMHead, RTDHead])
def test_what_was_made_here_comes_back_in_every_bit(
    head: type[LMHead] | type[RTDHead] | None, padding: int, tmp_path: Path
) -> None:
    encoder = ours_in_their_shape(pad_token_id=padding)
    heads: dict[str, Any] = {}
    if head is not None:
        heads["lm_head" if head is LMHead else "rtd_head"] = unlike_new(head(encoder.config))
    ours = Imported(encoder.config, encoder, **heads)
    out = exported(encoder, **heads)
    assert max(difference(out, ours).values()) < 1e-5
    same(imported(folder_of(out, tmp_path)), ours)


def test_a_table_in_two_parts_goes_out_as_their_sum() -> None:
    encoder = ours_in_their_shape()
    assert isinstance(encoder.embeddings.tokens, torch.nn.Embedding)
    encoder.embeddings.tokens = DisentangledEmbedding(encoder.embeddings.tokens)
    torch.nn.init.normal_(encoder.embeddings.tokens.delta_VD)
    out = exported(encoder)
    assert torch.equal(out.get_input_embeddings().weight, encoder.embeddings.tokens.weight)
    assert difference(out, Imported(encoder.config, encoder))["states"] < 1e-5


def test_settings_come_over(tmp_path: Path) -> None:
    theirs = made("roberta", "Model", hidden_dropout_prob=0.25, pad_token_id=3, bos_token_id=7, eos_token_id=8)
    config = imported(folder_of(theirs, tmp_path)).config
    assert config.max_position_embeddings == 26 - 4
    assert (config.dropout, config.layer_norm_eps, config.initializer_range) == (0.25, 1e-3, 0.2)
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (3, 7, 8)
    assert (config.norm, config.absolute_positions, config.relative_positions) == ("post", True, False)
    assert config.universal_layer == 2


def test_of_a_classifier_the_encoder_comes_over(tmp_path: Path) -> None:
    theirs = made("xlm-roberta", "ForSequenceClassification")
    ours = imported(folder_of(theirs, tmp_path))
    assert (ours.lm_head, ours.rtd_head) == (None, None)
    assert difference(theirs, ours)["states"] < 1e-5


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_the_first_token_type_comes_over_and_no_other(family: str, tmp_path: Path) -> None:
    theirs = made(family, "Model")
    ours = imported(folder_of(theirs, tmp_path)).encoder
    ids_BL = torch.tensor([[5, 6, 7]])
    first, second = (theirs(ids_BL, token_type_ids=torch.full_like(ids_BL, kind)).last_hidden_state for kind in (0, 1))
    assert_close(ours(ids_BL).last_hidden_state, first, atol=1e-5, rtol=0)
    assert (first - second).abs().max() > 0.1


# ---- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "kind", "change", "sentence"),
    [
        ("bert", "Model", {"hidden_act": "gelu_new"}, "its hidden_act is 'gelu_new', and only 'gelu' has a form"),
        ("electra", "Model", {"embedding_size": 16}, "its embedding_size is 16, and only 32 has a form"),
        ("roberta", "Model", {"is_decoder": True}, "its is_decoder is True, and only False has a form"),
        ("bert", "Model", {"position_embedding_type": "relative_key"}, "its position_embedding_type is 'relative_key'"),
        ("bert", "ForMaskedLM", {"tie_word_embeddings": False}, r"output embeddings are not .*\(tie_word_embeddings\)"),
    ],
)
def test_what_has_no_form_here_is_refused_by_its_setting(
    family: str, kind: str, change: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    folder_of(made(family, kind, **change), tmp_path)
    with pytest.raises(BadInput, match=sentence) as caught:
        imported(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: ")


def test_an_untied_table_hurts_only_its_head(tmp_path: Path) -> None:
    theirs = made("bert", "Model", tie_word_embeddings=False)
    assert difference(theirs, imported(folder_of(theirs, tmp_path)))["states"] < 1e-5


def test_another_family_is_refused(tmp_path: Path) -> None:
    transformers.GPT2Model(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2)).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="a model of the family gpt2; give one of xlm-roberta, roberta"):
        imported(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"norm": "pre"}, "norm 'pre' .* which have 'post'"),
        ({"relative_positions": True}, "relative_positions True"),
        ({"absolute_positions": False}, "absolute_positions False"),
        ({"cross_attention": True}, "cross_attention True"),
        ({"output_layer": 1}, "output_layer 1"),
    ],
)
def test_what_has_no_form_there_is_refused_by_its_setting(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        exported(ours_in_their_shape(**change))


def test_weights_that_only_a_pickle_holds_are_not_opened(tmp_path: Path) -> None:
    theirs = made("bert", "Model")
    theirs.config.save_pretrained(tmp_path)
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"no \.safetensors weights here"):
        imported(tmp_path)
    save_file({"other": torch.zeros(1)}, tmp_path / "adapter.safetensors")
    with pytest.raises(BadInput, match=r"cannot load it \(.*safetensors"):
        imported(tmp_path)


def test_code_beside_the_weights_is_not_run(tmp_path: Path) -> None:
    theirs = made("bert", "ForMaskedLM")
    folder_of(theirs, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["auto_map"] = dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForMaskedLM"), "evil.Evil")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    assert max(difference(theirs, imported(tmp_path)).values()) < 1e-5
    config["model_type"] = "evil"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="cannot load it"):
        imported(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("whole")
    return {
        "bert": folder_of(made("bert", "ForMaskedLM"), root / "bert"),
        "crossling": folder_of(made("crossling", "ForPreTraining"), root / "crossling"),
    }


def cut(content: bytes, place: int, _: int) -> bytes:
    return content[: place % len(content)]


def spoil(content: bytes, place: int, byte: int) -> bytes:
    place %= min(len(content), 1500)  # in a file of weights: its head, since any number may be a weight
    return content[:place] + bytes([byte]) + content[place + 1 :]


@settings(max_examples=60, deadline=None)
@given(
    family=st.sampled_from(["bert", "crossling"]),
    file=st.sampled_from(["config.json", "model.safetensors"]),
    damage=st.sampled_from([cut, spoil]),
    place=st.integers(0, 100_000),
    byte=st.integers(0, 255),
)
def test_a_damaged_folder_is_read_or_refused_in_one_sentence(
    whole: dict[str, Path],
    family: str,
    file: str,
    damage: Callable[[bytes, int, int], bytes],
    place: int,
    byte: int,
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(shutil.copytree(whole[family], Path(name) / "model"))
        (folder / file).write_bytes(damage((folder / file).read_bytes(), place, byte))
        fault = ""
        try:
            imported(folder)
        except BadInput as error:
            fault = str(error)
        assert not fault or (fault.startswith(f"{folder}: ") and "\n" not in fault)
