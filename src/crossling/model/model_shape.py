"""Architecture in a recipe, and the named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from crossling.core.settings import AT_LEAST_0, AT_LEAST_1, FRACTION, POSITIVE
from crossling.model.config import CrosslingConfig
from crossling.model.embedding import TokenTable

# Settings that CrosslingConfig calls by the name of Hugging Face.
CONFIG_NAMES = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "max_length": "max_position_embeddings",
    "absolute": "absolute_positions",
    "relative": "relative_positions",
    "gate": "gated",
    "init": "initializer_range",
    "norm_epsilon": "layer_norm_eps",
}


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Architecture in a recipe. The vocabulary size comes from the shards.

    Example:
        >>> shape = crossling.ModelShape(layers=6, width=384, heads=6, feed_forward=1536)
    """

    layers: Annotated[int, AT_LEAST_1]
    width: Annotated[int, AT_LEAST_1]
    heads: Annotated[int, AT_LEAST_1]
    feed_forward: Annotated[int, AT_LEAST_1]
    generator_layers: Annotated[int, AT_LEAST_1]  # of the same width (XLM-E, Tables 8 and 9)
    max_length: Annotated[int, AT_LEAST_1] = 512
    norm: Literal["post", "pre"] = "post"
    absolute: bool = True  # learned absolute positions
    relative: bool = True  # relative position bias, one table for all layers
    gate: bool = True  # gate on the relative position bias
    gate_input: Literal["query", "hidden"] = "query"  # input of the gate: the projected query or its hidden state
    cross_attention: bool = False  # cross-attention to a paired sequence in every layer (VECO)
    token_table: TokenTable = "shared"  # token tables of generator and discriminator
    dropout: Annotated[float, FRACTION] = 0.1  # of the encoder; the generator has none
    attention_dropout: Annotated[float, FRACTION] = 0.0  # of the encoder's attention weights
    init: Annotated[float, AT_LEAST_0] = 0.02  # standard deviation of the initial weights
    norm_epsilon: Annotated[float, POSITIVE] = 1e-5
    universal_layer: int | None = None  # layer whose mean is the sentence vector [default: two thirds of the layers]

    def to_config(self, vocab_size: int) -> CrosslingConfig:
        """Return the configuration of the encoder for a vocabulary of this size."""
        own = {name: value for name, value in vars(self).items() if name not in ("generator_layers", "token_table")}
        return CrosslingConfig(vocab_size, **{CONFIG_NAMES.get(name, name): value for name, value in own.items()})


SIZES = {
    "tiny": ModelShape(layers=4, width=128, heads=4, feed_forward=512, generator_layers=2),
    # Short runs use learning rates at which post-norm models learn late or never (docs/log.md).
    "small": ModelShape(layers=6, width=384, heads=6, feed_forward=1536, generator_layers=2, norm="pre"),
    "base": ModelShape(layers=12, width=768, heads=12, feed_forward=3072, generator_layers=4),
    "large": ModelShape(layers=24, width=1024, heads=16, feed_forward=4096, generator_layers=6),
    "xl": ModelShape(layers=48, width=1536, heads=24, feed_forward=6144, generator_layers=8),
}
