"""Everything that decides how a translator is trained and chosen, but for the data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from crossling import settings
from crossling.errors import BadInput

AT_LEAST: dict[str, float] = {
    **dict.fromkeys(("tokens", "average", "patience", "beam", "dev_beam", "dev_rows", "decoder_layers", "steps"), 1),
    **dict.fromkeys(("checkpoint_every", "log_every", "micro_tokens"), 1),
    **dict.fromkeys(("seed", "warmup", "weight_decay", "label_smoothing", "dropout"), 0),
    "length": 8,
}
BELOW_1 = ("label_smoothing", "dropout")
MORE_THAN_0 = ("lr", "epochs", "clip")
# Of a folder's settings: not what is learned, or how it is chosen. Nor does a run that goes on have to repeat them.
MAY_CHANGE = ("seed", "log_every", "micro_tokens", "beam", "length_penalty")


@dataclass(frozen=True)
class Plan:
    lr: float = 5e-4  # peak
    epochs: float = 10
    steps: int | None = None  # in place of epochs
    tokens: int = 8192  # of a step: of each pair of sentences the longer side, over all processes
    length: int = 256  # tokens of a sentence; pairs with a longer one are left out of training
    warmup: float = 0.1  # steps; below 1: that share of all steps
    weight_decay: float = 0.01
    clip: float = 1.0
    label_smoothing: float = 0.1  # VECO's released script: 0.2
    dropout: float | None = None  # as the model has it, if not said; VECO's released script: 0.3
    decoder_layers: int | None = None  # all, if not said
    take: Literal["first", "last"] | None = None  # which layers a shallow decoder is made of; the last, if not said
    tied: bool | None = None  # whether decoder and encoder go on sharing what they began with; they do, if not said
    average: int = 5  # the last states, of which the model is the mean; or the best one, if that is better on dev
    patience: int | None = None  # so many looks at dev without a better score end the training
    dev_rows: int = 200  # of each direction, to look at while it trains
    dev_beam: int = 1
    beam: int = 5  # of the scores on the test sets
    length_penalty: float = 1.0
    seed: int = 0  # the first
    checkpoint_every: int | None = None  # steps between two states, each scored on dev; a tenth of all if not said
    log_every: int = 50
    micro_tokens: int = 16_384  # computed at once, source and target, padding included: a matter of memory

    @classmethod
    def of(cls, assignments: Iterable[str] = ()) -> Plan:
        """`key=value` differences, strictly."""
        plan = cls()
        for assignment in assignments:
            plan = settings.changed(plan, assignment)
        plan.check()
        return plan

    def check(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if value is None:
                continue
            if name in AT_LEAST and value < AT_LEAST[name]:
                raise BadInput(f"--set {name}={value}: expected at least {AT_LEAST[name]:g}")
            if name in MORE_THAN_0 and value <= 0:
                raise BadInput(f"--set {name}={value}: expected more than 0")
            if name in BELOW_1 and value >= 1:
                raise BadInput(f"--set {name}={value}: expected less than 1")

    @property
    def hyper(self) -> dict[str, Any]:
        """What decides what is learned and chosen, whatever the seed."""
        return {name: value for name, value in asdict(self).items() if name not in MAY_CHANGE}
