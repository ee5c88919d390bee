"""The guard against a discriminator that collapses, as replaced-token detection does when it is continued at its
original peak rate (XY-LENT, Limitations).

Where a share r of the tokens is replaced, the best constant answer costs H(r) = -(r ln r + (1-r) ln(1-r)) a token. A
discriminator that has collapsed first costs more and then settles at that answer: in runs pushed over the edge, within
0.5% of H(r). Knowing no more than that special tokens are never replaced is worth 0.96 H(r) at a masking rate of 15%.
So below 0.95 something was learned, and at 0.99 all of it is lost. H is of the row's own r, so that chance hardly moves
the ratio: that of a constant answer to n tokens by about 1 / n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossling.errors import Failed
from crossling.train import checkpoint

LEARNED, LOST = 0.95, 0.99  # of what guessing costs
ROWS = 3  # of metrics in a row: a loss may jump and come back


@dataclass
class _Seen:
    """What the rows so far said of one discriminator that had learned."""

    step: int  # of the last row that was better than guessing
    loss: float  # in it
    lost: int = 0  # rows since then


class Guard:
    """Reads every row of metrics, and ends the run when a discriminator has lost what it had learned."""

    def __init__(self, checkpoints: Path, lr: float) -> None:
        self.checkpoints, self.lr = checkpoints, lr
        self.seen: dict[str, _Seen] = {}

    @property
    def in_doubt(self) -> bool:
        """Whether the network may be on its way down: then it must not take the place of a good checkpoint."""
        return any(seen.lost for seen in self.seen.values())

    def watch(self, row: Mapping[str, float]) -> None:
        for name, share in row.items():
            term = name.removesuffix("_replaced")
            if term == name or not 0 < share < 1:  # with nothing to detect there is nothing to lose
                continue
            loss, guessing = row[term], cost_of_guessing(share)
            if loss < (LOST if term in self.seen else LEARNED) * guessing:
                self.seen[term] = _Seen(int(row["step"]), loss)
            elif term in self.seen:
                self.seen[term].lost += 1
                if self.seen[term].lost >= ROWS:
                    raise Failed(self._sentence(term, row, guessing))

    def _sentence(self, term: str, row: Mapping[str, float], guessing: float) -> str:
        good = self.seen[term]
        saved = [path for path in checkpoint.all_steps(self.checkpoints) if int(path.name) <= good.step]
        return (
            f"{term} has diverged by step {int(row['step'])}: its loss is {row[term]:.4g} where guessing costs"
            f" {guessing:.4g}, after {good.loss:.4g} at step {good.step};"
            f" {f'the last good state is {saved[-1]}' if saved else 'no state from before is kept'};"
            " replaced-token detection that is continued at its original peak rate is known to diverge (XY-LENT,"
            f" Limitations), so try --set lr={self.lr / 5:.3g}, a fifth of this one, and another -o folder"
        )

    def dump(self) -> dict[str, Any]:
        """For a checkpoint: a run that goes on ends where it would have ended without a stop."""
        return {term: asdict(seen) for term, seen in self.seen.items()}

    def load(self, dumped: Mapping[str, Any]) -> None:
        self.seen = {term: _Seen(**seen) for term, seen in dumped.items()}


def cost_of_guessing(share: float) -> float:
    """The mean loss of always answering with the share of tokens that are replaced, in nats."""
    return -(share * math.log(share) + (1 - share) * math.log(1 - share))
