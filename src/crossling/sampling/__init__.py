"""How often each language, language pair or group is drawn: counts in, probabilities out. No readers, no state.

Probabilities of pairs are those of unordered pairs; each direction has half. docs/sampling.md says when to choose what.
"""

from crossling.sampling.exponent import tempered
from crossling.sampling.m2m import m2m
from crossling.sampling.marginals import OutOfReach, Pair, Shortage, marginals, relaxed, shortage
from crossling.sampling.robust import DRO, GroupLosses, best_response
from crossling.sampling.sampling import MOST, RULES, Rule, Sampling
from crossling.sampling.xy_lent import xy_lent

__all__ = [
    "DRO",
    "MOST",
    "RULES",
    "GroupLosses",
    "OutOfReach",
    "Pair",
    "Rule",
    "Sampling",
    "Shortage",
    "best_response",
    "m2m",
    "marginals",
    "relaxed",
    "shortage",
    "tempered",
    "xy_lent",
]
