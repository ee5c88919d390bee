r"""Sampling rules for language pairs that prescribe the language marginals m: M2M-100 and XY-LENT.

P is the joint distribution of the two sides of a pair, Q that of the data, m the target of each language.

M2M-100 (Fan et al. 2021; XY-LENT Eq. 1) is a linear program:

    maximize tr(P Q)   over P >= 0 on the pairs with data,   P 1 = m = P^T 1

Its optima are corners of the feasible set, so most pairs are never sampled.

XY-LENT (Patra et al. 2022, Eq. 2) stays as close to the data as the marginals allow:

    minimize tr(P (-log Q)) - H(P)   over P on the pairs with data,   P 1 = m = P^T 1

Its objective is KL(P || Q). The optimum scales rows and columns, P_ij = u_i Q_ij u_j, found by iterative proportional
fitting. Every pair that can be sampled is sampled. T = 1 gives Q itself.
"""
# L languages

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from crossling.core.errors import Failed
from crossling.sampling.marginals import Pair, build_problem

TOLERANCE = 1e-10  # of each language's marginal, relative to it
SWEEPS = 50  # of proportional fitting, before Newton's method
NEWTON_STEPS = 300
MAX_STEP = 4.0  # of Newton's method, in logarithms


def m2m(counts: Mapping[Pair, int], temperature: float, relax: bool = False) -> dict[Pair, float]:
    """Return the probability of each pair by M2M-100's rule, both directions together; most are 0.

    P can be taken as symmetric, because P, its transpose and their mean are equally good. So each pair has one unknown.
    If there are several optima, the result does not depend on the order of `counts`.
    """
    # Imported here, because scipy takes longer to import than all of crossling, and most processes do not need it.
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    if not any(counts.values()):
        return dict.fromkeys(counts, 0.0)
    problem = build_problem(counts, temperature, relax)
    pairs, total = sorted(problem.counts), max(problem.counts.values())
    index = {language: i for i, language in enumerate(problem.marginals)}
    mass = np.array(list(problem.marginals.values()))
    a, b = (np.array([index[pair[side]] for pair in pairs]) for side in (0, 1))
    rows, columns = np.concatenate([a, b]), np.tile(np.arange(len(pairs)), 2)
    gain = np.array([problem.counts[pair] / total for pair in pairs])
    solution = linprog(
        -gain,
        A_eq=coo_array((np.full(len(rows), 0.5), (rows, columns)), shape=(len(mass), len(pairs))),
        b_eq=mass,
        method="highs-ds",
        options={"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE},
    )
    if solution.x is None:
        raise Failed(f"sampling.pair_rule=m2m: the linear program has no solution ({solution.message}).")
    values = np.maximum(solution.x, 0)
    probabilities = dict(zip(pairs, (values / values.sum()).tolist(), strict=True))
    return {pair: probabilities.get(pair, 0.0) for pair in counts}


def xy_lent(counts: Mapping[Pair, int], temperature: float, relax: bool = False) -> dict[Pair, float]:
    """Return the probability of each pair by XY-LENT's rule, both directions together."""
    if not any(counts.values()):
        return dict.fromkeys(counts, 0.0)
    problem = build_problem(counts, temperature, relax)
    index = {language: i for i, language in enumerate(problem.marginals)}
    log_m = np.log(list(problem.marginals.values()))
    log_Q = np.full((len(index), len(index)), -np.inf)  # pairs without data stay at probability 0
    total = sum(problem.counts.values())
    for (a, b), n in problem.counts.items():
        log_Q[index[a], index[b]] = log_Q[index[b], index[a]] = np.log(n / total / 2)
    P = np.exp(fit_marginals(log_Q, log_m))
    P /= P.sum()
    never = [pair for pair in counts if counts[pair] and pair not in problem.counts]
    if never:
        names = ", ".join("-".join(pair) for pair in never[:6]) + (" ..." if len(never) > 6 else "")
        warnings.warn(
            f"sampling: {len(never)} of {len(never) + len(problem.counts)} pairs are never sampled, because languages"
            f" that have no other pairs need all of one side: {names}.",
            stacklevel=2,
        )
    return {pair: 2 * float(P[index[pair[0]], index[pair[1]]]) if pair in problem.counts else 0.0 for pair in counts}


def fit_marginals(log_Q: np.ndarray, log_m: np.ndarray) -> np.ndarray:
    """Return log P with P = u Q u and row sums m. Rows and columns are scaled alike, because Q is symmetric.

    A sweep of proportional fitting scales every row and column by the root of its missing factor. Near the border of
    the feasible set it would take thousands of sweeps. Newton's method on the dual, sum(P) / 2 - m . log u, takes a few
    steps there.
    """
    from scipy.special import logsumexp

    log_u = np.zeros(len(log_m))
    m = np.exp(log_m)
    for step in range(SWEEPS + NEWTON_STEPS):
        log_P = log_Q + log_u[:, None] + log_u
        gap = log_m - logsumexp(log_P, axis=1)
        if np.abs(gap).max() < TOLERANCE:
            return log_P
        log_u = log_u + (gap / 2 if step < SWEEPS else _newton_step(log_Q, log_u, m))
    # A marginal of 1e-12 can depend on differences below float precision: accept it if the absolute error is small.
    if (np.abs(gap) * m).max() < TOLERANCE:
        return log_P
    raise Failed(
        f"sampling.pair_rule=xy_lent: did not converge, relative error {np.abs(gap).max():.1e}."
        " Use another sampling.pair_rule."
    )


def _newton_step(log_Q: np.ndarray, log_u: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Return a Newton step, halved until it decreases the dual."""

    def dual(log_u: np.ndarray) -> float:
        return float(np.exp(log_Q + log_u[:, None] + log_u).sum() / 2 - m @ log_u)

    P = np.exp(log_Q + log_u[:, None] + log_u)
    rows = P.sum(1)
    root = np.sqrt(rows)
    # Hessian diag(rows) + P, scaled to a unit diagonal. Bipartite components make it singular in a direction that
    # changes nothing, hence the small addition.
    hessian = P / root[:, None] / root + np.eye(len(m)) * (1 + 1e-13)
    step = np.linalg.solve(hessian, (m - rows) / root) / root
    step *= min(1, MAX_STEP / np.abs(step).max())
    while dual(log_u + step) > dual(log_u) and np.abs(step).max() > 1e-12:
        step = step / 2
    return np.asarray(step)
