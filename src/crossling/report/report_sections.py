"""Report sections about scores: tasks by language, language families, training data, and continued training.

Everything is computed here from the rows of scores. The templates only arrange it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from statistics import fmean

from crossling.evaluate.word_alignment import PROTOCOLS
from crossling.report.analysis import (
    QA_MEAN,
    TITLES,
    LanguageChange,
    LanguageGroup,
    Measure,
    TaskScore,
    compare_languages,
    group_by_family,
    group_by_training_data,
)
from crossling.report.language_families import FAMILIES, family_order
from crossling.report.leaderboard import retrieval_scores
from crossling.report.published_comparison import match_codes, published_scores
from crossling.report.runs import ReportRun
from crossling.tasks.scores import describe_setting

MAX_LANGUAGES, MAX_PAIRS = 20, 12  # columns of a heatmap; more are split over several
MIN_SHADE = 0.08  # of the worst score


@dataclass(frozen=True)
class HeatmapCell:
    """One number of a heatmap."""

    value: float
    shade: float  # 0 to 1


@dataclass(frozen=True)
class HeatmapRow:
    """Scores of a run or a published model by language."""

    name: str
    cells: dict[str, HeatmapCell]  # by column
    _: KW_ONLY
    reference: str = ""  # paper and table of a published model
    colour: int | None = None  # None for a published model
    title: str = ""  # conditions of the scores


@dataclass(frozen=True)
class ScoreBar:
    """A mean over languages with its interval."""

    run: ReportRun
    score: TaskScore

    @property
    def text(self) -> str:
        score, seeds = self.score, self.score.seeds
        text = f"{seeds.mean:.1f}"
        if seeds.deviation is not None:
            text += f" ± {seeds.deviation:.1f}, median {seeds.median:.1f}, {len(seeds.values)} seeds"
        if score.interval is not None:
            several = "interval of the mean for independent languages"
            kind = "95% interval" if len(score.mean_languages) == 1 else several
            text += f"; {kind}: {score.interval[0]:.1f} to {score.interval[1]:.1f}"
        return f"{text}; {score.coverage}"


@dataclass(frozen=True, kw_only=True)
class MetricCard:
    """One measure with the scores of all runs."""

    measure: Measure
    setting: str  # in words, such as `zero-shot except en`
    description: str
    span: tuple[float, float]  # smallest and largest score
    column_blocks: list[list[str]]  # languages across, one heatmap for each block
    rows: list[HeatmapRow]  # models down
    bars: list[ScoreBar]

    @property
    def values(self) -> list[list[str]]:
        """A header, then each language with spread and interval for every run; empty if there are none of both."""
        scores = [bar.score for bar in self.bars]
        if not any(score.intervals or score.seeds.deviation is not None for score in scores):
            return []
        codes = [code for block in self.column_blocks for code in block]
        rows = [[code, *(_value_text(code, score) for score in scores)] for code in codes]
        return [["language", *(bar.run.name for bar in self.bars)], *rows]


@dataclass(frozen=True)
class TaskSection:
    """One task of the page."""

    title: str
    cards: list[MetricCard]  # the main metric first, then other metrics and settings


def task_sections(runs: Sequence[ReportRun]) -> list[TaskSection]:
    """Return a section for every task, with scores by language.

    Retrieval has a section for each direction. Pairs without English are shown in another heatmap.
    """
    measures: dict[tuple[str, str | None], list[Measure]] = {}
    for measure in dict.fromkeys(score.measure for run in runs for score in run.scores):
        lists_or_pairs = measure.task.startswith("tatoeba") and (measure.task != "tatoeba" or not measure.direction)
        if measure.metric is not QA_MEAN and not lists_or_pairs:
            measures.setdefault((measure.task, measure.direction), []).append(measure)
    found = []
    for task, direction in sorted(measures, key=lambda key: [*TITLES, key[0]].index(key[0])):
        cards = sorted((_card(measure, runs) for measure in measures[task, direction]), key=_rank)
        title = TITLES.get(task, task) + (f" {direction.replace('-', '→')}" if direction else "")
        found.append(TaskSection(title, cards))
    return found


def _rank(card: MetricCard) -> tuple[bool, bool]:
    """Sort key: metrics of the public scripts first, but retrieval at every layer before XTREME's fixed layer."""
    measure = card.measure
    is_official = measure.protocol in ("xtreme", "glue", "massive", "sweep", PROTOCOLS["ot"])
    return not is_official, (measure.task, measure.protocol) == ("tatoeba", "xtreme")


