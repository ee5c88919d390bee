"""Smaller copy of an encoder's folder: only the vocabulary entries that some languages use.

The rows of the token table, and of the output bias of a language model head, are those of the kept entries. All other
weights stay as they are. So text that consists of kept entries gets the same tokens, states and vectors. The tokenizer
is the original one with fewer entries, with its normalization and its special tokens.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import SAFE_WEIGHTS_NAME

from crossling.core.errors import BadInput
from crossling.core.files import read_json, write_json
from crossling.core.hub import quiet_transformers
from crossling.model.config import CrosslingConfig
from crossling.model.int8 import dequantize, quantize
from crossling.vocabulary.build_vocabulary import vocab
from crossling.vocabulary.reuse_vocabulary import load_vocabulary
from crossling.vocabulary.vocabulary import SPECIAL, UNK, Vocabulary

CONFIG = "config.json"
GENERATOR = "generator"  # subfolder of an export of ours
OLD_TOKENIZERS = ("*.model", "vocab.*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "tokenizer*.json")
DTYPES = {"single": torch.float32, "half": torch.float16}


def trim_folder(
    folder: Path, source: str | os.PathLike[str], entries: str | os.PathLike[str], precision: str | None
) -> dict[str, Any]:
    """Trim the copy of a model in a folder to the vocabulary entries that corpora use.

    Args:
        folder: Copy of the model, which is changed.
        source: The model, for messages and its vocabulary.
        entries: Corpora, or a vocabulary that `vocab(..., from_=source, trim=True)` made.
        precision: Precision of the weights in the file: `single`, `half` or `int8` [default: as stored].

    Returns:
        Numbers of entries and parameters, before and after.

    Raises:
        BadInput: If the model has no unigram vocabulary, or not its weights in one file of safetensors.
    """
    old = load_vocabulary(folder)
    new = _load_entries(folder, source, entries)
    ids = {token: number for number, token in enumerate(old.scores, start=UNK + 1)}
    if missing := [token for token in new.scores if token not in ids]:
        raise BadInput(f"{entries}: has the entry {missing[0]!r}, which {source} lacks. Trim its own vocabulary.")
    kept = [*range(UNK + 1), *(ids[token] for token in new.scores), old.mask_id]
    counts = {"entries": old.size, "parameters": 0}
    after = {"entries": new.size, "parameters": 0}
    for part in (folder, folder / GENERATOR):
        if (part / CONFIG).is_file():
            before_part, after_part = _trim_weights(part, source, kept, precision)
            counts["parameters"] += before_part
            after["parameters"] += after_part
            _trim_tokenizer(part, new)
    return {"before": counts, "after": after}


def _load_entries(folder: Path, source: str | os.PathLike[str], entries: str | os.PathLike[str]) -> Vocabulary:
    """Return the kept entries: a vocabulary as it is, or that of corpora."""
    if (Path(entries) / "sentencepiece.model").is_file():
        return Vocabulary.load(entries)
    with tempfile.TemporaryDirectory() as work:
        trimmed = vocab(os.fspath(entries), Path(work) / "vocab", from_=folder, trim=True)
    if not isinstance(trimmed, Vocabulary):
        raise BadInput(f"{source}: its vocabulary cannot be trimmed. Give a model with a unigram vocabulary.")
    return trimmed


def _trim_weights(
    folder: Path, source: str | os.PathLike[str], kept: list[int], precision: str | None
) -> tuple[int, int]:
    """Write the weights and the configuration with the kept rows. Return the parameters before and after."""
    config, file = read_json(folder / CONFIG), folder / SAFE_WEIGHTS_NAME
    rows = config["vocab_size"]
    if not file.is_file():
        raise BadInput(f"{source}: no {SAFE_WEIGHTS_NAME}. Save the model as one file of safetensors first.")
    sizes = {key for key, value in config.items() if value == rows and type(value) is int and key != "vocab_size"}
    if sizes or not all(number < rows for number in kept):
        raise BadInput(
            f"{source}: vocab_size is {rows}, as {', '.join(sorted(sizes))}. Such a model cannot be trimmed."
        )
    if precision == "int8" and config["model_type"] != CrosslingConfig.model_type:
        raise BadInput(f"{source}: transformers cannot load int8 weights of {config['model_type']}. Give half.")
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    weights = load_file(file)
    smaller = {
        name: values[kept].contiguous() if values.ndim and len(values) == rows else values
        for name, values in weights.items()
    }
    stored = _convert(smaller, precision)
    save_file(stored, file, metadata=metadata)
    file.chmod(0o644)
    config["vocab_size"] = len(kept)
    ids = {number: position for position, number in enumerate(kept)}
    config |= {key: ids.get(value, value) for key, value in config.items() if key.endswith("token_id")}
    if precision in DTYPES:
        config.pop("torch_dtype", None)
        config["dtype"] = str(DTYPES[precision]).removeprefix("torch.")
    write_json(folder / CONFIG, config)
    return _count(weights), _count(smaller)


def _convert(weights: Mapping[str, Tensor], precision: str | None) -> dict[str, Tensor]:
    if precision is None:
        return dict(weights)
    exact = dequantize(weights)
    if precision == "int8":
        return quantize({name: values.float() for name, values in exact.items()})
    return {
        name: values.to(DTYPES[precision]).contiguous() if values.is_floating_point() else values
        for name, values in exact.items()
    }


def _count(weights: Mapping[str, Tensor]) -> int:
    return sum(values.numel() for name, values in weights.items() if not name.endswith(".scale"))


def _trim_tokenizer(folder: Path, vocabulary: Vocabulary) -> None:
    """Replace the tokenizer by one with the entries of a vocabulary, and otherwise the same."""
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    scores: dict[str, float] = dict(backend["model"]["vocab"])
    ids = {token: number for number, token in enumerate([*SPECIAL[:-1], *vocabulary.scores, SPECIAL[-1]])}
    backend["model"]["vocab"] = [[token, scores[token]] for token in ids if token in scores]
    backend["added_tokens"] = [{**token, "id": ids[token["content"]]} for token in backend["added_tokens"]]
    special = {name: getattr(tokenizer, name) for name in ("bos_token", "eos_token", "sep_token", "cls_token")}
    special |= {name: getattr(tokenizer, name) for name in ("unk_token", "pad_token", "mask_token")}
    for pattern in OLD_TOKENIZERS:
        for old in folder.glob(pattern):
            old.unlink()
    write_json(folder / "backend.json", backend)
    smaller = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "backend.json"), model_max_length=tokenizer.model_max_length, **special
    )
    (folder / "backend.json").unlink()
    smaller.save_pretrained(folder)
