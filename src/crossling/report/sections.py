"""Report sections about scores: tasks by language, language families, training data, and continued training.

Everything is computed here from the rows of scores. The templates only arrange it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from crossling.evaluate.word_alignment import PROTOCOLS
from crossling.report.analysis import (
    FAMILIES,
    QA_MEAN,
    TITLES,
    LanguageChange,
    LanguageGroup,
    Measure,
    TaskScore,
    compare_languages,
    family_order,
    group_by_family,
    group_by_training_data,
)
from crossling.report.leaderboard import LeaderboardEntry
from crossling.report.published import PublishedRow, published_rows
from crossling.report.runs import ReportRun

MAX_LANGUAGES, MAX_PAIRS = 20, 12  # columns of a heatmap; more are split over several
PUBLISHED_MODELS = {
    *((model, "Base") for model in ("XLM-R", "InfoXLM", "XLM-E", "XY-LENT")),
    *((model, "Large") for model in ("VECO", "VECO (plug-out)", "VECO (plug-in)")),
}
REPEATED_TABLE = ("XY-LENT", "6")  # the same model as in Table 11, before continued training
PUBLISHED_SETTINGS = {  # setting of a run -> settings of published tables
    "training-free": ("training-free", "zero-shot"),  # VECO calls retrieval zero-shot as well
    "zero-shot": ("zero-shot", "english"),  # GLUE, SQuAD 2.0, ChemProt: fine-tuned on English too
    "translate-train": ("translate-train",),
}
MIN_SHADE = 0.08  # of the worst score


@dataclass(frozen=True)
class HeatmapCell:
    """One number of a heatmap."""

    value: float
    shade: float  # 0 to 1
    title: str = ""


@dataclass(frozen=True)
class HeatmapRow:
    """Scores of a run or a published model by language."""

    name: str
    cells: dict[str, HeatmapCell]  # by column
    reference: str = ""  # paper and table of a published model
    colour: int | None = None  # None for a published model
    title: str = ""


@dataclass(frozen=True)
class Heatmap:
    """Languages across, models down."""

    columns: list[str]
    rows: list[HeatmapRow]


@dataclass(frozen=True)
class ScoreBar:
    """A mean over languages with its interval."""

    name: str
    colour: int
    value: float
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True)
class MetricCard:
    """One measure with the scores of all runs."""

    measure: Measure
    description: str
    span: tuple[float, float]  # smallest and largest score
    heatmaps: list[Heatmap]
    bars: list[ScoreBar]


@dataclass(frozen=True)
class TaskSection:
    """One task of the page."""

    task: str
    title: str
    first: MetricCard
    more: list[MetricCard]  # other metrics and settings


def task_sections(entries: Sequence[LeaderboardEntry]) -> list[TaskSection]:
    """Return a section for every task, with scores by language.

    Retrieval has a section for each direction. Pairs without English are shown in another heatmap.
    """
    measures: dict[tuple[str, str | None], list[Measure]] = {}
    for measure in dict.fromkeys(score.measure for entry in entries for score in entry.scores):
        lists_or_pairs = measure.task.startswith("tatoeba") and (measure.task != "tatoeba" or not measure.direction)
        if measure.metric is not QA_MEAN and not lists_or_pairs:
            measures.setdefault((measure.task, measure.direction), []).append(measure)
    sections = []
    for (task, direction), of_task in measures.items():
        cards = sorted((_card(measure, entries) for measure in of_task), key=_rank)
        title = TITLES.get(task, task) + (f" {direction.replace('-', '→')}" if direction else "")
        sections.append(TaskSection(task, title, cards[0], cards[1:]))
    return sorted(sections, key=lambda section: [*TITLES, section.task].index(section.task))


def _rank(card: MetricCard) -> tuple[bool, bool]:
    """Sort key: metrics of the public scripts first, but retrieval at every layer before XTREME's fixed layer."""
    measure = card.measure
    is_official = measure.protocol in ("xtreme", "glue", "sweep", PROTOCOLS["ot"])
    return not is_official, (measure.task, measure.protocol) == ("tatoeba", "xtreme")