def main_scores(run: ReportRun) -> dict[str, TaskScore]:
    """Return one score for each fine-tuned task: XTREME's metric; for QA, the mean of F1 and exact match."""
    scores: dict[str, TaskScore] = {}
    for score in run.scores:
        measure = score.measure
        if measure.setting == "training-free" or measure.protocol not in ("xtreme", "glue", "massive"):
            continue
        if measure.task not in scores or measure.metric is QA_MEAN:
            scores[measure.task] = score
    return dict(sorted(scores.items(), key=lambda item: [*TITLES, item[0]].index(item[0])))


FamilyScores = dict[tuple[str, str], LanguageGroup]  # by family and title of the task


@dataclass(frozen=True, kw_only=True)
class GroupHeatmap:
    """Scores of one run by (row, column), or the difference of two runs."""

    name: str
    colour: int | None
    columns: list[str]
    rows: list[str]
    cells: dict[tuple[str, str], HeatmapCell]
    languages: dict[str, list[str]] = field(default_factory=dict)  # of a row, in any column
    signed: bool = False  # a difference


def family_heatmaps(runs: Sequence[ReportRun]) -> list[GroupHeatmap]:
    """Return a heatmap of families and tasks for each run, then differences from the first run (XY-LENT, Figure 3)."""
    by_run: list[tuple[ReportRun, FamilyScores]] = []
    for run in runs:
        by_task = {task: group_by_family(score.language_means) for task, score in main_scores(run).items()}
        scores = {
            (group.name, TITLES.get(task, task)): group
            for task, groups in by_task.items()
            if len(groups) > 1
            for group in groups
        }
        if scores:
            by_run.append((run, scores))
    maps = []
    for run, scores in by_run:
        values = [group.value for group in scores.values()]
        span = min(values), max(values)
        shades = {key: _shade(group.value, span) for key, group in scores.items()}
        maps.append(_family_map(run.name, run.colour, scores, shades))
    for run, scores in by_run[1:]:
        base, first = by_run[0]
        differences = {
            key: replace(group, value=scores[key].value - group.value)
            for key, group in first.items()
            if key in scores and scores[key].languages == group.languages
        }
        largest = max((abs(group.value) for group in differences.values()), default=0) or 1
        shades = {key: abs(group.value) / largest for key, group in differences.items()}
        maps.append(_family_map(f"{run.name} minus {base.name}", None, differences, shades, signed=True))
    return [heatmap for heatmap in maps if heatmap.columns]


def cross_lingual_qa(runs: Sequence[ReportRun]) -> list[GroupHeatmap]:
    """Return MLQA's F1 by language of the text (down) and of the question (across), for each run."""
    maps = []
    for run in runs:
        scores: dict[tuple[str, str], list[float]] = {}
        for row in run.rows:
            if (row["task"], row["metric"], row.get("protocol"), row.get("split")) == ("mlqa", "f1", "xtreme", "test"):
                text, _, question = row["language"].partition("-")
                scores.setdefault((text, question or text), []).append(row["value"])
        if any(text != question for text, question in scores):
            values = {pair: fmean(seeds) for pair, seeds in scores.items()}
            span = min(values.values()), max(values.values())
            cells = {pair: HeatmapCell(value, _shade(value, span)) for pair, value in values.items()}
            texts, questions = (family_order({pair[side] for pair in values}) for side in (0, 1))
            maps.append(GroupHeatmap(name=run.name, colour=run.colour, columns=questions, rows=texts, cells=cells))
    return maps


@dataclass(frozen=True)
class TrainingDataRow:
    """Scores of one run on one task, by group of languages."""

    run: ReportRun
    score: TaskScore
    groups: dict[str, LanguageGroup]


def training_data_rows(runs: Sequence[ReportRun]) -> list[TrainingDataRow]:
    """Return the scores of languages with bitext, with text only, and unseen, where there are several groups."""
    rows = []
    for run in runs:
        for score in _scores_by_task(run).values() if run.data else ():
            groups = group_by_training_data(score.language_means, run.data)
            if len(groups) > 1:
                rows.append(TrainingDataRow(run, score, {group.name: group for group in groups}))
    return rows


@dataclass(frozen=True, kw_only=True)
class ContinuedTraining:
    """Two runs, the second initialized from the first, on one task."""

    before: str
    after: str
    task: str
    description: str
    changes: list[LanguageChange]


