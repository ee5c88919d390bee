"""Leaderboards: the runs, and below them what the papers printed of the same measures, each row saying where.

A board is there only if a run has something to show on it. Whatever makes a number other than its neighbours' is said:
a list of languages that is not whole, other training data, another split, where a paper contradicts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from crossling.evaluate.alignment import PROTOCOLS
from crossling.evaluate.analysis import LANGUAGES, QUESTIONS, TITLES, XTREME_7, TaskScore, gap, total
from crossling.evaluate.published import Printed, of_table
from crossling.evaluate.scores import Spread

OFFICIAL = {"xquad": "squad", "mlqa": "squad"}  # the training set, where it is not the task's own
ALIGNED = ("de-en", "en-fr", "en-hi", "en-ro")  # the gold alignments of XLM-E's Table 6
_RETRIEVAL = [(task, way) for task in ("tatoeba-14", "tatoeba-36") for way in ("en-xx", "xx-en")]


@dataclass(frozen=True)
class Cell:
    text: str
    small: str = ""  # deviation, protocol and layer where there are layers, how much of the list there is
    title: str = ""  # all that was measured, and the seeds
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    name: str
    place: str  # "XLM-E, Table 1"; nothing for a run
    cells: list[Cell]
    title: str = ""
    notes: tuple[str, ...] = ()
    colour: int | None = None  # of a run


@dataclass(frozen=True)
class Board:
    title: str
    caption: str
    columns: list[str]
    runs: list[Line]
    printed: list[Line]


@dataclass(frozen=True)
class Entry:
    """A run as the boards know it."""

    name: str
    colour: int
    scores: Sequence[TaskScore]


NONE = Cell("–")


def boards(entries: Sequence[Entry]) -> list[Board]:
    found = [
        _tuned(entries, "zero-shot", "Fine-tuned on English, tested on all languages", _zero_shot()),
        _tuned(entries, "translate-train", "Fine-tuned on translations into all languages", _translated()),
        _retrieval(entries),
        _gaps(entries),
    ]
    return [_without_empty(board) for board in found if board.runs]


def _without_empty(board: Board) -> Board:
    """Only the columns in which a run has something, and of the papers only the rows that have something in them."""
    kept = [place for place in range(len(board.columns)) if any(line.cells[place] is not NONE for line in board.runs)]
    runs, printed = (
        [replace(line, cells=[line.cells[place] for place in kept]) for line in lines]
        for lines in (board.runs, board.printed)
    )
    printed = [line for line in printed if any(cell is not NONE for cell in line.cells)]
    return replace(board, columns=[board.columns[place] for place in kept], runs=runs, printed=printed)


def counting(entry: Entry, setting: str) -> dict[str, TaskScore]:
    """The score of each of XTREME's seven tasks that a run has in a setting, of the languages of the list."""
    found = {task: _pick(entry.scores, task, metric, setting) for task, metric in XTREME_7.items()}
    return {task: score for task, score in found.items() if score is not None}


def _tuned(entries: Sequence[Entry], setting: str, title: str, papers: Sequence[Printed]) -> Board:
    columns = [
        f"{TITLES[task]} {'F1 / EM' if metric is QUESTIONS else _short(metric)}" for task, metric in XTREME_7.items()
    ]
    lines = []
    for entry in entries:
        counts = counting(entry, setting)
        cells = [_task_cell(entry.scores, task, counts.get(task)) for task in XTREME_7]
        mean = total(counts)
        cells.append(_spread_cell(mean, "mean of the seven tasks") if mean else NONE)
        if any(cell is not NONE for cell in cells):
            lines.append(Line(entry.name, "", cells, colour=entry.colour))
    names = [[f"{task}/f1/mean", f"{task}/exact_match/mean"] if metric is QUESTIONS else [f"{task}/{metric}/mean"]
             for task, metric in XTREME_7.items()]  # fmt: skip
    caption = (
        "Unweighted mean over languages as XTREME takes it; the average is that of the seven tasks, questions counting"
        " as the mean of F1 and exact match. ± is the deviation over seeds. In brackets: how many of the languages."
    )
    return Board(title, caption, [*columns, "avg"], lines, _printed(papers, [*names, ["xtreme-7/average/mean"]]))


