"""Sentence vectors as a Sentence Transformers folder declares them: pooling, dense layers, normalization, prompts.

`modules.json` lists the modules after the encoder, each with a folder of its own. Measured by the mean of some layer,
models such as LaBSE ([CLS], then a dense layer with tanh) or E5 (with prompts) lose much of what they can do.
"""
# B batch, L length, D width of the encoder, E width of the vectors

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from crossling.core.errors import BadInput, suggestion
from crossling.core.files import read_json
from crossling.model.fingerprint import model_fingerprint

MODULES, SETTINGS = "modules.json", "config_sentence_transformers.json"
LIMITS = tuple(  # early versions of Sentence Transformers named the file after the family
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
OLD_POOLINGS = {  # names of Sentence Transformers before 6
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
HEAD_FILES = ("[0-9]_*/model.safetensors",)  # weights of modules after the encoder, on the Hugging Face hub
LAYER_KEYS = ("num_hidden_layers", "output_layer")  # of the encoder; the second is that of our architecture
ACTIVATIONS = {each.__name__: each for each in (nn.Tanh, nn.Identity, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid)}


class Normalize(nn.Module):
    """Scales vectors to length one."""

    def forward(self, vectors_BE: Tensor) -> Tensor:
        return nn.functional.normalize(vectors_BE, dim=-1)


@dataclass(frozen=True, kw_only=True)
class SentenceHead:
    """Modules after the last layer of an encoder.

    Attributes:
        poolings: Names of the pooling modes. The vectors of several are concatenated.
        layers: Dense layers, LayerNorms and normalization, in their order.
        width: Width of the vectors.
        counts_prompt: The tokens of a prompt are pooled too.
        layer: Layer whose states are pooled, if it is not the last.
        max_length: Longest input in tokens, if the folder limits it.
        lowercases: Sentences are converted to lower case first.
        prompts: Texts to put before a sentence, by name.
        default_prompt: Name of the prompt of sentences without another one.
    """

    poolings: tuple[str, ...]
    layers: nn.Sequential
    width: int
    counts_prompt: bool = True
    layer: int | None = None
    max_length: int | None = None
    lowercases: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None

    @classmethod
    def read(cls, folder: Path, width: int) -> SentenceHead | None:
        """Return the head that a folder declares, or None if it declares none.

        Args:
            folder: Folder of the model.
            width: Width of the encoder.

        Raises:
            BadInput: If the folder is damaged, or declares a module that is not supported.
        """
        if not (folder / MODULES).is_file():
            return None
        declared = [(_kind(each), _module_folder(folder, each)) for each in _read_list(folder / MODULES)]
        kinds = [kind for kind, _ in declared]
        if kinds[:2] != ["Transformer", "Pooling"]:
            raise BadInput(f"{folder / MODULES}: found {', '.join(kinds)}, expected Transformer and Pooling first.")
        pooling = read_json(declared[1][1] / "config.json")
        poolings = _read_poolings(pooling, declared[1][1])
        layers, last = nn.Sequential(), len(poolings) * width
        for kind, path in declared[2:]:
            if kind not in READERS:
                raise BadInput(f"{folder / MODULES}: {kind} is not supported{suggestion(kind, READERS)}")
            layers.append(READERS[kind](path, last))
            last = getattr(layers[-1], "out_features", last)
        limits = next(filter(None, (_read_optional(declared[0][1] / name) for name in LIMITS)), {})
        settings = _read_optional(folder / SETTINGS)
        return cls(
            poolings=poolings,
            layers=layers.eval().requires_grad_(False),
            width=last,
            counts_prompt=bool(pooling.get("include_prompt", True)),
            layer=next(filter(None, map((limits.get("config_args") or {}).get, LAYER_KEYS)), None),
            max_length=limits.get("max_seq_length"),
            lowercases=bool(limits.get("do_lower_case", False)),
            prompts=settings.get("prompts") or {},
            default_prompt=settings.get("default_prompt_name"),
        )

    def __str__(self) -> str:
        return " + ".join(["/".join(self.poolings), *(type(layer).__name__.lower() for layer in self.layers)])

    def description(self) -> list[object]:
        """Return JSON values that determine the vectors of an encoder with this head."""
        prompt = self.find_prompt(None)
        values: list[object] = [
            *self.poolings,
            model_fingerprint(self.layers),
            str(self),
            self.max_length,
            self.lowercases,
            prompt,
        ]
        return values if self.layer is None else [*values, self.layer]

    def find_prompt(self, name: str | None) -> str:
        """Return the text of a prompt. [default: that of the default prompt]"""
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            raise BadInput(f"prompt_name={name}: the model declares no such prompt{suggestion(name, self.prompts)}")
        return self.prompts[name]

    def compute(self, hidden_BLD: Tensor, valid_BL: Tensor, prompt_length: int = 0) -> Tensor:
        """Return the sentence vectors, [B, E] in float32.

        Args:
            hidden_BLD: States of the layer that the folder declares.
            valid_BL: 1 for tokens, 0 for padding.
            prompt_length: Number of tokens of the prompt.
        """
        pooled_BL = valid_BL.clone()
        if not self.counts_prompt:
            pooled_BL[:, :prompt_length] = 0
        return self.compute_pooled(hidden_BLD, pooled_BL)

    def compute_pooled(self, hidden_BLD: Tensor, pooled_BL: Tensor) -> Tensor:
        """Return the sentence vectors, [B, E] in float32, where `pooled_BL` is 1 for the tokens to pool."""
        vectors = [POOLINGS[name](hidden_BLD.float(), pooled_BL) for name in self.poolings]
        output: Tensor = self.layers(torch.cat(vectors, dim=-1))
        return output


def _pool_mean(hidden_BLD: Tensor, valid_BL: Tensor) -> Tensor:
    return _weighted_mean(hidden_BLD, valid_BL)


def _pool_by_position(hidden_BLD: Tensor, valid_BL: Tensor) -> Tensor:
    position_L = torch.arange(1, valid_BL.shape[1] + 1, device=valid_BL.device)
    return _weighted_mean(hidden_BLD, valid_BL * position_L)


def _weighted_mean(hidden_BLD: Tensor, weight_BL: Tensor) -> Tensor:
    weight_BL1 = weight_BL[..., None].float()
    return (hidden_BLD * weight_BL1).sum(1) / weight_BL1.sum(1).clamp(min=1e-9)


def _pool_sum_by_root(hidden_BLD: Tensor, valid_BL: Tensor) -> Tensor:
    valid_BL1 = valid_BL[..., None].float()
    return (hidden_BLD * valid_BL1).sum(1) / valid_BL1.sum(1).clamp(min=1e-9).sqrt()


def _pool_max(hidden_BLD: Tensor, valid_BL: Tensor) -> Tensor:
    return hidden_BLD.masked_fill(~valid_BL.bool()[..., None], -1e9).amax(1)


def _pool_first(hidden_BLD: Tensor, valid_BL: Tensor) -> Tensor:
    return hidden_BLD[torch.arange(len(valid_BL)), valid_BL.argmax(1)]


def _pool_last(hidden_BLD: Tensor, valid_BL: Tensor) -> Tensor:
    return hidden_BLD[torch.arange(len(valid_BL)), valid_BL.shape[1] - 1 - valid_BL.flip(1).argmax(1)]


POOLINGS = {
    "mean": _pool_mean, "cls": _pool_first, "max": _pool_max, "lasttoken": _pool_last,
    "weightedmean": _pool_by_position, "mean_sqrt_len_tokens": _pool_sum_by_root,
}  # fmt: skip


def _read_dense(folder: Path, width: int) -> nn.Module:
    config, file = read_json(folder / "config.json"), folder / "model.safetensors"
    if not file.is_file():
        raise BadInput(
            f"{folder}: no model.safetensors. Other files may run code when they are read. Save the model again with"
            " a current version of Sentence Transformers."
        )
    sizes = {key: config.get(key) for key in ("in_features", "out_features")}
    for key, size in sizes.items():
        if not isinstance(size, int):
            raise BadInput(f"{folder / 'config.json'}: {key} is {size}, expected a number. Download the model again.")
    name = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise BadInput(f"{folder}: activation {name} is not supported{suggestion(name, ACTIVATIONS)}")
    if config.get("use_residual"):
        raise BadInput(f"{folder}: a dense layer with a residual connection is not supported. Give another model.")
    layer = DenseLayer(**sizes, bias=bool(config.get("bias", True)))
    layer.activation = ACTIVATIONS[name]()
    _load(layer, {key.removeprefix("linear."): value for key, value in load_file(file).items()}, folder)
    if layer.in_features != width:
        raise BadInput(f"{folder}: reads vectors of width {layer.in_features}, found {width} before it.")
    return layer


def _read_norm(folder: Path, width: int) -> nn.Module:
    layer = nn.LayerNorm(width)
    weights = load_file(folder / "model.safetensors")
    _load(layer, {key.removeprefix("norm."): value for key, value in weights.items()}, folder)
    return layer


def _load(layer: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    try:
        layer.load_state_dict({name: value.float() for name, value in weights.items()})
    except RuntimeError:
        raise BadInput(f"{folder}: the weights do not fit its config.json. Download the model again.") from None


class DenseLayer(nn.Linear):
    """Linear layer with its activation."""

    activation: nn.Module

    def forward(self, vectors_BE: Tensor) -> Tensor:
        output: Tensor = self.activation(super().forward(vectors_BE))
        return output


READERS: dict[str, Any] = {
    "Dense": _read_dense,
    "LayerNorm": _read_norm,
    "Normalize": lambda *_: Normalize(),
    "Dropout": lambda *_: nn.Identity(),
}


def _read_poolings(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    given = config.get("pooling_mode")
    if given is not None:
        poolings = tuple([given] if isinstance(given, str) else given)
    else:
        poolings = tuple(name for key, name in OLD_POOLINGS.items() if config.get(key))
    if not poolings or not set(poolings) <= POOLINGS.keys():
        raise BadInput(
            f"{folder}: found pooling {', '.join(poolings) or 'none'}, expected one of {', '.join(POOLINGS)}."
        )
    return poolings


def find_encoder_folder(folder: Path) -> Path:
    """Return the folder of the encoder itself. Early Sentence Transformers folders have it in a folder of its own."""
    if (folder / "config.json").is_file() or not (folder / MODULES).is_file():
        return folder
    return _module_folder(folder, _read_list(folder / MODULES)[0])


def has_modules_after_pooling(folder: Path) -> bool:
    """Return whether a folder declares more than an encoder and its pooling, or prompts."""
    modules = folder / MODULES
    return modules.is_file() and (
        len(_read_list(modules)) > 2 or bool(_read_optional(folder / SETTINGS).get("prompts"))
    )


def _module_folder(folder: Path, module: Mapping[str, Any]) -> Path:
    path = folder / str(module["path"])
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(
            f"{folder / MODULES}: path {module['path']!r} leads out of the folder. Download the model again."
        )
    return path


def _kind(module: Mapping[str, Any]) -> str:
    return str(module["type"]).rpartition(".")[2]


def _read_list(file: Path) -> list[dict[str, Any]]:
    found = read_json(file)
    if not isinstance(found, list) or not all(
        isinstance(each, dict) and {"type", "path"} <= each.keys() for each in found
    ):
        raise BadInput(f"{file}: expected a list of modules with `type` and `path`. Download the model again.")
    return found


def _read_optional(file: Path) -> Mapping[str, Any]:
    return read_json(file) if file.is_file() else {}
