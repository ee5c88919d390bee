"""Sampling probabilities of languages, language pairs and groups, computed from counts by pure functions.

The probability of a language pair covers both directions; each direction has half of it. docs/sampling.md compares
the rules.
"""

from crossling.sampling.dro import DRO, GroupLosses, best_response
from crossling.sampling.marginals import (
    InfeasibleMarginals,
    InfeasibleSet,
    Pair,
    closest_feasible_marginals,
    find_infeasible_set,
    language_marginals,
    temperature_sampling,
)
from crossling.sampling.pair_rules import m2m, xy_lent
from crossling.sampling.sampling_settings import MOST_PAIRED, RULES, Rule, Sampling

__all__ = [
    "DRO",
    "MOST_PAIRED",
    "RULES",
    "GroupLosses",
    "InfeasibleMarginals",
    "InfeasibleSet",
    "Pair",
    "Rule",
    "Sampling",
    "best_response",
    "closest_feasible_marginals",
    "find_infeasible_set",
    "language_marginals",
    "m2m",
    "temperature_sampling",
    "xy_lent",
]
