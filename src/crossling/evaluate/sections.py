"""What the page shows of scores beside the leaderboards: tasks by language, families, what was read, what changed.

Everything is computed here from rows; the templates only lay it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from crossling.evaluate.alignment import PROTOCOLS
from crossling.evaluate.analysis import QUESTIONS, TITLES, Measure, TaskScore
from crossling.evaluate.analysis_languages import (
    FAMILIES,
    Change,
    Group,
    by_what_was_read,
    changes,
    families,
    family_order,
)
from crossling.evaluate.board import Entry
from crossling.evaluate.published import Printed, printed
from crossling.evaluate.runs import Run

COLUMNS, PAIRS = 20, 12  # languages, or pairs of them, side by side; more go below
BESIDE = {("XLM-R", "Base"), ("InfoXLM", "Base"), ("XLM-E", "Base"), ("XY-LENT", "Base"), ("VECO", "Large"),
          ("VECO (plug-out)", "Large"), ("VECO (plug-in)", "Large")}  # fmt: skip
AGAIN = (
    "XY-LENT",
    "6",
)  # XNLI of XY-LENT once more, before it was trained further; its Table 11 has the model as it is
AS_PRINTED = {  # what a run calls the settings of tables
    "training-free": ("training-free", "zero-shot"),  # VECO says zero-shot of retrieval too
    "zero-shot": ("zero-shot", "english"),  # GLUE, SQuAD 2.0, ChemProt: fine-tuned on English all the same
    "translate-train": ("translate-train",),
}
FAINT = 0.08  # the shade of the least


@dataclass(frozen=True)
class Tile:
    """One number of a heat map."""

    value: float
    shade: float  # 0 to 1
    title: str = ""


@dataclass(frozen=True)
class HeatLine:
    name: str
    tiles: dict[str, Tile]  # by column
    place: str = ""  # of a paper
    colour: int | None = None  # of a run
    title: str = ""


@dataclass(frozen=True)
class Heat:
    columns: list[str]
    lines: list[HeatLine]


@dataclass(frozen=True)
class Bar:
    """A mean over languages and how sure it is."""

    name: str
    colour: int
    value: float
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True)
class Card:
    """One measure: all runs that have it."""

    measure: Measure
    told: str
    span: tuple[float, float]
    heats: list[Heat]
    bars: list[Bar]


@dataclass(frozen=True)
class TaskSection:
    task: str
    title: str
    first: Card
    more: list[Card]  # of other metrics and settings


def tasks(entries: Sequence[Entry]) -> list[TaskSection]:
    """Every task with numbers by language. Retrieval has a section for each direction; between pairs without English it
    has a map of its own."""
    measures: dict[tuple[str, str | None], list[Measure]] = {}
    for measure in dict.fromkeys(score.measure for entry in entries for score in entry.scores):
        lists_or_pairs = measure.task.startswith("tatoeba") and (measure.task != "tatoeba" or not measure.direction)
        if measure.metric is not QUESTIONS and not lists_or_pairs:
            measures.setdefault((measure.task, measure.direction), []).append(measure)
    found = []
    for (task, direction), each in measures.items():
        cards = sorted((_card(measure, entries) for measure in each), key=_rank)
        title = TITLES.get(task, task) + (f" {direction.replace('-', '→')}" if direction else "")
        found.append(TaskSection(task, title, cards[0], cards[1:]))
    return sorted(found, key=lambda section: [*TITLES, section.task].index(section.task))


def _rank(card: Card) -> tuple[bool, bool]:
    """The one to show first: a metric of the public scripts, but retrieval at every layer; mean pooling."""
    measure = card.measure
    own = measure.protocol in ("xtreme", "glue", "sweep", PROTOCOLS["ot"])
    return not own, (measure.task, measure.protocol) == ("tatoeba", "xtreme")


def main_scores(entry: Entry) -> dict[str, TaskScore]:
    """One score of each task that was fine-tuned for: XTREME's metric, of questions the mean of both."""
    found: dict[str, TaskScore] = {}
    for score in entry.scores:
        measure = score.measure
        if measure.setting == "training-free" or measure.protocol not in ("xtreme", "glue"):
            continue
        if measure.task not in found or measure.metric is QUESTIONS:
            found[measure.task] = score
    return dict(sorted(found.items(), key=lambda each: [*TITLES, each[0]].index(each[0])))


@dataclass(frozen=True)
class FamilyMap:
    name: str
    colour: int | None
    columns: list[str]
    groups: list[str]
    tiles: dict[tuple[str, str], Tile]
    signed: bool = False


