"""Networks of other families in our shape, and ours in theirs.

XLM-R, RoBERTa, CamemBERT, BERT and ELECTRA are one architecture: learned absolute positions, LayerNorm after each
residual sum, exact GELU, one table for input and output. They differ in where positions begin and in what the parts of
their heads are called. What has no place here is left behind: poolers, the next-sentence head, and every token type but
the first, which is added to the positions (BERT's second segment reads like its first).
"""
# D width, V vocabulary, P positions

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    ElectraConfig,
    ElectraForPreTraining,
    PreTrainedConfig,
    PreTrainedModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaModel,
)

from crossling.errors import BadInput
from crossling.hub import WEIGHTS, model_folder
from crossling.model.config import CrosslingConfig
from crossling.model.heads import LMHead, RTDHead
from crossling.model.pretrained import pretrained, pretrained_config
from crossling.model.transformer import CrosslingModel

# Of each family: what the dense layer and the norm of its language model head are called.
FAMILIES = {
    "xlm-roberta": ("lm_head.dense", "lm_head.layer_norm"),
    "roberta": ("lm_head.dense", "lm_head.layer_norm"),
    "camembert": ("lm_head.dense", "lm_head.layer_norm"),
    "bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
    "electra": ("generator_predictions.dense", "generator_predictions.LayerNorm"),
}
# What their settings and ours have to be for the two to be the same network.
THEIRS: dict[str, Any] = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
}
OURS: dict[str, Any] = {
    "norm": "post",
    "absolute_positions": True,
    "relative_positions": False,
    "cross_attention": False,
    "output_layer": None,
}


@dataclass(frozen=True)
class Imported:
    """A network in our shape, with the head that its folder holds."""

    config: CrosslingConfig
    encoder: CrosslingModel
    lm_head: LMHead | None = None
    rtd_head: RTDHead | None = None


# ---- theirs to ours ------------------------------------------------------------------------------------------


def imported(path: str | Path) -> Imported:
    """The network of a Hugging Face folder or hub name, of one of the families above or ours.

    States of all layers and logits are those that `transformers` computes. The head is the one that `architectures` in
    its config.json names.
    """
    folder = model_folder(path, WEIGHTS)
    head = _check(pretrained_config(folder, path), path)
    kinds = {"lm": AutoModelForMaskedLM, "rtd": AutoModelForPreTraining, None: AutoModel}
    network: Any = pretrained(folder, path, kinds[head])
    if isinstance(network.config, CrosslingConfig):
        heads = {name: getattr(network, name, None) for name in ("lm_head", "rtd_head")}
        return Imported(network.config, network.base_model, **heads)
    config = _our_config(network)
    encoder = CrosslingModel(config).eval()
    _read_encoder(encoder, network.base_model)
    if head == "lm":
        return Imported(config, encoder, lm_head=_lm_head(network, config, path))
    return Imported(config, encoder, rtd_head=_rtd_head(network, config) if head == "rtd" else None)


def _check(config: PreTrainedConfig, path: str | Path) -> Literal["lm", "rtd"] | None:
    """Refuses what would not be the same network here; returns the head."""
    if config.model_type != CrosslingConfig.model_type:
        if config.model_type not in FAMILIES:
            raise BadInput(
                f"{path}: a model of the family {config.model_type}; give one of {', '.join(FAMILIES)} or crossling"
            )
        needed = THEIRS | ({"embedding_size": config.hidden_size} if config.model_type == "electra" else {})
        for setting, value in _obstacles(config, needed):
            raise BadInput(f"{path}: its {setting} is {value!r}, and only {needed[setting]!r} has a form in crossling")
    name = str((config.architectures or [""])[0])
    if name.endswith("ForMaskedLM") or name == "BertForPreTraining":
        return "lm"
    return "rtd" if name in ("ElectraForPreTraining", "CrosslingForPreTraining") else None


def _our_config(network: Any) -> CrosslingConfig:
    theirs = network.config
    return CrosslingConfig(
        **OURS,
        gated=False,
        vocab_size=theirs.vocab_size,
        hidden_size=theirs.hidden_size,
        num_hidden_layers=theirs.num_hidden_layers,
        num_attention_heads=theirs.num_attention_heads,
        intermediate_size=theirs.intermediate_size,
        max_position_embeddings=theirs.max_position_embeddings - _first_position(network.base_model),
        dropout=theirs.hidden_dropout_prob,
        attention_dropout=theirs.attention_probs_dropout_prob,
        initializer_range=theirs.initializer_range,
        layer_norm_eps=theirs.layer_norm_eps,
        universal_layer=getattr(theirs, "universal_layer", None),
        pad_token_id=theirs.pad_token_id,
        bos_token_id=theirs.bos_token_id,
        eos_token_id=theirs.eos_token_id,
    )


def _first_position(theirs: Any) -> int:
    """RoBERTa and its kin count positions from the one after the id of padding."""
    padding = theirs.embeddings.position_embeddings.padding_idx
    return 0 if padding is None else padding + 1


@torch.no_grad()
def _read_encoder(ours: CrosslingModel, theirs: Any) -> None:
    ours.embeddings.tokens.weight.copy_(theirs.embeddings.word_embeddings.weight)
    positions_PD = theirs.embeddings.position_embeddings.weight[_first_position(theirs) :]
    assert ours.embeddings.positions is not None
    ours.embeddings.positions.weight.copy_(positions_PD + theirs.embeddings.token_type_embeddings.weight[0])
    for our, their in _twins(ours, theirs):
        our.load_state_dict(their.state_dict())
    for joint, parts in _attentions(ours, theirs):
        for name, values in joint.named_parameters():
            values.copy_(torch.cat([part.get_parameter(name) for part in parts]))


