"""Charts of all runs: losses by step, scores by layer, and scores against size and cost.

Charts of score against size and cost follow XY-LENT's Figure 1 and XLM-E's Figure 1, with published models beside the
runs. Sizes are from XLM-E's Tables 3 and 4 and XY-LENT's Table 11, FLOPs from XLM-E's Table 4 with scores from its
Table 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from crossling.report.analysis import TITLES, XTREME_7, Measure, metric_title, task_average, task_scores
from crossling.report.charts import Dot, LinePlot, ScatterPlot, Series
from crossling.report.leaderboard import pick_scores, retrieval_scores
from crossling.report.published import published_table
from crossling.report.runs import ReportRun

LOSSES = {
    "loss": "Total loss",
    "mlm": "MLM: masked tokens",
    "tlm": "TLM: masked tokens of translation pairs",
    "mrtd": "MRTD: replaced tokens",
    "trtd": "TRTD: replaced tokens of translation pairs",
    "xlco": "XLCo: contrastive loss",
    "denoising": "Denoising: tokens of the original text",
    "pair_denoising": "Denoising: tokens of the translation",
    "distillation": "Distillation: distance to the vectors of the teacher",
    # CA-MLM has four terms. Those of y behave like those of x and are not shown.
    "ca_mlm_x": "CA-MLM: masked tokens of text",
    "ca_mlm_x_cross": "CA-MLM: masked tokens of text, with cross-attention to the next segment",
    "ca_tlm_x": "CA-MLM: masked tokens of one side of a pair",
    "ca_tlm_x_cross": "CA-MLM: masked tokens of one side, with cross-attention to the translation",
}
MIN_DOTS = 3  # of a scatter plot


def training_charts(runs: Sequence[ReportRun]) -> list[LinePlot]:
    """Charts of every loss, and of the probes that ran during training."""
    # One chart for each probe: `probe/NAME/LANGUAGE` has two slashes.
    names = {name for run in runs for row in run.metrics for name in row if name.startswith("probe/")}
    probes = {name: name.removeprefix("probe/") for name in sorted(names) if name.count("/") == 1}
    titles = (
        LOSSES | _other_losses(runs) | {name: f"{probe.capitalize()} during training" for name, probe in probes.items()}
    )
    plots = []
    for term, title in titles.items():
        series = [
            Series(run.name, run.colour, [(row["step"], row[term]) for row in run.metrics if term in row])
            for run in runs
        ]
        if any(each.points for each in series):
            y_label = f"{probes[term].partition(' ')[0]}, %" if term in probes else "loss"
            plots.append(LinePlot(title, "step", y_label, series, from_zero=term in probes))
    return plots


def _other_losses(runs: Sequence[ReportRun]) -> dict[str, str]:
    """Loss terms without a title in `LOSSES`. Every loss term has an accuracy."""
    names = dict.fromkeys(name for run in runs for row in run.metrics for name in row)
    titled = {*LOSSES, *(name.replace("_x", "_y", 1) for name in LOSSES)}
    return {name: name for name in names if f"{name}_accuracy" in names and name not in titled}


def layer_charts(runs: Sequence[ReportRun], chance: float | None) -> list[LinePlot]:
    """Charts of retrieval accuracy and alignment error rate by layer (XLM-E, Figures 3 and 4)."""
    plots = []
    for title, y_label, summaries, level in (
        ("Retrieval accuracy (higher is better)", "accuracy, %", [run.retrieval for run in runs], chance),
        ("Alignment error rate (lower is better)", "AER, %", [run.alignment for run in runs], None),
    ):
        series = [
            Series(run.name, run.colour, list(summary.by_layer.items()))
            for run, summary in zip(runs, summaries, strict=True)
            if summary
        ]
        if series:
            line = (level, "chance") if level is not None else None
            plots.append(LinePlot(title, "layer", y_label, series, from_zero=True, level=line))
    return plots


def scatter_charts(runs: Sequence[ReportRun]) -> list[ScatterPlot]:
    """Charts of each score against parameters and training FLOPs, where a run has both."""
    plots = []
    for name, column in (
        ("XTREME average", "xtreme-7/average/mean"),
        ("XNLI accuracy", "xnli/accuracy/mean"),
        ("Tatoeba accuracy", ""),  # no paper reports the same languages together with a cost
    ):
        scored = [(run, score) for run in runs if (score := _plotted_scores(run)[name]) is not None]
        sizes = [(run, run.parameters, score) for run, score in scored]
        costs = [(run, run.cost.get("flops", {}).get("paper"), score) for run, score in scored]
        for x_label, points, published in (
            ("parameters", sizes, _published_sizes(column)),
            ("training FLOPs, counted as in the papers", costs, _published_costs(column)),
        ):
            dots = [Dot(run.name, x, score, colour=run.colour) for run, x, score in points if x]
            if dots and len(dots) + len(published) >= MIN_DOTS:
                title = f"{name} by {x_label.partition(',')[0]}"
                plots.append(ScatterPlot(title, x_label, f"{name}, %", [*dots, *published]))
    return plots


def checkpoint_charts(runs: Sequence[ReportRun]) -> list[LinePlot]:
    """Charts of the score of each task against the pre-training FLOPs of the checkpoints (XLM-E, Figure 1)."""
    curves: dict[Measure, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    settings: dict[Measure, str] = {}
    for number, run in enumerate(runs):
        for step in sorted({row["step"] for row in run.checkpoint_rows}):
            rows = [row for row in run.checkpoint_rows if row["step"] == step and "flops" in row]
            for score in task_scores(rows):
                curves[score.measure][number].append((rows[0]["flops"]["paper"], score.mean))
                settings[score.measure] = score.setting
    # The first measure of a task is that of its main metric.
    measures = {(measure.task, measure.setting): measure for measure in reversed(curves)}
    plots = []
    for measure in [each for each in curves if each in measures.values()]:
        series = [Series(runs[number].name, runs[number].colour, points) for number, points in curves[measure].items()]
        if any(len(each.points) > 1 for each in series):
            title = f"{TITLES.get(measure.task, measure.task)}: {measure.describe(settings[measure])}"
            y_label = f"{metric_title(measure.metric)}, %"
            plots.append(LinePlot(title, "pre-training FLOPs, counted as in the papers", y_label, series, marked=True))
    return plots


def _plotted_scores(run: ReportRun) -> dict[str, float | None]:
    """Scores of a run by name, None without a score. Tatoeba is the mean over both directions."""
    scores = pick_scores(run, XTREME_7, "zero-shot")
    average, xnli, retrieval = task_average(scores), scores.get("xnli"), retrieval_scores(run)
    return {
        "XTREME average": average.mean if average else None,
        "XNLI accuracy": xnli.mean if xnli else None,
        "Tatoeba accuracy": fmean(score.mean for score in retrieval) if retrieval else None,
    }


def _published_sizes(column: str) -> list[Dot]:
    dots: dict[tuple[str, float], Dot] = {}
    for row in (*published_table("XLM-E", "3", "4"), *published_table("XY-LENT", "11", setting="zero-shot")):
        size = row.parameters or row.values.get("cost/parameters")
        if size and column in row.values:  # XY-LENT repeats rows of XLM-E: keep the first
            score = row.values[column]
            dots.setdefault((row.name, score), Dot(row.name, size, score, reference=row.reference))
    return list(dots.values())


def _published_costs(column: str) -> list[Dot]:
    scores = {row.name: row.values[column] for row in published_table("XLM-E", "1") if column in row.values}
    rows = [row for row in published_table("XLM-E", "4") if row.name in scores]
    return [Dot(row.name, row.values["cost/flops"], scores[row.name], reference=row.reference) for row in rows]
