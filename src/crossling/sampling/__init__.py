"""Sampling probabilities of languages, language pairs and groups, computed from counts by pure functions.

The probability of a language pair covers both directions; each direction has half of it. docs/concepts/sampling.md
compares the rules.
"""

from crossling.sampling.dro import DRO, GroupLosses, best_response
from crossling.sampling.marginals import InfeasibleMarginals, Pair, temperature_sampling
from crossling.sampling.pair_rules import m2m, xy_lent
from crossling.sampling.sampling_settings import MOST_PAIRED, RULES, Sampling

__all__ = [
    "DRO",
    "MOST_PAIRED",
    "RULES",
    "GroupLosses",
    "InfeasibleMarginals",
    "Pair",
    "Sampling",
    "best_response",
    "m2m",
    "temperature_sampling",
    "xy_lent",
]
