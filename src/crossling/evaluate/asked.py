"""What an evaluation is asked for, checked before anything long: none of this needs torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossling.benchmarks.sets import SETS
from crossling.errors import BadInput, nearest
from crossling.evaluate import scores
from crossling.evaluate.files import Files, bucc_files, gold_files, names, spelt, tatoeba_files
from crossling.evaluate.links import check_methods

# Tasks without training, and where their files are.
TASKS: dict[str, Callable[[Path], Files]] = {
    "tatoeba": tatoeba_files,
    "bucc2018": bucc_files,
    "word-alignment": gold_files,
}
TRANSLATION = "translation"  # of translators, in directions in the place of languages
POOLINGS = ("mean", "cls")

Languages = list[str] | None  # all that are there, if none is asked for


@dataclass(frozen=True)
class Asked:
    tasks: Sequence[str]
    data: Path
    out: Path | None = None
    languages: Sequence[str] | None = None
    pooling: str = "mean"
    methods: Sequence[str] = ("ot",)
    layers: Sequence[int] | None = None
    recompute: bool = False
    plug_in: bool = False

    @property
    def free(self) -> list[str]:
        """Tasks without training."""
        return [task for task in self.tasks if task in TASKS]

    @property
    def tuned(self) -> list[str]:
        """Tasks of fine-tuned models."""
        return [task for task in self.tasks if task not in TASKS]

    def check(self) -> dict[str, Languages]:
        """Refuses what cannot be done; else which of the languages each task has. A task that has none is left out."""
        for task in self.tasks:
            if task not in TASKS and task not in SETS and task != TRANSLATION:
                raise BadInput(f"task {task!r} is unknown{nearest(task, [*TASKS, TRANSLATION, *SETS])}")
        self._check_options()
        if not self.data.is_dir():
            raise BadInput(f"{self.data}: no such folder; give the folder that holds tatoeba/ and word-alignment/")
        if self.out is not None:  # what cannot be kept need not be measured
            scores.check_place(self.out)
        if TRANSLATION in self.tasks:
            if len(self.tasks) > 1:
                raise BadInput(f"{TRANSLATION}: translators have no other tasks; ask for it alone")
            return {TRANSLATION: None if self.languages is None else [*self.languages]}
        return dict.fromkeys(self.tasks) if self.languages is None else self._shared_out(self.languages)

    def _check_options(self) -> None:
        if not self.free and (self.layers or self.pooling != "mean" or [*self.methods] != ["ot"]):
            raise BadInput(
                f"{self.tasks[0]}: layers, pooling and methods are for tasks without training; leave them out"
            )
        if self.free and self.recompute:
            raise BadInput(
                f"{self.free[0]}: only predictions of fine-tuned models are scored anew; leave --recompute out"
            )
        if self.plug_in and [*self.tasks] != ["tatoeba"]:
            told = "a model that was fine-tuned so does it by itself" if self.tuned else "only tatoeba has translations"
            raise BadInput(f"--plug-in: expected --task tatoeba alone; {told}")
        check_pooling(self.pooling)
        check_methods(self.methods)

    def _shared_out(self, languages: Sequence[str]) -> dict[str, Languages]:
        there = {task: _there(task, self.data) for task in self.tasks}
        everywhere = set().union(*there.values())
        for language in languages:
            if spelt(language, everywhere) not in everywhere:
                told = nearest(language, everywhere)
                raise BadInput(f"{self.data}: nothing to score in {language!r} for {', '.join(self.tasks)}{told}")
        shared = {task: [each for each in languages if spelt(each, own) in own] for task, own in there.items()}
        return {task: own for task, own in shared.items() if own}


def check_pooling(pooling: str) -> None:
    if pooling not in POOLINGS:
        raise BadInput(f"pooling {pooling!r} is unknown{nearest(pooling, POOLINGS)}")


def check_trained(task: str, model: object, data: object) -> None:
    """Refuses to fine-tune for a task that there is not, or that needs no training."""
    if task in TASKS:
        raise BadInput(
            f"{task} needs no training; measure it with crossling evaluate {model} --task {task} --data {data}"
        )
    if task not in (*SETS, TRANSLATION):
        raise BadInput(f"--task {task}: no such task{nearest(task, [*SETS, TRANSLATION])}")


def _there(task: str, data: Path) -> set[str]:
    return names(TASKS[task](data)) if task in TASKS else {*SETS[task].scorable(data)}
