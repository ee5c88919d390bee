"""Which steps are left out: those whose gradient is no number, or out of all proportion to the ones before.

The judgement stays on the device, so that no step waits for it: the optimizer is told, and the host reads it now and
then. All processes judge the same norm and so come to the same end.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crossling.errors import Failed

TIMES = 20.0  # the usual norm: a gradient that is larger has exploded
SETTLED = 100  # steps after which there is a usual norm
SLOWEST = 0.01  # the weight of one more norm in the usual one: a mean at first, of some hundred steps later
IN_A_ROW = 5  # left out: then something is wrong that does not pass
LATELY, MOST = 0.02, 0.5  # the weight of one more step in the share left out lately; of which no more may be


class Steady:
    def __init__(self, device: torch.device) -> None:
        self.usual = torch.zeros((), device=device)  # norm of the gradient
        self.taken = torch.zeros((), device=device)  # steps it is the mean of
        self.skipped = torch.zeros((), device=device)
        self.in_a_row = torch.zeros((), device=device)
        self.longest = torch.zeros((), device=device)  # of all rows of skipped steps
        self.lately = torch.zeros((), device=device)  # the share that was skipped
        self.worst = torch.zeros((), device=device)  # it ever was

    def judge(self, norm: Tensor, times: float = TIMES) -> Tensor:
        """1 for a step that is to be left out, 0 for one that is taken."""
        exploded = (self.taken >= SETTLED) & (norm > times * self.usual)
        skip = (exploded | ~norm.isfinite()).float()
        self.taken += 1 - skip
        weight = (1 / self.taken.clamp(min=1)).clamp(min=SLOWEST)
        self.usual += weight * (torch.where(skip > 0, self.usual, norm) - self.usual)
        self.skipped += skip
        self.in_a_row = (self.in_a_row + 1) * skip
        self.longest = torch.maximum(self.longest, self.in_a_row)
        self.lately += LATELY * (skip - self.lately)
        self.worst = torch.maximum(self.worst, self.lately)
        return skip

    def forget(self) -> None:
        """What is usual: from now on other parameters learn."""
        self.usual.zero_()
        self.taken.zero_()

    def check(self, step: int, kept: str) -> None:
        """Ends a run that gets nowhere. Waits for the device."""
        many = f"{IN_A_ROW} steps in a row" if self.longest >= IN_A_ROW else "most of the last steps"
        if self.longest >= IN_A_ROW or self.worst > MOST:
            raise Failed(
                f"{many} had to be left out by step {step}: their gradients were not finite, or more than {TIMES:g}"
                f" times as large as before; {kept}; try a lower lr, a longer optimizer.warmup or a lower"
                " optimizer.clip in another -o folder (--init begins it as a run that has a state)"
            )

    def dump(self) -> dict[str, float]:
        return {name: float(value) for name, value in vars(self).items()}

    def load(self, dumped: dict[str, Any]) -> None:
        for name, value in dumped.items():
            getattr(self, name).fill_(value)
