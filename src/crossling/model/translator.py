"""An encoder becomes a translator (VECO §3.2): a Hugging Face sequence-to-sequence model whose decoder is made of the
encoder's own blocks, with cross-attention plugged in and self-attention to the left only.

Tied, a block of the decoder *is* a block of the encoder, as it was in pre-training, where one stream ran through the
blocks with cross-attention and one without: self-attention, feed-forward and their norms are the same weights, and
cross-attention with its norm is the decoder's alone. That is what makes VECO's translator no larger than its
pre-trained model (662M). Untied, the decoder's blocks are copies that go their own way.

Tokens, positions and the table of distances are shared by encoder, decoder and (tokens) output either way.
"""
# B sequences, L target positions, T source positions, D width, V vocabulary

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, DynamicCache, EncoderDecoderCache, GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from crossling.errors import BadInput
from crossling.model.attention import fused, see, see_left
from crossling.model.config import CrosslingConfig
from crossling.model.heads import IGNORED, LanguageModel, LMHead
from crossling.model.past import Past
from crossling.model.transformer import Block, CrosslingModel, Norm

APART = 7_000_000  # added to a seed: an encoder that is new may have begun with its first numbers


class Decoder(nn.Module):
    """Blocks of its own, for an untied decoder."""

    def __init__(self, config: CrosslingConfig) -> None:
        super().__init__()
        assert config.decoder_blocks is not None
        self.blocks: Sequence[Block] = nn.ModuleList(Block(config) for _ in config.decoder_blocks)  # type: ignore[assignment]
        self.final_norm = Norm(config.hidden_size, eps=config.layer_norm_eps) if config.norm == "pre" else None


class CrosslingForConditionalGeneration(LanguageModel, GenerationMixin):
    """Reads a sentence and writes one; `generate` is that of transformers."""

    def __init__(self, config: CrosslingConfig) -> None:
        layers = config.num_hidden_layers
        if not config.decoder_blocks or not all(0 <= number < layers for number in config.decoder_blocks):
            raise ValueError(f"a decoder of the blocks {config.decoder_blocks} of an encoder with {layers} layers")
        super().__init__(config)
        self.own_decoder = None if config.tied else Decoder(config)
        self.post_init()

    @property
    def decoder_blocks(self) -> list[Block]:
        if self.own_decoder is not None:
            return [*self.own_decoder.blocks]
        return [self.encoder.blocks[number] for number in self.config.decoder_blocks or ()]

    def generate(self, *inputs: Any, **settings: Any) -> Any:
        """Never by parts that were compiled for training: every step has a length of its own to be compiled for."""
        with torch.compiler.set_stance("force_eager"):
            return super().generate(*inputs, **settings)  # type: ignore[misc]  # a protocol of theirs

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,  # needed only where padding stands before what is read
        encoder_outputs: BaseModelOutput | tuple[Any, ...] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,  # not heard in training, where blocks may be computed twice
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput | tuple[Any, ...]:
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, output_hidden_states=output_hidden_states)
        paired_BTD = encoder_outputs[0]
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("give labels or decoder_input_ids: what the decoder reads")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        cache = past_key_values
        if cache is None and use_cache and not self.training:
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        states = self.decode(decoder_input_ids, paired_BTD, attention_mask, decoder_attention_mask, cache)
        logits_BLV = self.lm_head(states[-1], self.table_VD)
        loss: Any = None
        if labels is not None:
            loss = F.cross_entropy(logits_BLV.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED)
        found = Seq2SeqLMOutput(
            loss=loss,
            logits=logits_BLV,
            past_key_values=cache,
            decoder_hidden_states=tuple(states) if output_hidden_states else None,  # type: ignore[arg-type]
            encoder_last_hidden_state=paired_BTD,
            encoder_hidden_states=getattr(encoder_outputs, "hidden_states", None),
        )
        return found.to_tuple() if return_dict is False else found

    def decode(
        self,
        ids_BL: Tensor,
        paired_BTD: Tensor,
        paired_present_BT: Tensor | None = None,
        present_BT: Tensor | None = None,  # of all that was read, the past too
        cache: EncoderDecoderCache | None = None,
    ) -> list[Tensor]:
        """The states of all layers of the decoder, [B, L, D]; the last are what the head is for."""
        length, past = ids_BL.shape[1], 0 if cache is None else cache.get_seq_length()
        self.encoder.check_length(past + length)
        hidden_BLD = self.encoder.embeddings(ids_BL, past=past)
        bias = self.encoder.bias(past + length, kernel_reads=False, queries=length)
        dtype, device = hidden_BLD.dtype, hidden_BLD.device
        seen = see_left(length, past, present_BT, dtype, device)
        width = self.config.hidden_size // self.config.num_attention_heads
        by_kernel = cache is None and fused(device, dtype, width)
        paired_seen = see(ids_BL.shape, None, None, paired_present_BT, dtype, by_kernel)
        states = [hidden_BLD]
        for layer, block in enumerate(self.decoder_blocks):
            own = None if cache is None else Past(cache, layer)
            states.append(block(states[-1], bias, seen, paired_BTD, paired_seen, own))
        final_norm = (self.encoder if self.own_decoder is None else self.own_decoder).final_norm
        if final_norm is not None:
            states[-1] = final_norm(states[-1])
        return states

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """What the decoder reads while it learns: the target one place to the right, after the mark of its start."""
        ids_BL = F.pad(labels[:, :-1], (1, 0), value=self.config.decoder_start_token_id)
        return ids_BL.masked_fill(ids_BL == IGNORED, self.config.pad_token_id)