def main_scores(entry: LeaderboardEntry) -> dict[str, TaskScore]:
    """Return one score for each fine-tuned task: XTREME's metric; for QA, the mean of F1 and exact match."""
    scores: dict[str, TaskScore] = {}
    for score in entry.scores:
        measure = score.measure
        if measure.setting == "training-free" or measure.protocol not in ("xtreme", "glue"):
            continue
        if measure.task not in scores or measure.metric is QA_MEAN:
            scores[measure.task] = score
    return dict(sorted(scores.items(), key=lambda item: [*TITLES, item[0]].index(item[0])))


@dataclass(frozen=True)
class GroupHeatmap:
    """Scores of one run by (row, column), or the difference of two runs."""

    name: str
    colour: int | None
    columns: list[str]
    rows: list[str]
    cells: dict[tuple[str, str], HeatmapCell]
    signed: bool = False  # a difference


def family_heatmaps(entries: Sequence[LeaderboardEntry]) -> list[GroupHeatmap]:
    """Return a heatmap of families and tasks for each run, then differences from the first run (XY-LENT, Figure 3)."""
    by_run: list[tuple[LeaderboardEntry, dict[str, dict[str, LanguageGroup]]]] = []
    for entry in entries:
        columns = {}
        for task, score in main_scores(entry).items():
            groups = group_by_family(score.language_means)
            if len(groups) > 1:
                columns[TITLES.get(task, task)] = {group.name: group for group in groups}
        if columns:
            by_run.append((entry, columns))
    maps = [_family_map(entry.name, entry.colour, columns) for entry, columns in by_run]
    if len(by_run) > 1:
        (base, first), *others = by_run
        for entry, columns in others:
            maps.append(_difference_map(f"{entry.name} minus {base.name}", first, columns))
    return [heatmap for heatmap in maps if heatmap.columns]


def cross_lingual_qa(runs: Sequence[tuple[ReportRun, LeaderboardEntry]]) -> list[GroupHeatmap]:
    """Return MLQA's F1 by language of the text (down) and of the question (across), for each run."""
    maps = []
    for run, entry in runs:
        scores: dict[tuple[str, str], list[float]] = {}
        for row in run.rows:
            if (row["task"], row["metric"], row.get("protocol"), row.get("split")) == ("mlqa", "f1", "xtreme", "test"):
                text, _, question = row["language"].partition("-")
                scores.setdefault((text, question or text), []).append(row["value"])
        if any(text != question for text, question in scores):
            values = {pair: fmean(seeds) for pair, seeds in scores.items()}
            span = min(values.values()), max(values.values())
            cells = {
                pair: HeatmapCell(value, _shade(value, span, False), "text – question: " + " – ".join(pair))
                for pair, value in values.items()
            }
            texts, questions = (family_order({pair[side] for pair in values}) for side in (0, 1))
            maps.append(GroupHeatmap(entry.name, entry.colour, questions, texts, cells))
    return maps


@dataclass(frozen=True)
class TrainingDataRow:
    """Scores of one run on one task, by group of languages."""

    run: str
    colour: int
    task: str
    description: str
    groups: dict[str, LanguageGroup]


def training_data_rows(runs: Sequence[tuple[ReportRun, LeaderboardEntry]]) -> list[TrainingDataRow]:
    """Return the scores of languages with bitext, with text only, and unseen, where there are several groups."""
    rows = []
    for run, entry in runs:
        if not run.data:
            continue
        for task, score in {**main_scores(entry), **_retrieval(entry)}.items():
            groups = group_by_training_data(score.language_means, run.data)
            if len(groups) > 1:
                names = entry.name, entry.colour, TITLES.get(task, task), _description(score)
                rows.append(TrainingDataRow(*names, {group.name: group for group in groups}))
    return rows