def continued_training(runs: Sequence[ReportRun]) -> list[ContinuedTraining]:
    """Compare runs with the run of the page that they were initialized from, by language (XY-LENT, Table 6)."""
    comparisons = []
    for run in runs:
        init = run.init
        origin = next((other for other in runs if init and _is_run(other.path, init)), None)
        if origin is None or origin is run:
            continue
        before, after = _scores_by_task(origin), _scores_by_task(run)
        for task in before.keys() & after.keys():
            if changes := compare_languages(before[task].language_means, after[task].language_means):
                comparisons.append(
                    ContinuedTraining(
                        before=origin.name,
                        after=run.name,
                        task=TITLES.get(task, task),
                        description=after[task].measure.describe(after[task].setting),
                        changes=changes,
                    )
                )
    return sorted(comparisons, key=lambda each: (each.after, each.task))


def _is_run(path: str, init: str) -> bool:
    return bool(path) and (path == init or Path(path).resolve() == Path(init).resolve())


def _scores_by_task(run: ReportRun) -> dict[str, TaskScore]:
    """Return the main scores, and Tatoeba of all languages from English or else of pairs without English."""
    retrieval = sorted(retrieval_scores(run), key=lambda score: score.measure.direction != "en-xx")[:1]
    return main_scores(run) | {score.measure.task: score for score in retrieval}


def _card(measure: Measure, runs: Sequence[ReportRun]) -> MetricCard:
    scored = [(run, score) for run in runs for score in run.scores if score.measure == measure]
    codes = family_order(dict.fromkeys(code for _, score in scored for code in score.languages))
    published = [(row, match_codes(codes, languages)) for row, languages in published_scores(measure)]
    values = [spread.mean for _, score in scored for spread in score.languages.values()]
    values += [value for _, languages in published for value in languages.values()]
    span = min(values), max(values)

    def cell(value: float) -> HeatmapCell:
        return HeatmapCell(value, _shade(value, span, measure.lower_is_better))

    rows = []
    for run, score in scored:
        cells = {code: cell(spread.mean) for code, spread in score.languages.items()}
        rows.append(HeatmapRow(run.name, cells, colour=run.colour, title=score.description))
    for row, languages in published:
        cells = {code: cell(value) for code, value in languages.items()}
        rows.append(HeatmapRow(row.name, cells, reference=row.reference, title=row.description))
    width = MAX_PAIRS if any("-" in code for code in codes) else MAX_LANGUAGES
    blocks = [codes[start : start + width] for start in range(0, len(codes), width)]
    bars = [ScoreBar(run, score) for run, score in scored]
    supervised = {code for _, score in scored for code in score.supervised}
    setting = describe_setting(measure.setting, codes, supervised)
    layers = {score.layer for _, score in scored if score.layer is not None}
    at_layers = f", each at its best layer ({', '.join(map(str, sorted(layers)))})" if layers else ""
    return MetricCard(
        measure=measure,
        setting=setting,
        description=measure.describe(setting) + at_layers,
        span=span,
        column_blocks=blocks,
        rows=rows,
        bars=bars,
    )


def _value_text(code: str, score: TaskScore) -> str:
    if code not in score.languages:
        return "–"
    spread = score.languages[code]
    text = f"{spread.mean:.2f}"
    if spread.deviation is not None:
        text += f" ± {spread.deviation:.2f}, median {spread.median:.2f}, {len(spread.values)} seeds"
    if code in score.intervals:
        low, high = score.intervals[code]
        text += f"; 95% interval {low:.1f} to {high:.1f}"
    return text


def _shade(value: float, span: tuple[float, float], lower_is_better: bool = False) -> float:
    low, high = span
    share = (value - low) / ((high - low) or 1)
    return MIN_SHADE + (1 - MIN_SHADE) * (1 - share if lower_is_better else share)


def _family_map(
    name: str, colour: int | None, groups: FamilyScores, shades: Mapping[tuple[str, str], float], signed: bool = False
) -> GroupHeatmap:
    cells = {key: HeatmapCell(group.value, shades[key]) for key, group in groups.items()}
    languages: dict[str, list[str]] = {}
    for (family, _), group in groups.items():
        languages[family] = sorted({*languages.get(family, []), *group.languages})
    tasks, present = list(dict.fromkeys(task for _, task in cells)), {family for family, _ in cells}
    return GroupHeatmap(
        name=name,
        colour=colour,
        columns=tasks,
        rows=[family for family in FAMILIES if family in present],
        cells=cells,
        languages=languages,
        signed=signed,
    )
