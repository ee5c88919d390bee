"""The architecture of a recipe: what it decides of the network. The vocabulary is decided by the shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crossling.model.config import CrosslingConfig
from crossling.model.tables import TokenTable


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    feed_forward: int
    generator_layers: int  # of the same width (XLM-E, Tables 8 and 9)
    max_length: int = 512
    norm: Literal["post", "pre"] = "post"
    absolute: bool = True  # learned absolute positions
    relative: bool = True  # relative position bias, shared table
    gate: bool = True  # gate on the relative bias
    gate_input: Literal["query", "hidden"] = "query"  # what it looks at: the projected query, or its source
    cross_attention: bool = False  # a module in every layer that reads a paired sequence (VECO)
    token_table: TokenTable = "shared"  # how generator and discriminator hold theirs
    dropout: float = 0.1  # of the encoder; the generator has none
    attention_dropout: float = 0.0  # of its attention weights
    init: float = 0.02  # standard deviation of the initial weights
    norm_epsilon: float = 1e-5
    universal_layer: int | None = None  # the layer whose mean is the sentence vector; two thirds up if not said

    def config(self, vocabulary: int) -> CrosslingConfig:
        return CrosslingConfig(
            vocab_size=vocabulary,
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.feed_forward,
            max_position_embeddings=self.max_length,
            norm=self.norm,
            absolute_positions=self.absolute,
            relative_positions=self.relative,
            gated=self.gate,
            gate_input=self.gate_input,
            cross_attention=self.cross_attention,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            initializer_range=self.init,
            layer_norm_eps=self.norm_epsilon,
            universal_layer=self.universal_layer,
        )


SIZES = {
    "tiny": Shape(layers=4, width=128, heads=4, feed_forward=512, generator_layers=2),
    # Trained in minutes, at a rate at which post-normalisation learns late or never (docs/log.md).
    "small": Shape(layers=6, width=384, heads=6, feed_forward=1536, generator_layers=2, norm="pre"),
    "base": Shape(layers=12, width=768, heads=12, feed_forward=3072, generator_layers=4),
    "large": Shape(layers=24, width=1024, heads=16, feed_forward=4096, generator_layers=6),
    "xl": Shape(layers=48, width=1536, heads=24, feed_forward=6144, generator_layers=8),
}
