r"""Distributionally robust optimization: sample hard groups more often (XY-LENT Eq. 3; Zhou et al. 2021).

    maximize sum of q_g loss_g   over q with   chi2(q, p) = 1/2 sum of p_g (q_g / p_g - 1)^2 <= rho

The solution is q_g proportional to p_g max(0, loss_g - eta), with eta such that chi2(q, p) = rho. If no term is clipped
at 0, that is q_g = p_g (1 + sqrt(2 rho) (loss_g - mean) / standard deviation). The data is resampled by q; the loss
itself is not weighted. A large rho can give easy groups the probability 0. The code of Zhou et al. keeps them above two
floors, which Eq. 3 does not have: `floor=0.2`.
"""
# G groups

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from crossling.core.settings import AT_LEAST_0, AT_LEAST_1, PROBABILITY

Group = str
BISECTIONS = 200  # more than a float has digits


@dataclass(frozen=True)
class DRO:
    """Settings of a run that resamples its bitext by the loss of each corpus and language pair.

    Args:
        times: Number of resamplings in a run, evenly spaced. At the end, the losses are measured and logged once more.
        rho: Largest chi-squared distance from the first probabilities. 0 measures losses and changes nothing.
        floor: Lowest probability of a group, as a fraction of its first one. With a floor, no group falls below the
            least first probability of all groups either. 0 is XY-LENT's Eq. 3; the code of Zhou et al. has 0.2.
        baseline: Run folder with the same groups, whose last losses are subtracted.
    """

    times: Annotated[int, AT_LEAST_1] = 10
    rho: Annotated[float, AT_LEAST_0] = 0.05
    floor: Annotated[float, PROBABILITY] = 0.0
    baseline: str | None = None


def best_response(
    p: Mapping[Group, float],
    losses: Mapping[Group, float],
    rho: float,
    *,
    floor: float = 0.0,
    baseline: Mapping[Group, float] | None = None,
) -> dict[Group, float]:
    """Return the probabilities of all groups of `p`. Groups without a finite loss keep theirs.

    Args:
        p: First probabilities.
        losses: Mean loss of each group.
        rho: Largest chi-squared distance from `p`.
        floor: Lowest probability of a group as a fraction of its p. Above 0, a group also stays above the least p of
            all groups. Both hold before the last renormalization.
        baseline: Losses of a finished model to subtract, so that the loss still to be reduced counts. If every group is
            below its baseline, plain losses are used.
    """
    groups = [group for group in p if math.isfinite(losses.get(group, math.nan))]
    if baseline is not None:
        groups = [group for group in groups if math.isfinite(baseline.get(group, math.nan))]
    p_G = np.array([p[group] for group in groups])
    known = p_G.sum()
    if not known:
        return dict(p)
    p_G = p_G / known
    loss_G = np.array([losses[group] for group in groups])
    if baseline is not None:
        excess_G = loss_G - [baseline[group] for group in groups]
        loss_G = loss_G if (excess_G < 0).all() else excess_G

    def response(eta: float) -> np.ndarray:
        """q / p"""
        ratio_G = np.maximum(0, loss_G - eta)
        ratio_G = np.maximum(floor, ratio_G / (p_G @ ratio_G))
        return np.asarray(ratio_G / (p_G @ ratio_G))

    def chi2(eta: float) -> float:
        return float(p_G @ (response(eta) - 1) ** 2 / 2)

    high = loss_G[p_G > 0].max()
    spread = high - loss_G[p_G > 0].min()
    if not spread or not rho:
        return dict(p)
    low = high - spread
    while chi2(low) > rho:  # the lower eta is, the nearer q is to p
        low = high - 2 * (high - low)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if chi2(middle) <= rho else (low, middle)
    q_G = p_G * response(low)
    if floor:
        q_G = np.maximum(q_G, np.where(p_G > 0, p_G[p_G > 0].min(), 0))
    q_G *= known / q_G.sum()
    return {**p, **dict(zip(groups, q_G.tolist(), strict=True))}


@dataclass(frozen=True)
class GroupLosses:
    """Exponential moving average of each group's loss, kept across resamplings.

    A rare group is not mistaken for an easy one: the average runs over its own losses, and a group with fewer than
    `min_losses` of them has none.
    """

    weight: float = 0.1  # of the newest loss
    min_losses: int = 10
    sums: Mapping[Group, float] = field(default_factory=dict)
    counts: Mapping[Group, int] = field(default_factory=dict)

    def update(self, losses: Mapping[Group, float]) -> GroupLosses:
        """Return the averages with the mean losses of one more batch. Groups that are not in it do not change."""
        sums, counts = dict(self.sums), dict(self.counts)
        for group, loss in losses.items():
            sums[group] = (1 - self.weight) * sums.get(group, 0.0) + self.weight * loss
            counts[group] = counts.get(group, 0) + 1
        return GroupLosses(self.weight, self.min_losses, sums, counts)

    @property
    def means(self) -> dict[Group, float]:
        """Average loss of each group with enough losses."""
        # The sums start at 0; without bias correction a group with one loss would seem to have a tenth of it.
        return {
            group: total / (1 - (1 - self.weight) ** self.counts[group])
            for group, total in self.sums.items()
            if self.counts[group] >= self.min_losses
        }