@dataclass(frozen=True)
class ContinuedTraining:
    """Two runs, the second initialized from the first, on one task."""

    before: str
    after: str
    task: str
    description: str
    changes: list[LanguageChange]


def continued_training(runs: Sequence[tuple[ReportRun, LeaderboardEntry]]) -> list[ContinuedTraining]:
    """Compare runs with the run of the page that they were initialized from, by language (XY-LENT, Table 6)."""
    comparisons = []
    for run, entry in runs:
        origin = next((other for other in runs if run.init and _is_run(other[0], run.init)), None)
        if origin is None or origin[0] is run:
            continue
        before, after = ({**main_scores(each), **_retrieval(each)} for each in (origin[1], entry))
        for task in before.keys() & after.keys():
            if changes := compare_languages(before[task].language_means, after[task].language_means):
                names = origin[1].name, entry.name, TITLES.get(task, task)
                comparisons.append(ContinuedTraining(*names, after[task].measure.description, changes))
    return sorted(comparisons, key=lambda each: (each.after, each.task))


def _is_run(run: ReportRun, init: str) -> bool:
    return bool(run.path) and (run.path == init or Path(run.path).resolve() == Path(init).resolve())


def _retrieval(entry: LeaderboardEntry) -> dict[str, TaskScore]:
    """Return the Tatoeba score of all languages from English, or that of pairs without English."""
    candidates = [
        score
        for score in entry.scores
        if score.measure.task == "tatoeba" and score.measure.protocol == "sweep" and score.measure.pooling == "mean"
    ]
    candidates.sort(key=lambda score: score.measure.direction != "en-xx")
    return {"tatoeba": candidates[0]} if candidates else {}


def _card(measure: Measure, entries: Sequence[LeaderboardEntry]) -> MetricCard:
    scored = [(entry, score) for entry in entries for score in entry.scores if score.measure == measure]
    codes = family_order(dict.fromkeys(code for _, score in scored for code in score.languages))
    published = [(row, _match_codes(codes, languages)) for row, languages in _published_scores(measure)]
    values = [spread.mean for _, score in scored for spread in score.languages.values()]
    values += [value for _, languages in published for value in languages.values()]
    span = min(values), max(values)
    rows = [
        HeatmapRow(
            entry.name,
            {
                code: HeatmapCell(
                    spread.mean, _shade(spread.mean, span, measure.lower_is_better), _tooltip(code, score)
                )
                for code, spread in score.languages.items()
            },
            colour=entry.colour,
            title=_description(score),
        )
        for entry, score in scored
    ]
    rows += [
        HeatmapRow(
            row.name,
            {
                code: HeatmapCell(value, _shade(value, span, measure.lower_is_better), code)
                for code, value in languages.items()
            },
            row.reference,
            title=row.description,
        )
        for row, languages in published
    ]
    width = MAX_PAIRS if any("-" in code for code in codes) else MAX_LANGUAGES
    heatmaps = [Heatmap(codes[start : start + width], rows) for start in range(0, len(codes), width)]
    bars = [_bar(entry, score) for entry, score in scored]
    layers = {score.layer for _, score in scored if score.layer is not None}
    at_layers = f", each at its best layer ({', '.join(map(str, sorted(layers)))})" if layers else ""
    return MetricCard(measure, measure.description + at_layers, span, heatmaps, bars)


def _published_scores(measure: Measure) -> list[tuple[PublishedRow, dict[str, float]]]:
    """Return the papers' scores of the same measure by language, without repeated rows."""
    if not _is_comparable(measure):
        return []
    scores: list[tuple[PublishedRow, dict[str, float]]] = []
    for row in published_rows():
        languages = row.languages(measure.task, measure.metric, measure.direction)
        is_known = any(languages == other and row.name == one.name for one, other in scores)
        if languages and not is_known and _is_shown(row, measure):
            scores.append((row, languages))
    return scores


