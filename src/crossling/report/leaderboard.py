"""Leaderboards: the runs, and below them the papers' numbers of the same measures with their reference.

A leaderboard is shown only if a run has a score on it. Everything that makes a number not comparable is noted: an
incomplete list of languages, other training data, another split, or a paper that contradicts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from crossling.evaluate.word_alignment import PROTOCOLS
from crossling.report.analysis import LANGUAGES, QA_MEAN, TITLES, XTREME_7, TaskScore, transfer_gap, xtreme_average
from crossling.report.published import PublishedRow, published_table
from crossling.tasks.scores import SeedStatistics

OFFICIAL = {"xquad": "squad", "mlqa": "squad"}  # training set, if it is not that of the task
ALIGNMENT_PAIRS = ("de-en", "en-fr", "en-hi", "en-ro")  # gold alignments of XLM-E's Table 6
_RETRIEVAL = [(task, way) for task in ("tatoeba-14", "tatoeba-36") for way in ("en-xx", "xx-en")]


@dataclass(frozen=True)
class LeaderboardCell:
    """One number, its details and its footnotes."""

    text: str
    small: str = ""  # standard deviation, protocol and layer, coverage of the languages
    title: str = ""  # conditions and seeds, shown on hovering
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeaderboardRow:
    """A run or a published model."""

    name: str
    reference: str  # "XLM-E, Table 1"; empty for a run
    cells: list[LeaderboardCell]
    title: str = ""
    notes: tuple[str, ...] = ()
    colour: int | None = None  # None for a published model


@dataclass(frozen=True)
class Leaderboard:
    """One table of the page."""

    title: str
    caption: str
    columns: list[str]
    runs: list[LeaderboardRow]
    published: list[LeaderboardRow]


@dataclass(frozen=True)
class LeaderboardEntry:
    """Name, colour and scores of a run."""

    name: str
    colour: int
    scores: Sequence[TaskScore]


EMPTY = LeaderboardCell("–")


def build_leaderboards(entries: Sequence[LeaderboardEntry]) -> list[Leaderboard]:
    """Return the leaderboards on which at least one run has a score."""
    leaderboards = [
        _finetuning(entries, "zero-shot", "Fine-tuned on English, tested on all languages", _published_zero_shot()),
        _finetuning(
            entries, "translate-train", "Fine-tuned on translations into all languages", _published_translate_train()
        ),
        _retrieval(entries),
        _transfer_gaps(entries),
    ]
    return [_drop_empty(leaderboard) for leaderboard in leaderboards if leaderboard.runs]


def _drop_empty(leaderboard: Leaderboard) -> Leaderboard:
    """Drop the columns in which no run has a score, then the published rows without a score."""
    columns = leaderboard.columns
    kept = [k for k in range(len(columns)) if any(row.cells[k] is not EMPTY for row in leaderboard.runs)]
    runs, published = (
        [replace(row, cells=[row.cells[k] for k in kept]) for row in rows]
        for rows in (leaderboard.runs, leaderboard.published)
    )
    published = [row for row in published if any(cell is not EMPTY for cell in row.cells)]
    return replace(leaderboard, columns=[columns[k] for k in kept], runs=runs, published=published)


def xtreme_scores(entry: LeaderboardEntry, setting: str) -> dict[str, TaskScore]:
    """Return the scores of a run on XTREME's seven tasks in a setting."""
    scores = {task: _pick(entry.scores, task, metric, setting) for task, metric in XTREME_7.items()}
    return {task: score for task, score in scores.items() if score is not None}


def _finetuning(
    entries: Sequence[LeaderboardEntry], setting: str, title: str, papers: Sequence[PublishedRow]
) -> Leaderboard:
    columns = [
        f"{TITLES[task]} {'F1 / EM' if metric is QA_MEAN else _short(metric)}" for task, metric in XTREME_7.items()
    ]
    rows = []
    for entry in entries:
        scores = xtreme_scores(entry, setting)
        cells = [_task_cell(entry.scores, task, scores.get(task)) for task in XTREME_7]
        mean = xtreme_average(scores)
        cells.append(_spread_cell(mean, "mean of the seven tasks") if mean else EMPTY)
        if any(cell is not EMPTY for cell in cells):
            rows.append(LeaderboardRow(entry.name, "", cells, colour=entry.colour))
    names = [[f"{task}/f1/mean", f"{task}/exact_match/mean"] if metric is QA_MEAN else [f"{task}/{metric}/mean"]
             for task, metric in XTREME_7.items()]  # fmt: skip
    caption = (
        "Unweighted mean over languages, as in XTREME. The average is over the seven tasks; QA tasks count as the mean"
        " of F1 and exact match. ± is the standard deviation over seeds. In brackets: coverage of the languages."
    )
    return Leaderboard(title, caption, [*columns, "avg"], rows, _published(papers, [*names, ["xtreme-7/average/mean"]]))


def _retrieval(entries: Sequence[LeaderboardEntry]) -> Leaderboard:
    columns = [f"{task.capitalize()} {way.replace('-', '→')}" for task, way in _RETRIEVAL]
    rows = []
    for entry in entries:
        cells = [
            _cell(_pick(entry.scores, task, "accuracy", "training-free", direction=way)) for task, way in _RETRIEVAL
        ]
        cells += [_cell(_pick(entry.scores, "bucc2018", "f1", "training-free")), _alignment_cell(entry.scores)]
        if any(cell is not EMPTY for cell in cells):
            rows.append(LeaderboardRow(entry.name, "", cells, colour=entry.colour))
    names = [[f"{task}/accuracy/mean/{way}"] for task, way in _RETRIEVAL]
    more = [row for row in published_table("VECO", "2", setting="zero-shot") if row.model in ("XLM-R", "VECO")]
    papers = [
        *_merge_tables(published_table("XLM-E", "5", "6")),
        *_merge_tables(published_table("InfoXLM", "2")),
        *more,
    ]
    caption = (
        "Without fine-tuning. Accuracy and F1: higher is better; alignment error rate (AER): lower is better. Numbers"
        " of runs state their protocol and layer. Protocol xtreme follows its scripts at their fixed layer. Protocol"
        " sweep counts equal sentences as one candidate. A best layer was selected on the test scores shown."
    )
    published = _published(papers, [*names, ["bucc2018/f1/mean"], ["word-alignment/aer/mean"]])
    return Leaderboard("Retrieval, mining and alignment", caption, [*columns, "BUCC F1", "AER"], rows, published)


