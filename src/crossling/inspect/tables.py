"""The plan of a run on a terminal: the largest rows of each table; all of them are in the JSON and on the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from crossling.evaluate.charts import compact
from crossling.inspect.budget import Choice
from crossling.inspect.draws import Drawn, spelled
from crossling.inspect.estimate import Estimate
from crossling.inspect.plan import Plan

ROWS = 12


def tables(plan: Plan) -> Iterator[Table]:
    yield _run(plan)
    drawn = {rule: each for rule, each in plan.rules.items() if isinstance(each, Drawn)}
    if plan.text is not None:
        yield _groups("language", "tokens", {"": plan.text})
    if drawn:
        yield _rules(plan)
        yield _groups("pair", "there are", drawn)
    if plan.published:
        yield _published(plan)


def budget(choice: Choice) -> Table:
    """What a budget buys; the command that trains it is for the caller to print, as it is."""
    recipe, found = choice.recipe, choice.estimate
    table = Table("", "", title=f"the budget: {choice.size or recipe.name}, {recipe.steps:,} steps", show_header=False)
    table.add_row("steps", f"{choice.why}: {choice.tokens_per_parameter:,.0f} tokens for each parameter of the layers")
    table.add_row("memory", _memory(found))
    table.add_row("time", _time(found))
    table.add_row("rate", f"{recipe.lr:g} at its peak, the recipe's own at its own batch")
    return table


def _memory(found: Estimate) -> str:
    room = "" if found.memory.fits(found.card) else ", more than there is room for"
    shared = ", weights and optimizer shared out (FSDP2)" if found.memory.sharded else ""
    return f"{found.memory.gib:,.1f} GiB of {found.card.gib:,.0f} on each GPU{room}{shared}"


def _time(found: Estimate) -> str:
    return f"{days(found.days)} on {found.cards}, {compact(found.tokens_per_second)} tokens/s"


def days(value: float) -> str:
    return f"{value:,.1f} days" if value >= 1 else f"{24 * value:,.1f} hours"


def _run(plan: Plan) -> Table:
    recipe = plan.recipe
    table = Table("", "", title=f"{recipe.name}: {recipe.steps:,} steps", show_header=False)
    parts = ", ".join(f"{name} {compact(size)}" for name, size in plan.parameters.items() if size)
    table.add_row("parameters", f"{sum(plan.parameters.values()):,} ({parts})")
    shape, adam = recipe.model, recipe.optimizer
    table.add_row(
        "model", f"{shape.layers} layers of {shape.width}, {shape.norm}-normalised, dropout {shape.dropout:g}"
    )
    warmup = f"{adam.warmup_steps(recipe.steps):,} steps of warm-up"
    frozen = f"; begun as a model, {recipe.freeze_steps:,} frozen steps" if recipe.freeze_steps else ""
    table.add_row("rate", f"{recipe.lr:g} at its peak, {warmup}, clipped at {adam.clip:g}{frozen}")
    for name, load in plan.loads.items():
        table.add_row(name, f"{load.examples:,} examples of {load.length:.0f} tokens a step")
    tokens = plan.tokens_per_step * recipe.steps
    table.add_row("tokens", f"{compact(plan.tokens_per_step)} a step, {compact(tokens)} in all")
    for kind, flops in plan.flops_per_token.items():
        table.add_row(f"FLOPs ({kind})", f"{flops / 1e6:,.0f} M a token, {flops * tokens:.2e} in all")
    table.add_row("memory", _memory(plan.estimate))
    table.add_row("time", _time(plan.estimate))
    sampling = recipe.sampling
    rule = f"text^{sampling.text_alpha:g}; {plan.wanted_pairs} by {sampling.pair_rule}, {sampling.pair_alpha:g}"
    focus = ", ".join(sorted(sampling.focused))
    # The shares are those asked for; where only one of the two is there, it has everything, as the rates show.
    shares = f"; {1 - sampling.replay:.0%} for {focus}, {sampling.replay:.0%} for all others" if focus else ""
    table.add_row("sampling", rule + shares)
    return table


def _published(plan: Plan) -> Table:
    table = Table("size", title=f"as published, on {plan.estimate.cards} (predicted), beside the paper's own")
    for column in ("parameters", "tokens at once", "GiB a GPU", "time", "FLOPs (full)", "FLOPs (paper)"):
        table.add_column(column, justify="right")
    table.add_column("paper")
    for each in plan.published:
        room = each.estimate.memory
        needed = f"{room.gib:,.0f}" if room.fits(plan.estimate.card) else f"[red]{room.gib:,.0f}: too much[/]"
        at_once = f"{each.recipe.micro_tokens:,}{', recomputed' if each.recipe.recompute else ''}"
        cells = [compact(each.parameters), at_once, needed, days(each.estimate.days)]
        table.add_row(each.size, *cells, *(f"{flops:.1e}" for flops in each.flops.values()), each.paper or "not told")
    return table


def _rules(plan: Plan) -> Table:
    chosen = plan.recipe.sampling.pair_rule
    table = Table("rule", "never drawn", "as varied as", "most repeated", title="rules for pairs")
    for rule, each in plan.rules.items():
        name = f"[bold]{rule}[/]" if rule.split()[0] == chosen else rule
        if isinstance(each, str):
            table.add_row(name, "cannot be had", "", "")
            continue
        most = f"{spelled(each.most_repeated)}, {each.epochs[each.most_repeated]:,.2f} times"
        table.add_row(name, f"{each.never:.1%}", f"{each.effective:,.0f} of {len(each.rates):,} pairs", most)
    for reason in {each: None for each in plan.rules.values() if isinstance(each, str)}:
        table.caption = reason
    return table


def _groups(kind: str, count: str, drawn: Mapping[str, Drawn[Any]]) -> Table:
    """Rate, and times over in the whole run, of the largest groups under each rule."""
    table = Table(kind, title="text" if kind == "language" else "pairs")
    table.add_column(count, justify="right")
    for rule in drawn:
        table.add_column(f"{rule} %".strip(), justify="right")
        table.add_column("times", justify="right")
    counts = next(iter(drawn.values())).counts
    largest = sorted(counts, key=lambda key: -counts[key])
    for key in largest[:ROWS]:
        cells = [c for each in drawn.values() for c in (f"{each.rates[key]:.3%}"[:-1], f"{each.epochs[key]:,.2f}")]
        table.add_row(spelled(key), f"{counts[key]:,}", *cells)
    if len(largest) > ROWS:
        table.caption = f"and {len(largest) - ROWS:,} smaller ones (--json, or -o page.html)"
    return table
