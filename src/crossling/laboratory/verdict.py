"""Whether an ordering that a paper claims was found: held, not held, undecided, or at the floor.

The difference is that of the means over languages, better minus worse. Its interval is that of a bootstrap which draws
the languages anew, the same for both runs, and the seeds of each where there are several. With one seed it says what
other languages would have changed, and nothing of what another seed would have. At the floor nothing is decided: no
run of the two found more translations than a model that has learned nothing.
"""
# R resamples, S seeds, L languages

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from crossling.metrics.bootstrap import CONFIDENCE, RESAMPLES

Verdict = Literal["held", "not held", "undecided", "at the floor"]
FEWEST = 3  # languages without which there is no interval


@dataclass(frozen=True)
class Judged:
    where: str  # "the end", "1.2e+15 FLOPs"
    difference: float  # in points, in favour of what the paper calls better
    low: float | None
    high: float | None
    languages: int
    kind: str  # "languages", or "pairs" of them
    seeds: int  # of the run that has fewer
    floor: bool = False  # neither is better than untrained

    @property
    def verdict(self) -> Verdict:
        if self.floor:
            return "at the floor"
        if self.low is not None and self.low > 0:
            return "held"
        if self.high is not None and self.high < 0:
            return "not held"
        return "undecided"

    def dump(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


Scores = Mapping[int, Mapping[str, float]]  # seed -> language -> value


def judged(where: str, better: Scores, worse: Scores, lower_is_better: bool = False) -> Judged | None:
    """Of all seeds of each, and of the languages that all of them have; none if there are none."""
    found = [*better.values(), *worse.values()]
    languages = [code for code in found[0] if all(code in side for side in found)] if better and worse else []
    if not languages:
        return None
    one_SL, other_SL = (
        np.array([[values[code] for code in languages] for values in side.values()]) for side in (better, worse)
    )
    if lower_is_better:
        one_SL, other_SL = other_SL, one_SL
    low, high = _interval(one_SL, other_SL) if len(languages) >= FEWEST else (None, None)
    apart = float(one_SL.mean() - other_SL.mean())
    kind = "pairs" if all("-" in code for code in languages) else "languages"
    return Judged(where, apart, low, high, len(languages), kind, min(len(better), len(worse)))


def _interval(one_SL: np.ndarray, other_SL: np.ndarray) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    languages = one_SL.shape[1]
    languages_RL = rng.integers(languages, size=(RESAMPLES, languages))
    means = []
    for side_SL in (one_SL, other_SL):
        seeds_RS = rng.integers(len(side_SL), size=(RESAMPLES, len(side_SL)))
        means.append(side_SL[seeds_RS[:, :, None], languages_RL[:, None, :]].mean(axis=(1, 2)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means[0] - means[1], [tail, 1 - tail])
    return float(low), float(high)
