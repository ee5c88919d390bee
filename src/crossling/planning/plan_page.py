"""Views of a plan: a self-contained HTML page without scripts, and tables for the terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file, template_environment
from crossling.core.progress import format_count
from crossling.planning.budget import BudgetChoice
from crossling.planning.estimate import RunEstimate
from crossling.planning.sampling_preview import SamplingPreview, format_key
from crossling.report import charts
from crossling.sampling import Pair
from crossling.sampling.sampling_settings import NEGLIGIBLE

if TYPE_CHECKING:
    from crossling.planning.run_plan import PretrainingPlan

STYLE = Path(__file__).parent.parent / "report"  # the page uses the style sheet of the report
MAX_ROWS = 12  # of a table in the terminal; JSON and page have all


def write_page(plan: PretrainingPlan, shards: Path, out: Path) -> None:
    """Write the plan as an HTML page."""
    if out.suffix not in (".html", ".htm"):
        raise BadInput(f"{out}: the plan is an HTML page. Give a name that ends in .html.")
    environment = template_environment(Path(__file__).parent, STYLE)
    environment.filters |= {"compact": format_count, "key": format_key, "figure": format_figure, "days": format_days}
    previews = {rule: each for rule, each in plan.rules.items() if isinstance(each, SamplingPreview)}
    languages = _languages(previews)
    downstream = [language for language in languages if language in DOWNSTREAM]
    colors = common_scale([each.probabilities for each in previews.values()]) if previews else None
    page = environment.get_template("plan_page.html.jinja").render(
        plan=plan,
        shards=shards,
        recipe=json.dumps(plan.recipe.dump(), indent=2),
        previews=previews,
        infeasible={rule: each for rule, each in plan.rules.items() if isinstance(each, str)},
        downstream_maps=_maps(previews, downstream if len(downstream) < len(languages) else [], colors),
        full_maps=_maps(previews, languages, colors),
        downstream=len(DOWNSTREAM),
        rows=_pair_rows(previews),
    )
    with atomic_file(out) as temporary:
        temporary.write_text(page, encoding="utf-8")


def plan_tables(plan: PretrainingPlan) -> Iterator[Table]:
    """Yield the tables of a plan for the terminal."""
    yield _run_table(plan)
    previews = {rule: each for rule, each in plan.rules.items() if isinstance(each, SamplingPreview)}
    if plan.text is not None:
        yield _sampling_table("language", "tokens", {"": plan.text})
    if previews:
        yield _rule_table(plan)
        yield _sampling_table("pair", "sentence pairs", previews)
    if plan.published:
        yield _published_table(plan)


def budget_table(choice: BudgetChoice) -> Table:
    """Return the table of what a budget buys. The caller prints the command."""
    recipe = choice.recipe
    title = f"budget: {choice.size or recipe.name}, {recipe.steps:,} steps"
    table = Table("", "", title=title, show_header=False)
    table.add_row("steps", f"{choice.reason}; {choice.tokens_per_parameter:,.0f} tokens per parameter of the layers")
    table.add_row("memory", _format_memory(choice.estimate))
    table.add_row("time", _format_time(choice.estimate))
    table.add_row("learning rate", f"peak {recipe.lr:g}, as of the recipe at its own batch size")
    return table


def format_figure(value: float) -> str:
    """Return a number in few characters: a table may have thousands of cells."""
    if not value:
        return "0"
    return f"{value:.0f}" if 1e3 <= value < 1e6 else f"{value:.3g}"


def format_days(value: float) -> str:
    """Return days, or hours if there are few."""
    return f"{value:,.1f} days" if value >= 1 else f"{24 * value:,.1f} hours"


def _format_memory(estimate: RunEstimate) -> str:
    excess = "" if estimate.fits else ", too much"
    sharded = ", weights and optimizer states sharded (FSDP2)" if estimate.memory.sharded else ""
    return f"{estimate.memory.gib:,.1f} GiB of {estimate.accelerator.memory_gib:,.0f} on each GPU{excess}{sharded}"


def _format_time(estimate: RunEstimate) -> str:
    throughput = format_count(estimate.tokens_per_second)
    return f"{format_days(estimate.days)} on {estimate.hardware}, {throughput} tokens/s"


def _languages(previews: Mapping[str, SamplingPreview[Pair]]) -> list[str]:
    """Return the languages, from the one with the most pairs to the one with the fewest."""
    counts: Counter[str] = Counter()
    for preview in list(previews.values())[:1]:  # all rules have the same counts
        for pair, n in preview.counts.items():
            counts.update(dict.fromkeys(pair, n))
    return sorted(counts, key=lambda language: (-counts[language], language))


def _maps(
    previews: Mapping[str, SamplingPreview[Pair]], languages: list[str], colors: ColorScale | None
) -> list[DensityMap]:
    if colors is None or len(languages) < 2:
        return []
    # The two rules that the figures of the paper compare stand side by side.
    order = sorted(previews, key=lambda rule: (rule == "alpha", rule))
    return [density_map(rule, languages, previews[rule].probabilities, colors) for rule in order]


def _pair_rows(previews: Mapping[str, SamplingPreview[Pair]]) -> list[tuple[str, int, list[tuple[float, float]]]]:
    """Return pair, count, and probability and epochs under each rule; the largest pair first."""
    if not previews:
        return []
    counts = next(iter(previews.values())).counts
    return [
        (format_key(pair), n, [(each.probabilities[pair], each.epochs[pair]) for each in previews.values()])
        for pair, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _run_table(plan: PretrainingPlan) -> Table:
    recipe = plan.recipe
    table = Table("", "", title=f"{recipe.name}: {recipe.steps:,} steps", show_header=False)
    parts = ", ".join(f"{name} {format_count(size)}" for name, size in plan.parameters.items() if size)
    table.add_row("parameters", f"{sum(plan.parameters.values()):,} ({parts})")
    shape, optimizer = recipe.model, recipe.optimizer
    table.add_row(
        "model", f"{shape.layers} layers, hidden size {shape.width}, {shape.norm}-norm, dropout {shape.dropout:g}"
    )
    warmup = f"{optimizer.warmup_steps(recipe.steps):,} warm-up steps"
    frozen = f"; {recipe.freeze_steps:,} frozen steps if initialized from a model" if recipe.freeze_steps else ""
    table.add_row("learning rate", f"peak {recipe.lr:g}, {warmup}, gradient clipping {optimizer.clip:g}{frozen}")
    for name, load in plan.loads.items():
        table.add_row(name, f"{load.examples:,} examples of {load.length:.0f} tokens per step")
    tokens = plan.tokens_per_step * recipe.steps
    table.add_row("tokens", f"{format_count(plan.tokens_per_step)} per step, {format_count(tokens)} in all")
    for kind, flops in plan.flops_per_token.items():
        table.add_row(f"FLOPs ({kind})", f"{flops / 1e6:,.0f} M per token, {flops * tokens:.2e} in all")
    table.add_row("memory", _format_memory(plan.estimate))
    table.add_row("time", _format_time(plan.estimate))
    sampling = recipe.sampling
    rule = f"text^{sampling.text_alpha:g}; {plan.pair_description} by {sampling.pair_rule}, {sampling.pair_alpha:g}"
    focus = ", ".join(sorted(sampling.focus_languages))
    # The settings; if the shards have only one of the two, it gets everything, as the probabilities show.
    replay = f"; {1 - sampling.replay:.0%} for {focus}, {sampling.replay:.0%} for all others" if focus else ""
    table.add_row("sampling", rule + replay)
    return table


def _published_table(plan: PretrainingPlan) -> Table:
    table = Table("size", title=f"as published, predicted for {plan.estimate.hardware}, beside the paper's figures")
    for column in ("parameters", "micro-batch", "GiB per GPU", "time", "FLOPs (full)", "FLOPs (paper)"):
        table.add_column(column, justify="right")
    table.add_column("paper")
    for size in plan.published:
        gib = f"{size.estimate.memory.gib:,.0f}"
        checkpointing = ", checkpointing" if size.recipe.gradient_checkpointing else ""
        table.add_row(
            size.size,
            format_count(size.parameters),
            f"{size.recipe.micro_tokens:,}{checkpointing}",
            gib if size.estimate.fits else f"[red]{gib}: too much[/]",
            format_days(size.estimate.days),
            *(f"{flops:.1e}" for flops in size.flops.values()),
            size.paper or "not reported",
        )
    return table


def _rule_table(plan: PretrainingPlan) -> Table:
    chosen = plan.recipe.sampling.pair_rule
    table = Table("rule", "never sampled", "effective number", "most repeated", title="rules for pairs")
    for rule, preview in plan.rules.items():
        name = f"[bold]{rule}[/]" if rule.split()[0] == chosen else rule
        if isinstance(preview, str):
            table.add_row(name, "infeasible", "", "")
            table.caption = preview
            continue
        key = preview.most_repeated
        effective = f"{preview.effective_number:,.0f} of {len(preview.probabilities):,} pairs"
        repeated = f"{format_key(key)}, {preview.epochs[key]:,.2f} epochs"
        table.add_row(name, f"{preview.never_sampled:.1%}", effective, repeated)
    return table


def _sampling_table(kind: str, count: str, previews: Mapping[str, SamplingPreview[Any]]) -> Table:
    """Return probability and epochs of the largest keys under each rule."""
    table = Table(kind, title="text" if kind == "language" else "pairs")
    table.add_column(count, justify="right")
    for rule in previews:
        table.add_column(f"{rule} %".strip(), justify="right")
        table.add_column("epochs", justify="right")
    counts = next(iter(previews.values())).counts
    largest = sorted(counts, key=lambda key: -counts[key])
    for key in largest[:MAX_ROWS]:
        cells = [
            cell
            for preview in previews.values()
            for cell in (f"{preview.probabilities[key]:.3%}"[:-1], f"{preview.epochs[key]:,.2f}")
        ]
        table.add_row(format_key(key), f"{counts[key]:,}", *cells)
    if len(largest) > MAX_ROWS:
        table.caption = f"and {len(largest) - MAX_ROWS:,} smaller ones (--json, or -o page.html)"
    return table


# Languages of the tasks that XY-LENT reports: XNLI, PAWS-X, XQuAD, MLQA and TyDiQA (Tables 10 to 14).
DOWNSTREAM = (
    *("ar", "bg", "bn", "de", "el", "en", "es", "fi", "fr", "hi", "id"),
    *("ja", "ko", "ru", "sw", "te", "th", "tr", "ur", "vi", "zh"),
)


@dataclass(frozen=True)
class ColorScale:
    """Probabilities of one direction with the lightest and the darkest colour; logarithmic between them."""

    low: float
    high: float


@dataclass(frozen=True)
class DensityMap:
    """Sampling probability of each direction of every pair. 0 if a pair is never sampled, None without data."""

    title: str
    languages: Sequence[str]
    values: list[list[float | None]]  # first language down, second across
    colors: ColorScale

    @property
    def svg(self) -> str:
        """The map as an SVG element."""
        label = f"{self.title}: sampling probability of each language pair"
        return charts.density_map(label, self.languages, self.values, self.colors.low, self.colors.high)


def common_scale(probabilities: Iterable[Mapping[Pair, float]]) -> ColorScale:
    """Return one scale for every density map, so that their colours can be compared."""
    sampled = [p / 2 for each in probabilities for p in each.values() if p >= NEGLIGIBLE]
    high = max(sampled)
    return ColorScale(max(min(sampled), high / 1e8) / 2, high)


def density_map(
    title: str, languages: Sequence[str], probabilities: Mapping[Pair, float], colors: ColorScale
) -> DensityMap:
    """Return the map of both directions of every pair among these languages."""
    directed = {pair: p / 2 if p >= NEGLIGIBLE else 0.0 for pair, p in probabilities.items()}
    directed |= {(b, a): p for (a, b), p in directed.items()}
    return DensityMap(title, languages, [[directed.get((a, b)) for b in languages] for a in languages], colors)
