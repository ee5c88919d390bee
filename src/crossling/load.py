"""Any model by its name: a run of ours, an exported folder, or any Hugging Face encoder; without one, the box's."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from crossling import box
from crossling.errors import BadInput
from crossling.evaluate import encode
from crossling.evaluate.encode import Encoder
from crossling.model.heads import LMHead
from crossling.model.transformer import CrosslingModel
from crossling.objectives import Network
from crossling.recipe import Recipe, Start, load_run
from crossling.vocabulary.vocabulary import Vocabulary


def load(model: Path | str | None = None) -> Encoder:
    """A run folder (its newest checkpoint), or anything `transformers` can load as an encoder; the model that ships if
    none is named."""
    if model is None:
        encoder = encode.load(box.folder())
        encoder.name = box.NAME  # where it is installed is nobody's concern
    elif (path := Path(model) / "recipe.json").is_file():
        run = path.parent
        encoder = encoder_of(load_run(run), Vocabulary.load(run / "vocab"), str(model), Recipe.load(path).seed)
    else:
        encoder = encode.load(model)
    encoder.model.to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
    return encoder


def language_model(
    model: Path | str,
) -> tuple[CrosslingModel, LMHead | None, PreTrainedTokenizerFast, str]:
    """What a translator is made of: the same models in our own shape, the language model head that belongs to the
    encoder, if one does, the tokenizer and the name. A discriminator has no head: its generator's reads other states.
    """
    start = Start.load(model)
    encoder, vocabulary = start.encoder.encoder, start.vocabulary
    if encoder.config.is_encoder_decoder:
        raise BadInput(f"{model}: a translator, and no encoder; give the model it was made of")
    tokenizer = vocabulary.tokenizer() if isinstance(vocabulary, Vocabulary) else vocabulary
    # BERT and its kin have no marks of start and end in their configuration, only in their tokenizer.
    config = encoder.config
    config.bos_token_id = _first(config.bos_token_id, tokenizer.bos_token_id, tokenizer.cls_token_id)
    config.eos_token_id = _first(config.eos_token_id, tokenizer.eos_token_id, tokenizer.sep_token_id)
    if config.bos_token_id is None or config.eos_token_id is None:
        raise BadInput(f"{model}: its tokenizer marks no start or end of a sentence; a translator needs both")
    return encoder, start.encoder.lm_head, tokenizer, start.name


def _first(*ids: int | None) -> int | None:
    """That there is."""
    return next((found for found in ids if found is not None), None)


def encoder_of(net: Network, vocabulary: Vocabulary, name: str, seed: int | None = None) -> Encoder:
    """The encoder of a network, ready to be measured; also while it is in training."""
    return Encoder(net.encoder, vocabulary.tokenizer(), name, net.encoder.config.universal_layer, seed)
