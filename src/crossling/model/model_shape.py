"""Architecture in a recipe, and the named sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from crossling.core.settings import AT_LEAST_0, FRACTION, POSITIVE, Bounds

if TYPE_CHECKING:
    from crossling.model.config import CrosslingConfig

TokenTable = Literal["shared", "gdes", "untied"]  # of generator and discriminator
Architecture = Literal["crossling", "native"]
RECIPE_ONLY = ("generator_layers", "token_table", "architecture", "native", "lora")  # no settings of CrosslingConfig
LATER_SETTINGS = ("activation", "biases", "first_norm", "position", "rope_theta")  # None in earlier recipes

# Settings that CrosslingConfig calls by the name of Hugging Face.
CONFIG_NAMES = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "max_length": "max_position_embeddings",
    "activation": "hidden_act",
    "position": "position_embedding_type",
    "absolute": "absolute_positions",
    "relative": "relative_positions",
    "gate": "gated",
    "init": "initializer_range",
    "norm_epsilon": "layer_norm_eps",
}

# A mistyped number must not allocate terabytes of memory.
LAYERS = Bounds(at_least=1, at_most=1_000)
WIDTH = Bounds(at_least=1, at_most=1_000_000)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Architecture in a recipe. The vocabulary size comes from the shards.

    Args:
        layers: Layers of the encoder.
        width: Hidden size.
        heads: Attention heads of each layer.
        feed_forward: Inner size of the feed-forward layers.
        activation: Activation of the feed-forward layers: `gelu` or gated GELU (`geglu`, as ModernBERT), which has 1.5
            times the weights at the same inner size. [default: gelu]
        biases: Add biases to the linear layers of the blocks and to LayerNorms. Heads have them in any case. [default:
            true]
        generator_layers: Layers of the generator of replaced token detection. It has the width of the encoder.
        max_length: Longest sequence in tokens.
        norm: LayerNorm after each residual sum (`post`, as in BERT) or before each branch (`pre`).
        first_norm: With `norm=pre`, a LayerNorm before the first attention. ModernBERT has none. [default: true]
        position: `rotary` rotates queries and keys by their positions (RoPE), in place of `absolute` and `relative`.
            [default: none]
        rope_theta: Base of the wavelengths of rotary positions. [default: 10,000]
        absolute: Add learned absolute position embeddings.
        relative: Add a relative position bias to the attention scores. All layers have one table.
        gate: Gate the relative position bias by the content of the token (XLM-E).
        gate_input: Input of the gate: the projected query or the hidden state.
        plain_gate: Gate by one vector without bias for each of the two gates, as XLM-E writes it [default: sums of four
            vectors with biases, as in WavLM].
        cross_attention: Add cross-attention to a paired sequence in every layer (VECO).
        cross_query: Input of the queries of cross-attention: the output of self-attention (`attention`, as decoders),
            or the output of the layer below (`hidden`, VECO's Eq. 6). [default: attention]
        token_table: Token embeddings of generator and discriminator: one table (`shared`), disentangled (`gdes`,
            DeBERTaV3), or one table each (`untied`).
        dropout: Dropout of the encoder. The generator has none.
        attention_dropout: Dropout of the encoder's attention weights.
        init: Standard deviation of the initial weights.
        norm_epsilon: Epsilon of LayerNorm.
        universal_layer: Layer of the sentence vectors and of the contrastive loss. [default: two thirds of the layers]
        architecture: With `--init`: convert the model to crossling's architecture (`crossling`), or train it in its own
            (`native`). [default: `crossling` where the conversion is exact]
        native: Configuration of the Hugging Face encoder of a native run, as JSON. The initialization sets it.
        lora: Train LoRA matrices of this rank in place of the weights of the layers, in a native run. Needs the extra
            `lora`.

    Example:
        >>> shape = crossling.ModelShape(layers=6, width=384, heads=6, feed_forward=1536)
    """

    layers: Annotated[int, LAYERS]
    width: Annotated[int, WIDTH]
    heads: Annotated[int, WIDTH]
    feed_forward: Annotated[int, WIDTH]
    generator_layers: Annotated[int, LAYERS]  # XLM-E, Tables 8 and 9
    max_length: Annotated[int, WIDTH] = 512
    activation: Literal["gelu", "geglu"] | None = None  # None here and below, so that earlier runs resume
    biases: bool | None = None
    norm: Literal["post", "pre"] = "post"
    first_norm: bool | None = None
    position: Literal["rotary"] | None = None
    rope_theta: Annotated[float, POSITIVE] | None = None
    absolute: bool = True
    relative: bool = True
    gate: bool = True
    gate_input: Literal["query", "hidden"] = "query"
    plain_gate: bool | None = None
    cross_attention: bool = False
    cross_query: Literal["attention", "hidden"] | None = None
    token_table: TokenTable = "shared"
    dropout: Annotated[float, FRACTION] = 0.1
    attention_dropout: Annotated[float, FRACTION] = 0.0
    init: Annotated[float, AT_LEAST_0] = 0.02
    norm_epsilon: Annotated[float, POSITIVE] = 1e-5
    universal_layer: int | None = None
    architecture: Architecture | None = None
    native: str | None = None
    lora: Annotated[int | None, Bounds(at_least=1)] = None

    def to_config(self, vocab_size: int) -> CrosslingConfig:
        """Return the configuration of the encoder for a vocabulary of this size."""
        from crossling.model.config import CrosslingConfig

        own = {name: value for name, value in vars(self).items() if name not in RECIPE_ONLY and value is not None}
        return CrosslingConfig(vocab_size, **{CONFIG_NAMES.get(name, name): value for name, value in own.items()})

    def problems(self) -> Iterator[str]:
        """Yield contradictions of the settings, each as a message."""
        if self.architecture == "native" and self.native is None:
            yield "model.architecture=native keeps the architecture of a Hugging Face encoder. Give one as init."
        if self.lora and self.native is None:
            yield "model.lora is for Hugging Face encoders in their own architecture. Omit it."
        if self.cross_query and not self.cross_attention:
            yield "model.cross_query is that of cross-attention. Set model.cross_attention=true, or omit it."
        if self.rope_theta and self.position != "rotary":
            yield "model.rope_theta is that of rotary positions. Set model.position=rotary, or omit it."
        if self.position == "rotary" and self.width // self.heads % 2:
            yield f"heads have a width of {self.width // self.heads}, odd for rotary positions. Set other model.heads."
        if self.first_norm is False and self.norm != "pre":
            yield "model.first_norm=false is for pre-norm models. Set model.norm=pre, or omit it."
        if self.plain_gate and not (self.relative and self.gate and self.position is None):
            yield "model.plain_gate is that of the gate. Set model.relative=true and model.gate=true, or omit it."
        if self.width % self.heads:
            yield f"model.width is {self.width}, expected a multiple of model.heads = {self.heads}."


SIZES = {
    "tiny": ModelShape(layers=4, width=128, heads=4, feed_forward=512, generator_layers=2),
    # Short runs use learning rates at which post-norm models learn late or never (docs/research/log.md).
    "small": ModelShape(layers=6, width=384, heads=6, feed_forward=1536, generator_layers=2, norm="pre"),
    "base": ModelShape(layers=12, width=768, heads=12, feed_forward=3072, generator_layers=4),
    "large": ModelShape(layers=24, width=1024, heads=16, feed_forward=4096, generator_layers=6),
    "xl": ModelShape(layers=48, width=1536, heads=24, feed_forward=6144, generator_layers=8),
}
