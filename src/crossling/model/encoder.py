"""Transformer encoder: embeddings, blocks and the network of them.

Layer 0 is the output of the embeddings. Layer k is the output of block k.
"""
# B sequences, L positions, T positions of the paired sequence, M selected positions, H heads, D width

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from transformers.modeling_outputs import BaseModelOutputWithCrossAttentions

from crossling.model.attention import (
    AttentionMask,
    AttentionRecord,
    CrossAttention,
    KVCache,
    PositionBias,
    SelfAttention,
    make_attention_mask,
    uses_attention_kernel,
)
from crossling.model.config import CrosslingConfig
from crossling.model.embedding import DisentangledEmbedding
from crossling.model.fp8 import Fp8Linear
from crossling.model.gather import gather_positions
from crossling.model.kernels.device import supports_kernels
from crossling.model.position import RelativePositionTable, RotaryAngles, compute_position_ids

kernel: Any = None
if torch.cuda.is_available() or "TRITON_INTERPRET" in os.environ:  # elsewhere Triton takes 80 MB for nothing
    with suppress(ImportError, AttributeError):  # Triton is missing or of another version
        from crossling.model.kernels import residual_gelu as kernel


def uses_block_kernels(hidden: Tensor) -> bool:
    """Return True if kernels compute the fused residual-add, LayerNorm and GELU of a block."""
    return kernel is not None and hidden.dtype == torch.bfloat16 and supports_kernels(hidden.device)


class ResidualLayerNorm(nn.LayerNorm):
    """LayerNorm of a hidden state, or of its sum with a residual branch to which dropout is applied.

    It is computed in float32 and returned in the precision of autocast. A float32 output would be saved for the
    backward pass and cast by each layer that reads it.
    """

    def forward(self, hidden: Tensor, branch: Tensor | None = None, dropout: float = 0.0) -> Tensor:
        dropout = dropout if self.training else 0.0
        if branch is not None:
            if self.bias is not None and hidden.dtype == branch.dtype and uses_block_kernels(hidden):
                return kernel.add_and_norm(hidden, branch, self.weight, self.bias, epsilon=self.eps, dropout=dropout)
            hidden = hidden + F.dropout(branch, dropout, self.training)
        normed = super().forward(hidden)
        device = hidden.device.type
        return normed.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else normed


def make_norm(config: CrosslingConfig) -> ResidualLayerNorm:
    """Return a new LayerNorm of the hidden state."""
    return ResidualLayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.biases)


class FeedForward(nn.Sequential):
    """Feed-forward layer with GELU."""

    def __init__(self, config: CrosslingConfig) -> None:
        into = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.biases)
        out = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.biases)
        super().__init__(into, nn.GELU(), out)

    def forward(self, hidden: Tensor) -> Tensor:
        into, _, out = self
        # The kernel reads the weights of the first linear layer, and would bypass an adapter or a hook on it.
        has_hooks = into._forward_hooks or into._forward_pre_hooks
        has_kernel = type(into) in (nn.Linear, Fp8Linear) and into.bias is not None and uses_block_kernels(hidden)
        if has_hooks or not has_kernel:
            return super().forward(hidden)
        assert isinstance(into, nn.Linear)
        product = into.multiply(hidden) if isinstance(into, Fp8Linear) else F.linear(hidden, into.weight)
        return out(kernel.gelu(product, into.bias))


class GatedFeedForward(nn.Module):
    """Feed-forward layer with gated GELU: out(GELU(u) v), where u and v are the halves of one linear layer."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.into = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=config.biases)
        self.out = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.biases)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the output, [..., D]."""
        value, gate = self.into(hidden).chunk(2, dim=-1)
        output: Tensor = self.out(F.gelu(value) * gate)
        return output