def translator(
    encoder: CrosslingModel,
    lm_head: LMHead | None,
    *,
    layers: int | None = None,
    take: Literal["first", "last"] = "last",
    tied: bool = True,
    fresh_cross_seed: int = 0,
    tokens: int | None = None,
) -> CrosslingForConditionalGeneration:
    """A translator that begins as an encoder and, if there is one, its language model head.

    Its decoder is made of all layers, or of the first or last few. Cross-attention is the encoder's, or new where it
    has none, as is a head; the seed gives what is new. With `tokens` the table gets so many rows: the new ones begin as
    the mean of the others.
    """
    theirs = encoder.config
    of = theirs.num_hidden_layers
    layers = of if layers is None else layers
    if not 1 <= layers <= of:
        raise BadInput(f"a decoder of {layers} layers cannot be made of an encoder with {of}; give 1 to {of}")
    if take not in ("first", "last"):
        raise BadInput(f"take {take!r}: a decoder is made of the first or the last layers")
    rows = theirs.vocab_size if tokens is None else tokens
    if rows < theirs.vocab_size:
        raise BadInput(f"{rows} tokens are fewer than the {theirs.vocab_size} the encoder has; give at least as many")
    config = theirs.but(
        vocab_size=rows,
        cross_attention=True,
        output_layer=None,
        decoder_blocks=range(layers) if take == "first" else range(of - layers, of),
        tied=tied,
        is_encoder_decoder=True,
        decoder_start_token_id=theirs.bos_token_id,
        architectures=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(APART + fresh_cross_seed)
        made = CrosslingForConditionalGeneration(config)
    _fill(made, encoder, lm_head)
    made.generation_config.max_length = config.max_position_embeddings  # of transformers' own: 20
    return made


@torch.no_grad()
def _fill(made: CrosslingForConditionalGeneration, encoder: CrosslingModel, lm_head: LMHead | None) -> None:
    """All that the sources have; a block of an untied decoder is filled as the one it began as."""
    filled: list[tuple[nn.Module, nn.Module]] = [(made.encoder, encoder)]
    decoder = made.own_decoder
    if decoder is not None:
        numbers = made.config.decoder_blocks or ()
        filled += [(own, encoder.blocks[number]) for own, number in zip(decoder.blocks, numbers, strict=True)]
        if decoder.final_norm is not None and encoder.final_norm is not None:
            filled.append((decoder.final_norm, encoder.final_norm))
    if lm_head is not None:
        filled.append((made.lm_head, lm_head))
    for own, source in filled:
        theirs = dict(source.named_parameters())
        for name, values in own.named_parameters():
            if name in theirs and name not in ("embeddings.tokens.weight", "bias_V"):
                values.copy_(theirs[name])
    _fill_rows(made.table_VD, encoder.embeddings.tokens.weight)
    if lm_head is not None:
        _fill_rows(made.lm_head.bias_V, lm_head.bias_V)


def _fill_rows(table: Tensor, source: Tensor) -> None:
    table[: len(source)] = source
    table[len(source) :] = source.mean(0)


AutoModelForSeq2SeqLM.register(CrosslingConfig, CrosslingForConditionalGeneration)
