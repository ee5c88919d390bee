"""What the papers say of their own cost, as published, and the same by our count."""

from __future__ import annotations

from crossling.objectives import Objective
from crossling.recipe import Recipe
from crossling.recipe.cost import Load, flops_per_token, network

# Which cards, and how long where it is told.
HARDWARE = {
    ("xlm_r", "base"): "500 V100-32GB",
    ("xlm_r", "large"): "500 V100-32GB",
    ("xlm_e", "base"): "64 A100, 1.7 days",
    ("infoxlm", "base"): "64 V100-32GB",
    ("infoxlm", "large"): "64 V100-32GB",
    ("xy_lent", "base"): "128 A100-40GB",
    ("xy_lent", "large"): "128 A100-40GB",
    ("xy_lent", "xl"): "512 A100-80GB",
    ("veco", "large"): "64 V100-32GB",
}
# XLM-E, Table 4: operations in all. InfoXLM's are those on top of XLM-R's, as which it begins.
TABLE_4 = {("xlm_r", "base"): 9.6e21, ("infoxlm", "base"): 1.7e20, ("xlm_e", "base"): 9.5e19}
TABLE_4_WITHOUT_TRTD = 6.3e19

PIECES = 250_002  # of their vocabularies


def said(recipe: str, size: str) -> str:
    """Hardware, time and operations, where they are told; nothing for what no paper trained."""
    hardware, flops = HARDWARE.get((recipe, size)), TABLE_4.get((recipe, size))
    return "; ".join([*([hardware] if hardware else []), *([f"{flops:.1e} FLOPs"] if flops else [])])


def published_cost(recipe: Recipe) -> dict[str, float]:
    """Operations of a whole run in both conventions: the batch of the paper, every sequence as long as may be."""
    loads = {name: _nominal(objective) for name, objective in recipe.objectives.items()}
    per_token = flops_per_token(recipe, network(recipe, PIECES), loads)
    tokens = sum(loads[name].tokens * recipe.turns(each.stream) for name, each in recipe.objectives.items())
    return {convention: flops * tokens for convention, flops in per_token.items()}


def _nominal(objective: Objective) -> Load:
    return Load(objective.examples(objective.length), objective.length)
