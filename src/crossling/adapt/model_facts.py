"""The model to adapt, and what the choices depend on: its sizes, heads, vocabulary and device."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from crossling.bundled import resolve_model
from crossling.core.errors import BadInput
from crossling.core.hub import TOKENIZER_FILES, WEIGHT_FILES, get_model_folder
from crossling.inference.sentence_head import HEAD_FILES, SentenceHead
from crossling.model.native_encoder import has_lm_head
from crossling.model.pretrained import load_pretrained_config
from crossling.recipes.initialization import AnyInitialModel, load_initial_model
from crossling.recipes.native_model import NativeInitialModel
from crossling.recipes.run_checkpoints import run_of
from crossling.vocabulary.open_vocabulary import AnyVocabulary, open_vocabulary
from crossling.vocabulary.vocabulary import Vocabulary

OWN_TYPE = "crossling"  # of config.json


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelFacts:
    """A loaded model.

    Attributes:
        name: Name or folder as given.
        initial: The model to initialize the training from.
        reason: Reason for its architecture.
        vocabulary: Its vocabulary.
        has_lm_head: It has a head for masked language modelling.
        device: Type of the device that trains.
        pooling: Pooling of its sentence vectors: `mean`, or `cls` if its folder declares it.
    """

    name: str
    initial: AnyInitialModel
    reason: str
    vocabulary: AnyVocabulary
    has_lm_head: bool
    device: str
    pooling: Literal["mean", "cls"] = "mean"

    @property
    def is_native(self) -> bool:
        """The model is trained in its own architecture."""
        return isinstance(self.initial, NativeInitialModel)

    @property
    def width(self) -> int:
        """Hidden size."""
        return int(self.initial.encoder.config.hidden_size)

    @property
    def max_length(self) -> int:
        """Longest sequence in tokens."""
        return int(self.initial.encoder.config.max_position_embeddings)

    @property
    def can_extend(self) -> bool:
        """New entries can be added to the vocabulary."""
        return isinstance(self.vocabulary, Vocabulary)


def load_model_facts(model: str | os.PathLike[str], architecture: str | None = None) -> ModelFacts:
    """Load a model to adapt.

    Args:
        model: Run, exported folder, Hugging Face encoder, hub name, or `bundled`.
        architecture: `crossling` or `native`. [default: by the type of the model]

    Raises:
        BadInput: There is no such model, or it is no encoder.
    """
    name = os.fspath(model)
    if architecture not in (None, "crossling", "native"):
        raise BadInput(f"architecture={architecture}: expected crossling or native.")
    chosen, reason = _architecture(name)
    if architecture is not None:
        chosen, reason = architecture, "as requested"
    initial = load_initial_model(name, architecture=chosen)
    if isinstance(initial, NativeInitialModel):
        has_head = has_lm_head(initial.encoder.model)
    else:
        has_head = initial.encoder.lm_head is not None
    run = run_of(Path(name))
    return ModelFacts(
        name=name,
        initial=initial,
        reason=reason,
        vocabulary=open_vocabulary(run / "vocab" if run else name),
        has_lm_head=has_head,
        device="cuda" if torch.cuda.is_available() else "cpu",
        pooling="mean" if run else _declared_pooling(name, initial),
    )


def _declared_pooling(name: str, initial: AnyInitialModel) -> Literal["mean", "cls"]:
    """Return the pooling that a Sentence Transformers folder declares. Warn about what is not trained."""
    if not isinstance(initial, NativeInitialModel):
        return "mean"
    folder = get_model_folder(resolve_model(name), [*TOKENIZER_FILES, *WEIGHT_FILES, *HEAD_FILES])
    head = SentenceHead.read(folder, initial.encoder.config.hidden_size)
    if head is None:
        return "mean"
    if head.poolings not in (("mean",), ("cls",)) or any(True for _ in head.layers.parameters()):
        warnings.warn(
            f"{name}: its sentence vectors are {head}. Those of the result have no layers after the pooling",
            stacklevel=4,
        )
    declared = [*(["prompts"] if any(head.prompts.values()) else [])]
    declared += [f"a maximum of {head.max_length} tokens"] if head.max_length else []
    if declared:
        warnings.warn(
            f"{name}: declares {' and '.join(declared)}, which training does not use, so the result declares none",
            stacklevel=4,
        )
    return "cls" if head.poolings == ("cls",) else "mean"


def _architecture(name: str) -> tuple[str | None, str]:
    """Return the architecture to train in, and the reason. None leaves it to the run."""
    if run_of(Path(name)) is not None:
        return None, "that of the run"
    folder = get_model_folder(resolve_model(name), [*TOKENIZER_FILES, *WEIGHT_FILES])
    config = load_pretrained_config(folder, name)
    if config.model_type == OWN_TYPE:
        return "crossling", "the model has it"
    return "native", f"the result stays a model of type {config.model_type}, which transformers loads"
