"""Load models and tokenizers of `transformers`, from safetensors only and without running code of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

import crossling.model.encoder_decoder  # noqa: F401 - registers all crossling models with the Auto classes
from crossling.core.errors import BadInput


def load_pretrained_config(folder: Path, name: str | Path) -> PreTrainedConfig:
    """Return the configuration in a folder. Error messages call the model `name`."""
    if not (folder / "config.json").is_file():
        raise BadInput(f"{name}: no config.json. Give a run folder or a Hugging Face model folder.")
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each model family has its own errors
        raise loading_error(name, error) from error


def load_pretrained(folder: Path, name: str | Path, auto_class: Any = AutoModel) -> PreTrainedModel:
    """Return the complete model in a folder, in float32, with the head of `auto_class`."""
    config = load_pretrained_config(folder, name)
    if not any(folder.glob("*.safetensors")):
        raise BadInput(f"{name}: no .safetensors weights. Convert the model: other formats are not loaded.")
    try:
        with quiet_transformers():
            model, loading = auto_class.from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below in one sentence
            )
    except Exception as error:
        raise loading_error(name, error) from error
    for weight, found, expected in sorted(loading["mismatched_keys"])[:1]:
        raise BadInput(
            f"{name}: weight {weight} has shape {tuple(found)}, but config.json expects {tuple(expected)}."
            " Restore the folder."
        )
    missing = sorted(key for key in loading["missing_keys"] if "pooler" not in key)
    if missing:  # transformers would initialize them at random
        raise BadInput(
            f"{name}: {len(missing)} weights are missing, the first is {missing[0]}. Export the model again."
        )
    for weight, values in model.named_parameters():
        if not values.isfinite().all():
            raise BadInput(f"{name}: weight {weight} has non-finite values. Restore the folder.")
    return model


def load_tokenizer(folder: Path, name: str | Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer in a model folder."""
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json")):
        raise BadInput(f"{name}: no tokenizer. Save the model's tokenizer into the same folder.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each tokenizer class has its own errors
        raise loading_error(name, error) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise BadInput(f"{name}: no fast tokenizer. Save tokenizer.json, as AutoTokenizer does, into the folder.")
    return tokenizer


def loading_error(name: str | Path, error: Exception) -> BadInput:
    """Return the error for a model that transformers cannot load."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return BadInput(f"{name}: transformers cannot load it ({reason})")


def model_fingerprint(module: nn.Module) -> str:
    """Return a hash of the names, shapes, types and values of all weights. The device does not matter."""
    digest = xxhash.xxh3_128()
    for name, values in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(values.shape)} {values.dtype}\n".encode())
        digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and reports of missing and unexpected weights, which are checked here."""
    verbosity = logging.get_verbosity()
    has_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()