@torch.no_grad()
def _lm_head(network: Any, config: CrosslingConfig, path: str | Path) -> LMHead:
    output = network.get_output_embeddings()
    if not torch.equal(output.weight, network.get_input_embeddings().weight):
        raise BadInput(
            f"{path}: its output embeddings are not those of its input (tie_word_embeddings), as crossling's"
        )
    head = LMHead(config).eval()
    for ours, theirs in _lm_twins(head, network):
        ours.load_state_dict(theirs.state_dict())
    head.bias_V.copy_(output.bias)
    return head


def _rtd_head(network: Any, config: CrosslingConfig) -> RTDHead:
    head = RTDHead(config).eval()
    for ours, theirs in _rtd_twins(head, network):
        ours.load_state_dict(theirs.state_dict())
    return head


# ---- ours to theirs ------------------------------------------------------------------------------------------


def exported(
    encoder: CrosslingModel, lm_head: LMHead | None = None, rtd_head: RTDHead | None = None
) -> PreTrainedModel:
    """The same network as XLM-R, or as ELECTRA's discriminator where it has that head; it has one head at most."""
    assert lm_head is None or rtd_head is None
    for setting, value in _obstacles(encoder.config, OURS):
        raise BadInput(
            f"a network with {setting} {value!r} cannot be handed on as XLM-R or ELECTRA, which have {OURS[setting]!r};"
            " keep crossling's own form"
        )
    network: Any
    if rtd_head is not None:
        shape = _their_shape(encoder.config, first=0) | {"embedding_size": encoder.config.hidden_size}
        network = ElectraForPreTraining(ElectraConfig(**shape))
        for ours, theirs in _rtd_twins(rtd_head, network):
            theirs.load_state_dict(ours.state_dict())
    else:
        config = XLMRobertaConfig(**_their_shape(encoder.config, first=encoder.config.pad_token_id + 1))
        network = XLMRobertaModel(config, add_pooling_layer=False) if lm_head is None else XLMRobertaForMaskedLM(config)
    if lm_head is not None:
        for ours, theirs in _lm_twins(lm_head, network):
            theirs.load_state_dict(ours.state_dict())
        network.get_output_embeddings().bias.data.copy_(lm_head.bias_V)
    _write_encoder(encoder, network.base_model)
    return network.eval()


def _their_shape(config: CrosslingConfig, first: int) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings + first,
        "type_vocab_size": 1,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "initializer_range": config.initializer_range,
        "layer_norm_eps": config.layer_norm_eps,
        "universal_layer": config.universal_layer,  # a word of ours that their configurations carry along
        "pad_token_id": config.pad_token_id,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
    }


@torch.no_grad()
def _write_encoder(ours: CrosslingModel, theirs: Any) -> None:
    theirs.embeddings.word_embeddings.weight.copy_(ours.embeddings.tokens.weight)
    theirs.embeddings.token_type_embeddings.weight.zero_()
    first = _first_position(theirs)
    assert ours.embeddings.positions is not None
    theirs.embeddings.position_embeddings.weight[:first] = 0
    theirs.embeddings.position_embeddings.weight[first:] = ours.embeddings.positions.weight
    for our, their in _twins(ours, theirs):
        their.load_state_dict(our.state_dict())
    for joint, parts in _attentions(ours, theirs):
        for name, values in joint.named_parameters():
            for part, own in zip(parts, values.chunk(3), strict=True):
                part.get_parameter(name).copy_(own)


# ---- the two side by side ------------------------------------------------------------------------------------


def _obstacles(config: PreTrainedConfig, needed: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Settings that are not as needed, with what they are; one that a configuration does not know is as needed."""
    for setting, value in needed.items():
        found = getattr(config, setting, value)
        if found != value:
            yield setting, found


def _twins(ours: CrosslingModel, theirs: Any) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Modules that are the same in both."""
    yield ours.embeddings.norm, theirs.embeddings.LayerNorm
    for block, layer in _layers(ours, theirs):
        yield block.attention.out, layer.attention.output.dense
        yield block.attention_norm, layer.attention.output.LayerNorm
        yield block.feed_forward[0], layer.intermediate.dense
        yield block.feed_forward[2], layer.output.dense
        yield block.feed_forward_norm, layer.output.LayerNorm


def _lm_twins(head: LMHead, network: Any) -> Iterator[tuple[nn.Module, nn.Module]]:
    dense, norm = FAMILIES[network.config.model_type]
    yield head.dense, network.get_submodule(dense)
    yield head.norm, network.get_submodule(norm)


def _rtd_twins(head: RTDHead, network: Any) -> Iterator[tuple[nn.Module, nn.Module]]:
    yield head.dense, network.discriminator_predictions.dense
    yield head.score, network.discriminator_predictions.dense_prediction


def _attentions(ours: CrosslingModel, theirs: Any) -> Iterator[tuple[nn.Module, tuple[nn.Module, ...]]]:
    """Our one projection to query, key and value, and their three."""
    for block, layer in _layers(ours, theirs):
        parts = layer.attention.self
        yield block.attention.qkv, (parts.query, parts.key, parts.value)


def _layers(ours: CrosslingModel, theirs: Any) -> Iterator[tuple[Any, Any]]:
    return zip(ours.blocks, theirs.encoder.layer, strict=True)
