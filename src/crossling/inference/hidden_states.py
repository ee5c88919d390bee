"""Hidden states of tokenized sentences, batch by batch, and the checks that a model is an encoder."""
# B batch, L length, D width

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from crossling.core.errors import BadInput
from crossling.core.progress import record_truncation
from crossling.data.packing import batch_by_length
from crossling.model.encoder import EncoderNetwork

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    Model = PreTrainedModel | EncoderNetwork

TOKENS_PER_BATCH = 4096  # with padding; the states of 25 layers of a large model then take less than half a GiB

BatchStates = tuple[list[int], tuple[Tensor, ...], Tensor]  # rows, states of every layer [B, L, D], valid_BL


class EncodeOptions(TypedDict, total=False):
    """Options of `Encoder.encode` that do not change the type of its result."""

    batch_size: int | None
    layer: int | None
    pooling: str
    prompt: str | None
    prompt_name: str | None
    normalize_embeddings: bool
    truncate_dim: int | None
    show_progress_bar: bool | None
    device: str | torch.device | None


@contextmanager
def evaluation_mode(model: nn.Module, mixed_precision: bool = False) -> Iterator[None]:
    """Disable dropout and gradients. Restore the mode of every module afterwards.

    Autocast is disabled too, unless `mixed_precision` enables it on a GPU.
    """
    modes = {module: module.training for module in model.modules()}
    device = next(model.parameters()).device.type
    model.eval()
    try:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=mixed_precision and device == "cuda"):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def iter_states(
    model: Model,
    ids: Sequence[list[int]],
    *,
    pad_id: int,
    batch_size: int | None = None,
    translation_ids: Sequence[list[int]] | None = None,
    layers: int | None = None,
    tokens: int = TOKENS_PER_BATCH,
) -> Iterator[BatchStates]:
    """Yield the hidden states of each batch of similar lengths. Use it in `evaluation_mode`.

    `layers` is the last layer to compute, in a crossling model. Others compute all. A batch has at most `tokens`.

    With `translation_ids`, yield [H : S] of every layer, [B, L, 2 D]: the states without and with cross-attention to
    the translation (VECO §3.1).
    """
    sides = [ids] if translation_ids is None else [ids, translation_ids]
    options: dict[str, Any] = {"output_hidden_states": True}
    if layers is not None and isinstance(model, EncoderNetwork):
        options["layers"] = layers
    lengths = [sum(map(len, row)) for row in zip(*sides, strict=True)]
    for rows in _batches(lengths, tokens // len(sides), batch_size):
        inputs, *others = (_pad(model, [side[row] for row in rows], pad_id) for side in sides)
        states = model(**inputs, **options).hidden_states
        for other in others:
            cross = {"encoder_hidden_states": model(**other).last_hidden_state}
            cross["encoder_attention_mask"] = other["attention_mask"]
            crossed = model(**inputs, **cross, **options).hidden_states
            states = tuple(torch.cat(layer, -1) for layer in zip(states, crossed, strict=True))
        yield rows, states, inputs["attention_mask"]


def _batches(lengths: Sequence[int], tokens: int, batch_size: int | None) -> Iterator[list[int]]:
    for rows in batch_by_length(lengths, tokens):
        size = batch_size or len(rows)
        for start in range(0, len(rows), size):
            yield rows[start : start + size]


def _pad(model: Model, ids: Sequence[list[int]], pad_id: int) -> dict[str, Tensor]:
    lengths_B = np.array([len(row) for row in ids])
    valid_BL = np.arange(lengths_B.max()) < lengths_B[:, None]
    ids_BL = np.full(valid_BL.shape, pad_id)
    ids_BL[valid_BL] = np.fromiter(chain.from_iterable(ids), np.int64, lengths_B.sum())
    inputs = {"input_ids": ids_BL, "attention_mask": valid_BL.astype(np.int64)}
    return {name: torch.from_numpy(values).to(model.device) for name, values in inputs.items()}


def tokenize_sentences(
    sentences: list[str], tokenizer: PreTrainedTokenizerFast, max_length: int, name: str
) -> list[list[int]]:
    """Return the token ids of each sentence, truncated to `max_length`. `name` is the model's name in messages."""
    if not sentences:
        return []
    options = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    ids: list[list[int]] = tokenizer(sentences, **options)["input_ids"]
    long = [row for row, sentence_ids in enumerate(ids) if len(sentence_ids) > max_length]
    if long:
        texts = [sentences[row] for row in long]
        truncated = tokenizer(texts, truncation=True, max_length=max_length, **options)["input_ids"]
        for row, sentence_ids in zip(long, truncated, strict=True):
            ids[row] = sentence_ids
        limit = f"sentences are longer than the {max_length} tokens that {name} can read"
        record_truncation(len(long), len(ids), f"{limit}; truncated at the end")
    for row, sentence_ids in enumerate(ids):
        if not sentence_ids:
            raise BadInput(f"{name}: sentence {row + 1} has no tokens. Remove empty sentences.")
    return ids


def probe_encoder(model: Model, tokenizer: PreTrainedTokenizerFast, name: str) -> tuple[int, int]:
    """Return the number of layers and the width. Raise BadInput if tokens cannot attend to later ones."""
    special = set(tokenizer.all_special_ids)
    one, other = [token for token in range(len(tokenizer)) if token not in special][:2]
    with evaluation_mode(model):
        inputs = [[one, one, one], [one, one, other], [other, one, one]]
        [(_, hidden, _)] = iter_states(model, inputs, pad_id=0)
    if hidden is None:
        raise BadInput(f"{name}: the model returns no hidden states. Give an encoder of transformers.")
    same_LD, end_LD, start_LD = hidden[-1].float()
    tolerance = 1e-5 * float(same_LD.abs().max())  # rows of a batch may differ in their last bits
    effect_of_end = float((same_LD[0] - end_LD[0]).abs().max())
    effect_of_start = float((same_LD[-1] - start_LD[-1]).abs().max())
    if effect_of_end <= tolerance:
        # In a decoder, tokens attend to earlier tokens only. In a discriminator that has not learned yet, tokens may
        # depend on no other token at all. That is no reason to refuse it.
        if effect_of_start > max(tolerance, 100 * effect_of_end):
            raise BadInput(f"{name}: a decoder, whose tokens do not attend to later ones. Give an encoder.")
        warnings.warn(
            f"{name}: at the last layer no token depends on another. The model has collapsed, or its training has just"
            " started",
            stacklevel=4,
        )
    return len(hidden) - 1, hidden[-1].shape[-1]


def check_compatibility(model: Model, tokenizer: PreTrainedTokenizerFast | None, name: str) -> None:
    """Raise BadInput if the model is an encoder-decoder, or the tokenizer does not fit it."""
    if tokenizer is None:
        raise BadInput(f"{name}: no tokenizer. Give the tokenizer that the model was trained with.")
    if getattr(model.config, "is_encoder_decoder", False):
        raise BadInput(f"{name}: an encoder-decoder. Give an encoder.")
    embeddings = model.get_input_embeddings()
    if isinstance(embeddings, nn.Embedding) and len(tokenizer) > embeddings.num_embeddings:
        raise BadInput(
            f"{name}: the tokenizer has {len(tokenizer)} entries, the model {embeddings.num_embeddings}. "
            "Give the tokenizer that the model was trained with."
        )


def max_input_length(model: Model, tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the number of tokens that the model can read."""
    limit = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or 2**31)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa counts positions from the one after padding: 514 positions hold 512 tokens.
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            limit = min(limit, module.num_embeddings - unused)
    return limit


def to_list(sentences: str | Iterable[str]) -> list[str]:
    """Return a list of sentences. Raise BadInput for a value that is no string."""
    if not isinstance(sentences, Iterable):
        raise BadInput(f"sentences: expected a string or a list of strings, found {type(sentences).__name__}.")
    texts = [sentences] if isinstance(sentences, str) else list(sentences)
    for row, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise BadInput(f"sentence {row}: expected a string, found {type(text).__name__}.")
    return texts
