"""Published scores on the terminal, below those of a model on the same task, metric and languages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from crossling.cli.layer_tables import MIN_COVERAGE

if TYPE_CHECKING:
    from crossling.report.analysis import TaskScore
    from crossling.tasks.scores import ScoreRow


def print_published(rows: Sequence[ScoreRow]) -> None:
    """Print the published models that have scores in all languages of a score, or nothing.

    Args:
        rows: Score rows of one model.
    """
    from crossling.report.analysis import task_scores
    from crossling.report.published import paper_citations
    from crossling.report.published_comparison import published_means

    found: dict[str, dict[tuple[str, str], float]] = {}  # by title: mean by model and reference
    papers: dict[str, str] = {}
    notes: dict[str, None] = {}
    printed: dict[str, list[str]] = {}  # languages of a task, which its lists need not repeat
    for score in task_scores(rows):
        task, codes = score.measure.task, sorted(score.mean_languages)
        whole = "tatoeba" if task.startswith("tatoeba-") else task
        if whole != task and (printed.get(whole) == codes or not _is_covered(score.coverage)):
            continue
        printed.setdefault(task, codes)
        for each in published_means(score):
            models = found.setdefault(_title(score, each.row.evaluation), {})
            models.setdefault((each.row.name, each.row.reference), each.value)
            papers[each.row.paper] = paper_citations()[each.row.paper]
            notes |= dict.fromkeys(each.row.notes)
    for title, models in found.items():
        table = Table("published model", "source")
        table.add_column("mean", justify="right")
        for (name, reference), value in models.items():
            table.add_row(name, reference, f"{value:.1f}")
        print(title)
        Console().print(table)
    for note in notes:
        print(f"note: {note}")
    for paper, citation in papers.items():
        print(f"{paper}: {citation}")


def _title(score: TaskScore, evaluation: str | None) -> str:
    from crossling.report.analysis import metric_title

    measure = score.measure
    setting = score.setting if measure.setting != "training-free" else None
    facts = filter(None, [evaluation, measure.direction, setting])
    return f"{measure.task}: {', '.join([metric_title(measure.metric), *facts])}, as published, {score.coverage}, %"


def _is_covered(coverage: str) -> bool:
    """Return True for a list that is complete or at least half there, as `28 of 36`."""
    present, _, total = coverage.partition(" of ")
    return not total or int(present) >= MIN_COVERAGE * int(total)