def _match_codes(codes: Sequence[str], languages: Mapping[str, float]) -> dict[str, float]:
    """Return the scores of the languages that runs have. `de-en` and `en-de` are the same pair."""
    either_order = {**{"-".join(reversed(code.split("-"))): value for code, value in languages.items()}, **languages}
    return {code: either_order[code] for code in codes if code in either_order}


def _is_comparable(measure: Measure) -> bool:
    is_english = measure.protocol in ("glue", "squad-2.0")
    # VECO reports tagging accuracy, the other papers XTREME's F1.
    same_protocol = is_english or measure.protocol in ("xtreme", "sweep", "tokens", PROTOCOLS["ot"])
    split = "dev" if is_english or measure.task == "tydiqa" else "test"
    return same_protocol and measure.pooling in ("mean", None) and measure.split == split


def _is_shown(row: PublishedRow, measure: Measure) -> bool:
    same_setting = (
        row.setting in PUBLISHED_SETTINGS.get(measure.setting, ()) and (row.paper, row.table) != REPEATED_TABLE
    )
    return (row.model, row.size) in PUBLISHED_MODELS and same_setting and "[CLS]" not in row.protocol


def _bar(entry: LeaderboardEntry, score: TaskScore) -> ScoreBar:
    low, high = score.interval or (None, None)
    seeds = score.seeds
    text = f"{seeds.mean:.1f}"
    if seeds.deviation is not None:
        text += f" ± {seeds.deviation:.1f}, median {seeds.median:.1f}, {len(seeds.values)} seeds"
    if low is not None and high is not None:
        kind = "95% interval" if len(score.mean_languages) == 1 else "interval of the mean for independent languages"
        text += f"; {kind}: {low:.1f} to {high:.1f}"
    return ScoreBar(entry.name, entry.colour, seeds.mean, low, high, f"{text}; {score.coverage}")


def _tooltip(code: str, score: TaskScore) -> str:
    spread = score.languages[code]
    text = f"{code}: {spread.mean:.2f}"
    if spread.deviation is not None:
        text += f" ± {spread.deviation:.2f} over {len(spread.values)} seeds, median {spread.median:.2f}"
    if code in score.intervals:
        low, high = score.intervals[code]
        text += f", 95% interval: {low:.1f} to {high:.1f}"
    return text


def _description(score: TaskScore) -> str:
    return score.measure.description + (f", layer {score.layer}" if score.layer is not None else "")


def _shade(value: float, span: tuple[float, float], lower_is_better: bool) -> float:
    low, high = span
    share = (value - low) / ((high - low) or 1)
    return MIN_SHADE + (1 - MIN_SHADE) * (1 - share if lower_is_better else share)


def _family_map(name: str, colour: int | None, columns: Mapping[str, Mapping[str, LanguageGroup]]) -> GroupHeatmap:
    values = [group.value for groups in columns.values() for group in groups.values()]
    span = min(values), max(values)
    cells = {
        (family, task): HeatmapCell(group.value, _shade(group.value, span, False), ", ".join(group.languages))
        for task, groups in columns.items()
        for family, group in groups.items()
    }
    return GroupHeatmap(name, colour, [*columns], _families(cells), cells)


def _difference_map(
    name: str, first: Mapping[str, Mapping[str, LanguageGroup]], second: Mapping[str, Mapping[str, LanguageGroup]]
) -> GroupHeatmap:
    differences = {
        (family, task): (second[task][family].value - group.value, group)
        for task, groups in first.items()
        if task in second
        for family, group in groups.items()
        if family in second[task] and second[task][family].languages == group.languages
    }
    largest = max((abs(value) for value, _ in differences.values()), default=0) or 1
    cells = {
        key: HeatmapCell(value, abs(value) / largest, ", ".join(group.languages))
        for key, (value, group) in differences.items()
    }
    columns = list(dict.fromkeys(task for _, task in cells))
    return GroupHeatmap(name, None, columns, _families(cells), cells, signed=True)


def _families(cells: Mapping[tuple[str, str], HeatmapCell]) -> list[str]:
    return [family for family in FAMILIES if family in {family for family, _ in cells}]