def family_maps(entries: Sequence[Entry]) -> list[FamilyMap]:
    """Families down, tasks across, a map for each run; then how others differ from the first (XY-LENT, Figure 3)."""
    by_run: list[tuple[Entry, dict[str, dict[str, Group]]]] = []
    for entry in entries:
        columns = {}
        for task, score in main_scores(entry).items():
            groups = families({code: spread.mean for code, spread in score.languages.items()})
            if len(groups) > 1:
                columns[TITLES.get(task, task)] = {group.name: group for group in groups}
        if columns:
            by_run.append((entry, columns))
    maps = [_family_map(entry.name, entry.colour, columns) for entry, columns in by_run]
    if len(by_run) > 1:
        (base, first), *others = by_run
        for entry, columns in others:
            maps.append(_difference_map(f"{entry.name} minus {base.name}", first, columns))
    return [each for each in maps if each.columns]


def cross_questions(runs: Sequence[tuple[Run, Entry]]) -> list[FamilyMap]:
    """MLQA where the question is in another language than the text: texts down, questions across, F1."""
    maps = []
    for run, entry in runs:
        found: dict[tuple[str, str], list[float]] = {}
        for row in run.rows:
            if (row["task"], row["metric"], row.get("protocol"), row.get("split")) == ("mlqa", "f1", "xtreme", "test"):
                text, _, question = row["language"].partition("-")
                found.setdefault((text, question or text), []).append(row["value"])
        if any(text != question for text, question in found):
            values = {place: fmean(each) for place, each in found.items()}
            span = min(values.values()), max(values.values())
            tiles = {place: Tile(value, _shade(value, span, False), "text – question: " + " – ".join(place))
                     for place, value in values.items()}  # fmt: skip
            texts, questions = (family_order({place[side] for place in values}) for side in (0, 1))
            maps.append(FamilyMap(entry.name, entry.colour, questions, texts, tiles))
    return maps


@dataclass(frozen=True)
class ReadLine:
    run: str
    colour: int
    task: str
    told: str
    groups: dict[str, Group]


def what_was_read(runs: Sequence[tuple[Run, Entry]]) -> list[ReadLine]:
    """Languages with bitext, with text only, and not seen by the run itself; nothing where all are alike."""
    lines = []
    for run, entry in runs:
        if not run.data:
            continue
        chosen = {**main_scores(entry), **_retrieval(entry)}
        for task, score in chosen.items():
            values = {code: spread.mean for code, spread in score.languages.items()}
            groups = by_what_was_read(values, run.data)
            if len(groups) > 1:
                layer = f", layer {score.layer}" if score.layer is not None else ""
                by_name = {group.name: group for group in groups}
                told = score.measure.told + layer
                lines.append(ReadLine(entry.name, entry.colour, TITLES.get(task, task), told, by_name))
    return lines


@dataclass(frozen=True)
class Continued:
    before: str
    after: str
    task: str
    told: str
    changes: list[Change]


def continued(runs: Sequence[tuple[Run, Entry]]) -> list[Continued]:
    """Runs that began as another run of the page, language by language (XY-LENT, Table 6)."""
    found = []
    for run, entry in runs:
        origin = next((other for other in runs if run.init and _same(other[0], run.init)), None)
        if origin is None or origin[0] is run:
            continue
        before = {**main_scores(origin[1]), **_retrieval(origin[1])}
        after = {**main_scores(entry), **_retrieval(entry)}
        for task in before.keys() & after.keys():
            old, new = (
                {code: spread.mean for code, spread in side[task].languages.items()} for side in (before, after)
            )
            each = changes(old, new)
            if each:
                title = TITLES.get(task, task)
                found.append(Continued(origin[1].name, entry.name, title, after[task].measure.told, each))
    return sorted(found, key=lambda each: (each.after, each.task))


def _same(run: Run, init: str) -> bool:
    return bool(run.path) and (run.path == init or Path(run.path).resolve() == Path(init).resolve())


def _retrieval(entry: Entry) -> dict[str, TaskScore]:
    """Of Tatoeba as a whole, both directions apart: the one from English, or that of pairs."""
    found = [
        score
        for score in entry.scores
        if score.measure.task == "tatoeba" and score.measure.protocol == "sweep" and score.measure.pooling == "mean"
    ]
    found.sort(key=lambda score: score.measure.direction != "en-xx")
    return {"tatoeba": found[0]} if found else {}


def _card(measure: Measure, entries: Sequence[Entry]) -> Card:
    scored = [(entry, score) for entry in entries for score in entry.scores if score.measure == measure]
    codes = family_order(dict.fromkeys(code for _, score in scored for code in score.languages))
    beside = [(row, _by_code(codes, languages)) for row, languages in _beside(measure)]
    values = [spread.mean for _, score in scored for spread in score.languages.values()]
    values += [value for _, languages in beside for value in languages.values()]
    span = min(values), max(values)
    lines = [
        HeatLine(
            entry.name,
            {
                code: Tile(spread.mean, _shade(spread.mean, span, measure.lower_is_better), _tip(code, score))
                for code, spread in score.languages.items()
            },
            colour=entry.colour,
            title=_told(score),
        )
        for entry, score in scored
    ]
    lines += [
        HeatLine(
            row.name,
            {
                code: Tile(value, _shade(value, span, measure.lower_is_better), code)
                for code, value in languages.items()
            },
            row.place,
            title=row.told,
        )
        for row, languages in beside
    ]
    most = PAIRS if any("-" in code for code in codes) else COLUMNS
    heats = [Heat(codes[start : start + most], lines) for start in range(0, len(codes), most)]
    bars = [_bar(entry, score) for entry, score in scored]
    layers = {score.layer for _, score in scored if score.layer is not None}
    told = measure.told + (f", each at its best layer ({_list(layers)})" if layers else "")
    return Card(measure, told, span, heats, bars)


