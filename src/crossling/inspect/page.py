"""The plan of a run as one self-contained page. It asks nothing of the network and runs no scripts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from crossling.disk import new_file
from crossling.errors import BadInput
from crossling.evaluate import charts
from crossling.inspect.density import CELL, DOWNSTREAM, MARGIN, Density, Scale, density, scale
from crossling.inspect.draws import Drawn, spelled
from crossling.inspect.plan import Plan
from crossling.inspect.tables import days
from crossling.sampling import Pair
from crossling.templates import templates

STYLE = Path(charts.__file__).parent  # the style sheet is that of the report


def write_page(plan: Plan, shards: Path, out: Path) -> None:
    if out.suffix not in (".html", ".htm"):
        raise BadInput(f"{out}: a page is written; give a name that ends in .html")
    environment = templates(Path(__file__).parent, STYLE)
    environment.filters |= {"compact": charts.compact, "spelled": spelled, "figure": figure, "days": days}
    drawn = {rule: each for rule, each in plan.rules.items() if isinstance(each, Drawn)}
    languages = _languages(drawn)
    tested = [language for language in languages if language in DOWNSTREAM]
    colours = scale([each.rates for each in drawn.values()]) if drawn else None
    page = environment.get_template("page.html.jinja").render(
        plan=plan,
        shards=shards,
        recipe=json.dumps(plan.recipe.dump(), indent=2),
        drawn=drawn,
        cannot={rule: each for rule, each in plan.rules.items() if isinstance(each, str)},
        tasks_maps=_maps(drawn, tested if len(tested) < len(languages) else [], colours),
        all_maps=_maps(drawn, languages, colours),
        downstream=len(DOWNSTREAM),
        marks=colours.marks if colours else [],
        rows=_pair_rows(drawn),
        cell=CELL,
        margin=MARGIN,
    )
    with new_file(out) as temporary:
        temporary.write_text(page, encoding="utf-8")


def figure(value: float) -> str:
    """Three digits where they say something, few letters where there are thousands of cells."""
    if not value:
        return "0"
    return f"{value:.0f}" if 1e3 <= value < 1e6 else f"{value:.3g}"


def _languages(drawn: dict[str, Drawn[Pair]]) -> list[str]:
    """From the one with the most pairs to the one with the fewest."""
    counts: Counter[str] = Counter()
    for each in list(drawn.values())[:1]:  # the counts of all rules are the same
        for pair, n in each.counts.items():
            counts.update(dict.fromkeys(pair, n))
    return sorted(counts, key=lambda language: (-counts[language], language))


def _maps(drawn: dict[str, Drawn[Pair]], languages: list[str], colours: Scale | None) -> list[Density]:
    if colours is None or len(languages) < 2:
        return []
    # The two that the figures of the paper compare stand side by side.
    order = sorted(drawn, key=lambda rule: (rule == "alpha", rule))
    return [density(rule, languages, drawn[rule].rates, colours) for rule in order]


def _pair_rows(drawn: dict[str, Drawn[Pair]]) -> list[tuple[str, int, list[tuple[float, float]]]]:
    """Pair, how many there are, and rate and epochs under each rule; the largest first."""
    if not drawn:
        return []
    counts = next(iter(drawn.values())).counts
    return [
        (spelled(pair), n, [(each.rates[pair], each.epochs[pair]) for each in drawn.values()])
        for pair, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
