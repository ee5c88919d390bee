"""The plan of a run with languages in focus: under every rule they get what replay leaves, and the table says so."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from crossling.data.rates import rates
from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.inspect import inspect
from crossling.inspect.draws import Drawn
from crossling.inspect.tables import tables
from crossling.recipe import Recipe


def test_every_rule_has_the_focus_and_the_run_draws_what_is_shown(shards: Shards, full_recipe: Recipe) -> None:
    chosen = full_recipe.set(["sampling.focus=qac", "sampling.replay=0.3"])
    plan = inspect(chosen, shards)
    assert plan.text is not None
    assert plan.text.rates["qac"] == pytest.approx(0.7)
    assert plan.text.rates == rates(shards, "text", chosen.sampling)
    shown = {rule: each for rule, each in plan.rules.items() if isinstance(each, Drawn)}
    assert {"alpha", "m2m", "xy_lent"} <= {rule.split()[0] for rule in shown}
    for each in shown.values():
        assert sum(rate for pair, rate in each.rates.items() if "qac" in pair) == pytest.approx(0.7)


def test_the_table_names_the_focus(shards: Shards, full_recipe: Recipe) -> None:
    def shown(*differences: str) -> str:
        out = StringIO()
        Console(file=out, width=200).print(*tables(inspect(full_recipe.set(differences), shards)))
        return out.getvalue()

    assert "; 70% for qab, qac, 30% for all others" in shown("sampling.focus=qac,qab", "sampling.replay=0.3")
    assert "for all others" not in shown()


def test_a_focus_that_is_not_there_is_refused_as_pretrain_would(shards: Shards, full_recipe: Recipe) -> None:
    for differences in (["trtd=off", "xlco=off"], ["mrtd=off"]):
        with pytest.raises(BadInput, match=r"sampling\.focus=qad is not in these shards; did you mean 'qa.'"):
            inspect(full_recipe.set([*differences, "sampling.focus=qad"]), shards)
