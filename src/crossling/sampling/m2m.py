r"""The sampling of M2M-100 (Fan et al. 2021; XY-LENT Eq. 1): a linear programme.

    maximise tr(P Q)   over P >= 0 on the pairs there are,   P 1 = m = P^T 1

Its optima are corners of what is allowed, so most pairs are never drawn: that is what XY-LENT mends.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from crossling.errors import Failed
from crossling.sampling.marginals import Pair, problem

TOLERANCE = 1e-10


def m2m(counts: Mapping[Pair, int], temperature: float, relax: bool = False) -> dict[Pair, float]:
    """The probability of each pair, both directions together (each has half); most are 0.

    P may be taken as symmetric, since P and its transpose are equally good and so is their mean; so there is one
    unknown for each pair. Where several optima exist, the one found does not depend on the order of `counts`.
    """
    if not any(counts.values()):
        return dict.fromkeys(counts, 0.0)
    task = problem(counts, temperature, relax)
    pairs, total = sorted(task.counts), max(task.counts.values())
    number = {language: i for i, language in enumerate(task.marginals)}
    mass = np.array(list(task.marginals.values()))
    a, b = (np.array([number[pair[side]] for pair in pairs]) for side in (0, 1))
    rows, columns = np.concatenate([a, b]), np.tile(np.arange(len(pairs)), 2)
    gain = np.array([task.counts[pair] / total for pair in pairs])
    solution = linprog(
        -gain,
        A_eq=coo_array((np.full(len(rows), 0.5), (rows, columns)), shape=(len(mass), len(pairs))),
        b_eq=mass,
        method="highs-ds",
        options={"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE},
    )
    if solution.x is None:
        raise Failed(f"the linear programme of m2m found no solution ({solution.message})")
    drawn = np.maximum(solution.x, 0)
    found = dict(zip(pairs, (drawn / drawn.sum()).tolist(), strict=True))
    return {pair: found.get(pair, 0.0) for pair in counts}