def _retrieval(entries: Sequence[Entry]) -> Board:
    columns = [f"{task.capitalize()} {way.replace('-', '→')}" for task, way in _RETRIEVAL]
    lines = []
    for entry in entries:
        cells = [
            _cell(_pick(entry.scores, task, "accuracy", "training-free", direction=way)) for task, way in _RETRIEVAL
        ]
        cells += [_cell(_pick(entry.scores, "bucc2018", "f1", "training-free")), _alignment_cell(entry.scores)]
        if any(cell is not NONE for cell in cells):
            lines.append(Line(entry.name, "", cells, colour=entry.colour))
    names = [[f"{task}/accuracy/mean/{way}"] for task, way in _RETRIEVAL]
    more = [row for row in of_table("VECO", "2", setting="zero-shot") if row.model in ("XLM-R", "VECO")]
    papers = [*_joined(of_table("XLM-E", "5", "6")), *_joined(of_table("InfoXLM", "2")), *more]
    caption = (
        "Without fine-tuning. Accuracy and F1: higher is better; alignment error rate (AER): lower is better. With each"
        " number of a run stand its protocol and layer: xtreme is what its scripts compute at the layer they take; in a"
        " sweep equal sentences are one candidate; a best layer was chosen by the scores shown, on the test set."
    )
    rows = _printed(papers, [*names, ["bucc2018/f1/mean"], ["word-alignment/aer/mean"]])
    return Board("Retrieval, mining and alignment", caption, [*columns, "BUCC F1", "AER"], lines, rows)


def _gaps(entries: Sequence[Entry]) -> Board:
    tasks = {
        "xquad": "exact_match",
        "mlqa": "exact_match",
        "tydiqa": "exact_match",
        "xnli": "accuracy",
        "pawsx": "accuracy",
    }
    lines = []
    for entry in entries:
        cells = []
        for task, metric in tasks.items():
            score = _pick(entry.scores, task, metric, "zero-shot")
            found = gap(score) if score else None
            cells.append(_spread_cell(found, score.measure.told, _partial(score)) if score and found else NONE)
        if any(cell is not NONE for cell in cells):
            lines.append(Line(entry.name, "", cells, colour=entry.colour))
    # XY-LENT's other rows are XLM-E's once more.
    more = [row for row in of_table("XY-LENT", "4") if row.model == "XY-LENT"]
    papers = [*of_table("XLM-E", "7"), *more, *of_table("InfoXLM", "5")]
    caption = (
        "English minus the mean of the other languages, in points; of exact match for questions. The lower, the more is"
        " transferred."
    )
    rows = _printed(papers, [[f"{task}/gap/mean"] for task in tasks])
    return Board("Transfer gap", caption, [TITLES[task] for task in tasks], lines, rows)


def _zero_shot() -> list[Printed]:
    # Rows that XLM-E's and VECO's tables have from elsewhere and share are shown once.
    first = of_table("XLM-E", "1")
    more = [row for row in of_table("VECO", "2", setting="zero-shot") if row.model in ("XLM-R", "VECO")]
    return [
        *first,
        *of_table("XY-LENT", "1", setting="zero-shot"),
        *_means(of_table("InfoXLM", "1", setting="zero-shot")),
        *more,
    ]


def _translated() -> list[Printed]:
    return [
        *of_table("XY-LENT", "1", setting="translate-train"),
        *_means(of_table("InfoXLM", "1", setting="translate-train")),
        *of_table("VECO", "2", setting="translate-train"),
    ]


def _joined(rows: Iterable[Printed]) -> list[Printed]:
    """Rows of one model, pooled alike where they say so, as one: a paper's tables of one kind are one row here."""
    found: dict[tuple[str, bool], Printed] = {}
    for row in rows:
        key = (row.name, "[CLS]" in row.protocol)
        old = found.get(key)
        if old is None:
            found[key] = row
            continue
        table = old.table if row.table == old.table else f"{old.table} and {row.table}"
        protocol = old.protocol if row.protocol == old.protocol else f"{old.protocol}; {row.protocol}"
        notes = tuple(dict.fromkeys([*old.notes, *row.notes]))
        found[key] = replace(old, table=table, protocol=protocol, notes=notes, values={**old.values, **row.values})
    return [replace(row, model=f"{row.model} [CLS]") if of_first else row for (_, of_first), row in found.items()]


def _means(rows: Iterable[Printed]) -> list[Printed]:
    return [row for row in rows if row.model in ("InfoXLM", "XLM-R (reimplementation)")]


