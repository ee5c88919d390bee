"""Every row of the papers' ablation tables is a setting in docs/concepts/recipes.md. Each is applied and planned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crossling.data.shards import Shards
from crossling.planning import plan
from crossling.recipes import get_recipe
from crossling.recipes.recipe import Recipe

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "concepts" / "recipes.md"
ROW = re.compile(r"^\| (?P<what>[^|]+) \| `(?P<recipe>\w+)` \|(?P<difference>[^|]*)\|$", re.MULTILINE)
ROWS = [(row["what"], row["recipe"], row["difference"]) for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))]
CHOICES = [
    (row[1], "infoxlm" if "xlco" in row[1] else "xlm_e")
    for row in re.findall(r"^\| ([^|]+) \| ([^|]*--set[^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
]


def resolved(recipe: str, difference: str, size: str | None = None) -> Recipe:
    sizes = re.findall(r"--size (\w+)", difference)
    return get_recipe(recipe, size or (sizes or [None])[0]).set(re.findall(r"--set (\S+?)(?=[`,\s]|$)", difference))


def terms(recipe: Recipe) -> set[str]:
    return {term for objective in recipe.objectives.values() for term in objective.loss_weights}


def row(initial: str) -> Recipe:
    [found] = [resolved(recipe, difference) for what, recipe, difference in ROWS if what.startswith(initial)]
    found.check()
    return found


def test_page_lists_all_ablations() -> None:
    assert len(ROWS) >= 27
    assert {recipe for _, recipe, _ in ROWS} == {"xlm_e", "infoxlm", "xy_lent", "veco", "mbart"}
    assert len(CHOICES) >= 7


@pytest.mark.parametrize(("what", "recipe", "difference"), ROWS)
def test_every_ablation_can_be_planned(what: str, recipe: str, difference: str, shards: Shards) -> None:
    resolved(recipe, difference).check()
    # The synthetic languages have no English, and a tiny model has four layers.
    small = difference.replace("pivot=en", "pivot=qaa").replace("layer=12", "layer=4")
    planned = plan(resolved(recipe, small, "tiny"), shards)
    assert set(planned.dump()) >= {"parameters", "flops_per_token", "rates", "epochs"}
    plain = plan(get_recipe(recipe, "tiny"), shards)
    found = {key: planned.dump()[key] for key in ("recipe", "parameters", "flops_per_token", "rates")}
    same = found == {key: plain.dump()[key] for key in found}
    assert same == ("--set" not in difference), what


@pytest.mark.parametrize(("difference", "recipe"), CHOICES)
def test_choices_that_papers_leave_open_can_be_set(difference: str, recipe: str) -> None:
    for each in difference.split(", "):
        chosen = resolved(recipe, each)
        chosen.check()
        assert chosen != get_recipe(recipe)


def test_ablations_remove_the_right_terms() -> None:
    assert terms(row("XLM-E Table 2, XLM-E")) == {"mlm", "mrtd", "tlm", "trtd"}
    assert terms(row("− TRTD, and with it the generator's TLM")) == {"mlm", "mrtd"}
    assert terms(row("XLM-E Table 2, XLM under its setup")) == {"mlm", "tlm"}
    assert not row("− TRTD − gated").model.to_config(100).relative_positions
    assert not row("the bias without its gate").model.to_config(100).gated
    assert terms(row("− XLCo")) == {"mlm", "tlm"}
    assert terms(row("− TLM, ")) == {"mlm", "xlco"}
    assert terms(row("− TLM − XLCo")) == {"mlm"}
    assert terms(row("Masked LM")) == {"mlm", "tlm"}
    assert terms(row("monolingual XLM")) == {"mlm"}
    assert all("ca_mlm" in term for term in terms(row("monolingual CA-MLM")))
    assert terms(row("bilingual XLM")) == {"mlm", "tlm"}


def test_replaced_objectives_keep_the_batch_size() -> None:
    masked, original = row("Masked LM"), get_recipe("xy_lent")
    assert masked.mlm is not None
    assert masked.tlm is not None
    assert original.mrtd is not None
    assert masked.mlm.tokens == masked.tlm.tokens == original.mrtd.tokens
    last = row("− universal layer")
    assert last.xlco is not None
    assert (last.xlco.layer, last.model.layers) == (12, 12)
    momentum = row("− TLM − momentum").xlco
    assert momentum is not None
    assert momentum.momentum == 0
    assert momentum.queue == 131_072
