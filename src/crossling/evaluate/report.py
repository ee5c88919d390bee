"""One self-contained page from runs and scores, and the same in Markdown.

A folder may hold `scores.jsonl`, runs (`recipe.json` and `metrics.jsonl`, the folder itself or below it), fine-tuned
models (`tuned.json`), predictions, and a `showcase.json` of examples, whose schema is in showcase.py. The page asks
nothing of the network and runs no scripts.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from crossling.disk import new_file
from crossling.errors import BadInput
from crossling.evaluate import charts, sections
from crossling.evaluate.analysis import TITLES
from crossling.evaluate.analysis_languages import READ
from crossling.evaluate.board import boards
from crossling.evaluate.points import against
from crossling.evaluate.published import papers
from crossling.evaluate.runs import Run, collect
from crossling.evaluate.shown import Shown, curves, guessing, layers
from crossling.evaluate.significance import Model, compare
from crossling.progress import duration
from crossling.templates import templates

COLOURS = 6
LEARNED_AUC = 0.7  # below it, coloured tokens would only show noise
PAGE, TEXT = (".html", ".htm"), ".md"
HERE = Path(__file__).parent


@dataclass
class Footnotes:
    """In the order in which the page comes to them; the same text has the same number."""

    texts: list[str] = field(default_factory=list)

    def number(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


def report(folders: Sequence[Path], out: Path) -> Path:
    """Writes the page about all folders to `out`, the same in Markdown beside it, and returns `out`. An `out` that ends
    in .md is the Markdown alone."""
    out = Path(out)
    if out.suffix not in (*PAGE, TEXT):
        raise BadInput(f"{out}: a page or Markdown is written; give a name that ends in .html or .md")
    told = _told([Path(folder) for folder in folders])
    if out.suffix in PAGE:
        _write(out, templates(HERE, HERE / "page"), "report.html.jinja", told)
    _write(out.with_suffix(TEXT), templates(HERE / "page", markup=False), "report.md.jinja", told)
    return out


def _write(path: Path, environment: Any, template: str, told: dict[str, Any]) -> None:
    text = environment.get_template(template).render(told)
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _told(folders: Sequence[Path]) -> dict[str, Any]:
    """Everything the templates may speak of."""
    runs, showcases = collect(folders)
    shown = [Shown(run, index % COLOURS) for index, run in enumerate(runs)]
    entries = [each.entry for each in shown]
    both = [(each.run, each.entry) for each in shown]
    chance = next((each["chance"] for each in showcases if "chance" in each), guessing(runs))
    found = boards(entries)
    return {
        "title": next((each["title"] for each in showcases if "title" in each), "How cross-lingual is it?"),
        "subtitle": next((each["subtitle"] for each in showcases if "subtitle" in each), ""),
        "runs": shown,
        "chance": chance,
        "boards": found,
        "footnotes": Footnotes(),
        "papers": papers() if found else {},
        "tasks": sections.tasks(entries),
        "families": sections.family_maps(entries),
        "questions": sections.cross_questions(both),
        "read": sections.what_was_read(both),
        "read_groups": READ,
        "continued": sections.continued(both),
        "compared": compare([_model(each) for each in shown]),
        "titles": TITLES,
        "points": against(both),
        "curves": curves(shown),
        "layers": layers(shown, chance),
        "showcases": showcases,
        "alignment_grid": charts.alignment_grid,
        "learned_auc": LEARNED_AUC,
        "facts": _facts(runs, showcases),
        "chart": charts,
    }


def _model(shown: Shown) -> Model:
    layers = {
        (score.measure.task, f"{score.measure.protocol}/{score.measure.metric}"): score.layer
        for score in shown.scores
        if score.layer is not None
    }
    return Model(shown.name, shown.run.folders, layers)


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
