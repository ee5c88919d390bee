"""Report on runs and scores: one self-contained HTML page, and the same tables in Markdown.

A folder may be or contain, at most two levels down: run folders (`recipe.json` and `metrics.jsonl`) and fine-tuned
models (`tuned.json`). It may be the cache of MTEB. It may also contain `scores.jsonl`, predictions, and examples
(`showcase.json`, see showcase.py). The page loads nothing from the network. Its only script sorts tables; without it
everything else works.
"""

from __future__ import annotations

import math
import os
import platform
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jinja2 import Environment

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file, template_environment
from crossling.core.progress import format_duration
from crossling.evaluate.significance import ModelPredictions, compare_models
from crossling.report import report_sections
from crossling.report.analysis import TITLES, TRAINING_DATA_GROUPS
from crossling.report.charts import GREY, PALETTE, alignment_grid, attention_grid
from crossling.report.comparison_summary import group_comparisons
from crossling.report.curves import checkpoint_charts, layer_charts, scatter_charts, training_charts
from crossling.report.html_page import SORT_SCRIPT, PageContents, inline_script
from crossling.report.leaderboard import build_leaderboards
from crossling.report.published import paper_citations
from crossling.report.runs import ReportRun, chance_accuracy, collect_runs

MAX_FAMILIES = 12  # lines of significant differences; more are folded
LEARNED_AUC = 0.7  # below it, coloured tokens would show noise
HTML_SUFFIXES, MARKDOWN_SUFFIX = (".html", ".htm"), ".md"
HERE = Path(__file__).parent


@dataclass
class Footnotes:
    """Footnotes in the order of their first use. Equal texts share a number."""

    texts: list[str] = field(default_factory=list)

    def number(self, text: str) -> int:
        """Return the number of a footnote, counted from 1."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


def report(
    folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], out: str | os.PathLike[str] = "report.html"
) -> Path:
    """Write a page that compares runs and their scores.

    Args:
        folders: Run folders, fine-tuned models, folders with a `scores.jsonl`, and caches of MTEB: a list, or one.
        out: File to write. `.html` also writes the same tables as Markdown beside it; `.md` writes only Markdown.

    Returns:
        The path of the file.

    Raises:
        BadInput: If a folder has no run and no scores, a file is damaged, or `out` has another suffix.

    Example:
        >>> crossling.report(["runs/xlm_e", "runs/infoxlm"], "report.html")
    """
    out = Path(out)
    if out.suffix not in (*HTML_SUFFIXES, MARKDOWN_SUFFIX):
        raise BadInput(f"{out}: unknown file type. Give a name that ends in .html or .md.")
    given = [folders] if isinstance(folders, str | os.PathLike) else folders
    context = _page_context([Path(folder) for folder in given])
    if out.suffix in HTML_SUFFIXES:
        _write(out, template_environment(HERE, HERE / "page"), "report.html.jinja", context)
    markdown = template_environment(HERE / "page", escape=False)
    _write(out.with_suffix(MARKDOWN_SUFFIX), markdown, "report.md.jinja", context)
    return out


def _write(path: Path, environment: Environment, template: str, context: dict[str, Any]) -> None:
    text = environment.get_template(template).render(context)
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _page_context(folders: Sequence[Path]) -> dict[str, Any]:
    """Everything that the templates use."""
    found, showcases = collect_runs(folders)
    runs = _coloured(found)
    showcase = ChainMap(*showcases)  # of several, the first counts
    chance = showcase.get("chance", chance_accuracy(runs))
    leaderboards = build_leaderboards(runs)
    comparisons = compare_models([_predictions(run) for run in runs])
    return {
        "title": showcase.get("title", "How cross-lingual is it?"),
        "subtitle": showcase.get("subtitle", ""),
        "runs": runs,
        "chance": chance,
        "leaderboards": leaderboards,
        "footnotes": Footnotes(),
        "contents": PageContents(),
        "script": inline_script(SORT_SCRIPT),
        "papers": paper_citations() if leaderboards else {},
        "tasks": report_sections.task_sections(runs),
        "families": report_sections.family_heatmaps(runs),
        "cross_lingual_qa": report_sections.cross_lingual_qa(runs),
        "training_data": report_sections.training_data_rows(runs),
        "training_data_groups": TRAINING_DATA_GROUPS,
        "continued_training": report_sections.continued_training(runs),
        "comparisons": comparisons,
        "comparison_families": group_comparisons(comparisons),
        "max_families": MAX_FAMILIES,
        "titles": TITLES,
        "scatter_charts": scatter_charts(runs),
        "training_charts": training_charts(runs),
        "checkpoint_charts": checkpoint_charts(runs),
        "layer_charts": layer_charts(runs, chance),
        "showcases": showcases,
        "alignment_grid": alignment_grid,
        "attention_grid": attention_grid,
        "learned_auc": LEARNED_AUC,
        "facts": _facts(runs, showcases),
        "palette": (*PALETTE, GREY),
    }


def _coloured(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Give each run a colour of the palette. Of more runs than colours, those with the best retrieval have one."""
    retrieval = [run.retrieval.best if run.retrieval else -math.inf for run in runs]
    best = sorted(range(len(runs)), key=lambda k: -retrieval[k])
    chosen = sorted(best[: len(PALETTE)])
    return [replace(run, colour=chosen.index(k) if k in chosen else len(PALETTE)) for k, run in enumerate(runs)]


def _predictions(run: ReportRun) -> ModelPredictions:
    layers = {
        (score.measure.task, f"{score.measure.protocol}/{score.measure.metric}"): score.layer
        for score in run.scores
        if score.layer is not None
    }
    return ModelPredictions(run.name, run.folders, layers)


def _facts(runs: Sequence[ReportRun], showcases: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Label and text of the lines at the end of the page."""
    facts: dict[str, str] = {}
    for each in showcases:
        facts |= {"command": each["command"]} if "command" in each else {}
        facts |= each.get("facts", {})
    seeds = {str(run.recipe["seed"]) for run in runs if "seed" in run.recipe}
    if seeds:
        facts.setdefault("seed", ", ".join(sorted(seeds)))
    times = [run.metrics[-1]["seconds"] for run in runs if run.metrics and "seconds" in run.metrics[-1]]
    if times:
        facts.setdefault("training time", f"{format_duration(sum(times))} for {len(times)} run{'s' * (len(times) > 1)}")
    libraries = [f"{name} {number}" for name, number in _versions().items()]
    facts.setdefault("versions", ", ".join([f"Python {platform.python_version()}", *libraries]))
    return facts


def _versions() -> dict[str, str]:
    versions = {}
    for name in ("crossling", "torch", "transformers", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # a checkout that is not installed
            continue
    return versions
