"""A Hugging Face encoder in its own architecture, with the interface of our encoder.

The objectives call it as they call `CrosslingModel`: packed rows in, states of the last or of a given layer out, at all
or at some positions. The module holds the whole model of `transformers` with its head, so that saving it gives back the
same class, configuration and names of weights.
"""
# R rows, W tokens of a row, M selected positions, D width, V vocabulary, E width of the token table

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from crossling.core.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.gather import gather_positions
from crossling.model.native_packing import choose_packing, run_unpacked, select_layer


class NativeEncoder(nn.Module):
    """Hugging Face encoder in its own architecture.

    Args:
        model: Model of `transformers`, with or without a head.
        config: Sizes of the model in our words, for costs and new modules.

    Example:
        >>> encoder = NativeEncoder(AutoModelForMaskedLM.from_pretrained("mmBERT-base"), config)
        >>> encoder(ids, segments=segments).last_hidden_state
    """

    def __init__(self, model: PreTrainedModel, config: CrosslingConfig) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.packing = choose_packing(self.base)

    @property
    def base(self) -> PreTrainedModel:
        """The model without its head."""
        return self.model.base_model  # type: ignore[return-value]

    @property
    def embeddings(self) -> TokenTable:
        """Access to the token table under the name that our encoder has for it."""
        return TokenTable(self.model)

    @property
    def blocks(self) -> nn.ModuleList:
        """The layers, or one list of all modules in a model without such a list."""
        return find_layers(self.base)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return self.model.dtype

    def dense_weights(self) -> dict[str, Tensor]:
        """Return all parameters by name, with the token table as one tensor if it is the sum of two."""
        table = f"model.{find_name(self.model, self.model.get_input_embeddings())}.weight"
        weights = {plain_name(name): weight for name, weight in self.named_parameters() if ".lora_" not in name}
        return {**weights, table: self.embeddings.tokens.weight}

    def forward(
        self,
        input_ids: Tensor,
        segments: Tensor | None = None,
        layers: int | None = None,
        positions: Tensor | None = None,
    ) -> BaseModelOutput:
        """Encode packed rows.

        Args:
            input_ids: Token ids, [R, W].
            segments: Number of the sequence each token belongs to, [R, W]. 0 is padding. [default: one sequence a row]
            layers: Layer whose states are returned; 0 is the embedding output [default: the last].
            positions: Distinct positions of the flattened rows at which states are returned, [M] [default: all].

        Returns:
            The states, [R, W, D] or [M, D].
        """
        layer = None if layers == self.config.num_hidden_layers else layers
        if segments is None:
            states = select_layer(partial(self.base, input_ids=input_ids), layer)
        elif self.packing is None:
            states = run_unpacked(self.base, input_ids, segments, layer)
        else:
            states = select_layer(partial(self.packing.run, self.base, input_ids, segments), layer)
        return BaseModelOutput(states if positions is None else gather_positions(states, positions))  # type: ignore[arg-type]