class Embeddings(nn.Module):
    """Sum of token and absolute position embeddings, normalized."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.tokens: nn.Embedding | DisentangledEmbedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = (
            nn.Embedding(config.max_position_embeddings, config.hidden_size) if config.absolute_positions else None
        )
        self.norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids_BL: Tensor, segments_BL: Tensor | None = None, past: int = 0) -> Tensor:
        """Embed tokens. `past` is the number of tokens before them."""
        hidden_BLD = self.tokens(ids_BL)
        if self.positions is not None:
            if segments_BL is None:
                hidden_BLD = hidden_BLD + self.positions.weight[past : past + ids_BL.shape[1]]
            else:
                hidden_BLD = hidden_BLD + self.positions(compute_position_ids(segments_BL))
        return self.dropout(self.norm(hidden_BLD))


class Block(nn.Module):
    """Self-attention, cross-attention if a paired sequence is given, and feed-forward, each with its LayerNorm.

    With gradient checkpointing the backward pass recomputes the block. If it is compiled, the outputs of the kernels
    for attention and residual norms are stored: to recompute them would take longer than other outputs of their size.
    """

    gradient_checkpointing = False  # `gradient_checkpointing_enable` of the model sets it

    def __init__(
        self, config: CrosslingConfig, has_cross_attention: bool | None = None, *, is_first: bool = False
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        has_norm = config.first_norm or not is_first
        self.attention_norm: nn.Module = make_norm(config) if has_norm else nn.Identity()
        self.has_cross_attention = config.cross_attention if has_cross_attention is None else has_cross_attention
        if self.has_cross_attention:
            self.cross = CrossAttention(config)
            self.cross_norm = make_norm(config)
        self.feed_forward = (GatedFeedForward if config.hidden_act == "geglu" else FeedForward)(config)
        self.feed_forward_norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.is_pre_norm = config.norm == "pre"
        self.cross_query_is_hidden = config.cross_query == "hidden"

    def forward(
        self,
        hidden: Tensor,
        position: PositionBias | RotaryAngles | None,
        mask: AttentionMask | None,
        paired_BTD: Tensor | None = None,
        paired_mask: AttentionMask | None = None,
        cache: KVCache | None = None,
        position_M: Tensor | None = None,
        record: AttentionRecord | None = None,
    ) -> Tensor:
        """Return the output of the block.

        Args:
            hidden: Output of the block below, [B, L, D].
            position: Relative position bias, or the angles of rotary positions.
            mask: Keys that each query attends to.
            paired_BTD: States of the paired sequence, which cross-attention reads.
            paired_mask: Positions of the paired sequence that each query attends to.
            cache: Keys and values of earlier tokens, in a decoder.
            position_M: Positions of the flattened rows to compute, so that the output is [M, D] [default: all].
            record: The attention weights are appended to it. They are not recomputed in the backward pass.
        """
        inputs = hidden, position, mask, paired_BTD, paired_mask, cache, position_M
        if record is not None or not (self.gradient_checkpointing and self.training and torch.is_grad_enabled()):
            return self._compute(*inputs, record)
        # Two calls: torch.compile cannot trace a `context_fn` that is chosen by a condition.
        if torch.compiler.is_compiling() and uses_block_kernels(hidden):
            return checkpoint(self._compute, *inputs, use_reentrant=False, context_fn=_selective_contexts)
        return checkpoint(self._compute, *inputs, use_reentrant=False)

    def _compute(
        self,
        hidden: Tensor,
        position: PositionBias | RotaryAngles | None,
        mask: AttentionMask | None,
        paired_BTD: Tensor | None,
        paired_mask: AttentionMask | None,
        cache: KVCache | None,
        position_M: Tensor | None,
        record: AttentionRecord | None = None,
    ) -> Tensor:
        own, cross = (None, None) if record is None else record
        below = hidden
        own_M = position_M if paired_BTD is None else None  # cross-attention has queries at all positions
        branch = self.attention(self._before(self.attention_norm, hidden), position, mask, cache, own_M, own)
        hidden = self._after(self.attention_norm, _select(hidden, own_M), branch)
        if paired_BTD is not None:
            query = self._before(self.cross_norm, below if self.cross_query_is_hidden else hidden)
            branch = self.cross(query, paired_BTD, paired_mask, cache, position_M, cross)
            hidden = self._after(self.cross_norm, _select(hidden, position_M), branch)
        branch = self.feed_forward(self._before(self.feed_forward_norm, hidden))
        return self._after(self.feed_forward_norm, hidden, branch)

    def _before(self, norm: nn.Module, hidden: Tensor) -> Tensor:
        """Return the input of a residual branch."""
        output: Tensor = norm(hidden) if self.is_pre_norm else hidden
        return output

    def _after(self, norm: nn.Module, hidden: Tensor, branch: Tensor) -> Tensor:
        """Return the sum of a hidden state and its residual branch, normalized with post-norm."""
        output: Tensor = hidden + self.dropout(branch) if self.is_pre_norm else norm(hidden, branch, self.dropout.p)
        return output


def _select(hidden: Tensor, position_M: Tensor | None) -> Tensor:
    return hidden if position_M is None else gather_positions(hidden, position_M)


# Operators whose outputs selective checkpointing stores. Random numbers would differ if they were recomputed.
STORED_OUTPUTS = ("crossling::attention", "crossling::residual_norm", "aten::randint", "aten::native_dropout")


def _choose_stored(_: Any, operator: Any, *_args: Any, **_options: Any) -> CheckpointPolicy:
    """Return whether gradient checkpointing stores the output of an operator."""
    is_stored = operator.name().split(".")[0] in STORED_OUTPUTS
    return CheckpointPolicy.MUST_SAVE if is_stored else CheckpointPolicy.PREFER_RECOMPUTE


_selective_contexts = partial(create_selective_checkpoint_contexts, _choose_stored)


class EncoderNetwork(nn.Module):
    """Transformer encoder, without a head.

    `CrosslingModel` is this network as a model of `transformers`. Commands that only run an encoder use the network
    alone: the import of `PreTrainedModel` takes as long as everything else that they import.

    Args:
        config: Configuration. The weights have no useful values yet.
    """

    config: CrosslingConfig

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        self.config = config
        self._build(config)

    def _build(self, config: CrosslingConfig) -> None:
        """Create the modules."""
        self.embeddings = Embeddings(config)
        distances = config.relative_buckets, config.relative_max_distance, config.num_attention_heads
        self.relative = RelativePositionTable(*distances) if config.relative_positions else None
        self.blocks: Sequence[Block] = nn.ModuleList(  # type: ignore[assignment]
            Block(config, number in config.cross_attention_blocks, is_first=number == 0)
            for number in range(config.num_hidden_layers)
        )
        # Pre-norm leaves the sum of all branches without a norm. The heads need one last norm.
        has_norm = config.norm == "pre" and config.final_norm
        self.final_norm = make_norm(config) if has_norm else None

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return next(self.parameters()).dtype

    def get_input_embeddings(self) -> nn.Module:
        """Return the token table."""
        return self.embeddings.tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token table."""
        self.embeddings.tokens = value  # type: ignore[assignment]

    def cross_attention_parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters of the cross-attention modules and their norms."""
        for block in self.blocks:
            if block.has_cross_attention:
                yield from block.cross.parameters()
                yield from block.cross_norm.parameters()

    def enable_fp8(self) -> None:
        """Let the linear layers of all blocks multiply in fp8 while they are trained. Parameters keep their names.

        Square layers stay as they are: to round their operands takes as long as fp8 saves.
        """
        kinds = (SelfAttention, CrossAttention, FeedForward, GatedFeedForward)
        for part in (part for part in self.modules() if isinstance(part, kinds)):
            for name, layer in [*part.named_children()]:
                if type(layer) is nn.Linear and layer.in_features != layer.out_features:
                    setattr(part, name, Fp8Linear.from_linear(layer))

    def check_length(self, tokens: int) -> None:
        """Raise ValueError if a sequence of so many tokens is too long for the absolute positions."""
        longest = self.config.max_position_embeddings
        if self.config.absolute_positions and tokens > longest:
            raise ValueError(f"sequence of {tokens} tokens: the model has {longest} positions. Truncate the text.")

    def position_bias(self, length: int, for_kernel: bool, queries: int | None = None) -> PositionBias | None:
        """Return the bias of a sequence of `length` tokens, or of its last `queries`."""
        if self.relative is None:
            return None
        return PositionBias.create(self.relative(length), self.relative.saturation_distance, for_kernel, queries)

    def attention_positions(
        self, length: int, for_kernel: bool, segments_BL: Tensor | None = None, queries: int | None = None
    ) -> PositionBias | RotaryAngles | None:
        """Return the position bias or the angles of a sequence, of its last `queries`, or of packed rows."""
        if self.config.position_embedding_type is None:
            return self.position_bias(length, for_kernel, queries)
        if segments_BL is None:
            first = 0 if queries is None else length - queries
            position_BL = torch.arange(first, length, device=self.device)[None]
        else:
            position_BL = compute_position_ids(segments_BL)
        return RotaryAngles.create(position_BL, self.config.head_width, self.config.rope_theta)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        encoder_segments: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        layers: int | None = None,
        positions: Tensor | None = None,
        output_attentions: bool | None = None,
        is_causal: bool = False,
        **_: Any,
    ) -> BaseModelOutputWithCrossAttentions | tuple[Any, ...]:
        """Encode a batch of sequences.

        Args:
            input_ids: Token ids, [B, L].
            attention_mask: 1 for tokens and 0 for padding, [B, L].
            segments: For packed rows: number of the sequence each token belongs to, [B, L]. 0 is padding. A token
                attends to its own sequence only.
            encoder_hidden_states: States of the paired sequence, [B, T, D]. They switch cross-attention on.
            encoder_attention_mask: 1 for tokens and 0 for padding of the paired sequence, [B, T].
            encoder_segments: For packed rows: number of the sequence each paired state belongs to, [B, T].
            output_hidden_states: Return the states of all layers too.
            return_dict: False returns a tuple.
            layers: Number of blocks to compute [default: `config.output_layer`, or all].
            positions: Distinct positions of the flattened rows at which the last layer is computed, [M] [default: all].
                The largest part of that layer is not computed elsewhere.
            output_attentions: Return the attention weights too, [B, H, L, T] for each layer: of self-attention as
                `attentions` and of cross-attention as `cross_attentions`. Attention is then computed in plain torch.
            is_causal: Each token attends to itself and to earlier ones only, as in a decoder.

        Returns:
            The states of the last computed layer, [B, L, D] or [M, D], and states and weights of all if requested.

        Raises:
            ValueError: The sequence is too long, or the model has no cross-attention.
        """
        if encoder_hidden_states is not None and not all(block.has_cross_attention for block in self.blocks):
            raise ValueError("encoder_hidden_states: the model has no cross-attention. Omit them.")
        self.check_length(input_ids.shape[1])
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        record = AttentionRecord([], []) if output_attentions else None
        hidden_BLD = self.embeddings(input_ids, segments)
        # Positions and masks are the same in all layers.
        dtype, shape = hidden_BLD.dtype, input_ids.shape
        for_kernel = record is None and uses_attention_kernel(hidden_BLD.device, dtype, self.config.head_width)
        has_kernel = for_kernel and not is_causal
        position = self.attention_positions(shape[1], has_kernel, segments)
        make_mask = partial(make_attention_mask, shape, segments, dtype=dtype)
        mask = make_mask(segments, attention_mask, for_kernel=has_kernel, is_causal=is_causal)
        paired_mask = make_mask(encoder_segments, encoder_attention_mask, for_kernel=for_kernel)
        blocks = self.blocks[: self.config.output_layer if layers is None else layers]
        # transformers declares its outputs as FloatTensor
        states: list[Any] = [hidden_BLD if blocks else _select(hidden_BLD, positions)]
        for number, block in enumerate(blocks, start=1):
            position_M = positions if number == len(blocks) else None
            paired = encoder_hidden_states, paired_mask
            states.append(block(states[-1], position, mask, *paired, position_M=position_M, record=record))
        if self.final_norm is not None and len(states) > len(self.blocks):
            states[-1] = self.final_norm(states[-1])
        all_states = tuple(states) if output_hidden_states else None
        attentions: Any = None if record is None else tuple(record.own)
        cross_attentions: Any = tuple(record.cross) if record is not None and record.cross else None
        output = BaseModelOutputWithCrossAttentions(states[-1], all_states, attentions, cross_attentions)
        return output.to_tuple() if return_dict is False else output
