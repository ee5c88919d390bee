"""What decides the architecture, in Hugging Face's words where it has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from transformers import AutoConfig, PreTrainedConfig


class CrosslingConfig(PreTrainedConfig):
    model_type = "crossling"

    def __init__(
        self,
        vocab_size: int = 250_002,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        max_position_embeddings: int = 512,
        norm: Literal["post", "pre"] = "post",  # LayerNorm after each residual sum (BERT) or before each branch
        final_norm: bool = True,  # with `pre`: one more after the last layer; not where a deeper network was cut off
        absolute_positions: bool = True,
        relative_positions: bool = True,
        gated: bool = True,
        gate_input: Literal["query", "hidden"] = "query",  # what the gate looks at: the projected query, or its source
        relative_buckets: int = 32,
        relative_max_distance: int = 128,
        cross_attention: bool = False,  # VECO's module in every layer, used where a paired sequence is given
        plug_in: bool = False,  # of a model of a task: it reads every sequence with its translation (VECO §3.1)
        dropout: float = 0.1,
        attention_dropout: float = 0.0,  # of the attention weights
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-5,
        universal_layer: int | None = None,  # whose mean is the sentence vector; two thirds up if not said
        output_layer: int | None = None,  # the last layer to compute, for those who want sentence vectors only
        decoder_blocks: Sequence[int] | None = None,  # of a translator: encoder blocks that its decoder is, or began as
        tied: bool = True,  # whether it is them
        pad_token_id: int = 1,
        bos_token_id: int = 0,
        eos_token_id: int = 2,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.max_position_embeddings = max_position_embeddings
        self.norm = norm
        self.final_norm = final_norm
        self.absolute_positions = absolute_positions
        self.relative_positions = relative_positions
        self.gated = gated
        self.gate_input = gate_input
        self.relative_buckets = relative_buckets
        self.relative_max_distance = relative_max_distance
        self.cross_attention = cross_attention
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
    def crossed(self) -> Sequence[int]:
        """The blocks of the encoder that have cross-attention; an untied decoder has it to itself."""
        if not self.cross_attention:
            return ()
        if self.decoder_blocks is None:
            return range(self.num_hidden_layers)
        return self.decoder_blocks if self.tied else ()

    def but(self, **changes: Any) -> CrosslingConfig:
        return CrosslingConfig(**(self.to_dict() | changes))


AutoConfig.register("crossling", CrosslingConfig)
