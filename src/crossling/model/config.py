"""Model configuration for Hugging Face."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from transformers import PreTrainedConfig


class CrosslingConfig(PreTrainedConfig):
    """Configuration of a `CrosslingModel` and of the models with a head on it.

    Names follow Hugging Face where it has them. The class is registered with `AutoConfig` as `crossling`.

    Args:
        vocab_size: Number of vocabulary entries.
        hidden_size: Width of the hidden states.
        num_hidden_layers: Number of Transformer blocks.
        num_attention_heads: Attention heads of a block.
        intermediate_size: Width of the feed-forward layer.
        max_position_embeddings: Longest sequence in tokens, if `absolute_positions`.
        norm: LayerNorm after each residual sum (`post`, as BERT) or before each branch (`pre`).
        final_norm: With `pre`, one more LayerNorm after the last block. False for the first layers of a deeper model.
        absolute_positions: Add learned absolute position embeddings.
        relative_positions: Add a bucketed relative position bias to the attention scores (T5).
        gated: Gate the relative position bias by the query (XLM-E).
        gate_input: Input of the gate: the projected `query`, or the `hidden` state it is projected from.
        plain_gate: Gate by one vector without bias for each of the two gates, as XLM-E writes it.
        relative_buckets: Number of buckets of the relative position bias.
        relative_max_distance: Distance from which on all positions share the last bucket.
        cross_attention: Cross-attention in every block, used if the states of a paired sequence are given (VECO).
        cross_query: Input of the queries of cross-attention: the output of self-attention (`attention`, as decoders),
            or the output of the layer below (`hidden`, VECO's Eq. 6) [default: attention].
        plug_in: For a model with a task head: encode every sequence together with its translation (VECO, section 3.1).
        dropout: Dropout of embeddings and of each residual branch.
        attention_dropout: Dropout of the attention weights.
        initializer_range: Standard deviation of the initial weights.
        layer_norm_eps: Epsilon of the LayerNorms.
        universal_layer: Layer whose mean is the sentence vector [default: two thirds of the layers].
        output_layer: Last layer to compute [default: all].
        decoder_blocks: For an encoder-decoder: the encoder blocks that its decoder is made of.
        tied: For an encoder-decoder: decoder and encoder have the same block weights.
        pad_token_id: Id of the padding token.
        bos_token_id: Id of the token that starts a sequence.
        eos_token_id: Id of the token that ends a sequence.
        hidden_act: Activation of the feed-forward layers: `gelu`, or gated GELU (`geglu`, as ModernBERT).
        biases: Add biases to the linear layers of the blocks and to all LayerNorms. Heads have them in any case.
        first_norm: With `pre`, a LayerNorm before the first attention. ModernBERT has none, because the embeddings are
            normalized.
        position_embedding_type: `rotary` rotates queries and keys by their positions, in place of absolute positions
            and relative bias [default: as these two are set].
        rope_theta: Base of the wavelengths of rotary positions.

    Example:
        >>> from transformers import AutoModel
        >>> config = CrosslingConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
        >>> model = AutoModel.from_config(config)
    """

    model_type = "crossling"

    def __init__(
        self,
        vocab_size: int = 250_002,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        max_position_embeddings: int = 512,
        norm: Literal["post", "pre"] = "post",
        final_norm: bool = True,
        absolute_positions: bool = True,
        relative_positions: bool = True,
        gated: bool = True,
        gate_input: Literal["query", "hidden"] = "query",
        plain_gate: bool | None = None,
        relative_buckets: int = 32,
        relative_max_distance: int = 128,
        cross_attention: bool = False,
        cross_query: Literal["attention", "hidden"] | None = None,
        plug_in: bool = False,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-5,
        universal_layer: int | None = None,
        output_layer: int | None = None,
        decoder_blocks: Sequence[int] | None = None,
        tied: bool = True,
        pad_token_id: int = 1,
        bos_token_id: int = 0,
        eos_token_id: int = 2,
        hidden_act: Literal["gelu", "geglu"] = "gelu",
        biases: bool = True,
        first_norm: bool = True,
        position_embedding_type: Literal["rotary"] | None = None,
        rope_theta: float = 10_000.0,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.max_position_embeddings = max_position_embeddings
        self.hidden_act = hidden_act
        self.biases = biases
        self.norm = norm
        self.first_norm = first_norm
        self.final_norm = final_norm
        self.absolute_positions = absolute_positions and position_embedding_type is None
        self.relative_positions = relative_positions and position_embedding_type is None
        self.position_embedding_type = position_embedding_type
        self.rope_theta = rope_theta
        self.gated = gated
        self.gate_input = gate_input
        self.plain_gate = plain_gate
        self.relative_buckets = relative_buckets
        self.relative_max_distance = relative_max_distance
        self.cross_attention = cross_attention
        self.cross_query = cross_query
        self.plug_in = plug_in
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps
        self.universal_layer = round(num_hidden_layers * 2 / 3) if universal_layer is None else universal_layer
        self.output_layer = output_layer
        self.decoder_blocks = None if decoder_blocks is None else tuple(decoder_blocks)
        self.tied = tied
        super().__init__(**kwargs, pad_token_id=pad_token_id, bos_token_id=bos_token_id, eos_token_id=eos_token_id)  # type: ignore[call-arg]

    @property
    def cross_attention_blocks(self) -> Sequence[int]:
        """Encoder blocks with cross-attention. An untied decoder has its own, and its encoder has none."""
        if not self.cross_attention:
            return ()
        if self.decoder_blocks is None:
            return range(self.num_hidden_layers)
        return self.decoder_blocks if self.tied else ()

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def replace(self, **changes: Any) -> CrosslingConfig:
        """Return a copy with some values changed."""
        return CrosslingConfig(**(self.to_dict() | changes))