def _printed(rows: Sequence[Printed], columns: Sequence[Sequence[str]]) -> list[Line]:
    lines = []
    for row in rows:
        cells = [_printed_cell(row.values, names) for names in columns]
        if any(cell is not NONE for cell in cells):
            lines.append(Line(row.name, row.place, cells, row.told, row.notes))
    return lines


def _printed_cell(values: Mapping[str, float], names: Sequence[str]) -> Cell:
    return Cell(" / ".join(f"{values[name]:.1f}" for name in names)) if all(name in values for name in names) else NONE


def _pick(
    scores: Sequence[TaskScore], task: str, metric: str, setting: str, direction: str | None = None
) -> TaskScore | None:
    """The one that is most like the papers': XTREME's protocol and mean pooling, the test set, chosen by English."""
    found = [
        score
        for score in scores
        if (score.measure.task, score.measure.metric, score.measure.setting) == (task, metric, setting)
        and score.measure.direction == direction
        and set(LANGUAGES[task]) & set(score.languages)
        and score.measure.protocol in ("xtreme", "sweep", "")
        and score.measure.pooling in ("mean", None)
    ]
    wanted: list[Callable[[TaskScore], bool]] = [
        lambda score: score.measure.split == "test",
        lambda score: score.measure.selection in (None, "english-dev"),
        lambda score: score.measure.protocol == "xtreme",
    ]
    return max(found, key=lambda score: [test(score) for test in wanted], default=None)


def _task_cell(scores: Sequence[TaskScore], task: str, score: TaskScore | None) -> Cell:
    if score is None:
        return NONE
    cell = _cell(score)
    if score.measure.metric is not QUESTIONS:
        return cell
    parts = [_pick(scores, task, metric, score.measure.setting) for metric in ("f1", "exact_match")]
    return Cell(" / ".join(f"{part.mean:.1f}" for part in parts if part), cell.small, cell.title, cell.notes)


def _cell(score: TaskScore | None) -> Cell:
    if score is None:
        return NONE
    measure, texts = score.measure, []
    if measure.trained_on not in (None, measure.task, OFFICIAL.get(measure.task)):
        texts.append(f"Fine-tuned on {measure.trained_on} in place of the task's own training set.")
    if measure.split != "test":
        chosen = measure.split == "dev" and measure.selection not in (None, "last")
        too_good = ", by which the model was chosen in English at least: a little too good" if chosen else ""
        texts.append(f"Measured on the {measure.split} set{too_good}.")
    if measure.selection not in (None, "english-dev"):
        texts.append(f"The model was chosen by {measure.selection}, not by the English dev set.")
    return _spread_cell(score.seeds, _title(score), f"{_at_layer(score)} {_partial(score)}".strip(), tuple(texts))


def _alignment_cell(scores: Sequence[TaskScore]) -> Cell:
    for score in scores:
        pairs = {"-".join(sorted(code.split("-"))): spread for code, spread in score.languages.items()}
        found = [pairs[pair] for pair in ALIGNED if pair in pairs]
        measured = score.measure.metric, score.measure.protocol, score.measure.split
        if measured == ("aer", PROTOCOLS["ot"], "test") and found:
            part = "" if len(found) == len(ALIGNED) else f" ({len(found)} of {len(ALIGNED)})"
            return Cell(f"{fmean(spread.mean for spread in found):.1f}", _at_layer(score) + part, _title(score))
    return NONE


def _spread_cell(spread: Spread, title: str, small: str = "", notes: tuple[str, ...] = ()) -> Cell:
    deviation = spread.deviation
    if deviation is not None:
        title += f"; {len(spread.values)} seeds: mean {spread.mean:.2f}, median {spread.median:.2f}"
        title += f", deviation {deviation:.2f}"
        small = f"± {deviation:.1f} {small}".strip()
    return Cell(f"{spread.mean:.1f}", small, title, notes)


def _at_layer(score: TaskScore) -> str:
    """`xtreme, layer 8`; nothing of a measure without layers."""
    if score.layer is None:
        return ""
    best = "" if score.measure.protocol == "xtreme" else "best "
    return f"{score.measure.protocol}, {best}layer {score.layer}"


def _partial(score: TaskScore) -> str:
    return "" if score.whole else f"({score.listed})"


def _title(score: TaskScore) -> str:
    layer = f", layer {score.layer}" if score.layer is not None else ""
    return f"{score.measure.told}{layer}, {score.listed}"


def _short(metric: str) -> str:
    return {"accuracy": "acc.", "f1": "F1"}.get(metric, metric)
