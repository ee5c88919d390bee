"""Load an encoder: a run, an exported folder, any Hugging Face encoder, or the bundled model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast
from transformers.utils import SAFE_WEIGHTS_NAME

from crossling import bundled
from crossling.core.errors import BadInput, first_line
from crossling.core.hub import TOKENIZER_FILES, WEIGHT_FILES, get_model_folder
from crossling.inference.cpu_precision import check_precision, resolve_precision
from crossling.inference.sentence_encoder import Encoder
from crossling.inference.sentence_head import HEAD_FILES, SentenceHead, find_encoder_folder, has_modules_after_pooling
from crossling.inference.word_links import first_id
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import LMHead
from crossling.model.int8 import has_int8_weights
from crossling.model.native_encoder import NativeEncoder
from crossling.model.pretrained import load_pretrained, load_tokenizer
from crossling.objectives import Network
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.network import load_run
from crossling.recipes.recipe import Recipe
from crossling.recipes.run_checkpoints import run_of
from crossling.vocabulary.open_vocabulary import AnyVocabulary, open_vocabulary
from crossling.vocabulary.vocabulary import Vocabulary


def load(
    model: str | os.PathLike[str] | None = None,
    *,
    device: str | torch.device | None = None,
    precision: str = "auto",
) -> Encoder:
    """Load an encoder, on the GPU if there is one.

    Reads safetensors only and runs no code that comes with a model. Task heads are dropped.

    Args:
        model: A run folder (its latest checkpoint), `RUN/checkpoints/STEP`, an exported or fine-tuned folder, or
            `bundled`. Also any Hugging Face encoder by folder or Hub name. [default: the bundled model]
        device: Device to load it to, such as `cpu` or `cuda:1`. [default: the GPU, or the CPU if there is none]
        precision: "auto", "float32", "bfloat16" or "int8", on a CPU. "auto" is the fastest that this CPU has for models
            stored in 8 bits, such as the bundled model, and float32 for others. `evaluate` computes in float32.

    Returns:
        The model with its tokenizer.

    Raises:
        BadInput: If there is no such model, it is not an encoder, or the device lacks the precision.

    Example:
        >>> model = load("runs/xlm_e")
        >>> model.align("the white house", "la maison blanche")
        [(0, 0), (1, 2), (2, 1)]
    """
    check_precision(precision)
    if model is not None and not isinstance(model, str | os.PathLike):
        raise BadInput(f"model: expected a name or a folder, found {type(model).__name__}.")
    if model is None or os.fspath(model) == bundled.NAME:
        encoder = load_pretrained_encoder(bundled.folder())
        encoder.name = bundled.NAME  # not the path of the installation
    elif (run := run_of(model)) is not None:
        seed = Recipe.load(run / "recipe.json").seed
        encoder = make_encoder(load_run(Path(model)), open_vocabulary(run / "vocab"), str(model), seed)
    else:
        encoder = load_pretrained_encoder(model)
    try:
        encoder.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch without CUDA
        raise BadInput(f"device={device}: cannot be used ({first_line(error)}). Give cpu, or omit it.") from None
    encoder.precision = resolve_precision(precision, encoder.model.device, _has_int8_weights(encoder.model))
    return encoder


def _has_int8_weights(model: nn.Module) -> bool:
    """Return True if a model was loaded from a folder with 8-bit weights."""
    if not isinstance(model, CrosslingModel) or not model.name_or_path:  # a run has no name
        return False
    file = Path(model.name_or_path) / SAFE_WEIGHTS_NAME
    return file.is_file() and has_int8_weights(file)


def load_pretrained_encoder(model: str | os.PathLike[str]) -> Encoder:
    """Load an encoder from a folder or by its Hub name, on the CPU."""
    name = os.fspath(model)
    folder = get_model_folder(name, TOKENIZER_FILES + WEIGHT_FILES + HEAD_FILES)
    network = load_pretrained(find_encoder_folder(folder), name)
    universal_layer = getattr(network.config, "universal_layer", None)
    # The vectors of our exports are those of the universal layer, unless modules follow it.
    declared = universal_layer is None or has_modules_after_pooling(folder)
    head = SentenceHead.read(folder, network.config.hidden_size) if declared else None
    tokenizer = load_tokenizer(find_encoder_folder(folder), name)
    return Encoder(network, tokenizer, name, universal_layer=universal_layer, head=head)


def make_encoder(net: Network, vocabulary: AnyVocabulary, name: str, seed: int | None = None) -> Encoder:
    """Wrap the encoder of a network, also during training."""
    config = net.encoder.config
    model = net.encoder.base if isinstance(net.encoder, NativeEncoder) else net.encoder
    return Encoder(model, vocabulary.tokenizer(), name, universal_layer=config.universal_layer, seed=seed)


class LanguageModel(NamedTuple):
    """Parts of a translator."""

    encoder: CrosslingModel
    lm_head: LMHead | None
    tokenizer: PreTrainedTokenizerFast
    name: str
    decoder: CrosslingModel | None  # of an encoder-decoder run


def load_language_model(model: str | os.PathLike[str]) -> LanguageModel:
    """Load the parts of a translator.

    A discriminator has no head, since the head of its generator reads other states.
    """
    initial = InitialModel.load(os.fspath(model))
    encoder, vocabulary = initial.encoder.encoder, initial.vocabulary
    if encoder.config.is_encoder_decoder:
        raise BadInput(f"{model}: a translator. Give the encoder that it was made from.")
    tokenizer = vocabulary.tokenizer() if isinstance(vocabulary, Vocabulary) else vocabulary
    # BERT and similar models have start and end tokens in their tokenizer only, not in their configuration.
    config = encoder.config
    config.bos_token_id = first_id(config.bos_token_id, tokenizer.bos_token_id, tokenizer.cls_token_id)
    config.eos_token_id = first_id(config.eos_token_id, tokenizer.eos_token_id, tokenizer.sep_token_id)
    if config.bos_token_id is None or config.eos_token_id is None:
        raise BadInput(
            f"{model}: the tokenizer has no start or end token, which a translator needs. Give another model."
        )
    head, decoder = initial.encoder.lm_head, initial.decoder
    return LanguageModel(encoder=encoder, lm_head=head, tokenizer=tokenizer, name=initial.name, decoder=decoder)
