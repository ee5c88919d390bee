"""Write the modules after an encoder in the layout of Sentence Transformers, which `SentenceHead.read` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from crossling.core.files import write_json
from crossling.inference.sentence_head import (
    ACTIVATIONS,
    LAYER_KEYS,
    MODULES,
    SETTINGS,
    DenseLayer,
    Normalize,
    SentenceHead,
)
from crossling.model.config import CrosslingConfig

TRANSFORMER = "sentence_bert_config.json"  # settings of the encoder


def write_sentence_head(folder: Path, head: SentenceHead, encoder: Any, max_length: int) -> None:
    """Write the files of Sentence Transformers beside a model of `transformers`.

    Args:
        folder: Folder of the model.
        head: Pooling, layers, prompts and limits.
        encoder: Configuration of the encoder.
        max_length: Longest input in tokens, if the head sets no limit.
    """
    modules: list[tuple[str, str]] = [("", "Transformer"), ("1_Pooling", "Pooling")]
    for number, layer in enumerate(head.layers, start=len(modules)):
        name = {DenseLayer: "Dense", nn.LayerNorm: "LayerNorm", Normalize: "Normalize"}.get(type(layer), "Dropout")
        modules.append((f"{number}_{name}", name))
        _write_layer(folder / modules[-1][0], layer)
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(modules)
    ]
    write_json(folder / MODULES, listed)
    transformer: dict[str, Any] = {"max_seq_length": head.max_length or max_length, "do_lower_case": head.lowercases}
    if head.layer is not None:
        key = LAYER_KEYS[isinstance(encoder, CrosslingConfig)]
        transformer["config_args"] = {key: head.layer}
    write_json(folder / TRANSFORMER, transformer)
    modes = head.poolings[0] if len(head.poolings) == 1 else list(head.poolings)
    pooling = {"word_embedding_dimension": encoder.hidden_size, "pooling_mode": modes}
    write_json(folder / "1_Pooling" / "config.json", {**pooling, "include_prompt": head.counts_prompt})
    if head.prompts:
        settings = {"prompts": dict(head.prompts), "default_prompt_name": head.default_prompt}
        write_json(folder / SETTINGS, {**settings, "similarity_fn_name": "cosine"})


def _write_layer(folder: Path, layer: nn.Module) -> None:
    config: dict[str, Any] = {}
    prefix = "linear"
    if isinstance(layer, DenseLayer):
        name = next(name for name, kind in ACTIVATIONS.items() if type(layer.activation) is kind)
        config = {"in_features": layer.in_features, "out_features": layer.out_features, "bias": layer.bias is not None}
        config["activation_function"] = f"{ACTIVATIONS[name].__module__}.{name}"
    elif isinstance(layer, nn.LayerNorm):
        config, prefix = {"dimension": layer.normalized_shape[0]}, "norm"
    elif isinstance(layer, nn.Identity):
        config = {"dropout": 0.0}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    weights = {f"{prefix}.{name}": values.detach().cpu().contiguous() for name, values in layer.named_parameters()}
    if weights:
        save_file(weights, folder / "model.safetensors")
        (folder / "model.safetensors").chmod(0o644)