class TokenTable:
    """The token table of a model of `transformers`, as the attribute `tokens`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    @property
    def tokens(self) -> Any:
        """Module of the token table."""
        return self.model.get_input_embeddings()

    @tokens.setter
    def tokens(self, module: nn.Module) -> None:
        decoder = find_decoder(self.model)
        is_tied = decoder is not None and decoder.weight is self.tokens.weight
        self.model.set_input_embeddings(module)
        if decoder is not None and is_tied and isinstance(module, nn.Embedding):
            decoder.weight = module.weight


# ---- parts of a model -------------------------------------------------------------------------------------------


def find_layers(base: nn.Module) -> nn.ModuleList:
    """Return the list of layers of a model."""
    count = base.config.num_hidden_layers  # type: ignore[union-attr]
    lists = [module for module in base.modules() if isinstance(module, nn.ModuleList) and len(module) == count]
    sizes = [sum(parameter.numel() for parameter in layers.parameters()) for layers in lists]
    total = sum(p.numel() for module in base.modules() if isinstance(module, nn.Linear) for p in module.parameters())
    largest = max(range(len(lists)), key=sizes.__getitem__, default=None)
    if largest is not None and sizes[largest] > total / 2:
        return lists[largest]
    return nn.ModuleList([base])


def find_decoder(model: PreTrainedModel) -> nn.Linear | None:
    """Return the linear layer from states to the logits of all tokens, or None."""
    decoder = model.get_output_embeddings()
    has_table = isinstance(decoder, nn.Linear) and decoder.out_features == model.config.vocab_size
    return decoder if has_table else None


def find_name(model: nn.Module, module: nn.Module) -> str:
    """Return the name of a module in a model."""
    return next(name for name, each in model.named_modules() if each is module)


# ---- building ---------------------------------------------------------------------------------------------------


def dump_config(config: PreTrainedConfig, tokens: int) -> str:
    """Return the configuration of a model and the size of its tokenizer as JSON."""
    return json.dumps({"config": config.to_diff_dict(), "tokens": tokens}, sort_keys=True)


def load_config(text: str, vocabulary_size: int | None = None) -> PreTrainedConfig:
    """Return the configuration that `dump_config` described.

    Args:
        text: The JSON text.
        vocabulary_size: Entries of the vocabulary in use. If they are not those of the tokenizer of the model, the
            token table has as many rows. Otherwise it has the rows of the model, which may have spare ones.
    """
    stored = json.loads(text)
    values: dict[str, Any] = stored["config"]
    if vocabulary_size not in (None, stored["tokens"]):
        values["vocab_size"] = vocabulary_size
    config = transformers.AutoConfig.for_model(**values)
    config.architectures = values.get("architectures")
    return config


def build_model(config: PreTrainedConfig) -> PreTrainedModel:
    """Return a model of the class that its configuration names, with random weights in float32."""
    model: PreTrainedModel = getattr(transformers, config.architectures[0])(config)  # type: ignore[index]
    return model.float()


def build_shorter(encoder: NativeEncoder, layers: int, architecture: str | None = None) -> NativeEncoder:
    """Return a model of the same family with fewer layers, without dropout, with random weights."""
    values = encoder.model.config.to_dict()
    depth = encoder.config.num_hidden_layers
    for name, value in values.items():
        if isinstance(value, list) and len(value) == depth and name not in ("architectures", "auto_map"):
            values[name] = value[:layers]  # one entry for each layer
        elif "dropout" in name and isinstance(value, float):
            values[name] = 0.0
    family = type(encoder.model.config)
    values[family.attribute_map.get("num_hidden_layers", "num_hidden_layers")] = layers
    config = family.from_dict(values)
    config.architectures = [architecture or type(encoder.model).__name__]
    own = {"num_hidden_layers": layers, "universal_layer": min(layers, encoder.config.universal_layer)}
    return NativeEncoder(build_model(config), encoder.config.replace(**own, dropout=0.0, attention_dropout=0.0))


@torch.no_grad()
def copy_weights(target: nn.Module, source: Mapping[str, Tensor], skip: Iterable[Tensor] = ()) -> None:
    """Copy all parameters and buffers of the same name and shape, but not those that are one of `skip`."""
    skipped = {id(values) for values in skip}
    for name, values in (*target.named_parameters(), *target.named_buffers()):
        own = plain_name(name)
        if own in source and values.shape == source[own].shape and id(values) not in skipped:
            values.copy_(source[own])


def plain_name(name: str) -> str:
    """Return the name of a weight without the layer in which peft wraps it."""
    return name.replace(".base_layer.", ".")


def has_lm_head(model: PreTrainedModel) -> bool:
    """Return whether a model has the masked language modelling head of its family."""
    is_known = type(model.config) in transformers.MODEL_FOR_MASKED_LM_MAPPING
    return is_known and type(model).__name__ == masked_lm_class(model.config, model.config.model_type)


def masked_lm_class(config: PreTrainedConfig, name: object) -> str:
    """Return the name of the class with a masked language modelling head of a family."""
    mapping = transformers.MODEL_FOR_MASKED_LM_MAPPING
    if type(config) not in mapping:
        raise BadInput(f"{name}: transformers has no masked language model of type {config.model_type}. Give another.")
    found: Any = mapping[type(config)]
    return str((found[0] if isinstance(found, tuple) else found).__name__)