def _beside(measure: Measure) -> list[tuple[Printed, dict[str, float]]]:
    """What papers print of the same measure by language; what two papers have from a third, once."""
    if not _is_like_papers(measure):
        return []
    found: list[tuple[Printed, dict[str, float]]] = []
    for row in printed():
        languages = row.languages(measure.task, measure.metric, measure.direction)
        known = any(languages == other and row.name == one.name for one, other in found)
        if languages and not known and _is_beside(row, measure):
            found.append((row, languages))
    return found


def _by_code(codes: Sequence[str], languages: Mapping[str, float]) -> dict[str, float]:
    """Of the languages that runs have; a pair is the same in either order."""
    either_way = {**{"-".join(reversed(code.split("-"))): value for code, value in languages.items()}, **languages}
    return {code: either_way[code] for code in codes if code in either_way}


def _is_like_papers(measure: Measure) -> bool:
    english = measure.protocol in ("glue", "squad-2.0")
    # VECO prints accuracies of tags, other papers XTREME's F1.
    counted_alike = english or measure.protocol in ("xtreme", "sweep", "tokens", PROTOCOLS["ot"])
    split = "dev" if english or measure.task == "tydiqa" else "test"
    return counted_alike and measure.pooling in ("mean", None) and measure.split == split


def _is_beside(row: Printed, measure: Measure) -> bool:
    alike = row.setting in AS_PRINTED.get(measure.setting, ()) and (row.paper, row.table) != AGAIN
    return (row.model, row.size) in BESIDE and alike and "[CLS]" not in row.protocol


def _bar(entry: Entry, score: TaskScore) -> Bar:
    low, high = score.interval or (None, None)
    seeds = score.seeds
    text = f"{seeds.mean:.1f}"
    if seeds.deviation is not None:
        text += f" ± {seeds.deviation:.1f}, median {seeds.median:.1f}, {len(seeds.values)} seeds"
    if low is not None and high is not None:
        sure = "95% interval" if len(score.counted) == 1 else "interval of the mean if languages were independent"
        text += f"; {sure}: {low:.1f} to {high:.1f}"
    return Bar(entry.name, entry.colour, seeds.mean, low, high, f"{text}; {score.listed}")


def _tip(code: str, score: TaskScore) -> str:
    spread = score.languages[code]
    text = f"{code}: {spread.mean:.2f}"
    if spread.deviation is not None:
        text += f" ± {spread.deviation:.2f} over {len(spread.values)} seeds, median {spread.median:.2f}"
    if code in score.intervals:
        low, high = score.intervals[code]
        text += f", 95% interval: {low:.1f} to {high:.1f}"
    return text


def _told(score: TaskScore) -> str:
    return score.measure.told + (f", layer {score.layer}" if score.layer is not None else "")


def _shade(value: float, span: tuple[float, float], lower_is_better: bool) -> float:
    low, high = span
    part = (value - low) / ((high - low) or 1)
    return FAINT + (1 - FAINT) * (1 - part if lower_is_better else part)


def _family_map(name: str, colour: int | None, columns: Mapping[str, Mapping[str, Group]]) -> FamilyMap:
    values = [group.value for groups in columns.values() for group in groups.values()]
    span = min(values), max(values)
    tiles = {
        (family, task): Tile(group.value, _shade(group.value, span, False), ", ".join(group.languages))
        for task, groups in columns.items()
        for family, group in groups.items()
    }
    return FamilyMap(name, colour, [*columns], _families(tiles), tiles)


def _difference_map(
    name: str, first: Mapping[str, Mapping[str, Group]], second: Mapping[str, Mapping[str, Group]]
) -> FamilyMap:
    apart = {
        (family, task): (second[task][family].value - group.value, group)
        for task, groups in first.items()
        if task in second
        for family, group in groups.items()
        if family in second[task] and second[task][family].languages == group.languages
    }
    most = max((abs(value) for value, _ in apart.values()), default=0) or 1
    tiles = {
        place: Tile(value, abs(value) / most, ", ".join(group.languages)) for place, (value, group) in apart.items()
    }
    columns = list(dict.fromkeys(task for _, task in tiles))
    return FamilyMap(name, None, columns, _families(tiles), tiles, signed=True)


def _families(tiles: Mapping[tuple[str, str], Tile]) -> list[str]:
    present = {family for family, _ in tiles}
    return [family for family in FAMILIES if family in present]


def _list(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
