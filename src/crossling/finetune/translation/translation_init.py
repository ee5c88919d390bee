"""Initial weights of a translator: a pre-trained model, its shape with random weights, or another translator."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast

from crossling.core.errors import BadInput
from crossling.finetune.finetune_settings import TranslationSettings
from crossling.finetune.translation.parallel_text import Direction, target_languages
from crossling.finetune.translation.translator import TRANSLATOR_INFO, Translator, add_language_tags
from crossling.inference.load import load_language_model
from crossling.model.encoder_decoder import CrosslingForConditionalGeneration, encoder_decoder_from_encoder
from crossling.model.encoder_model import CrosslingModel


@dataclass(frozen=True, kw_only=True)
class TranslatorInit:
    """Source of the initial weights, and the functions that build a translator from it."""

    name: str
    kind: str  # "pre-trained", "from-scratch" or "translator"
    tokenizer: PreTrainedTokenizerFast  # with language tags
    has_tags: bool
    # Fills in the settings of the decoder that were not given.
    resolve: Callable[[TranslationSettings], TranslationSettings]
    # Builds a new model from resolved settings. Equal settings give equal weights.
    build: Callable[[TranslationSettings], CrosslingForConditionalGeneration]


def initialize_translator(
    model: str | os.PathLike[str], directions: Sequence[Direction], from_scratch: bool
) -> TranslatorInit:
    """Load what a translator is initialized from.

    Args:
        model: Encoder, or a translator.
        directions: Directions to train.
        from_scratch: Use shape and tokenizer of the model, and random weights.
    """
    if TRANSLATOR_INFO.exists(Path(model)):
        if from_scratch:
            raise BadInput(f"{model}: a translator keeps its weights. Use an encoder to train from scratch.")
        return _continue_translator(Path(model), directions)
    encoder, lm_head, tokenizer, name, decoder = load_language_model(model)
    has_tags = len(directions) > 1
    tokenizer = add_language_tags(tokenizer, target_languages(directions)) if has_tags else tokenizer
    vocab_size = max(len(tokenizer), encoder.config.vocab_size)

    def resolve(settings: TranslationSettings) -> TranslationSettings:
        if decoder is not None and settings.tied:
            raise BadInput(f"tied=true: {model} has a decoder of its own, which would be lost. Omit tied.")
        tied = decoder is None if settings.tied is None else settings.tied
        return replace(settings, take=settings.take or "last", tied=tied)

    def build(settings: TranslationSettings) -> CrosslingForConditionalGeneration:
        assert settings.take is not None  # resolved
        assert settings.tied is not None
        torch.manual_seed(settings.seed)
        translator = encoder_decoder_from_encoder(
            CrosslingModel(encoder.config) if from_scratch else encoder,
            None if from_scratch else lm_head,
            layers=settings.decoder_layers,
            take=settings.take,
            tied=settings.tied,
            seed=settings.seed,
            vocab_size=vocab_size,
            decoder=None if from_scratch else decoder,
        )
        return _set_dropout(translator, settings.dropout)

    kind = "from-scratch" if from_scratch else "pre-trained"
    return TranslatorInit(name=name, kind=kind, tokenizer=tokenizer, has_tags=has_tags, resolve=resolve, build=build)


def _continue_translator(folder: Path, directions: Sequence[Direction]) -> TranslatorInit:
    """Continue the training of a translator. It keeps its tags and its decoder."""
    info = TRANSLATOR_INFO.read(folder)
    has_tags = bool(info.tags)
    missing = [code for code in target_languages(directions) if has_tags and code not in info.tags]
    if missing or (not has_tags and len(directions) > 1):
        problem = f"has no tag for {missing[0]!r}" if missing else "was trained for one direction, without tags"
        raise BadInput(f"{folder}: this translator {problem}. Start from an encoder to train these directions.")
    loaded = Translator.load(folder)
    config = loaded.model.config
    blocks, layers = [*(config.decoder_blocks or ())], config.num_hidden_layers
    ends: dict[Literal["first", "last"], list[int]] = {
        "first": [*range(len(blocks))],
        "last": [*range(layers - len(blocks), layers)],
    }
    taken = [end for end, numbers in ends.items() if numbers == blocks]  # both, if it has all layers
    decoder: dict[str, list[Any]] = {"decoder_layers": [len(blocks)], "take": taken, "tied": [config.tied]}

    def resolve(settings: TranslationSettings) -> TranslationSettings:
        for name, values in decoder.items():
            if getattr(settings, name) not in (None, *values):
                raise BadInput(f"{folder}: a translator keeps its decoder when training continues. Omit {name}.")
        shallow = len(blocks) if len(blocks) < layers else None
        return replace(settings, decoder_layers=shallow, take=taken[-1] if taken else None, tied=config.tied)

    def build(settings: TranslationSettings) -> CrosslingForConditionalGeneration:
        return _set_dropout(Translator.load(folder).model, settings.dropout)

    return TranslatorInit(
        name=str(folder),
        kind="translator",
        tokenizer=loaded.tokenizer.tokenizer,
        has_tags=has_tags,
        resolve=resolve,
        build=build,
    )


def _set_dropout(model: CrosslingForConditionalGeneration, dropout: float | None) -> CrosslingForConditionalGeneration:
    if dropout is not None:
        model.config.dropout = dropout
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
    return model
