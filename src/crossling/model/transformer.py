"""The encoder, native to Hugging Face.

Layer 0 is the embedding output, everywhere; layer k is the output of block k.
"""
# B sequences, L positions, T positions of the paired sequence, H heads, D width

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput

from crossling.model.attention import Bias, CrossAttention, Seen, SelfAttention, fused, see
from crossling.model.config import CrosslingConfig
from crossling.model.device import runs_kernels
from crossling.model.initial import initialise
from crossling.model.int8 import OpensInt8
from crossling.model.past import Past
from crossling.model.position import RelativePositionTable
from crossling.model.tables import DisentangledEmbedding

kernel: Any
try:
    from crossling.model import block_kernel as kernel
except (ImportError, AttributeError):  # no Triton, or one of another time
    kernel = None


def by_kernel(hidden: Tensor) -> bool:
    """Whether what stands between the maps of a block is computed by kernels."""
    return kernel is not None and hidden.dtype == torch.bfloat16 and runs_kernels(hidden.device)


class Norm(nn.LayerNorm):
    """Of a state, or of its sum with a branch, some of which is dropped.

    Computed in float32, and handed on in the precision that everything else is computed in: under autocast a float32
    state would be kept for the way back and cast by each that reads it."""

    def forward(self, hidden: Tensor, branch: Tensor | None = None, dropout: float = 0.0) -> Tensor:
        dropout = dropout if self.training else 0.0
        if branch is not None:
            if hidden.dtype == branch.dtype and by_kernel(hidden):
                return kernel.added_and_normed(hidden, branch, self.weight, self.bias, self.eps, dropout)
            hidden = hidden + F.dropout(branch, dropout, self.training)
        normed = super().forward(hidden)
        device = hidden.device.type
        return normed.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else normed


class FeedForward(nn.Sequential):
    def __init__(self, config: CrosslingConfig) -> None:
        into = nn.Linear(config.hidden_size, config.intermediate_size)
        super().__init__(into, nn.GELU(), nn.Linear(config.intermediate_size, config.hidden_size))

    def forward(self, hidden: Tensor) -> Tensor:
        into, _, out = self
        # What is wrapped round the first map, an adapter or a hook, would be passed over.
        if type(into) is not nn.Linear or into._forward_hooks or into._forward_pre_hooks or not by_kernel(hidden):
            return super().forward(hidden)
        return out(kernel.gelu(F.linear(hidden, into.weight), into.bias))


class Embeddings(nn.Module):
    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.tokens: nn.Embedding | DisentangledEmbedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = (
            nn.Embedding(config.max_position_embeddings, config.hidden_size) if config.absolute_positions else None
        )
        self.norm = Norm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids_BL: Tensor, segments_BL: Tensor | None = None, past: int = 0) -> Tensor:
        """`past` is how many tokens came before these."""
        hidden_BLD = self.tokens(ids_BL)
        if self.positions is not None:
            hidden_BLD = hidden_BLD + (
                self.positions.weight[past : past + ids_BL.shape[1]]
                if segments_BL is None
                else self.positions(places(segments_BL))
            )
        return self.dropout(self.norm(hidden_BLD))


class Block(GradientCheckpointingLayer):
    """Self-attention, cross-attention where there is a paired sequence, feed-forward; each with its norm."""

    def __init__(self, config: CrosslingConfig, crossed: bool | None = None) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_norm = Norm(config.hidden_size, eps=config.layer_norm_eps)
        self.crossed = config.cross_attention if crossed is None else crossed
        if self.crossed:
            self.cross = CrossAttention(config)
            self.cross_norm = Norm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = Norm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def forward(
        self,
        hidden: Tensor,
        bias: Bias | None,
        seen: Seen | None,
        paired_BTD: Tensor | None = None,
        paired_seen: Seen | None = None,
        past: Past | None = None,  # of a decoder: what it has read before
    ) -> Tensor:
        if self.pre_norm:
            hidden = hidden + self.dropout(self.attention(self.attention_norm(hidden), bias, seen, past))
            if paired_BTD is not None:
                hidden = hidden + self.dropout(self.cross(self.cross_norm(hidden), paired_BTD, paired_seen, past))
            return hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
        hidden = self.attention_norm(hidden, self.attention(hidden, bias, seen, past), self.dropout.p)
        if paired_BTD is not None:
            hidden = self.cross_norm(hidden, self.cross(hidden, paired_BTD, paired_seen, past), self.dropout.p)
        return self.feed_forward_norm(hidden, self.feed_forward(hidden), self.dropout.p)


