"""All synthetic tasks: NLI, paraphrase, QA, POS, NER, mining and translation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from crossling.core.settings import Bounds, check_bounds
from crossling.synthetic.frames import Frame
from crossling.synthetic.heldout import CandidatePool, HeldOut, write_text
from crossling.synthetic.language import LanguageFamily
from crossling.synthetic.mining_data import MiningTask
from crossling.synthetic.nli_data import NLITask, ParaphraseTask
from crossling.synthetic.qa_data import QATask
from crossling.synthetic.tagging_data import NERTask, POSTask, TranslationTask
from crossling.synthetic.task_data import SyntheticTask

TASK_SPARE_FACTOR = 1.2  # candidates per requested one: few of these long sentences occur in training data
MIN_EXAMPLES = {"train": 48, "dev": 24, "test": 24}
TASK_TYPES: tuple[type[SyntheticTask[Any]], ...] = (
    NLITask,
    ParaphraseTask,
    QATask,
    POSTask,
    NERTask,
    MiningTask,
    TranslationTask,
)
PARTS = tuple(f"{kind.name}/{split}" for kind in TASK_TYPES for split in kind.splits)


@dataclass(frozen=True)
class ExampleCounts:
    """Number of examples of each task and split. Tasks with grouped examples have whole groups only.

    Args:
        train: Training examples.
        dev: Development examples.
        test: Test examples.

    Example:
        >>> counts = ExampleCounts(train=2000, dev=200, test=400)
    """

    train: Annotated[int, Bounds(at_least=MIN_EXAMPLES["train"])]
    dev: Annotated[int, Bounds(at_least=MIN_EXAMPLES["dev"])]
    test: Annotated[int, Bounds(at_least=MIN_EXAMPLES["test"])]

    @classmethod
    def plan(cls, sentences: int) -> ExampleCounts:
        """Return a tenth, a hundredth and a fiftieth of the number of sentences.

        Args:
            sentences: Monolingual sentences of the largest language.

        Example:
            >>> crossling.ExampleCounts.plan(20_000).train
            2000
        """
        counts = {"train": sentences // 10, "dev": sentences // 100, "test": sentences // 50}
        return cls(**{split: max(minimum, counts[split]) for split, minimum in MIN_EXAMPLES.items()})

    def __post_init__(self) -> None:
        check_bounds(self, "examples")


class SyntheticTasks:
    """The tasks of a language family, without sentences of its training data."""

    def __init__(self, family: LanguageFamily, examples: ExampleCounts, heldout: HeldOut) -> None:
        self._pools: list[tuple[SyntheticTask[Any], str, CandidatePool[Any]]] = []
        for kind in TASK_TYPES:
            task = kind(family)
            for split in task.splits:
                wanted = task.groups(getattr(examples, split))
                pool = heldout.gather(f"{task.name}/{split}", wanted, task.sample_groups(split), TASK_SPARE_FACTOR)
                self._pools.append((task, split, pool))

    def write(self, folder: Path) -> None:
        """Write all files. Call it after all training data is written."""
        for task, split, pool in self._pools:
            for name, content in task.files(split, pool.remaining()):
                write_text(folder / task.name / name, content)

    def frames(self) -> Iterator[tuple[str, Frame]]:
        """Yield the part and the frame of every sentence once."""
        for _, _, pool in self._pools:
            for group in pool.remaining():
                for one in group.sentences:
                    yield pool.part, one.frame
