r"""Which groups to draw more often because they are hard: distributional robustness (XY-LENT Eq. 3; Zhou et al. 2021).

    maximise sum of q_g loss_g   over q with   chi2(q, p) = 1/2 sum of p_g (q_g / p_g - 1)^2 <= rho

The solution is q_g proportional to p_g max(0, loss_g - eta), with eta such that chi2(q, p) = rho. Where nothing is cut
off, that is q_g = p_g (1 + sqrt(2 rho) (loss_g - mean) / deviation). The data are drawn anew by q; the loss itself is
not weighted.
"""
# G groups

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Group = str
HALVINGS = 200  # of the interval that holds eta: more than a float has digits


@dataclass(frozen=True)
class DRO:
    """A run that draws its bitext anew, so that what is hard comes more often."""

    times: int = 10  # in a run, evenly; the last one, at its end, is only told
    rho: float = 0.05  # how far from the first rates at most; 0: losses are measured, and the run is a plain one
    floor: float = 0.2  # no group falls below this share of its first rate
    baseline: str | None = None  # a run of the same groups, whose last losses are subtracted


def best_response(
    p: Mapping[Group, float],
    losses: Mapping[Group, float],
    rho: float,
    floor: float = 0.2,
    baseline: Mapping[Group, float] | None = None,
) -> dict[Group, float]:
    """The probabilities of all groups of `p`; those without a finite loss keep theirs.

    `floor`: no group falls below this share of its p, nor below the least p of all (both before the last
    renormalisation). `baseline`: losses of a finished, plain model to subtract, so that what counts is what could still
    be learned; if every group is better than its baseline, the losses count as they are.
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
        return ratio_G / (p_G @ ratio_G)

    def chi2(eta: float) -> float:
        return float(p_G @ (response(eta) - 1) ** 2 / 2)

    high = loss_G[p_G > 0].max()
    spread = high - loss_G[p_G > 0].min()
    if not spread or not rho:
        return dict(p)
    low = high - spread
    while chi2(low) > rho:  # the lower eta is, the nearer q is to p
        low = high - 2 * (high - low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if chi2(middle) <= rho else (low, middle)
    q_G = np.maximum(p_G * response(low), np.where(p_G > 0, p_G[p_G > 0].min(), 0))
    q_G *= known / q_G.sum()
    return {**p, **dict(zip(groups, q_G.tolist(), strict=True))}


@dataclass(frozen=True)
class GroupLosses:
    """A running mean of each group's loss, kept when the data are drawn anew. Rare groups are not taken for easy ones:
    a mean is over what was seen, and a group that was hardly seen has none."""

    weight: float = 0.1  # of the newest loss
    least: int = 10  # losses a group must have shown
    sums: Mapping[Group, float] = field(default_factory=dict)
    seen: Mapping[Group, int] = field(default_factory=dict)

    def after(self, losses: Mapping[Group, float]) -> GroupLosses:
        """With the mean losses of one batch added; groups that were not in it stay as they are."""
        sums, seen = dict(self.sums), dict(self.seen)
        for group, loss in losses.items():
            sums[group] = (1 - self.weight) * sums.get(group, 0.0) + self.weight * loss
            seen[group] = seen.get(group, 0) + 1
        return GroupLosses(self.weight, self.least, sums, seen)

    @property
    def means(self) -> dict[Group, float]:
        # The sums start at 0; without the correction a group seen once would seem to have a tenth of its loss.
        return {
            group: total / (1 - (1 - self.weight) ** self.seen[group])
            for group, total in self.sums.items()
            if self.seen[group] >= self.least
        }
