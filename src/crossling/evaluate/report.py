"""One self-contained page from runs and scores: tables, curves, layers, and examples to look at.

A folder may hold `scores.jsonl`, runs (`recipe.json` and `metrics.jsonl`, the folder itself or below it), and a
`showcase.json` of examples, whose schema is in showcase.py. The page asks nothing of the network and runs no scripts.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean, median
from typing import Any

from crossling.disk import new_file
from crossling.errors import BadInput
from crossling.evaluate import charts
from crossling.evaluate.charts import LineChart, Series
from crossling.evaluate.runs import Run, collect
from crossling.evaluate.scores import Row, Summary, summary
from crossling.progress import duration
from crossling.templates import templates

COLOURS = 6
LEARNED_AUC = 0.7  # below it, coloured tokens would only show noise
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


def report(folders: Sequence[Path], out: Path) -> Path:
    """Writes the page about all folders to `out` and returns `out`."""
    if Path(out).suffix not in (".html", ".htm"):
        raise BadInput(f"{out}: a page is written; give a name that ends in .html")
    runs, showcases = collect([Path(folder) for folder in folders])
    measured = [Measured(run, index % COLOURS) for index, run in enumerate(runs)]
    chance = next((each["chance"] for each in showcases if "chance" in each), _chance(runs))
    environment = templates(Path(__file__).parent)
    page = environment.get_template("report.html.jinja").render(
        title=next((each["title"] for each in showcases if "title" in each), "How cross-lingual is it?"),
        subtitle=next((each["subtitle"] for each in showcases if "subtitle" in each), ""),
        runs=measured,
        chance=chance,
        curves=_curves(measured),
        layers=_layers(measured, chance),
        showcases=showcases,
        alignment_grid=charts.alignment_grid,
        learned_auc=LEARNED_AUC,
        facts=_facts(runs, showcases),
        chart=charts,
    )
    with new_file(Path(out)) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(out)


@dataclass(frozen=True)
class Measured:
    """A run and what the page says of it."""

    run: Run
    colour: int

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def retrieval(self) -> Summary | None:
        return self._summary("tatoeba", "accuracy")

    @property
    def alignment(self) -> Summary | None:
        return self._summary("word-alignment", "aer")

    @property
    def pairs(self) -> int:
        """Directed language pairs behind the retrieval mean."""
        return len({(row["language"], row.get("direction")) for row in self._rows(self.retrieval)})

    @property
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

    @property
    def layers(self) -> list[tuple[int, float | None, float | None]]:
        """Layer, retrieval, AER."""
        retrieval = self.retrieval.by_layer if self.retrieval else {}
        alignment = self.alignment.by_layer if self.alignment else {}
        return [(layer, retrieval.get(layer), alignment.get(layer)) for layer in sorted({*retrieval, *alignment})]

    @property
    def heat(self) -> dict[str, Any] | None:
        """Retrieval of every directed pair at the best layer: rows ask, columns answer; with English, two columns."""
        if self.retrieval is None:
            return None
        rows = [
            row
            for row in self._rows(self.retrieval)
            if row.get("layer") == self.retrieval.best_layer and "direction" in row
        ]
        with_english = all(row["direction"] in ("en-xx", "xx-en") for row in rows)
        found = defaultdict(list)  # several seeds of a run are averaged
        for row in rows:
            if with_english:
                place = (row["language"], row["direction"].replace("-", " → "))
            else:
                asks, answers = (row["language"] if code == "xx" else code for code in row["direction"].split("-", 1))
                place = (asks, answers)
            found[place].append(row["value"])
        values = {place: fmean(seeds) for place, seeds in found.items()}
        return {
            "reading": "" if with_english else "the language of the row asks, that of the column answers",
            "rows": sorted({place[0] for place in values}),
            "columns": sorted({place[1] for place in values}),
            "values": values,
        }

    def _summary(self, task: str, metric: str) -> Summary | None:
        """The protocol with every layer; other protocols and splits have their own rows in scores.jsonl."""
        found = [
            each for each in summary(self.run.rows) if (each.task, each.metric, each.split) == (task, metric, "test")
        ]
        return max(found, key=lambda each: len(each.by_layer), default=None)

    def _rows(self, measure: Summary | None) -> list[Row]:
        if measure is None:
            return []
        return [
            row
            for row in self.run.rows
            if (row["task"], row.get("protocol", ""), row["metric"], row.get("split", "test"))
            == (measure.task, measure.protocol, measure.metric, measure.split)
        ]


def _curves(runs: Sequence[Measured]) -> list[LineChart]:
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


def _layers(runs: Sequence[Measured], chance: float | None) -> list[LineChart]:
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


def _chance(runs: Sequence[Run]) -> float | None:
    """Retrieval by guessing: one in as many as there are candidates, averaged like the scores."""
    guesses = [
        100 / row["examples"] for run in runs for row in run.rows if row["task"] == "tatoeba" and "examples" in row
    ]
    return fmean(guesses) if guesses else None


def _facts(runs: Sequence[Run], showcases: Sequence[dict[str, Any]]) -> dict[str, str]:
    facts: dict[str, str] = {}
    for each in showcases:
        facts |= {"command": each["command"]} if "command" in each else {}
        facts |= each.get("facts", {})
    seeds = {str(run.recipe["seed"]) for run in runs if "seed" in run.recipe}
    if seeds:
        facts.setdefault("seed", ", ".join(sorted(seeds)))
    times = [run.metrics[-1]["seconds"] for run in runs if run.metrics and "seconds" in run.metrics[-1]]
    if times:
        facts.setdefault("training time", f"{duration(sum(times))} for {len(times)} run{'s' * (len(times) > 1)}")
    versions = [f"Python {platform.python_version()}", *(f"{name} {found}" for name, found in _versions().items())]
    facts.setdefault("versions", ", ".join(versions))
    return facts


def _versions() -> dict[str, str]:
    found = {}
    for name in ("crossling", "torch", "transformers", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that was never installed
            continue
    return found
