"""The encoder, native to Hugging Face, and the two heads that stand on it.

Layer 0 is the embedding output, everywhere; layer k is the output of block k.
"""
# B sequences, H heads, L positions, D width, K width of a head, V vocabulary, M masked positions

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from crossling.model.position import Gate, RelativePositionTable


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
        absolute_positions: bool = True,
        relative_positions: bool = True,
        gated: bool = True,
        relative_buckets: int = 32,
        relative_max_distance: int = 128,
        dropout: float = 0.1,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-5,
        universal_layer: int | None = None,  # whose mean is the sentence vector; two thirds up if not said
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
        self.absolute_positions = absolute_positions
        self.relative_positions = relative_positions
        self.gated = gated
        self.relative_buckets = relative_buckets
        self.relative_max_distance = relative_max_distance
        self.dropout = dropout
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps
        self.universal_layer = round(num_hidden_layers * 2 / 3) if universal_layer is None else universal_layer
        super().__init__(**kwargs, pad_token_id=pad_token_id, bos_token_id=bos_token_id, eos_token_id=eos_token_id)  # type: ignore[call-arg]


class Embeddings(nn.Module):
    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = (
            nn.Embedding(config.max_position_embeddings, config.hidden_size) if config.absolute_positions else None
        )
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids_BL: Tensor, segments_BL: Tensor | None = None) -> Tensor:
        hidden_BLD = self.tokens(ids_BL)
        if self.positions is not None:
            hidden_BLD = hidden_BLD + (
                self.positions.weight[: ids_BL.shape[1]] if segments_BL is None else self.positions(places(segments_BL))
            )
        return self.dropout(self.norm(hidden_BLD))


class SelfAttention(nn.Module):
    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)
        gated = config.relative_positions and config.gated
        self.gate = Gate(config.hidden_size // config.num_attention_heads, self.heads) if gated else None
        self.dropout = config.dropout

    def forward(self, hidden_BLD: Tensor, bias_HLL: Tensor | None, hidden_from_B1LL: Tensor | None) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(hidden_BLD).chunk(3, dim=-1)
        )
        mask = hidden_from_B1LL
        if bias_HLL is not None:
            bias = bias_HLL if self.gate is None else self.gate(query)[..., None] * bias_HLL
            mask = (bias if hidden_from_B1LL is None else bias + hidden_from_B1LL).to(query.dtype)
            mask = mask.expand(query.shape[0], -1, -1, -1)
        dropout = self.dropout if self.training else 0.0
        mixed_BHLK = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return self.out(mixed_BHLK.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.hidden_size, config.intermediate_size),
            nn.GELU(),
            nn.Linear(config.intermediate_size, config.hidden_size),
        )
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def forward(self, hidden: Tensor, bias_HLL: Tensor | None, hidden_from_B1LL: Tensor | None) -> Tensor:
        if self.pre_norm:
            hidden = hidden + self.dropout(self.attention(self.attention_norm(hidden), bias_HLL, hidden_from_B1LL))
            return hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
        hidden = self.attention_norm(hidden + self.dropout(self.attention(hidden, bias_HLL, hidden_from_B1LL)))
        return self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))


class CrosslingModel(PreTrainedModel):
    """A Transformer encoder with gated relative position bias."""

    config: CrosslingConfig
    config_class = CrosslingConfig
    base_model_prefix = "encoder"

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.relative = (
            RelativePositionTable(config.relative_buckets, config.relative_max_distance, config.num_attention_heads)
            if config.relative_positions
            else None
        )
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        # Pre-norm leaves the sum of all branches unnormalised; the heads need one last norm.
        self.final_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if config.norm == "pre" else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings.tokens = value  # type: ignore[assignment]

    def _init_weights(self, module: nn.Module) -> None:
        initialise(module, self.config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,  # packed rows: which sequence a token belongs to; sequences do not meet
        output_hidden_states: bool = False,
        layers: int | None = None,  # stop after this many blocks; what lies above is not computed
        **_: Any,
    ) -> BaseModelOutput:
        hidden_BLD = self.embeddings(input_ids, segments)
        bias_HLL = self.relative(input_ids.shape[1]) if self.relative is not None else None
        hidden_from_B1LL = None
        if segments is not None:
            hidden_from_B1LL = _hidden(segments[:, None, :, None] != segments[:, None, None, :], hidden_BLD.dtype)
        elif attention_mask is not None:
            hidden_from_B1LL = _hidden(~attention_mask.bool()[:, None, None, :], hidden_BLD.dtype)
        states = [hidden_BLD]
        for block in self.blocks[:layers]:
            hidden_BLD = block(hidden_BLD, bias_HLL, hidden_from_B1LL)
            states.append(hidden_BLD)
        if self.final_norm is not None and len(states) > len(self.blocks):
            hidden_BLD = self.final_norm(hidden_BLD)
            states[-1] = hidden_BLD
        return BaseModelOutput(
            last_hidden_state=hidden_BLD, hidden_states=tuple(states) if output_hidden_states else None
        )


def places(segments_BL: Tensor) -> Tensor:
    """The place of each token in its own sequence."""
    place_L = torch.arange(segments_BL.shape[1], device=segments_BL.device)
    begins_BL = F.pad(segments_BL[:, 1:] != segments_BL[:, :-1], (1, 0), value=True)
    return place_L - torch.where(begins_BL, place_L, 0).cummax(1).values


def _hidden(unseen: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores of keys that a query must not see."""
    zeros = torch.zeros(unseen.shape, dtype=dtype, device=unseen.device)
    return zeros.masked_fill(unseen, torch.finfo(torch.bfloat16).min / 2)


class LMHead(nn.Module):
    """Dense, GELU, LayerNorm, then the token table it is handed, with a free bias."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias_V = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(lambda module: initialise(module, config.initializer_range))

    def forward(self, hidden_MD: Tensor, table_VD: Tensor) -> Tensor:
        return F.linear(self.norm(F.gelu(self.dense(hidden_MD))), table_VD, self.bias_V)


class RTDHead(nn.Module):
    """ELECTRA's head: dense, GELU, one number per token; positive means replaced."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.score = nn.Linear(config.hidden_size, 1)
        self.apply(lambda module: initialise(module, config.initializer_range))

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        return self.score(F.gelu(self.dense(hidden_BLD))).squeeze(-1)


@torch.no_grad()
def initialise(module: nn.Module, deviation: float) -> None:
    """Normal weights, zero biases, unit norms; the position table by Xavier, as its authors' released code does."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=deviation)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, RelativePositionTable):
        nn.init.xavier_normal_(module.weight_NH)
    elif isinstance(module, Gate):
        nn.init.ones_(module.scale_H)


AutoConfig.register("crossling", CrosslingConfig)
AutoModel.register(CrosslingConfig, CrosslingModel)
