"""Load models and tokenizers of `transformers`, from safetensors only and without running code of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

import crossling.model.auto_classes  # noqa: F401 - registers all crossling models with the Auto classes
from crossling.core.errors import BadInput
from crossling.core.folder_kinds import kind_note
from crossling.core.hub import quiet_transformers

LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def load_pretrained_config(folder: Path, name: str | Path) -> PreTrainedConfig:
    """Return the configuration in a folder. Error messages call the model `name`."""
    if not (folder / "config.json").is_file():
        raise BadInput(f"{name}: no config.json{kind_note(folder)}. Give a run folder or a Hugging Face model folder.")
    with _loading(name), quiet_transformers():
        return transformers.AutoConfig.from_pretrained(folder, **LOCAL)


def load_pretrained(
    folder: Path, name: str | Path, auto_class: Any = transformers.AutoModel, config: PreTrainedConfig | None = None
) -> PreTrainedModel:
    """Return the complete model in a folder, in float32, with the head of `auto_class`."""
    config = config or load_pretrained_config(folder, name)
    if not any(folder.glob("*.safetensors")):
        raise BadInput(f"{name}: no .safetensors weights. Convert the model: other formats are not loaded.")
    reported = {"output_loading_info": True, "ignore_mismatched_sizes": True}  # below, in one sentence
    with _loading(name), quiet_transformers():
        model, loading = auto_class.from_pretrained(
            folder, config=config, use_safetensors=True, dtype=torch.float32, **LOCAL, **reported
        )
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
    with _loading(name), quiet_transformers():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise BadInput(f"{name}: no fast tokenizer. Save tokenizer.json, as AutoTokenizer does, into the folder.")
    return tokenizer


@contextmanager
def _loading(name: str | Path) -> Iterator[None]:
    """Raise BadInput if transformers cannot load a model. Each model family and tokenizer class has its own errors."""
    try:
        yield
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(f"{name}: transformers cannot load it ({reason})") from error