class CrosslingPreTrainedModel(OpensInt8, PreTrainedModel):
    config: CrosslingConfig
    config_class = CrosslingConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block"]  # noqa: RUF012 - as Hugging Face names it

    def _init_weights(self, module: nn.Module) -> None:
        initialise(module, self.config.initializer_range)


class CrosslingModel(CrosslingPreTrainedModel):
    """A Transformer encoder with gated relative position bias."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.relative = (
            RelativePositionTable(config.relative_buckets, config.relative_max_distance, config.num_attention_heads)
            if config.relative_positions
            else None
        )
        self.blocks: Sequence[Block] = nn.ModuleList(  # type: ignore[assignment]
            Block(config, number in config.crossed) for number in range(config.num_hidden_layers)
        )
        # Pre-norm leaves the sum of all branches unnormalised; the heads need one last norm.
        normed = config.norm == "pre" and config.final_norm
        self.final_norm = Norm(config.hidden_size, eps=config.layer_norm_eps) if normed else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings.tokens = value  # type: ignore[assignment]

    def cross_parameters(self) -> Iterator[nn.Parameter]:
        """Those of the cross-attention modules alone."""
        for block in self.blocks:
            if block.crossed:
                yield from block.cross.parameters()
                yield from block.cross_norm.parameters()

    def check_length(self, tokens: int) -> None:
        most = self.config.max_position_embeddings
        if self.config.absolute_positions and tokens > most:
            raise ValueError(f"{tokens} tokens, and the model has {most} positions; cut the text")

    def bias(self, tokens: int, kernel_reads: bool, queries: int | None = None) -> Bias | None:
        """Of a sequence of so many, and of its last so many queries if not of all, for the attention kernel or not."""
        if self.relative is None:
            return None
        return Bias.of(self.relative(tokens), self.relative.far, kernel_reads, queries)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,  # packed rows: which sequence a token belongs to; sequences do not meet
        encoder_hidden_states: Tensor | None = None,  # states of the paired sequence: cross-attention is plugged in
        encoder_attention_mask: Tensor | None = None,
        encoder_segments: Tensor | None = None,  # in packed rows a token sees the pair of its own sequence
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        layers: int | None = None,  # stop after this many blocks; what lies above is not computed
        **_: Any,
    ) -> BaseModelOutput | tuple[Any, ...]:
        if encoder_hidden_states is not None and not all(block.crossed for block in self.blocks):
            raise ValueError("this model has no cross-attention to plug in")
        self.check_length(input_ids.shape[1])
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden_BLD = self.embeddings(input_ids, segments)
        # The same for all layers, so made once.
        width = self.config.hidden_size // self.config.num_attention_heads
        dtype, kernel_reads = hidden_BLD.dtype, fused(hidden_BLD.device, hidden_BLD.dtype, width)
        bias = self.bias(input_ids.shape[1], kernel_reads)
        seen = see(input_ids.shape, segments, segments, attention_mask, dtype, kernel_reads)
        paired_seen = see(input_ids.shape, segments, encoder_segments, encoder_attention_mask, dtype, kernel_reads)
        states = [hidden_BLD]
        for block in self.blocks[: self.config.output_layer if layers is None else layers]:
            hidden_BLD = block(hidden_BLD, bias, seen, encoder_hidden_states, paired_seen)
            states.append(hidden_BLD)
        if self.final_norm is not None and len(states) > len(self.blocks):
            hidden_BLD = self.final_norm(hidden_BLD)
            states[-1] = hidden_BLD
        output = BaseModelOutput(
            last_hidden_state=hidden_BLD,
            hidden_states=tuple(states) if output_hidden_states else None,
        )
        return output.to_tuple() if return_dict is False else output


def places(segments_BL: Tensor) -> Tensor:
    """The place of each token in its own sequence."""
    place_L = torch.arange(segments_BL.shape[1], device=segments_BL.device)
    begins_BL = F.pad(segments_BL[:, 1:] != segments_BL[:, :-1], (1, 0), value=True)
    return place_L - torch.where(begins_BL, place_L, 0).cummax(1).values


AutoModel.register(CrosslingConfig, CrosslingModel)
