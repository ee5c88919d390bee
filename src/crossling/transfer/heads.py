"""An encoder becomes a model of a task: our own heads on ours, those of transformers on others."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

import crossling.model.tasks  # noqa: F401  registers our heads with Auto*
from crossling.errors import BadInput
from crossling.model.tables import DisentangledEmbedding
from crossling.transfer.answering import Answering
from crossling.transfer.classification import Classification
from crossling.transfer.family import Family, Form, Kind
from crossling.transfer.tagging import Tagging

HEADS: dict[Kind, Any] = {
    "classification": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "choice": AutoModelForMultipleChoice,
    "tagging": AutoModelForTokenClassification,
    "answering": AutoModelForQuestionAnswering,
}
FAMILIES: dict[Kind, type[Family]] = {
    "classification": Classification,
    "regression": Classification,
    "choice": Classification,
    "tagging": Tagging,
    "answering": Answering,
}


def with_head(encoder: PreTrainedModel, form: Form, name: str, seed: int) -> PreTrainedModel:
    """The encoder, copied, with a head whose weights the seed gives."""
    config = copy.deepcopy(encoder.config)
    vars(config).pop("auto_map", None)  # code of others that is not run
    if form.kind == "regression":
        config.num_labels = 1
        config.problem_type = "regression"
    elif form.labels:
        config.id2label = dict(enumerate(form.labels))
        config.label2id = {label: number for number, label in enumerate(form.labels)}
    if form.plug_in or getattr(config, "plug_in", False):  # an encoder may be that of a model tuned otherwise
        config.plug_in = form.plug_in
    torch.manual_seed(seed)
    try:
        model: PreTrainedModel = HEADS[form.kind].from_config(config, dtype=torch.float32)
    except ValueError:
        raise BadInput(
            f"{name}: transformers has no head for {form.kind} on a {config.model_type}; give another encoder"
        ) from None
    body: Any = model.base_model
    own = body.state_dict().keys()
    missing = body.load_state_dict({k: v for k, v in _weights(encoder).items() if k in own}, strict=False)[0]
    lost = [key for key in missing if "pooler" not in key]  # a pooler may be part of the head
    if body is model or lost:
        raise BadInput(f"{name}: its weights do not fit its own head for {form.kind}; give another encoder")
    return model


def _weights(encoder: PreTrainedModel) -> dict[str, Tensor]:
    """By the names they have in a model whose token table is an ordinary one."""
    weights: dict[str, Tensor] = dict(encoder.state_dict())
    for name, module in encoder.named_modules():
        if isinstance(module, DisentangledEmbedding):
            weights[f"{name}.weight"] = module.weight.detach()
    return weights
