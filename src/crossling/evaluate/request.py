"""The request of an evaluation, checked before the model is loaded. Importing this module does not import torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crossling.core.errors import BadInput, suggestion
from crossling.inference.pooling import check_pooling
from crossling.inference.word_links import check_methods
from crossling.tasks import scores
from crossling.tasks.benchmark_files import (
    FLORES,
    TRAINING_FREE_TASKS,
    TRANSLATION,
    available_languages,
    normalize_language,
)
from crossling.tasks.own_pairs import RETRIEVAL, read_own_pairs
from crossling.tasks.registry import DATASETS, check_task

Languages = list[str] | None  # None: all languages of the data


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """Arguments of `evaluate`."""

    tasks: Sequence[str]
    data: Path  # folder of benchmark data, or a file of own sentence pairs
    out: Path | None = None
    languages: Sequence[str] | None = None
    pooling: str = "auto"
    prompt: str | None = None
    methods: Sequence[str] = ("ot",)
    layers: Sequence[int] | None = None
    recompute: bool = False
    plug_in: bool = False
    checkpoints: str | None = None
    dimensions: Sequence[int] = ()

    @property
    def training_free(self) -> list[str]:
        """Tasks that need no fine-tuning."""
        return [task for task in self.tasks if task in (*TRAINING_FREE_TASKS, RETRIEVAL)]

    @property
    def finetuned(self) -> list[str]:
        """Tasks of fine-tuned models."""
        return [task for task in self.tasks if task not in (*TRAINING_FREE_TASKS, RETRIEVAL)]

    def check(self) -> dict[str, Languages]:
        """Raise BadInput if the request is invalid. Return the requested languages of each task that has any."""
        if [*self.tasks] == [RETRIEVAL] and not self.data.is_dir():
            return self._check_pairs()
        for task in self.tasks:
            check_task(task, [*TRAINING_FREE_TASKS, TRANSLATION, *DATASETS])
        self._check_options()
        if not self.data.is_dir():
            raise BadInput(f"{self.data}: no such folder. Give the folder that contains tatoeba/ or word-alignment/.")
        if self.out is not None:  # fail before the evaluation, not after it
            scores.check_scores_folder(self.out)
        if TRANSLATION in self.tasks:
            if len(self.tasks) > 1:
                raise BadInput(f"task={TRANSLATION}: cannot be combined with other tasks. Request it alone.")
            return {TRANSLATION: None if self.languages is None else [*self.languages]}
        return dict.fromkeys(self.tasks) if self.languages is None else self._languages_by_task(self.languages)

    def _check_pairs(self) -> dict[str, Languages]:
        self._check_options()
        read_own_pairs(self.data, self.languages)
        if self.out is not None:
            scores.check_scores_folder(self.out)
        return {RETRIEVAL: None}

    def _check_options(self) -> None:
        if not self.training_free and (
            self.layers or self.pooling != "auto" or self.prompt or [*self.methods] != ["ot"]
        ):
            raise BadInput(
                f"task={self.tasks[0]}: layers, pooling, prompt and method apply to training-free tasks only. Omit"
                " them."
            )
        if self.training_free and self.recompute:
            raise BadInput(f"task={self.training_free[0]}: recompute applies to fine-tuned models only. Omit it.")
        if self.checkpoints is not None and [*self.training_free] != [*self.tasks]:
            raise BadInput(
                f"checkpoints={self.checkpoints}: applies to training-free tasks. For {self.tasks[0]}, fine-tune the"
                " checkpoints with crossling finetune RUN --checkpoints."
            )
        if self.plug_in and [*self.tasks] != ["tatoeba"]:
            fix = "Omit it: models fine-tuned with plug_in use it by themselves" if self.finetuned else "Omit it"
            raise BadInput(f"plug_in=true: applies to tatoeba only. {fix}.")
        if self.dimensions and (not {"tatoeba", FLORES} & {*self.tasks} or self.plug_in):
            raise BadInput("dimensions: applies to tatoeba and flores without plug_in only. Omit it.")
        check_pooling(self.pooling)
        check_methods(self.methods)

    def _languages_by_task(self, languages: Sequence[str]) -> dict[str, Languages]:
        available = {task: _available_languages(task, self.data, languages) for task in self.tasks}
        known = set().union(*available.values())
        for language in languages:
            if normalize_language(language, known) not in known:
                hint = suggestion(language, known)
                raise BadInput(f"{self.data}: {', '.join(self.tasks)} has no data for language {language!r}{hint}")
        requested = {
            task: [language for language in languages if normalize_language(language, own) in own]
            for task, own in available.items()
        }
        return {task: own for task, own in requested.items() if own}


def tasks_and_data(
    task: str | Sequence[str] | None, data: str | os.PathLike[str] | None, pairs: str | os.PathLike[str] | None
) -> tuple[list[str], Path]:
    """Return the tasks of a request and their data: a folder of benchmarks, or a file of own sentence pairs."""
    if pairs is not None:
        if task or data is not None:
            raise BadInput(f"pairs={pairs}: cannot be combined with task and data. Omit these.")
        return [RETRIEVAL], Path(pairs)
    if not task or data is None:
        raise BadInput("task and data: one is missing. Give both, or a file of sentence pairs as pairs.")
    return list(dict.fromkeys(task.split(",") if isinstance(task, str) else task)), Path(data)


def _available_languages(task: str, data: Path, languages: Sequence[str]) -> set[str]:
    if task in TRAINING_FREE_TASKS:
        return available_languages(task, data, languages)
    return {*DATASETS[task].languages_with_test_files(data)}
