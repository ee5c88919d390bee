"""Conversion of Hugging Face models to crossling's architecture and back.

XLM-R, RoBERTa, CamemBERT, BERT and ELECTRA share one architecture: learned absolute positions, LayerNorm after each
residual sum, exact GELU, one token table for input and output. They differ in the first position and in the names of
the parts of their heads. Poolers, the next-sentence head and all token types but the first are dropped. The first token
type is added to the positions, so BERT's second segment is read like its first.
"""
# D width, V vocabulary, P positions

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from crossling.core.errors import BadInput
from crossling.core.hub import WEIGHT_FILES, get_model_folder
from crossling.model.config import CrosslingConfig
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import LMHead, RTDHead
from crossling.model.pretrained import load_pretrained, load_pretrained_config

# Names of the dense layer and the norm in the language model head of each family.
FAMILIES = {
    **dict.fromkeys(("xlm-roberta", "roberta", "camembert"), ("lm_head.dense", "lm_head.layer_norm")),
    "bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
    "electra": ("generator_predictions.dense", "generator_predictions.LayerNorm"),
}
# Settings that both configurations need for the two models to be the same network.
REQUIRED_HUGGINGFACE: dict[str, Any] = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
}
REQUIRED_CROSSLING: dict[str, Any] = {
    "norm": "post",
    "hidden_act": "gelu",
    "biases": True,
    "position_embedding_type": None,
    "absolute_positions": True,
    "relative_positions": False,
    "cross_attention": False,
    "output_layer": None,
}
# Settings that both have: our name, and that of Hugging Face.
COMMON_SETTINGS = {
    **{name: name for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")},
    **{name: name for name in ("intermediate_size", "initializer_range", "layer_norm_eps")},
    **{name: name for name in ("pad_token_id", "bos_token_id", "eos_token_id")},
    **{"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"},
}


@dataclass(frozen=True)
class ConvertedModel:
    """Encoder in crossling's architecture, with the head that its folder has."""

    config: CrosslingConfig
    encoder: CrosslingModel
    lm_head: LMHead | None = None
    rtd_head: RTDHead | None = None


# ---- from Hugging Face ---------------------------------------------------------------------------------------


def from_huggingface(path: str | Path) -> ConvertedModel:
    """Load a model of one of `FAMILIES` or of crossling from a Hugging Face folder or hub name.

    The states of all layers and the logits equal those that `transformers` computes. The head is the one that
    `architectures` in config.json names.
    """
    folder = get_model_folder(path, WEIGHT_FILES)
    head = find_head(load_pretrained_config(folder, path), path)
    auto_classes = {"lm": transformers.AutoModelForMaskedLM, "rtd": transformers.AutoModelForPreTraining}
    network: Any = load_pretrained(folder, path, auto_classes.get(head, transformers.AutoModel))
    if isinstance(network.config, CrosslingConfig):
        heads: dict[str, Any] = {name: getattr(network, name, None) for name in ("lm_head", "rtd_head")}
        return ConvertedModel(network.config, network.base_model, **heads)
    config = _to_crossling_config(network)
    encoder = CrosslingModel(config).eval()
    _import_encoder(encoder, network.base_model)
    if not head:
        return ConvertedModel(config, encoder)
    module = (LMHead if head == "lm" else RTDHead)(config).eval()
    for ours, theirs in _head_pairs(module, network):
        ours.load_state_dict(theirs.state_dict())
    if isinstance(module, LMHead):
        output = network.get_output_embeddings()
        if not torch.equal(output.weight, network.get_input_embeddings().weight):
            raise BadInput(f"{path}: input and output embeddings differ. Give a model with tie_word_embeddings=True.")
        module.bias_V.data.copy_(output.bias)
    heads = {f"{head}_head": module}
    return ConvertedModel(config, encoder, **heads)


def find_head(config: PreTrainedConfig, path: str | Path) -> str:
    """Return the head of a model: `lm`, `rtd` or none (""). Refuse a model that cannot be the same network here."""
    if config.model_type != CrosslingConfig.model_type:
        if config.model_type not in FAMILIES:
            supported = ", ".join([*FAMILIES, "crossling"])
            raise BadInput(
                f"{path}: model type {config.model_type} is not supported. Give one of {supported}, or keep the"
                " architecture of the model with model.architecture=native."
            )
        is_electra = config.model_type == "electra"
        required = REQUIRED_HUGGINGFACE | ({"embedding_size": config.hidden_size} if is_electra else {})
        for setting, value in find_differences(config, required):
            raise BadInput(f"{path}: {setting} is {value!r}. Give a model with {required[setting]!r}.")
    name = str((config.architectures or [""])[0])
    if name.endswith("ForMaskedLM") or name == "BertForPreTraining":
        return "lm"
    return "rtd" if name in ("ElectraForPreTraining", "CrosslingForPreTraining") else ""


def _to_crossling_config(network: Any) -> CrosslingConfig:
    theirs = network.config
    common = {name: getattr(theirs, their_name) for name, their_name in COMMON_SETTINGS.items()}
    positions = theirs.max_position_embeddings - _first_position(network.base_model)
    layer = getattr(theirs, "universal_layer", None)
    own = {"gated": False, "max_position_embeddings": positions, "universal_layer": layer}
    return CrosslingConfig(**REQUIRED_CROSSLING, **common, **own)


def _first_position(theirs: Any) -> int:
    """Return the index of the first position. RoBERTa and its variants start after the padding id."""
    padding = theirs.embeddings.position_embeddings.padding_idx
    return 0 if padding is None else padding + 1


@torch.no_grad()
def _import_encoder(ours: CrosslingModel, theirs: Any) -> None:
    ours.embeddings.tokens.weight.copy_(theirs.embeddings.word_embeddings.weight)
    positions_PD = theirs.embeddings.position_embeddings.weight[_first_position(theirs) :]
    assert ours.embeddings.positions is not None
    ours.embeddings.positions.weight.copy_(positions_PD + theirs.embeddings.token_type_embeddings.weight[0])
    for our, their in _module_pairs(ours, theirs):
        our.load_state_dict(their.state_dict())
    for joint, parts in _attention_pairs(ours, theirs):
        for name, values in joint.named_parameters():
            values.copy_(torch.cat([part.get_parameter(name) for part in parts]))


# ---- to Hugging Face -----------------------------------------------------------------------------------------


def to_huggingface(
    encoder: CrosslingModel, lm_head: LMHead | None = None, rtd_head: RTDHead | None = None
) -> PreTrainedModel:
    """Return the same network as XLM-R, or as ELECTRA's discriminator if it has an RTD head. Give at most one head."""
    assert lm_head is None or rtd_head is None
    for setting, value in find_differences(encoder.config, REQUIRED_CROSSLING):
        raise BadInput(
            f"cannot export a model with {setting}={value!r} as XLM-R or ELECTRA, which have"
            f" {REQUIRED_CROSSLING[setting]!r}. Export it as crossling."
        )
    network: Any
    if rtd_head is not None:
        shape = _to_huggingface_settings(encoder.config, first=0) | {"embedding_size": encoder.config.hidden_size}
        network = transformers.ElectraForPreTraining(transformers.ElectraConfig(**shape))
    else:
        shape = _to_huggingface_settings(encoder.config, first=encoder.config.pad_token_id + 1)
        config = transformers.XLMRobertaConfig(**shape)
        if lm_head is None:
            network = transformers.XLMRobertaModel(config, add_pooling_layer=False)
        else:
            network = transformers.XLMRobertaForMaskedLM(config)
            network.get_output_embeddings().bias.data.copy_(lm_head.bias_V)
    for ours, theirs in _head_pairs(lm_head or rtd_head, network):
        theirs.load_state_dict(ours.state_dict())
    _export_encoder(encoder, network.base_model)
    return network.eval()


def _to_huggingface_settings(config: CrosslingConfig, first: int) -> dict[str, Any]:
    return {
        **{their_name: getattr(config, name) for name, their_name in COMMON_SETTINGS.items()},
        "max_position_embeddings": config.max_position_embeddings + first,
        "type_vocab_size": 1,
        "universal_layer": config.universal_layer,  # a key of crossling that other configurations keep
    }


@torch.no_grad()
def _export_encoder(ours: CrosslingModel, theirs: Any) -> None:
    theirs.embeddings.word_embeddings.weight.copy_(ours.embeddings.tokens.weight)
    theirs.embeddings.token_type_embeddings.weight.zero_()
    first = _first_position(theirs)
    assert ours.embeddings.positions is not None
    theirs.embeddings.position_embeddings.weight[:first] = 0
    theirs.embeddings.position_embeddings.weight[first:] = ours.embeddings.positions.weight
    for our, their in _module_pairs(ours, theirs):
        their.load_state_dict(our.state_dict())
    for joint, parts in _attention_pairs(ours, theirs):
        for name, values in joint.named_parameters():
            for part, own in zip(parts, values.chunk(3), strict=True):
                part.get_parameter(name).copy_(own)


# ---- corresponding parts -------------------------------------------------------------------------------------


def find_differences(config: PreTrainedConfig, required: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the settings that differ from the required ones, with their values. A missing setting is no difference."""
    for setting, value in required.items():
        found = getattr(config, setting, value)
        if found != value:
            yield setting, found


def _module_pairs(ours: CrosslingModel, theirs: Any) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yield the modules that are the same in both models."""
    yield ours.embeddings.norm, theirs.embeddings.LayerNorm
    for block, layer in zip(ours.blocks, theirs.encoder.layer, strict=True):
        yield block.attention.out, layer.attention.output.dense
        yield block.attention_norm, layer.attention.output.LayerNorm
        feed_forward: Any = block.feed_forward
        yield feed_forward[0], layer.intermediate.dense
        yield feed_forward[2], layer.output.dense
        yield block.feed_forward_norm, layer.output.LayerNorm


def _head_pairs(head: LMHead | RTDHead | None, network: Any) -> Iterator[tuple[nn.Module, nn.Module]]:
    if isinstance(head, RTDHead):
        yield head.dense, network.discriminator_predictions.dense
        yield head.score, network.discriminator_predictions.dense_prediction
    elif head is not None:
        dense, norm = FAMILIES[network.config.model_type]
        yield head.dense, network.get_submodule(dense)
        yield head.norm, network.get_submodule(norm)


def _attention_pairs(ours: CrosslingModel, theirs: Any) -> Iterator[tuple[nn.Module, tuple[nn.Module, ...]]]:
    """Yield the joint projection to query, key and value, and the three separate ones."""
    for block, layer in zip(ours.blocks, theirs.encoder.layer, strict=True):
        parts = layer.attention.self
        yield block.attention.qkv, (parts.query, parts.key, parts.value)
