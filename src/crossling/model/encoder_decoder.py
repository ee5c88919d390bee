"""Encoder-decoder model initialized from an encoder (VECO, section 3.2).

It is a Hugging Face sequence-to-sequence model. Its decoder has the encoder's blocks, with cross-attention and causal
self-attention.

tied      a decoder block *is* an encoder block, as in pre-training, where the blocks ran with and without
          cross-attention. Only cross-attention and its norm belong to the decoder alone. VECO's translation model is
          therefore no larger than its pre-trained model (662M).
untied    the decoder's blocks are copies with their own weights.

Encoder, decoder and output share the token table. Encoder and decoder share position embeddings and position bias.
"""
# B sequences, L target positions, T source positions, D width, V vocabulary

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from crossling.core.errors import BadInput
from crossling.model.attention import (
    AttentionRecord,
    KVCache,
    make_attention_mask,
    make_causal_mask,
    uses_attention_kernel,
)
from crossling.model.config import CrosslingConfig
from crossling.model.encoder import Block, make_norm
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import IGNORE_INDEX, CrosslingLanguageModel, LMHead, token_loss

SEED_OFFSET = 7_000_000  # added to the seed, so that new weights differ from those of an encoder with the same seed


class UntiedDecoder(nn.Module):
    """Decoder blocks with their own weights."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        assert config.decoder_blocks is not None
        self.blocks: Sequence[Block] = nn.ModuleList(  # type: ignore[assignment]
            Block(config, is_first=number == 0) for number in config.decoder_blocks
        )
        has_norm = config.norm == "pre"
        self.final_norm = make_norm(config) if has_norm else None


class CrosslingForConditionalGeneration(CrosslingLanguageModel, GenerationMixin):
    """Encoder-decoder model for translation. `generate` is that of transformers.

    Args:
        config: Configuration with `decoder_blocks`. The weights are initialized at random.

    Raises:
        ValueError: `decoder_blocks` is empty or names blocks that the encoder does not have.

    Example:
        >>> from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        >>> model = AutoModelForSeq2SeqLM.from_pretrained("translator")
        >>> tokenizer = AutoTokenizer.from_pretrained("translator")
        >>> ids = model.generate(**tokenizer("the white house", return_tensors="pt"))
    """

    def __init__(self, config: CrosslingConfig) -> None:
        layers = config.num_hidden_layers
        if not config.decoder_blocks or not all(0 <= number < layers for number in config.decoder_blocks):
            raise ValueError(
                f"decoder_blocks {config.decoder_blocks}: the encoder has {layers} layers."
                f" Give one or more numbers from 0 to {layers - 1}."
            )
        super().__init__(config)
        self.own_decoder = None if config.tied else UntiedDecoder(config)
        self.post_init()

    @property
    def decoder_blocks(self) -> list[Block]:
        """Blocks of the decoder, tied or not."""
        if self.own_decoder is not None:
            return [*self.own_decoder.blocks]
        return [self.encoder.blocks[number] for number in self.config.decoder_blocks or ()]

    def generate(self, *inputs: Any, **settings: Any) -> Any:
        """Generate token ids, as `GenerationMixin.generate`, without compiled modules.

        Each step has another length, for which compiled modules would be compiled again.
        """
        with torch.compiler.set_stance("force_eager"):
            return super().generate(*inputs, **settings)  # type: ignore[misc]  # a protocol of theirs

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Any, ...] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput | tuple[Any, ...]:
        """Predict the next token at every target position.

        Args:
            input_ids: Source token ids, [B, T].
            attention_mask: 1 for tokens and 0 for padding of the source, [B, T].
            decoder_input_ids: Target token ids that the decoder reads, [B, L] [default: the shifted labels].
            decoder_attention_mask: Mask of the target. Needed only for padding on the left.
            encoder_outputs: Output of the encoder, instead of `input_ids`.
            past_key_values: Cache of earlier target tokens.
            labels: Target ids to predict, [B, L]. -100 means no loss.
            use_cache: Return a cache. Ignored while training, where activation checkpointing may run blocks twice.
            output_hidden_states: Return the states of all layers of encoder and decoder.
            output_attentions: Return the attention weights of all layers of encoder and decoder.
            return_dict: False returns a tuple.

        Returns:
            Logits [B, L, V], and the mean loss if there are labels.

        Raises:
            ValueError: Neither `labels` nor `decoder_input_ids` are given.
        """
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if encoder_outputs is None:
            wanted = {"output_hidden_states": output_hidden_states, "output_attentions": output_attentions}
            encoder_outputs = self.encoder(input_ids, attention_mask, **wanted)
        paired_BTD = encoder_outputs[0]
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("decoder_input_ids: missing. Give them or labels.")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        cache = past_key_values
        if cache is None and use_cache and not self.training:
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        record = AttentionRecord([], []) if output_attentions else None
        states = self.decode(decoder_input_ids, paired_BTD, attention_mask, decoder_attention_mask, cache, record)
        logits_BLV = self.lm_head(states[-1], self.table_VD)
        result = Seq2SeqLMOutput(
            loss=None if labels is None else token_loss(logits_BLV, labels),
            logits=logits_BLV,
            past_key_values=cache,
            decoder_hidden_states=tuple(states) if output_hidden_states else None,  # type: ignore[arg-type]
            encoder_last_hidden_state=paired_BTD,
            encoder_hidden_states=getattr(encoder_outputs, "hidden_states", None),
            decoder_attentions=None if record is None else tuple(record.own),
            cross_attentions=None if record is None else tuple(record.cross),
            encoder_attentions=getattr(encoder_outputs, "attentions", None),
        )
        return result.to_tuple() if return_dict is False else result

    def decode(
        self,
        ids_BL: Tensor,
        paired_BTD: Tensor,
        paired_mask_BT: Tensor | None = None,
        padding_mask_BL: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        record: AttentionRecord | None = None,
    ) -> list[Tensor]:
        """Return the states of all decoder layers, [B, L, D]. The head reads the last.

        Args:
            ids_BL: Target token ids.
            paired_BTD: States of the encoder.
            paired_mask_BT: 1 for tokens and 0 for padding of the source.
            padding_mask_BL: The same of the target, including the tokens in the cache.
            cache: Keys and values of earlier target tokens.
            record: The attention weights are appended to it.
        """
        length, past = ids_BL.shape[1], 0 if cache is None else cache.get_seq_length()
        self.encoder.check_length(past + length)
        hidden_BLD = self.encoder.embeddings(ids_BL, past=past)
        position = self.encoder.attention_positions(past + length, for_kernel=False, queries=length)
        dtype, device = hidden_BLD.dtype, hidden_BLD.device
        mask = make_causal_mask(length, past, padding_mask_BL, dtype, device)
        for_kernel = cache is None and record is None and uses_attention_kernel(device, dtype, self.config.head_width)
        paired_mask = make_attention_mask(ids_BL.shape, None, None, paired_mask_BT, dtype=dtype, for_kernel=for_kernel)
        states = [hidden_BLD]
        for layer, block in enumerate(self.decoder_blocks):
            layer_cache = None if cache is None else KVCache(cache, layer)
            states.append(block(states[-1], position, mask, paired_BTD, paired_mask, layer_cache, record=record))
        final_norm = (self.encoder if self.own_decoder is None else self.own_decoder).final_norm
        if final_norm is not None:
            states[-1] = final_norm(states[-1])
        return states

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return the decoder's input in training: the start token and the labels, shifted right by one position."""
        ids_BL = F.pad(labels[:, :-1], (1, 0), value=self.config.decoder_start_token_id)
        return ids_BL.masked_fill(ids_BL == IGNORE_INDEX, self.config.pad_token_id)


