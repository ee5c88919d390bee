"""A run as the page shows it: retrieval and alignment by layer, its curves, what it cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Any

from crossling.evaluate import charts
from crossling.evaluate.alignment import PROTOCOLS
from crossling.evaluate.analysis import TaskScore, task_scores
from crossling.evaluate.board import Entry
from crossling.evaluate.charts import LineChart, Series
from crossling.evaluate.retrieval import PLUG_IN
from crossling.evaluate.runs import Run
from crossling.evaluate.scores import Row, Summary, summary
from crossling.progress import duration

CURVES = {
    "loss": "Whole loss",
    "mlm": "MLM: masked tokens",
    "tlm": "TLM: masked tokens of pairs",
    "mrtd": "MRTD: replaced tokens",
    "trtd": "TRTD: replaced tokens of pairs",
    "xlco": "XLCo: translations against others",
    # Of the four terms of CA-MLM the two of x: those of y are their like.
    "ca_mlm_x": "CA-MLM: masked tokens of text",
    "ca_mlm_x_cross": "CA-MLM: the same beside the next segment",
    "ca_tlm_x": "CA-MLM: masked tokens of one side",
    "ca_tlm_x_cross": "CA-MLM: the same beside the translation",
}


def guessing(runs: Sequence[Run]) -> float | None:
    rows = (row for run in runs for row in run.rows if row["task"] == "tatoeba" and "examples" in row)
    found = [100 / row["examples"] for row in rows]
    return fmean(found) if found else None


@dataclass(frozen=True)
class Shown:
    """A run and what the page says of it."""

    run: Run
    colour: int

    @property
    def name(self) -> str:
        return self.run.name

    @cached_property
    def scores(self) -> list[TaskScore]:
        return task_scores(self.run.rows)

    @cached_property
    def entry(self) -> Entry:
        return Entry(self.name, self.colour, self.scores)

    @cached_property
    def retrieval(self) -> Summary | None:
        return self._summary("tatoeba", "accuracy")

    @cached_property
    def chance(self) -> float | None:
        """Retrieval by guessing: one in as many as there are candidates, averaged like the scores."""
        return guessing([self.run])

    @cached_property
    def alignment(self) -> Summary | None:
        return self._summary("word-alignment", "aer")

    @cached_property
    def pairs(self) -> int:
        """Directed language pairs behind the retrieval mean."""
        return len({(row["language"], row.get("direction")) for row in self._rows(self.retrieval)})

    @cached_property
    def training(self) -> dict[str, str]:
        """What the run cost, as far as it says."""
        if not self.run.metrics:
            return {}
        last = self.run.metrics[-1]
        facts = {"steps": f"{last['step']:,}"}
        if "tokens" in last:
            facts["tokens"] = charts.compact(last["tokens"])
        if "seconds" in last:
            facts["time"] = duration(last["seconds"])
        speeds = [row["tokens_per_second"] for row in self.run.metrics if "tokens_per_second" in row]
        if speeds:
            facts["tokens/s"] = f"{median(speeds):,.0f}"
        return facts

    @cached_property
    def cost(self) -> dict[str, str]:
        """Of the whole run, once it is finished; operations in both conventions."""
        cost, flops = self.run.cost, self.run.cost.get("flops", {})
        facts = {"parameters": charts.compact(self.run.parameters)} if self.run.parameters else {}
        facts |= {f"FLOPs, {kind}": f"{number:.2g}" for kind, number in flops.items()}
        if cost.get("mfu"):
            facts["MFU"] = f"{cost['mfu']:.2f}"
        if cost.get("machines"):
            facts["machines"] = ", ".join(f"{duration(spent)} on {name}" for name, spent in cost["machines"].items())
        return facts

    @cached_property
    def layers(self) -> list[tuple[int, float | None, float | None]]:
        """Layer, retrieval, AER."""
        retrieval = self.retrieval.by_layer if self.retrieval else {}
        alignment = self.alignment.by_layer if self.alignment else {}
        return [(layer, retrieval.get(layer), alignment.get(layer)) for layer in sorted({*retrieval, *alignment})]

    @cached_property
    def heat(self) -> dict[str, Any] | None:
        """Retrieval between pairs at the best layer: rows ask, columns answer. With English it is one of the tasks."""
        if self.retrieval is None:
            return None
        found = defaultdict(list)  # several seeds of a run are averaged
        layer = self.retrieval.best_layer
        for row in self._rows(self.retrieval):
            direction = row.get("direction")
            if row["layer"] == layer and direction not in (None, "en-xx", "xx-en"):
                asks, answers = (row["language"] if code == "xx" else code for code in direction.split("-", 1))
                found[asks, answers].append(row["value"])
        values = {place: fmean(seeds) for place, seeds in found.items()}
        return (
            {
                "rows": sorted({place[0] for place in values}),
                "columns": sorted({place[1] for place in values}),
                "values": values,
            }
            if values
            else None
        )

    def _summary(self, task: str, metric: str) -> Summary | None:
        """The protocol with every layer; other protocols and splits have their own rows in scores.jsonl."""
        found = [
            each
            for each in summary(self.run.rows)
            if (each.task, each.metric, each.split) == (task, metric, "test") and each.protocol != PLUG_IN
        ]
        # Of several ways to align, the one of the papers.
        return max(found, key=lambda each: (each.protocol == PROTOCOLS["ot"], len(each.by_layer)), default=None)

    def _rows(self, measure: Summary | None) -> list[Row]:
        if measure is None:
            return []
        return [
            row
            for row in self.run.rows
            if (row["task"], row.get("protocol", ""), row["metric"], row.get("split", "test"), row.get("pooling"))
            == (measure.task, measure.protocol, measure.metric, measure.split, measure.pooling)
        ]


def curves(runs: Sequence[Shown]) -> list[LineChart]:
    """Each loss, and what was probed while training."""
    # One curve for each measure, not for each language of it.
    measured = {name for each in runs for row in each.run.metrics for name in row if name.startswith("probe/")}
    probes = sorted(name for name in measured if name.count("/") == 1)
    titles = {**CURVES, **{name: f"{name.removeprefix('probe/').capitalize()} while training" for name in probes}}
    drawn = []
    for term, title in titles.items():
        series = [
            Series(each.name, each.colour, [(row["step"], row[term]) for row in each.run.metrics if term in row])
            for each in runs
        ]
        if any(each.points for each in series):
            drawn.append(charts.line_chart(title, "step", series, percent=term.startswith("probe/")))
    return drawn


def layers(runs: Sequence[Shown], chance: float | None) -> list[LineChart]:
    """Retrieval and alignment errors (XLM-E, Figures 3 and 4)."""
    drawn = []
    for title, measures, rule in (
        ("Retrieval accuracy, % (higher is better)", [each.retrieval for each in runs], chance),
        ("Alignment error rate, % (lower is better)", [each.alignment for each in runs], None),
    ):
        series = [
            Series(run.name, run.colour, list(measure.by_layer.items()))
            for run, measure in zip(runs, measures, strict=True)
            if measure
        ]
        if series:
            level = (rule, "chance") if rule is not None else None
            drawn.append(charts.line_chart(title, "layer", series, percent=True, rule=level))
    return drawn
