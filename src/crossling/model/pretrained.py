"""Networks of `transformers`, from safetensors alone; no code that comes with a model is run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

import crossling.model.tasks
import crossling.model.translator  # noqa: F401  both register our architectures with Auto*
from crossling.errors import BadInput


def pretrained_config(folder: Path, name: str | Path) -> PreTrainedConfig:
    """What a folder says of its network; `name` is what the user calls it."""
    if not (folder / "config.json").is_file():
        raise BadInput(f"{name}: no config.json here; give a run or a Hugging Face model folder")
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each family, and each way to be damaged, has its own errors
        raise unreadable(name, error) from error


def pretrained(folder: Path, name: str | Path, kind: Any = AutoModel) -> PreTrainedModel:
    """The network in a folder, complete and in float32; `kind` is the Auto class that says with which head."""
    config = pretrained_config(folder, name)
    if not any(folder.glob("*.safetensors")):
        raise BadInput(f"{name}: no .safetensors weights here, and others are not opened; convert the model first")
    try:
        with quiet():
            network, loading = kind.from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are told below, in one sentence
            )
    except Exception as error:
        raise unreadable(name, error) from error
    for weight, found, expected in sorted(loading["mismatched_keys"])[:1]:
        raise BadInput(
            f"{name}: the weight {weight} is of shape {tuple(found)}, and its config.json asks for {tuple(expected)};"
            " mend the folder"
        )
    absent = sorted(key for key in loading["missing_keys"] if "pooler" not in key)
    if absent:  # transformers would fill them with random numbers
        raise BadInput(f"{name}: {len(absent)} weights are missing, the first {absent[0]!r}; export the model again")
    for weight, values in network.named_parameters():
        if not values.isfinite().all():
            raise BadInput(f"{name}: the weight {weight} holds values that are no numbers; the folder is damaged")
    return network


def tokenizer_of(folder: Path, name: str | Path) -> PreTrainedTokenizerFast:
    """The tokenizer that lies beside a network."""
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json")):
        raise BadInput(f"{name}: no tokenizer here; save the model's tokenizer into the same folder")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each kind of tokenizer has its own errors
        raise unreadable(name, error) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise BadInput(f"{name}: no fast tokenizer; save tokenizer.json, as AutoTokenizer does, into the folder")
    return tokenizer


def unreadable(name: str | Path, error: Exception) -> BadInput:
    return BadInput(f"{name}: transformers cannot load it ({(str(error).splitlines() or [type(error).__name__])[0]})")


@contextmanager
def quiet() -> Iterator[None]:
    """Without the report of missing and superfluous weights: what matters of it is said here, and heads that nobody
    asked for do not matter."""
    before = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