def _transfer_gaps(entries: Sequence[LeaderboardEntry]) -> Leaderboard:
    tasks = {
        "xquad": "exact_match",
        "mlqa": "exact_match",
        "tydiqa": "exact_match",
        "xnli": "accuracy",
        "pawsx": "accuracy",
    }
    rows = []
    for entry in entries:
        cells = []
        for task, metric in tasks.items():
            score = _pick(entry.scores, task, metric, "zero-shot")
            spread = transfer_gap(score) if score else None
            cells.append(
                _spread_cell(spread, score.measure.description, _coverage(score)) if score and spread else EMPTY
            )
        if any(cell is not EMPTY for cell in cells):
            rows.append(LeaderboardRow(entry.name, "", cells, colour=entry.colour))
    # The other rows of XY-LENT's table repeat those of XLM-E.
    more = [row for row in published_table("XY-LENT", "4") if row.model == "XY-LENT"]
    papers = [*published_table("XLM-E", "7"), *more, *published_table("InfoXLM", "5")]
    caption = "English minus the mean of the other languages, in points; exact match for QA. Lower is better."
    published = _published(papers, [[f"{task}/gap/mean"] for task in tasks])
    return Leaderboard("Transfer gap", caption, [TITLES[task] for task in tasks], rows, published)


def _published_zero_shot() -> list[PublishedRow]:
    # XLM-E's and VECO's tables both contain some rows of other papers: show them once.
    first = published_table("XLM-E", "1")
    more = [row for row in published_table("VECO", "2", setting="zero-shot") if row.model in ("XLM-R", "VECO")]
    return [
        *first,
        *published_table("XY-LENT", "1", setting="zero-shot"),
        *_infoxlm_rows(published_table("InfoXLM", "1", setting="zero-shot")),
        *more,
    ]


def _published_translate_train() -> list[PublishedRow]:
    return [
        *published_table("XY-LENT", "1", setting="translate-train"),
        *_infoxlm_rows(published_table("InfoXLM", "1", setting="translate-train")),
        *published_table("VECO", "2", setting="translate-train"),
    ]


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


def _infoxlm_rows(rows: Iterable[PublishedRow]) -> list[PublishedRow]:
    return [row for row in rows if row.model in ("InfoXLM", "XLM-R (reimplementation)")]


def _published(published: Sequence[PublishedRow], columns: Sequence[Sequence[str]]) -> list[LeaderboardRow]:
    rows = []
    for row in published:
        cells = [_published_cell(row.values, names) for names in columns]
        if any(cell is not EMPTY for cell in cells):
            rows.append(LeaderboardRow(row.name, row.reference, cells, row.description, row.notes))
    return rows


def _published_cell(values: Mapping[str, float], names: Sequence[str]) -> LeaderboardCell:
    return (
        LeaderboardCell(" / ".join(f"{values[name]:.1f}" for name in names))
        if all(name in values for name in names)
        else EMPTY
    )


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
        and score.measure.protocol in ("xtreme", "sweep", "")
        and score.measure.pooling in ("mean", None)
    ]
    preferences: list[Callable[[TaskScore], bool]] = [
        lambda score: score.measure.split == "test",
        lambda score: score.measure.selection in (None, "english-dev"),
        lambda score: score.measure.protocol == "xtreme",
    ]
    return max(candidates, key=lambda score: [is_met(score) for is_met in preferences], default=None)


def _task_cell(scores: Sequence[TaskScore], task: str, score: TaskScore | None) -> LeaderboardCell:
    if score is None:
        return EMPTY
    cell = _cell(score)
    if score.measure.metric is not QA_MEAN:
        return cell
    parts = [_pick(scores, task, metric, score.measure.setting) for metric in ("f1", "exact_match")]
    return LeaderboardCell(" / ".join(f"{part.mean:.1f}" for part in parts if part), cell.small, cell.title, cell.notes)


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
    return _spread_cell(score.seeds, _title(score), f"{_at_layer(score)} {_coverage(score)}".strip(), tuple(notes))


def _alignment_cell(scores: Sequence[TaskScore]) -> LeaderboardCell:
    for score in scores:
        pairs = {"-".join(sorted(code.split("-"))): spread for code, spread in score.languages.items()}
        scored = [pairs[pair] for pair in ALIGNMENT_PAIRS if pair in pairs]
        measured = score.measure.metric, score.measure.protocol, score.measure.split
        if measured == ("aer", PROTOCOLS["ot"], "test") and scored:
            part = "" if len(scored) == len(ALIGNMENT_PAIRS) else f" ({len(scored)} of {len(ALIGNMENT_PAIRS)})"
            return LeaderboardCell(
                f"{fmean(spread.mean for spread in scored):.1f}", _at_layer(score) + part, _title(score)
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


def _title(score: TaskScore) -> str:
    layer = f", layer {score.layer}" if score.layer is not None else ""
    return f"{score.measure.description}{layer}, {score.coverage}"


def _short(metric: str) -> str:
    return {"accuracy": "acc.", "f1": "F1"}.get(metric, metric)
