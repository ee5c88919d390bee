"""Leaderboards: the runs, and below them the papers' numbers of the same measures with their reference.

A leaderboard is shown only if a run has a score on it. Everything that makes a number not comparable is noted: an
incomplete list of languages, other training data, another split, or a paper that contradicts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from crossling.evaluate.word_alignment import PROTOCOLS
from crossling.report.analysis import (
    GLUE_8,
    LANGUAGES,
    QA_MEAN,
    TITLES,
    XTREME_7,
    XTREME_9,
    TaskScore,
    task_average,
    transfer_gap,
)
from crossling.report.published import PublishedRow, published_table
from crossling.report.runs import ReportRun
from crossling.tasks.scores import SeedStatistics

OFFICIAL = {"xquad": "squad", "mlqa": "squad"}  # training set, if it is not that of the task
ALIGNMENT_PAIRS = ("de-en", "en-fr", "en-hi", "en-ro")  # gold alignments of XLM-E's Table 6
GAP_METRICS = dict.fromkeys(("xquad", "mlqa", "tydiqa"), "exact_match") | dict.fromkeys(("xnli", "pawsx"), "accuracy")
ZERO_SHOT = "Fine-tuned on English, tested on all languages"
TRANSLATE_TRAIN = "Fine-tuned on translations into all languages"
RETRIEVAL = "Retrieval, mining and alignment"
GLUE = "GLUE, English dev sets"
XTREME_DIRECTIONS = {"bucc2018": None, "tatoeba-36": "en-xx"}  # of XTREME's retrieval tasks
TRANSFER_GAP = "Transfer gap"
CAPTIONS = {
    **dict.fromkeys(
        (ZERO_SHOT, TRANSLATE_TRAIN),
        "Unweighted mean over languages, as in XTREME. The average is over the seven tasks; QA tasks count as the mean"
        " of F1 and exact match. That of nine tasks adds BUCC and Tatoeba en→xx"
        " without fine-tuning. ± is the standard deviation over seeds. In brackets: coverage of the languages.",
    ),
    RETRIEVAL: "Without fine-tuning. Accuracy and F1: higher is better; alignment error rate (AER): lower is better."
    " Numbers of runs state their protocol and layer. Protocol xtreme follows its scripts at their fixed layer."
    " Protocol sweep counts equal sentences as one candidate. A best layer was selected on the test scores shown.",
    GLUE: "Fine-tuned on English. The average is XY-LENT's, over eight tasks: MNLI counts its matched set, QQP and MRPC"
    " their accuracy.",
    TRANSFER_GAP: "English minus the mean of the other languages, in points; exact match for QA. Lower is better.",
}


@dataclass(frozen=True)
class LeaderboardCell:
    """One number, its details and its footnotes."""

    text: str
    small: str = ""  # standard deviation, protocol and layer, coverage of the languages
    title: str = ""  # conditions and seeds
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LeaderboardRow:
    """A run or a published model."""

    name: str
    reference: str  # "XLM-E, Table 1"; empty for a run
    cells: list[LeaderboardCell]
    title: str = ""
    notes: tuple[str, ...] = ()
    colour: int | None = None  # None for a published model


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """One table of the page."""

    title: str
    caption: str
    columns: list[str]
    runs: list[LeaderboardRow]
    published: list[LeaderboardRow]


@dataclass(frozen=True)
class _Column:
    """One measure of a leaderboard."""

    title: str
    names: list[str]  # columns of the papers' tables
    cell: Callable[[ReportRun], LeaderboardCell]

    def published_cell(self, row: PublishedRow) -> LeaderboardCell:
        if not all(name in row.values for name in self.names):
            return EMPTY
        return LeaderboardCell(" / ".join(f"{row.values[name]:.1f}" for name in self.names))


EMPTY = LeaderboardCell("–")


def build_leaderboards(runs: Sequence[ReportRun]) -> list[Leaderboard]:
    """Return the leaderboards on which at least one run has a score."""
    # Tables that repeat rows of other papers are restricted to some models.
    infoxlm, veco = ("InfoXLM", "XLM-R (reimplementation)"), ("XLM-R", "VECO")
    zero_shot = [
        *published_table("XLM-E", "1"),
        *published_table("XY-LENT", "1", setting="zero-shot"),
        *published_table("InfoXLM", "1", setting="zero-shot", models=infoxlm),
        *published_table("VECO", "2", setting="zero-shot", models=veco),
    ]
    translate_train = [
        *published_table("XY-LENT", "1", setting="translate-train"),
        *published_table("InfoXLM", "1", setting="translate-train", models=infoxlm),
        *published_table("VECO", "2", setting="translate-train"),
    ]
    retrieval = [
        *_merge_tables(published_table("XLM-E", "5", "6")),
        *_merge_tables(published_table("InfoXLM", "2")),
        *published_table("VECO", "2", setting="zero-shot", models=veco),
    ]
    gaps = [
        *published_table("XLM-E", "7"),
        *published_table("XY-LENT", "4", models=["XY-LENT"]),
        *published_table("InfoXLM", "5"),
    ]
    leaderboards = [
        _build(ZERO_SHOT, _finetuning_columns("zero-shot"), runs, zero_shot),
        _build(TRANSLATE_TRAIN, _finetuning_columns("translate-train"), runs, translate_train),
        _build(RETRIEVAL, _retrieval_columns(), runs, retrieval),
        _build(GLUE, _glue_columns(), runs, published_table("XY-LENT", "3")),
        _build(TRANSFER_GAP, [_gap_column(*each) for each in GAP_METRICS.items()], runs, gaps),
    ]
    return [leaderboard for leaderboard in leaderboards if leaderboard.runs]


def _build(
    title: str, columns: Sequence[_Column], runs: Sequence[ReportRun], papers: Sequence[PublishedRow]
) -> Leaderboard:
    """Return a leaderboard without empty rows, and without columns in which no run has a score."""
    kept = [column for column in columns if any(column.cell(run) is not EMPTY for run in runs)]
    rows = [
        LeaderboardRow(name=each.name, reference="", cells=[column.cell(each) for column in kept], colour=each.colour)
        for each in runs
    ]
    for row in papers:
        cells = [column.published_cell(row) for column in kept]
        rows.append(
            LeaderboardRow(name=row.name, reference=row.reference, cells=cells, title=row.description, notes=row.notes)
        )
    rows = [row for row in rows if any(cell is not EMPTY for cell in row.cells)]
    own, published = ([row for row in rows if bool(row.reference) is is_paper] for is_paper in (False, True))
    return Leaderboard(
        title=title, caption=CAPTIONS[title], columns=[column.title for column in kept], runs=own, published=published
    )


def pick_scores(run: ReportRun, tasks: Mapping[str, str], setting: str) -> dict[str, TaskScore]:
    """Return the scores of a run on some tasks with their metrics, such as XTREME_7. Retrieval is not fine-tuned."""
    scores = {}
    for task, metric in tasks.items():
        is_retrieval = task in XTREME_DIRECTIONS
        own_setting = "training-free" if is_retrieval else setting
        scores[task] = _pick(run.scores, task, metric, own_setting, XTREME_DIRECTIONS.get(task))
    return {task: score for task, score in scores.items() if score is not None}


def retrieval_scores(run: ReportRun) -> list[TaskScore]:
    """Return the Tatoeba scores of a run over all languages: protocol sweep with mean pooling."""
    return [
        score
        for score in run.scores
        if (score.measure.task, score.measure.protocol, score.measure.pooling) == ("tatoeba", "sweep", "mean")
    ]


METRIC_TITLES = {"accuracy": "acc.", "f1": "F1", "matthews": "Matthews", "spearman": "Spearman", QA_MEAN: "F1 / EM"}


def _finetuning_columns(setting: str) -> list[_Column]:
    columns = [_task_column(*each, "mean", setting) for each in XTREME_7.items()]
    columns.append(_average_column("avg", "xtreme-7/average/mean", XTREME_7, setting))
    if setting == "zero-shot":  # VECO's retrieval after fine-tuning on translations is another setting
        columns.append(_average_column("avg of 9", "xtreme-9/average/mean", XTREME_9, setting))
    return columns


def _glue_columns() -> list[_Column]:
    columns = [_task_column(*each, "en", "zero-shot") for each in GLUE_8.items()]
    return [*columns, _average_column("avg", "glue/average/en", GLUE_8, "zero-shot")]


def _task_column(task: str, metric: str, language: str, setting: str) -> _Column:
    metrics = ("f1", "exact_match") if metric is QA_MEAN else (metric,)
    published = [f"{task}/{each}/{language}" for each in metrics]
    title = f"{TITLES[task]} {METRIC_TITLES[metric]}"
    return _Column(title, published, lambda run: _task_cell(run.scores, task, metric, setting))


def _average_column(title: str, published: str, tasks: Mapping[str, str], setting: str) -> _Column:
    def average(run: ReportRun) -> LeaderboardCell:
        mean = task_average(pick_scores(run, tasks, setting), tasks)
        return _spread_cell(mean, f"mean of {len(tasks)} tasks") if mean else EMPTY

    return _Column(title, [published], average)


def _retrieval_columns() -> list[_Column]:
    def column(title: str, published: str, task: str, metric: str, direction: str | None = None) -> _Column:
        pick = partial(_pick, task=task, metric=metric, setting="training-free", direction=direction)
        return _Column(title, [published], lambda run: _cell(pick(run.scores)))

    directions = [(task, way) for task in ("tatoeba-14", "tatoeba-36") for way in ("en-xx", "xx-en")]
    return [
        *(
            column(f"{task.capitalize()} {way.replace('-', '→')}", f"{task}/accuracy/mean/{way}", task, "accuracy", way)
            for task, way in directions
        ),
        column("BUCC F1", "bucc2018/f1/mean", "bucc2018", "f1"),
        _Column("AER", ["word-alignment/aer/mean"], lambda run: _alignment_cell(run.scores)),
    ]


def _gap_column(task: str, metric: str) -> _Column:
    def gap(run: ReportRun) -> LeaderboardCell:
        score = _pick(run.scores, task, metric, "zero-shot")
        spread = transfer_gap(score) if score else None
        return _spread_cell(spread, score.description, _coverage(score)) if score and spread else EMPTY

    return _Column(TITLES[task], [f"{task}/gap/mean"], gap)


def _merge_tables(rows: Iterable[PublishedRow]) -> list[PublishedRow]:
    """Merge the rows of one model with the same pooling: similar tables of a paper become one row here."""
    merged: dict[tuple[str, bool], PublishedRow] = {}
    for row in rows:
        key = (row.name, "[CLS]" in row.protocol)
        old = merged.get(key)
        if old is None:
            merged[key] = row
            continue
        table = old.table if row.table == old.table else f"{old.table} and {row.table}"
        protocol = old.protocol if row.protocol == old.protocol else f"{old.protocol}; {row.protocol}"
        notes = tuple(dict.fromkeys([*old.notes, *row.notes]))
        merged[key] = replace(old, table=table, protocol=protocol, notes=notes, values={**old.values, **row.values})
    return [replace(row, model=f"{row.model} [CLS]") if is_cls else row for (_, is_cls), row in merged.items()]


def _pick(
    scores: Sequence[TaskScore], task: str, metric: str, setting: str, direction: str | None = None
) -> TaskScore | None:
    """Return the score most comparable with the papers: test set, selected on English dev, protocol xtreme."""
    candidates = [
        score
        for score in scores
        if (score.measure.task, score.measure.metric, score.measure.setting) == (task, metric, setting)
        and score.measure.direction == direction
        and set(LANGUAGES[task]) & set(score.languages)
        and score.measure.protocol in ("xtreme", "sweep", "glue", "")
        and score.measure.pooling in ("mean", None)
    ]

    def preference(score: TaskScore) -> tuple[bool, bool, bool]:
        measure = score.measure
        return measure.split == "test", measure.selection in (None, "english-dev"), measure.protocol == "xtreme"

    return max(candidates, key=preference, default=None)


def _task_cell(scores: Sequence[TaskScore], task: str, metric: str, setting: str) -> LeaderboardCell:
    cell = _cell(_pick(scores, task, metric, setting))
    if cell is EMPTY or metric is not QA_MEAN:
        return cell
    parts = [_pick(scores, task, each, setting) for each in ("f1", "exact_match")]
    return replace(cell, text=" / ".join(f"{part.mean:.1f}" for part in parts if part))


def _cell(score: TaskScore | None) -> LeaderboardCell:
    if score is None:
        return EMPTY
    measure, notes = score.measure, []
    if measure.trained_on not in (None, measure.task, OFFICIAL.get(measure.task)):
        notes.append(f"Fine-tuned on {measure.trained_on}, not on the training set of the task.")
    if measure.split != "test":
        selected = measure.split == "dev" and measure.selection not in (None, "last")
        caveat = ", which also selected the model: slightly optimistic" if selected else ""
        notes.append(f"Measured on the {measure.split} set{caveat}.")
    if measure.selection not in (None, "english-dev"):
        notes.append(f"The model was selected by {measure.selection}, not by the English dev set.")
    return _spread_cell(
        score.seeds,
        f"{score.description}, {score.coverage}",
        f"{_at_layer(score)} {_coverage(score)}".strip(),
        tuple(notes),
    )


def _alignment_cell(scores: Sequence[TaskScore]) -> LeaderboardCell:
    for score in scores:
        pairs = {"-".join(sorted(code.split("-"))): spread for code, spread in score.languages.items()}
        scored = [pairs[pair] for pair in ALIGNMENT_PAIRS if pair in pairs]
        found = score.measure.metric, score.measure.protocol, score.measure.split
        if found == ("aer", PROTOCOLS["ot"], "test") and scored:
            part = "" if len(scored) == len(ALIGNMENT_PAIRS) else f" ({len(scored)} of {len(ALIGNMENT_PAIRS)})"
            return LeaderboardCell(
                f"{fmean(spread.mean for spread in scored):.1f}",
                _at_layer(score) + part,
                f"{score.description}, {score.coverage}",
            )
    return EMPTY


def _spread_cell(spread: SeedStatistics, title: str, small: str = "", notes: tuple[str, ...] = ()) -> LeaderboardCell:
    deviation = spread.deviation
    if deviation is not None:
        title += f"; {len(spread.values)} seeds: mean {spread.mean:.2f}, median {spread.median:.2f}"
        title += f", standard deviation {deviation:.2f}"
        small = f"± {deviation:.1f} {small}".strip()
    return LeaderboardCell(f"{spread.mean:.1f}", small, title, notes)


def _at_layer(score: TaskScore) -> str:
    """`xtreme, layer 8`; empty for a measure without layers."""
    if score.layer is None:
        return ""
    best = "" if score.measure.protocol == "xtreme" else "best "
    return f"{score.measure.protocol}, {best}layer {score.layer}"


def _coverage(score: TaskScore) -> str:
    return "" if score.is_complete else f"({score.coverage})"
