"""Fine-tuned models: an encoder with a task head, its predictions, and its folder, which Hugging Face libraries read.

TUNED/seed-N/  config.json  model.safetensors  tokenizer.json     the model
               tuned.json                                         task, training settings and dev scores
               languages/LL/                                      models of single languages (selection=each-dev)
"""
# B features of a batch

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import numpy as np
import torch
import xxhash
from torch import Tensor
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from crossling.core.errors import BadInput
from crossling.core.files import check_format, read_json, write_json
from crossling.core.folder_kinds import kind_note
from crossling.core.hub import quiet_transformers
from crossling.data.packing import batch_by_length
from crossling.finetune.classification import ClassificationTaskType
from crossling.finetune.features import SequenceBuilder
from crossling.finetune.qa import QATaskType
from crossling.finetune.tagging import TaggingTaskType
from crossling.finetune.task_type import Confidence, Feature, HeadType, Prediction, TaskConfig, TaskType
from crossling.inference.hidden_states import evaluation_mode
from crossling.model.embedding import DisentangledEmbedding
from crossling.model.pretrained import load_pretrained, load_tokenizer
from crossling.tasks.examples import Example

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

AUTO_MODELS: dict[HeadType, Any] = {
    "classification": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "choice": AutoModelForMultipleChoice,
    "tagging": AutoModelForTokenClassification,
    "qa": AutoModelForQuestionAnswering,
}
TASK_TYPES: dict[HeadType, type[TaskType]] = {
    **dict.fromkeys(("classification", "regression", "choice"), ClassificationTaskType),
    "tagging": TaggingTaskType,
    "qa": QATaskType,
}
LANGUAGES_FOLDER = "languages"
TOKENS_PER_BATCH = 16_384  # padding included


def add_head(encoder: PreTrainedModel, config: TaskConfig, *, name: str, seed: int) -> PreTrainedModel:
    """Return a copy of the encoder with a new task head: ours on our encoders, that of transformers on others.

    Args:
        encoder: Any encoder. It stays as it is.
        config: Head type and labels.
        name: Name of the encoder in error messages.
        seed: Seed of the weights of the head.
    """
    model_config = copy.deepcopy(encoder.config)
    vars(model_config).pop("auto_map", None)  # remote code is not run
    if config.head_type == "regression":
        model_config.num_labels = 1
        model_config.problem_type = "regression"
    elif config.labels:
        model_config.id2label = dict(enumerate(config.labels))
        model_config.label2id = {label: index for index, label in enumerate(config.labels)}
    if config.plug_in or getattr(model_config, "plug_in", False):  # it may come from a model fine-tuned with plug-in
        model_config.plug_in = config.plug_in
    torch.manual_seed(seed)
    try:
        model: PreTrainedModel = AUTO_MODELS[config.head_type].from_config(model_config, dtype=torch.float32)
    except ValueError:
        raise BadInput(
            f"{name}: transformers has no {config.head_type} head for a {model_config.model_type}. Use another encoder."
        ) from None
    body: Any = model.base_model
    names = body.state_dict().keys()
    weights = {name: values for name, values in _encoder_weights(encoder).items() if name in names}
    missing = body.load_state_dict(weights, strict=False)[0]
    if body is model or any("pooler" not in key for key in missing):  # a pooler may be part of the head
        raise BadInput(f"{name}: its weights do not fit a {config.head_type} model. Use another encoder.")
    return model


