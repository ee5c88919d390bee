"""Fine-tune a model on labels of the user: files in place of a benchmark.

| type | a row of the file |
|---|---|
| tagging | word and tag, an empty line after each sentence (CoNLL; `.conllu`: UPOS) |
| classification | text, label (TSV, CSV) |
| pair-classification | first text, second text, label |
| qa | the JSON of SQuAD |

The labels are those of the training file. Without a dev file, every tenth example is held out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from crossling.core.distributed import lock_run_output, process_group
from crossling.core.errors import BadInput, suggestion
from crossling.corpora.languages import canonical_code
from crossling.finetune.finetune_scoring import score_predictions
from crossling.finetune.finetune_settings import finetune_grid, format_overrides
from crossling.finetune.finetune_training import FinetuneRun, selection_score
from crossling.finetune.own_tables import read_labelled, refuse_header
from crossling.finetune.supervised_training import train_seeds
from crossling.finetune.training_data import Setting, TrainingData
from crossling.finetune.tuned_model import TunedInfo, TunedModel
from crossling.inference.load import load
from crossling.ingest.delimited import Cells
from crossling.ingest.language_hints import read_name
from crossling.tasks.dataset import BenchmarkDataset, TaskType, is_trainable
from crossling.tasks.examples import ClassificationExample, Example, TaggingExample, get_gold
from crossling.tasks.hyperparameters import (
    CLASSIFICATION_DEFAULTS,
    QA_DEFAULTS,
    TAGGING_DEFAULTS,
    FinetuneHyperparameters,
)
from crossling.tasks.metrics import METRICS
from crossling.tasks.readers import DOCUMENT_MARK, read_conllu, read_squad, split_sentences
from crossling.tasks.scores import ScoreRow

HELD_OUT = 10  # every tenth example is the dev set
UNKNOWN_LANGUAGE = "und"  # the code of ISO 639 for an undetermined language
OWN_SETTING: Setting = "own-labels"

# Task type, metrics and default hyperparameters of each type of labels.
OWN_TYPES: dict[str, tuple[TaskType, tuple[str, ...], FinetuneHyperparameters]] = {
    "tagging": ("tagging", ("chunk-f1", "token-accuracy"), TAGGING_DEFAULTS),
    "classification": ("classification", ("accuracy",), CLASSIFICATION_DEFAULTS),
    "pair-classification": ("classification", ("accuracy",), CLASSIFICATION_DEFAULTS),
    "qa": ("qa", ("squad-f1", "squad-exact-match"), QA_DEFAULTS),
}


@dataclass(frozen=True)
class OwnLabels:
    """Files with labels of the user.

    Attributes:
        kind: A key of `OWN_TYPES`.
        train: Training examples.
        dev: Examples that select the checkpoint. [default: every tenth training example]
        columns: Names or numbers of the columns of texts, then of the label.
        language: Language of the examples. [default: by the name of the training file]
    """

    kind: str
    train: Path
    dev: Path | None = None
    columns: tuple[str | int, ...] = ()
    language: str | None = None


def finetune_own(
    model: str | os.PathLike[str], own: OwnLabels, out: Path, *, seeds: int, overrides: Mapping[str, Any]
) -> list[ScoreRow]:
    """Fine-tune a model on own labels and score it on the dev set. See `finetune`."""
    if seeds < 1:
        raise BadInput(f"seeds={seeds}: expected at least 1.")
    data = read_own_data(own)
    [settings] = finetune_grid(data.dataset, None, format_overrides(overrides)).values()
    with process_group(), lock_run_output(out):
        torch.manual_seed(0)  # for a pooler that the encoder does not have
        training = partial(FinetuneRun, encoder=load(model), data=data, setting=OWN_SETTING, selection="english-dev")
        score = partial(_score_dev, data)
        return train_seeds(out, settings, seeds, training=training, dev_score=selection_score, score=score)


def read_own_data(own: OwnLabels) -> TrainingData:
    """Read the training and dev examples of a user, with the labels of the training file.

    Raises:
        BadInput: If a file cannot be read, has too few examples, or a dev label is not in the training file.
    """
    kind, train, dev, columns = own.kind, own.train, own.dev, own.columns
    if kind not in OWN_TYPES:
        raise BadInput(f"type={kind}: no such type{suggestion(kind, [*OWN_TYPES, 'embedding'])}")
    task_type, metrics, hyperparameters = OWN_TYPES[kind]
    header, examples = _read_examples(kind, train, columns)
    if not header:
        refuse_header(
            train, [[*each.texts, str(each.label)] for each in examples if isinstance(each, ClassificationExample)]
        )
    examples = [example for example in examples if is_trainable(example)]
    dev_examples = _read_examples(kind, dev, columns)[1] if dev is not None else examples[HELD_OUT - 1 :: HELD_OUT]
    if dev is None:
        examples = [example for row, example in enumerate(examples) if row % HELD_OUT != HELD_OUT - 1]
    if not examples or not dev_examples:
        raise BadInput(f"{train}: too few examples to hold out every tenth as dev set. Give more, or a dev file.")
    labels = _labels(examples)
    if unknown := sorted(set(_labels(dev_examples)) - set(labels)):
        where = dev or train
        raise BadInput(f"{where}: label {unknown[0]!r:.80} is not in the training examples. Add examples of it.")
    if task_type != "qa" and len(labels) < 2:
        raise BadInput(f"{train}: one label ({labels[0]!r:.80}), expected two or more. Check the columns.")
    code = canonical_code(own.language) if own.language else _language_by_name(train)
    dataset = BenchmarkDataset(
        name=f"own-{kind}",
        task_type=task_type,
        patterns=(),
        metrics=metrics,
        hyperparameters=hyperparameters,
        labels=labels,
    )
    return TrainingData(
        dataset=dataset,
        trained_on=train.name,
        source_language=code,
        train=examples,
        dev={code: dev_examples},
        columns=tuple(header[:-1]),
    )


def _language_by_name(file: Path) -> str:
    languages = read_name(file.name.partition(".")[0]).languages
    return languages[0] if len(languages) == 1 else UNKNOWN_LANGUAGE


def _labels(examples: Sequence[Example]) -> tuple[str, ...]:
    """Return the different labels or tags, sorted. Question answering has none."""
    labels: set[str] = set()
    for example in examples:
        if isinstance(example, TaggingExample):
            labels.update(example.tags or ())
        elif isinstance(example, ClassificationExample):
            labels.add(str(example.label))
    return tuple(sorted(labels))


def _read_examples(kind: str, file: Path, columns: Sequence[str | int]) -> tuple[Cells, list[Example]]:
    """Return the header of a table, empty if there is none, and the examples."""
    if not file.is_file():
        raise BadInput(f"{file}: no such file. Give a file of labelled examples.")
    if kind in ("tagging", "qa") and columns:
        raise BadInput(f"columns={','.join(map(str, columns))}: apply to classification only. Omit them.")
    if kind == "qa":
        questions = read_squad(file, ())
        if any(get_gold(question) is None for question in questions):
            raise BadInput(f"{file}: questions without answers. Add the answers, or set is_impossible.")
        return [], [*questions]
    if kind == "tagging":
        return [], [*(read_conllu(file, ()) if file.suffix == ".conllu" else _read_tagged(file))]
    width = 3 if kind == "pair-classification" else 2
    examples: list[Example] = []
    header, rows = read_labelled(file, columns, width)
    for row, cells in enumerate(rows):
        if len(cells) != width or not cells[-1]:
            problem = "no label" if len(cells) == width else f"{len(cells)} columns, expected {width}"
            raise BadInput(f"{file}: example {row + 1}: {problem}. Give the text columns, then the label.")
        examples.append(ClassificationExample(str(row), tuple(cells[:-1]), cells[-1]))
    return header, examples


def _read_tagged(file: Path) -> list[TaggingExample]:
    """Return the sentences of a CoNLL file: the first column has the words, the last one the tags."""
    examples: list[TaggingExample] = []
    for sentence in split_sentences(file):
        words, tags = [], []
        for number, line in sentence:
            cells = line.split("\t") if "\t" in line else line.split()
            if cells[0] == DOCUMENT_MARK:
                continue
            if len(cells) < 2 or not (cells[0].strip() and cells[-1].strip()):
                raise BadInput(f"{file}: line {number}: expected a word and a tag. Add what is missing.")
            words.append(cells[0].strip())
            tags.append(cells[-1].strip())
        if words:
            examples.append(TaggingExample(str(len(examples)), tuple(words), tuple(tags)))
    return examples


def _score_dev(data: TrainingData, info: TunedInfo, folder: Path) -> list[ScoreRow]:
    """Return the scores on the dev set, which also selected the checkpoint."""
    [(language, examples)] = data.dev.items()
    return score_predictions(
        [METRICS[name] for name in data.dataset.metrics],
        data.dataset.gold_labels(examples, "dev", language),
        TunedModel.load(folder).predict(examples),
        ids=[example.id for example in examples],
        text_language=language,
        out=folder,
        model=info.model,
        task=info.task,
        language=language,
        setting=info.setting,
        seed=info.seed,
        split="dev",
        trained_on=info.trained_on,
        selection=info.selection,
        selected_on_test=True,
        tuned=info.description,
        **info.pretraining,
    )
