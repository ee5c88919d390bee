"""Views of a plan: a self-contained HTML page, and tables for the terminal."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file, template_environment
from crossling.core.progress import format_count, format_duration
from crossling.planning.budget import BudgetChoice
from crossling.planning.estimate import RunEstimate
from crossling.recipes.sampling_preview import SamplingPreview, format_key
from crossling.report import charts
from crossling.report.analysis import LANGUAGES
from crossling.report.html_page import SORT_SCRIPT, PageContents, inline_script
from crossling.sampling import Pair
from crossling.sampling.sampling_settings import NEGLIGIBLE

if TYPE_CHECKING:
    from crossling.planning.run_plan import PretrainingPlan

HERE = Path(__file__).parent
STYLE = HERE.parent / "report"  # the page uses the style sheet and the table of contents of the report
FIRST_ROWS = 25  # pairs in the page itself; a script shows the others
MAX_ROWS = 12  # of a table in the terminal; JSON and page have all


def write_page(plan: PretrainingPlan, shards: Path, out: Path) -> None:
    """Write the plan as an HTML page."""
    if out.suffix not in (".html", ".htm"):
        raise BadInput(f"{out}: the plan is an HTML page. Give a name that ends in .html.")
    environment = template_environment(HERE, STYLE, STYLE / "page")
    environment.filters |= {"compact": format_count, "key": format_key, "figure": format_figure, "days": format_days}
    previews = plan.feasible_rules
    languages = _languages(previews)
    downstream = [language for language in languages if language in DOWNSTREAM]
    if len(downstream) == len(languages):
        downstream = []  # the map of all languages is the same
    page = environment.get_template("plan_page.html.jinja").render(
        plan=plan,
        shards=shards,
        recipe=json.dumps(plan.recipe.dump(), indent=2),
        previews=previews,
        infeasible={rule: each for rule, each in plan.rules.items() if isinstance(each, str)},
        downstream=downstream,
        downstream_maps=_density_maps(previews, downstream),
        languages=languages,
        full_maps=_density_maps(previews, languages),
        benchmark_languages=len(DOWNSTREAM),
        rows=_pair_rows(previews)[:FIRST_ROWS],
        pair_data=_pack_pairs(languages, previews),
        language_rows=_language_rows(languages, previews),
        large_map=len(languages) > charts.MANY_NAMES,
        contents=PageContents(),
        script=inline_script(SORT_SCRIPT, HERE / "plan_page.js"),
    )
    with atomic_file(out) as temporary:
        temporary.write_text(page, encoding="utf-8")


def plan_tables(plan: PretrainingPlan) -> Iterator[Table]:
    """Yield the tables of a plan for the terminal."""
    yield _run_table(plan)
    if plan.text is not None:
        yield _sampling_table("language", "tokens", {"": plan.text})
    if plan.feasible_rules:
        yield _rule_table(plan)
        used: Mapping[str, SamplingPreview[Any]]
        used = {plan.recipe.sampling.pair_rule: plan.pairs} if plan.pairs else plan.feasible_rules
        yield _sampling_table("pair", "sentence pairs", used)
    if any(size.paper for size in plan.published):
        yield _published_table(plan)


def budget_table(choice: BudgetChoice) -> Table:
    """Return the table of what a budget buys. The caller prints the command."""
    recipe = choice.recipe
    title = f"budget: {choice.size or recipe.name}, {recipe.steps:,} steps"
    facts = {
        "steps": f"{choice.reason}; {choice.tokens_per_parameter:,.0f} tokens per parameter of the layers",
        **_estimate_facts(choice.estimate),
        "learning rate": f"peak {recipe.lr:g}, as of the recipe at its own batch size",
    }
    return _fact_table(title, facts)


def format_figure(value: float) -> str:
    """Return a number in few characters: a table may have thousands of cells."""
    if not value:
        return "0"
    return f"{value:.0f}" if 1e3 <= value < 1e6 else f"{value:.3g}"


def format_days(value: float) -> str:
    """Return days, or hours if there are few."""
    if value < 1 / 24:
        return format_duration(86_400 * value)
    return f"{value:,.1f} days" if value >= 1 else f"{24 * value:,.1f} hours"


def format_epochs(value: float) -> str:
    """Return epochs with decimals only if there are few."""
    return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def _estimate_facts(estimate: RunEstimate) -> dict[str, str]:
    excess = "" if estimate.fits else ", too much"
    sharded = ", weights and optimizer states sharded (FSDP2)" if estimate.memory.sharded else ""
    where = "of main memory" if estimate.accelerator.is_cpu else "on each GPU"
    memory = f"{estimate.memory.gib:,.1f} GiB of {estimate.accelerator.memory_gib:,.0f} {where}{excess}{sharded}"
    waiting = f", of which {estimate.waiting:.0%} waiting for other GPUs" if estimate.gpus > 1 else ""
    source = "measured here" if estimate.has_measured_speed else "predicted from runs on an H200"
    throughput = f"{format_count(estimate.tokens_per_second)} tokens/s{waiting} ({source})"
    return {"memory": memory, "time": f"{format_days(estimate.days)} on {estimate.hardware}, {throughput}"}


def _fact_table(title: str, facts: Mapping[str, str]) -> Table:
    table = Table("", "", title=title, show_header=False)
    for fact in facts.items():
        table.add_row(*fact)
    return table


def _languages(previews: Mapping[str, SamplingPreview[Pair]]) -> list[str]:
    """Return the languages, from the one with the most pairs to the one with the fewest."""
    counts: Counter[str] = Counter()
    for preview in list(previews.values())[:1]:  # all rules have the same counts
        for pair, n in preview.counts.items():
            counts.update(dict.fromkeys(pair, n))
    return sorted(counts, key=lambda language: (-counts[language], language))


def _density_maps(previews: Mapping[str, SamplingPreview[Pair]], languages: Sequence[str]) -> dict[str, str]:
    """Return the map of each rule as an SVG element, all on one colour scale so that they can be compared."""
    if len(languages) < 2:
        return {}
    low, high = color_scale([each.probabilities for each in previews.values()])
    maps = {}
    # The two rules that the figures of the paper compare stand side by side.
    for rule in sorted(previews, key=lambda rule: (rule == "alpha", rule)):
        label = f"{rule}: sampling probability of each language pair"
        values = directed_probabilities(languages, previews[rule].probabilities)
        maps[rule] = charts.density_map(label, languages, values, low, high)
    return maps


def _pair_rows(previews: Mapping[str, SamplingPreview[Pair]]) -> list[tuple[str, int, list[tuple[float, float]]]]:
    """Return pair, count, and probability and epochs under each rule; the largest pair first."""
    if not previews:
        return []
    counts = next(iter(previews.values())).counts
    return [
        (format_key(pair), n, [(each.probabilities[pair], each.epochs[pair]) for each in previews.values()])
        for pair, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _language_rows(
    languages: Sequence[str], previews: Mapping[str, SamplingPreview[Pair]]
) -> list[tuple[str, int, int, list[float]]]:
    """Return language, number of pairs, sentence pairs, and the probability of a sentence in it under each rule."""
    if not previews:
        return []
    counts = next(iter(previews.values())).counts
    of_language = {language: [pair for pair in counts if language in pair] for language in languages}
    return [
        (
            language,
            len(pairs),
            sum(counts[pair] for pair in pairs),
            [sum(each.probabilities[pair] for pair in pairs) / 2 for each in previews.values()],
        )
        for language, pairs in of_language.items()
    ]


def _pack_pairs(languages: Sequence[str], previews: Mapping[str, SamplingPreview[Pair]]) -> dict[str, str]:
    """Return all pairs for the script of the page: a JSON header, and the columns of the table as bytes in base64.

    The columns are both languages as positions in the list, sentence pairs, and the probabilities under each rule, of
    which the first three bytes of a float are kept. Epochs are proportional to probability / sentence pairs.
    """
    if not previews:
        return {}
    position = {language: k for k, language in enumerate(languages)}
    first = next(iter(previews.values()))
    pairs = [pair for _, pair in sorted((-n, pair) for pair, n in first.counts.items())]
    places = np.array([[position[code] for code in pair] for pair in pairs]).T
    columns = [places.astype(">u2" if len(languages) > 256 else "u1").tobytes()]
    columns.append(np.array([min(first.counts[pair], 2**32 - 1) for pair in pairs], ">u4").tobytes())
    samples = []
    for each in previews.values():
        probabilities = np.array([each.probabilities[pair] for pair in pairs], ">f4")
        columns.append(probabilities.view(np.uint8).reshape(-1, 4)[:, :3].tobytes())
        largest = max(pairs, key=lambda pair: each.probabilities[pair])
        samples.append(each.epochs[largest] * each.counts[largest] / each.probabilities[largest])
    header = {"languages": [*languages], "rules": [*previews], "samples": samples, "pairs": len(pairs)}
    values = base64.b64encode(b"".join(columns)).decode()
    return {"header": json.dumps(header, ensure_ascii=False, separators=(",", ":")), "values": values}


def _run_table(plan: PretrainingPlan) -> Table:
    recipe = plan.recipe
    shape, optimizer, sampling = recipe.model, recipe.optimizer, recipe.sampling
    parts = ", ".join(f"{name} {format_count(size)}" for name, size in plan.parameters.items() if size)
    architecture = "Hugging Face architecture" if shape.native else f"{shape.norm}-norm"
    warmup = f"{optimizer.warmup_steps(recipe.steps):,} warm-up steps, {optimizer.schedule or 'linear'} decay"
    if optimizer.schedule == "wsd":
        warmup += f" in the last {optimizer.cooldown_steps(recipe.steps):,}"
    frozen = f"; {recipe.freeze_steps:,} frozen steps if initialized from a model" if recipe.freeze_steps else ""
    tokens = plan.tokens_per_step * recipe.steps
    rule = f"text^{sampling.text_alpha:g}; {plan.pair_description} by {sampling.pair_rule}, {sampling.pair_alpha:g}"
    focus = ", ".join(sorted(sampling.focus_languages))
    # The settings; if the shards have only one of the two, it gets everything, as the probabilities show.
    replay = f"; {1 - sampling.replay:.0%} for {focus}, {sampling.replay:.0%} for all others" if focus else ""
    facts = {
        "parameters": f"{sum(plan.parameters.values()):,} ({parts})",
        "model": f"{shape.layers} layers, hidden size {shape.width}, {architecture}, dropout {shape.dropout:g}",
        "learning rate": f"peak {recipe.lr:g}, {warmup}, gradient clipping {optimizer.clip:g}{frozen}",
        **{
            name: f"{each.examples:,} examples of {each.length:.0f} tokens per step"
            for name, each in plan.loads.items()
        },
        "tokens": f"{format_count(plan.tokens_per_step)} per step, {format_count(tokens)} in all",
        **{
            f"FLOPs ({kind})": f"{flops / 1e6:,.0f} M per token, {flops * tokens:.2e} in all"
            for kind, flops in plan.flops_per_token.items()
        },
        **_estimate_facts(plan.estimate),
        "sampling": rule + replay,
        **({"phases": recipe.phases} if recipe.phases else {}),
    }
    return _fact_table(f"{recipe.name}: {recipe.steps:,} steps", facts)


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
    title = f"rules for pairs (the recipe uses {chosen})"
    table = Table("rule", "never sampled", "effective number", "most repeated", title=title)
    for rule, preview in plan.rules.items():
        name = f"[bold]{rule}[/]" if rule.split()[0] == chosen else rule
        if isinstance(preview, str):
            table.add_row(name, "infeasible", "", "")
            if rule == chosen:
                table.caption = preview
            continue
        key = preview.most_repeated
        effective = f"{preview.effective_number:,.0f} of {len(preview.probabilities):,} pairs"
        repeated = f"{format_key(key)}, {format_epochs(preview.epochs[key])} epochs"
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
            for cell in (f"{preview.probabilities[key]:.3%}"[:-1], format_epochs(preview.epochs[key]))
        ]
        table.add_row(format_key(key), f"{counts[key]:,}", *cells)
    if len(largest) > MAX_ROWS:
        table.caption = f"and {len(largest) - MAX_ROWS:,} smaller ones (--json, or -o page.html)"
    return table


# Languages of the tasks that XY-LENT reports: XNLI, PAWS-X, XQuAD, MLQA and TyDiQA (Tables 10 to 14).
DOWNSTREAM = {code for task in ("xnli", "pawsx", "xquad", "mlqa", "tydiqa") for code in LANGUAGES[task]}


def color_scale(probabilities: Iterable[Mapping[Pair, float]]) -> tuple[float, float]:
    """Return the probabilities of one direction with the lightest and the darkest colour."""
    sampled = [p / 2 for each in probabilities for p in each.values() if p >= NEGLIGIBLE]
    high = max(sampled)
    return max(min(sampled), high / 1e8) / 2, high


def directed_probabilities(languages: Sequence[str], probabilities: Mapping[Pair, float]) -> list[list[float | None]]:
    """Return the probability of each direction of every pair, the first language down and the second across.

    It is 0 if a pair is never sampled, and None without data.
    """
    directed = {pair: p / 2 if p >= NEGLIGIBLE else 0.0 for pair, p in probabilities.items()}
    directed |= {(b, a): p for (a, b), p in directed.items()}
    return [[directed.get((a, b)) for b in languages] for a in languages]