def encoder_decoder_from_encoder(
    encoder: CrosslingModel,
    lm_head: LMHead | None,
    *,
    layers: int | None = None,
    take: Literal["first", "last"] = "last",
    tied: bool = True,
    seed: int = 0,
    vocab_size: int | None = None,
    decoder: CrosslingModel | None = None,
) -> CrosslingForConditionalGeneration:
    """Initialize an encoder-decoder model from an encoder.

    Args:
        encoder: Encoder. Its cross-attention is used if it has one, otherwise the seed initializes a new one.
        lm_head: Language model head of the encoder [default: a new one].
        layers: Number of decoder layers [default: all layers of the encoder].
        take: Take the `first` or the `last` layers of the encoder.
        tied: Share the weights of encoder and decoder blocks.
        seed: Seed of new weights.
        vocab_size: Rows of the token table. New rows are the mean of the others [default: those of the encoder].
        decoder: Layers that initialize an untied decoder [default: those of the encoder].

    Raises:
        BadInput: `layers`, `take` or `vocab_size` do not fit the encoder.
    """
    source = encoder.config
    depth = source.num_hidden_layers
    layers = depth if layers is None else layers
    if not 1 <= layers <= depth:
        raise BadInput(f"decoder of {layers} layers: the encoder has {depth}. Give a number from 1 to {depth}.")
    if take not in ("first", "last"):
        raise BadInput(f"take {take!r}: expected first or last. Choose the layers that the decoder is made of.")
    rows = source.vocab_size if vocab_size is None else vocab_size
    if rows < source.vocab_size:
        raise BadInput(f"vocab_size {rows}: the encoder has {source.vocab_size} tokens. Give at least as many.")
    config = source.replace(
        vocab_size=rows,
        cross_attention=True,
        output_layer=None,
        decoder_blocks=range(layers) if take == "first" else range(depth - layers, depth),
        tied=tied,
        is_encoder_decoder=True,
        decoder_start_token_id=source.bos_token_id,
        architectures=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED_OFFSET + seed)
        model = CrosslingForConditionalGeneration(config)
    _copy_weights(model, encoder, lm_head, decoder or encoder)
    model.generation_config.max_length = config.max_position_embeddings  # the default of transformers is 20
    return model


@torch.no_grad()
def _copy_weights(
    model: CrosslingForConditionalGeneration, encoder: CrosslingModel, lm_head: LMHead | None, layers: CrosslingModel
) -> None:
    """Copy all weights that the sources have. A block of an untied decoder gets those of its block in `layers`."""
    copies: list[tuple[nn.Module, nn.Module]] = [(model.encoder, encoder)]
    decoder = model.own_decoder
    if decoder is not None:
        numbers = model.config.decoder_blocks or ()
        copies += [(block, layers.blocks[number]) for block, number in zip(decoder.blocks, numbers, strict=True)]
        if decoder.final_norm is not None and layers.final_norm is not None:
            copies.append((decoder.final_norm, layers.final_norm))
    if lm_head is not None:
        copies.append((model.lm_head, lm_head))
    for target, source in copies:
        weights = dict(source.named_parameters())
        for name, values in target.named_parameters():
            if name in weights and name not in ("embeddings.tokens.weight", "bias_V"):
                values.copy_(weights[name])
    _copy_rows(model.table_VD, encoder.embeddings.tokens.weight)
    if lm_head is not None:
        _copy_rows(model.lm_head.bias_V, lm_head.bias_V)


def _copy_rows(table: Tensor, source: Tensor) -> None:
    table[: len(source)] = source
    table[len(source) :] = source.mean(0)
