r"""The sampling of XY-LENT (Patra et al. 2022, Eq. 2): what M2M asks for, and otherwise as near to the data as can be.

    minimise tr(P (-log Q)) - H(P)   over P on the pairs there are,   P 1 = m = P^T 1

The objective is KL(P || Q), and the optimum a scaling of rows and columns, P_ij = u_i Q_ij u_j, which iterative
proportional fitting finds. Every pair that can be drawn is drawn. T = 1 gives Q itself.
"""
# L languages

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
from scipy.special import logsumexp

from crossling.errors import Failed
from crossling.sampling.marginals import Pair, problem

TOLERANCE = 1e-10  # of each language's share, relative to it
SWEEPS = 50  # of proportional fitting; what needs more is near the edge of what can be had
STEPS = 300
LONGEST = 4.0  # of one step, in logarithms


def xy_lent(counts: Mapping[Pair, int], temperature: float, relax: bool = False) -> dict[Pair, float]:
    """The probability of each pair, both directions together (each has half)."""
    if not any(counts.values()):
        return dict.fromkeys(counts, 0.0)
    task = problem(counts, temperature, relax)
    number = {language: i for i, language in enumerate(task.marginals)}
    log_m = np.log(list(task.marginals.values()))
    log_Q = np.full((len(number), len(number)), -np.inf)  # off the support nothing is ever added
    total = sum(task.counts.values())
    for (a, b), n in task.counts.items():
        log_Q[number[a], number[b]] = log_Q[number[b], number[a]] = np.log(n / total / 2)
    P = np.exp(fitted(log_Q, log_m))
    P /= P.sum()
    never = [pair for pair in counts if counts[pair] and pair not in task.counts]
    if never:
        names = ", ".join("-".join(pair) for pair in never[:6]) + (" ..." if len(never) > 6 else "")
        warnings.warn(
            f"{len(never)} of {len(never) + len(task.counts)} pairs are never drawn, because one of their languages is"
            f" needed whole by others that have no other pairs: {names}",
            stacklevel=2,
        )
    return {pair: 2 * float(P[number[pair[0]], number[pair[1]]]) if pair in task.counts else 0.0 for pair in counts}


def fitted(log_Q: np.ndarray, log_m: np.ndarray) -> np.ndarray:
    """log P with P = u Q u (rows and columns scaled alike, for Q is symmetric) and row sums m.

    A sweep of proportional fitting scales every row and column by the root of what it lacks. Near the edge of what can
    be had it would take thousands; Newton's method on the same dual, sum(P) / 2 - m . log u, takes a few steps there.
    """
    log_u = np.zeros(len(log_m))
    m = np.exp(log_m)
    for step in range(SWEEPS + STEPS):
        log_P = log_Q + log_u[:, None] + log_u
        gap = log_m - logsumexp(log_P, axis=1)
        if np.abs(gap).max() < TOLERANCE:
            return log_P
        log_u = log_u + (gap / 2 if step < SWEEPS else _newton(log_Q, log_u, m))
    # A language of 1e-12 of the whole can depend on differences that floats do not hold: it is met as the others allow.
    if (np.abs(gap) * m).max() < TOLERANCE:
        return log_P
    raise Failed(f"the shares of xy_lent did not converge (one is still {np.abs(gap).max():.1e} off)")


def _newton(log_Q: np.ndarray, log_u: np.ndarray, m: np.ndarray) -> np.ndarray:
    """A step that lessens the dual, shortened until it does."""

    def dual(log_u: np.ndarray) -> float:
        return float(np.exp(log_Q + log_u[:, None] + log_u).sum() / 2 - m @ log_u)

    P = np.exp(log_Q + log_u[:, None] + log_u)
    rows = P.sum(1)
    root = np.sqrt(rows)
    # The Hessian, diag(rows) + P, scaled to a unit diagonal; two-sided parts make it singular in a direction that
    # changes nothing, hence the tiny addition.
    hessian = P / root[:, None] / root + np.eye(len(m)) * (1 + 1e-13)
    step = np.linalg.solve(hessian, (m - rows) / root) / root
    step *= min(1, LONGEST / np.abs(step).max())
    while dual(log_u + step) > dual(log_u) and np.abs(step).max() > 1e-12:
        step = step / 2
    return step