def _encoder_weights(encoder: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights of the encoder, with a disentangled embedding as one ordinary table."""
    weights: dict[str, Tensor] = dict(encoder.state_dict())
    for name, module in encoder.named_modules():
        if isinstance(module, DisentangledEmbedding):
            weights[f"{name}.weight"] = module.weight.detach()
    return weights


# JSON file in the folder of a fine-tuned model: what the model is and how it was trained.


class ModelInfo(Protocol):
    """Fields that the info of every kind of fine-tuned model has."""

    @property
    def seed(self) -> int: ...

    @property
    def data(self) -> str:
        """Fingerprint of the training and dev sets."""

    @property
    def identity(self) -> dict[str, Any]:
        """Options and hyperparameters that determine the model, apart from seed and data."""


Info = TypeVar("Info", bound=ModelInfo)


@dataclass(frozen=True)
class InfoFile(Generic[Info]):
    """Format of an info file, and the folders that hold one.

    Args:
        name: File name.
        version: Version of the format.
        parse: Builds the info from its JSON object.
        command: Command that writes the file.
    """

    name: str
    version: int
    parse: Callable[[dict[str, Any]], Info]
    command: str

    def exists(self, folder: Path) -> bool:
        """Return True if the folder holds such a model."""
        return (folder / self.name).is_file()

    def seed_folders(self, folder: Path) -> list[Path]:
        """Return the folder of each seed, or the folder itself if it holds a single model."""
        folders = [path for path in folder.glob("seed-*") if self.exists(path)]
        return sorted(folders, key=lambda path: self.read(path).seed) or [folder]

    def read(self, folder: Path) -> Info:
        """Return the info of the model in a folder."""
        file = folder / self.name
        if not file.is_file():
            raise BadInput(f"{folder}: no {self.name} here{kind_note(folder)}. Train the model with {self.command}.")
        fix = f"Train the model again with {self.command}."
        try:
            stored = read_json(file)
            version = stored.pop("version", 1)
            info: Any = self.parse(stored) if version == self.version else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{file}: not valid ({error}). {fix}") from None
        check_format(file, version, self.version, fix)
        return cast(Info, info)

    def write(self, folder: Path, info: DataclassInstance) -> None:
        """Write the info of a model into its folder."""
        write_json(folder / self.name, {"version": self.version, **asdict(info)})


@dataclass(frozen=True, kw_only=True)
class TunedInfo:
    """Contents of tuned.json."""

    task: str
    model: str  # the encoder that was fine-tuned
    setting: str
    trained_on: str  # data set of the training examples
    selection: str
    seed: int
    config: TaskConfig
    hyperparameters: dict[str, Any]
    steps: int
    step: int  # of the selected checkpoint
    examples: int  # of the training set
    source_language: str = "en"  # language of the training examples
    data: str = ""  # fingerprint of training and dev examples
    pretraining: dict[str, Any] = field(default_factory=dict)  # `step` and `flops`, if `model` is a checkpoint of a run
    dev: dict[str, float | None] = field(default_factory=dict)  # "english-dev", "all-dev", and "dev/LL" by language

    @property
    def identity(self) -> dict[str, Any]:
        """Options and hyperparameters that determine the model, apart from seed and data."""
        options = {"task": self.task, "model": self.model, "setting": self.setting, "selection": self.selection}
        return {**options, "plug_in": str(self.config.plug_in), **self.hyperparameters}

    @property
    def description(self) -> str:
        """Short text that distinguishes models fine-tuned from one encoder for one task."""
        key = json.dumps([self.trained_on, self.data, self.hyperparameters], sort_keys=True).encode()
        plug_in = "plug-in, " if self.config.plug_in else ""
        lr = self.hyperparameters.get("lr", 0)
        return f"{plug_in}lr {lr:g}, {self.steps} steps, {xxhash.xxh3_64_hexdigest(key)[:6]}"


def _parse_info(stored: dict[str, Any]) -> TunedInfo:
    config = stored["config"]
    lists = {"labels": tuple(config["labels"]), "columns": tuple(config.get("columns", ()))}
    return TunedInfo(**stored | {"config": TaskConfig(**config | lists)})


TUNED_INFO = InfoFile("tuned.json", 2, _parse_info, "crossling finetune")


class TunedModel:
    """A fine-tuned model with its tokenizer, ready to predict.

    Args:
        model: Encoder with a task head.
        tokenizer: Tokenizer of the encoder.
        config: Task settings, as stored in tuned.json.

    Example:
        >>> tuned = TunedModel.load("tuned")
        >>> tuned.predict([ClassificationExample("0", ("A dog runs.", "An animal moves."), None)])
        ['entailment']
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, config: TaskConfig) -> None:
        self.model, self.tokenizer = model, tokenizer
        has_token_types = (getattr(model.config, "type_vocab_size", None) or 0) > 1
        self.task_type = TASK_TYPES[config.head_type](config, SequenceBuilder(tokenizer, has_token_types))

    def predict(
        self,
        examples: Sequence[Example],
        *,
        features: Sequence[Feature] | None = None,
        translations: Sequence[Example] | None = None,
    ) -> list[Prediction]:
        """Predict a label, the tags or the answer of each example.

        Args:
            examples: Examples of the task. They need no labels.
            features: Features of the examples, if they were built before.
            translations: Translation of each example, for a model with plug-in cross-attention.

        Returns:
            One prediction per example, which is a label, a number, a tuple of tags, or the text of an answer.

        Raises:
            BadInput: A translation has another number of choices than its example.
        """
        return self._predict(examples, features, translations)[0]

    def predict_with_scores(self, examples: Sequence[Example]) -> list[tuple[Prediction, Confidence]]:
        """Predict each example, with the confidence of the model.

        Args:
            examples: Examples of the task. They need no labels.

        Returns:
            Predictions with the probability of the class or of each tag. The score of an answer is the sum of the
            logits of its ends. A number has no score.

        Example:
            >>> tuned = TunedModel.load("tuned")
            >>> tuned.predict_with_scores([ClassificationExample("0", ("A dog runs.", "An animal moves."), None)])
            [('entailment', 0.97)]
        """
        predictions, features, scores = self._predict(examples)
        return list(zip(predictions, self.task_type.confidences(examples, features, scores), strict=True))

    def _predict(
        self,
        examples: Sequence[Example],
        features: Sequence[Feature] | None = None,
        translations: Sequence[Example] | None = None,
    ) -> tuple[list[Prediction], Sequence[Feature], list[np.ndarray]]:
        """Return the predictions, and the features with their scores."""
        if features is None:
            features = self.task_type.build_features(examples, with_targets=False, translations=translations)
        scores = [np.empty(0)] * len(features)
        device = self.model.eval().device
        with evaluation_mode(self.model, mixed_precision=True):
            for rows in batch_by_length([feature.padded_tokens for feature in features], TOKENS_PER_BATCH):
                batch = self.task_type.batch([features[row] for row in rows])
                output = self.task_type.output(self.model, {name: each.to(device) for name, each in batch.items()})
                for row, values in zip(rows, self.task_type.feature_scores(output), strict=True):
                    scores[row] = values
        return self.task_type.decode_predictions(examples, features, scores), features, scores

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write model and tokenizer into an existing folder.

        Args:
            folder: Folder to write to. TUNED folders also have a tuned.json, which `crossling.finetune` writes.

        Example:
            >>> tuned = TunedModel.load("tuned")
            >>> tuned.save("copy")  # for AutoModel.from_pretrained of transformers
        """
        save_pretrained(self.model, self.tokenizer, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], language: str | None = None) -> TunedModel:
        """Load a fine-tuned model.

        Args:
            folder: TUNED folder, or the folder of one seed.
            language: Load the model of this language, if the folder has one.

        Returns:
            The model, on the GPU if there is one.

        Raises:
            BadInput: The folder holds no fine-tuned model.

        Example:
            >>> tuned = TunedModel.load("tuned", language="de")
            >>> tuned.predict([ClassificationExample("0", ("Ein Hund rennt.", "Ein Tier bewegt sich."), None)])
            ['entailment']
        """
        folder = Path(folder)
        config = TUNED_INFO.read(folder).config
        place = model_folder(folder, language)
        model = load_pretrained(place, place, AUTO_MODELS[config.head_type])
        model.to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type]
        return cls(model, load_tokenizer(folder, folder), config)


def model_folder(folder: Path, language: str | None) -> Path:
    """Return the folder of the model for a language: its own, or the common one."""
    own = folder / LANGUAGES_FOLDER / (language or "")
    return own if language is not None and own.is_dir() else folder


def save_pretrained(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: str | os.PathLike[str]) -> None:
    """Write a model and its tokenizer in the format of transformers, without its progress output."""
    with quiet_transformers():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
