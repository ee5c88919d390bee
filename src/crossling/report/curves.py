"""View of one run for the page: layer scores, training cost, and the charts of all runs.

Charts of score against size and cost follow XY-LENT's Figure 1 and XLM-E's Figure 1, with published models beside the
runs. Sizes are from XLM-E's Tables 3 and 4 and XY-LENT's Table 11, FLOPs from XLM-E's Table 4 with scores from its
Table 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Any

from crossling.core.progress import format_count, format_duration
from crossling.evaluate.retrieval import PLUG_IN
from crossling.evaluate.word_alignment import PROTOCOLS
from crossling.report.analysis import TaskScore, task_scores, xtreme_average
from crossling.report.charts import Dot, LinePlot, ScatterPlot, Series
from crossling.report.leaderboard import LeaderboardEntry, xtreme_scores
from crossling.report.published import PublishedRow, published_table
from crossling.report.runs import ReportRun
from crossling.tasks.scores import LayerSummary, ScoreRow, summarize_layers

LOSSES = {
    "loss": "Total loss",
    "mlm": "MLM: masked tokens",
    "tlm": "TLM: masked tokens of translation pairs",
    "mrtd": "MRTD: replaced tokens",
    "trtd": "TRTD: replaced tokens of translation pairs",
    "xlco": "XLCo: contrastive loss",
    # CA-MLM has four terms. Those of y behave like those of x and are not shown.
    "ca_mlm_x": "CA-MLM: masked tokens of text",
    "ca_mlm_x_cross": "CA-MLM: masked tokens of text, with cross-attention to the next segment",
    "ca_tlm_x": "CA-MLM: masked tokens of one side of a pair",
    "ca_tlm_x_cross": "CA-MLM: masked tokens of one side, with cross-attention to the translation",
}
MIN_DOTS = 3  # of a scatter plot


def chance_accuracy(runs: Sequence[ReportRun]) -> float | None:
    """Mean retrieval accuracy of random guesses in percent, or None without retrieval scores."""
    rows = (row for run in runs for row in run.rows if row["task"] == "tatoeba" and "examples" in row)
    values = [100 / row["examples"] for row in rows]
    return fmean(values) if values else None


@dataclass(frozen=True)
class RunView:
    """A run with everything the page shows of it."""

    run: ReportRun
    colour: int

    @property
    def name(self) -> str:
        return self.run.name

    @cached_property
    def scores(self) -> list[TaskScore]:
        return task_scores(self.run.rows)

    @cached_property
    def entry(self) -> LeaderboardEntry:
        return LeaderboardEntry(self.name, self.colour, self.scores)

    @cached_property
    def retrieval(self) -> LayerSummary | None:
        return self._summary("tatoeba", "accuracy")

    @cached_property
    def chance(self) -> float | None:
        """Retrieval accuracy of random guesses, averaged like the scores."""
        return chance_accuracy([self.run])

    @cached_property
    def alignment(self) -> LayerSummary | None:
        return self._summary("word-alignment", "aer")

    @cached_property
    def pairs(self) -> int:
        """Number of directed language pairs in the retrieval mean."""
        return len({(row["language"], row.get("direction")) for row in self._rows(self.retrieval)})

    @cached_property
    def training(self) -> dict[str, str]:
        """Steps, tokens, time and throughput from the metrics of the run."""
        if not self.run.metrics:
            return {}
        last = self.run.metrics[-1]
        facts = {"steps": f"{last['step']:,}"}
        if "tokens" in last:
            facts["tokens"] = format_count(last["tokens"])
        if "seconds" in last:
            facts["time"] = format_duration(last["seconds"])
        speeds = [row["tokens_per_second"] for row in self.run.metrics if "tokens_per_second" in row]
        if speeds:
            facts["tokens/s"] = f"{median(speeds):,.0f}"
        return facts

    @cached_property
    def cost(self) -> dict[str, str]:
        """Parameters, FLOPs in both conventions, MFU and hardware of a finished run."""
        cost, flops = self.run.cost, self.run.cost.get("flops", {})
        facts = {"parameters": format_count(self.run.parameters)} if self.run.parameters else {}
        facts |= {f"FLOPs, {kind}": f"{number:.2g}" for kind, number in flops.items()}
        if cost.get("mfu"):
            facts["MFU"] = f"{cost['mfu']:.2f}"
        if cost.get("machines"):
            facts["machines"] = ", ".join(
                f"{format_duration(spent)} on {name}" for name, spent in cost["machines"].items()
            )
        return facts

    @cached_property
    def layers(self) -> list[tuple[int, float | None, float | None]]:
        """(layer, retrieval accuracy, AER) of every layer."""
        retrieval = self.retrieval.by_layer if self.retrieval else {}
        alignment = self.alignment.by_layer if self.alignment else {}
        return [(layer, retrieval.get(layer), alignment.get(layer)) for layer in sorted({*retrieval, *alignment})]

    @cached_property
    def heatmap(self) -> dict[str, Any] | None:
        """Retrieval accuracy by (query language, target language) at the best layer, without pairs with English."""
        if self.retrieval is None:
            return None
        by_pair = defaultdict(list)  # the seeds of a run are averaged
        layer = self.retrieval.best_layer
        for row in self._rows(self.retrieval):
            direction = row.get("direction")
            if row["layer"] == layer and direction not in (None, "en-xx", "xx-en"):
                query, target = (row["language"] if code == "xx" else code for code in direction.split("-", 1))
                by_pair[query, target].append(row["value"])
        values = {pair: fmean(seeds) for pair, seeds in by_pair.items()}
        return (
            {
                "rows": sorted({query for query, _ in values}),
                "columns": sorted({target for _, target in values}),
                "values": values,
            }
            if values
            else None
        )

    def _summary(self, task: str, metric: str) -> LayerSummary | None:
        """Scores by layer on the test set, of the protocol that has the most layers."""
        candidates = [
            each
            for each in summarize_layers(self.run.rows)
            if (each.task, each.metric, each.split) == (task, metric, "test") and each.protocol != PLUG_IN
        ]
        # Of several alignment methods, prefer the one that the papers use.
        return max(candidates, key=lambda each: (each.protocol == PROTOCOLS["ot"], len(each.by_layer)), default=None)

    def _rows(self, measure: LayerSummary | None) -> list[ScoreRow]:
        if measure is None:
            return []
        return [
            row
            for row in self.run.rows
            if (row["task"], row.get("protocol", ""), row["metric"], row.get("split", "test"), row.get("pooling"))
            == (measure.task, measure.protocol, measure.metric, measure.split, measure.pooling)
        ]


def training_charts(views: Sequence[RunView]) -> list[LinePlot]:
    """Charts of every loss, and of the probes that ran during training."""
    # One chart for each probe: `probe/NAME/LANGUAGE` has two slashes.
    names = {name for view in views for row in view.run.metrics for name in row if name.startswith("probe/")}
    probes = {name: name.removeprefix("probe/") for name in sorted(names) if name.count("/") == 1}
    titles = LOSSES | {name: f"{probe.capitalize()} during training" for name, probe in probes.items()}
    plots = []
    for term, title in titles.items():
        series = [
            Series(view.name, view.colour, [(row["step"], row[term]) for row in view.run.metrics if term in row])
            for view in views
        ]
        if any(each.points for each in series):
            y_label = f"{probes[term]}, %" if term in probes else "loss"
            plots.append(LinePlot(title, "step", y_label, series, from_zero=term in probes))
    return plots


def layer_charts(views: Sequence[RunView], chance: float | None) -> list[LinePlot]:
    """Charts of retrieval accuracy and alignment error rate by layer (XLM-E, Figures 3 and 4)."""
    plots = []
    for title, y_label, summaries, level in (
        ("Retrieval accuracy (higher is better)", "accuracy, %", [view.retrieval for view in views], chance),
        ("Alignment error rate (lower is better)", "AER, %", [view.alignment for view in views], None),
    ):
        series = [
            Series(view.name, view.colour, list(summary.by_layer.items()))
            for view, summary in zip(views, summaries, strict=True)
            if summary
        ]
        if series:
            line = (level, "chance") if level is not None else None
            plots.append(LinePlot(title, "layer", y_label, series, from_zero=True, level=line))
    return plots


def scatter_charts(runs: Sequence[tuple[ReportRun, LeaderboardEntry]]) -> list[ScatterPlot]:
    """Charts of each score against parameters and training FLOPs, where a run has both."""
    plots = []
    for name, column, score_of in (
        ("XTREME average", "xtreme-7/average/mean", _xtreme_average),
        ("XNLI accuracy", "xnli/accuracy/mean", _xnli_accuracy),
        ("Tatoeba accuracy", "", _tatoeba_accuracy),
    ):
        scored = [(run, entry, score) for run, entry in runs if (score := score_of(entry)) is not None]
        sizes = [Dot(entry.name, run.parameters, score, entry.colour) for run, entry, score in scored if run.parameters]
        costs = [
            Dot(entry.name, flops, score, entry.colour)
            for run, entry, score in scored
            if (flops := run.cost.get("flops", {}).get("paper"))
        ]
        for x_label, measured, published in (
            ("parameters", sizes, _published_sizes(column)),
            ("training FLOPs, counted as in the papers", costs, _published_costs(column)),
        ):
            if measured and len(measured) + len(published) >= MIN_DOTS:
                title = f"{name} by {x_label.partition(',')[0]}"
                plots.append(ScatterPlot(title, x_label, f"{name}, %", [*measured, *published]))
    return plots


def _xtreme_average(entry: LeaderboardEntry) -> float | None:
    average = xtreme_average(xtreme_scores(entry, "zero-shot"))
    return average.mean if average else None


def _xnli_accuracy(entry: LeaderboardEntry) -> float | None:
    score = xtreme_scores(entry, "zero-shot").get("xnli")
    return score.mean if score else None


def _tatoeba_accuracy(entry: LeaderboardEntry) -> float | None:
    """Mean over both directions. No paper reports the same languages together with a cost."""
    scores = [score.mean for score in entry.scores if _is_retrieval(score)]
    return fmean(scores) if scores else None


def _is_retrieval(score: TaskScore) -> bool:
    measure = score.measure
    return (measure.task, measure.protocol, measure.pooling) == ("tatoeba", "sweep", "mean")


def _published_sizes(column: str) -> list[Dot]:
    dots: dict[tuple[str, float], Dot] = {}
    for row in (*published_table("XLM-E", "3", "4"), *published_table("XY-LENT", "11", setting="zero-shot")):
        size = row.parameters or row.values.get("cost/parameters")
        if size and column in row.values:  # XY-LENT repeats rows of XLM-E: keep the first
            dots.setdefault((row.name, row.values[column]), _published_dot(row, size, row.values[column]))
    return list(dots.values())


def _published_costs(column: str) -> list[Dot]:
    scores = {row.name: row.values[column] for row in published_table("XLM-E", "1") if column in row.values}
    rows = [row for row in published_table("XLM-E", "4") if row.name in scores]
    return [_published_dot(row, row.values["cost/flops"], scores[row.name]) for row in rows]


def _published_dot(row: PublishedRow, x: float, y: float) -> Dot:
    return Dot(row.name, x, y, None, row.reference)
