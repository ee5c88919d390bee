"""The choices of an adaptation: one value, which is printed with its reasons, changed by the user, and stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

from crossling.core import settings
from crossling.core.errors import BadInput
from crossling.core.settings import AT_LEAST_0, AT_LEAST_1, POSITIVE

OBJECTIVES = ("mlm", "tlm", "xlco", "distillation")
ALIASES = {  # conventional names
    **{"learning_rate": "lr", "batch_size": "pairs", "max_steps": "steps", "num_train_epochs": "epochs"},
    **{"max_length": "length", "lora_rank": "lora", "sampling.focus": "focus", "sampling.replay": "replay"},
    **{"model.architecture": "architecture", "optimizer.matrices": "matrices"},
}


@dataclass(frozen=True, kw_only=True)
class AdaptSettings:
    """Choices of one adaptation. Each can be set; settings of a recipe such as `xlco.temperature` can be set as well.

    Args:
        focus: Languages to learn, as codes separated by commas.
        architecture: Train in crossling's architecture, or in that of the Hugging Face model.
        entries: Vocabulary entries to add.
        objectives: Objectives, separated by commas: mlm, tlm, xlco, distillation.
        replay: Part of the examples that are in the languages to keep, if the user names text of them.
        epochs: How often the new text is read.
        steps: Optimizer steps.
        lr: Peak learning rate.
        matrices: Optimizer of the weight matrices of the layers: adam, or muon.
        pairs: Translation pairs in a step.
        tokens: Tokens of masked text in a step.
        tlm_tokens: Tokens of masked translation pairs in a step.
        length: Longest sentence pair, and longest block of text, in tokens.
        lora: Rank of the LoRA matrices. 0 trains all weights.
    """

    focus: str
    architecture: Literal["crossling", "native"]
    entries: Annotated[int, AT_LEAST_0]
    objectives: str
    replay: Annotated[float, AT_LEAST_0]
    epochs: Annotated[float, POSITIVE]
    steps: Annotated[int, AT_LEAST_1]
    lr: Annotated[float, POSITIVE]
    matrices: Literal["adam", "muon"]
    pairs: Annotated[int, AT_LEAST_1]
    tokens: Annotated[int, AT_LEAST_1]
    tlm_tokens: Annotated[int, AT_LEAST_1]
    length: Annotated[int, AT_LEAST_1]
    lora: Annotated[int, AT_LEAST_0] = 0

    def has(self, objective: str) -> bool:
        """Return True if an objective is on."""
        return objective in self.objectives.split(",")

    def check(self) -> None:
        """Raise BadInput if a value is out of its bounds."""
        settings.check_bounds(self, "adapt")
        unknown = set(self.objectives.split(",")) - {*OBJECTIVES}
        if unknown or not self.objectives:
            raise BadInput(f"objectives={self.objectives}: expected some of {', '.join(OBJECTIVES)}.")


@dataclass
class Choices:
    """Settings while they are chosen: values and reasons, where the user's values come first."""

    given: dict[str, str]  # by name, as text
    values: dict[str, object] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def choose(self, name: str, value: object, reason: str) -> None:
        """Set a value with its reason, unless the user has set it."""
        self.values[name] = value
        self.reasons[name] = "as requested" if name in self.given else reason
        if name in self.given:
            self.values[name] = settings.parse_value(AdaptSettings, name, self.given[name])

    def finish(self) -> AdaptSettings:
        """Return the settings."""
        chosen = AdaptSettings(**self.values)  # type: ignore[arg-type]
        chosen.check()
        return chosen


def split_assignments(assignments: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values of our own settings by name, and the settings of the recipe."""
    names = {each.name for each in fields(AdaptSettings)}
    own: dict[str, str] = {}
    others: list[str] = []
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise BadInput(f"set: found {assignment!r}. Settings have the form key=value, such as epochs=5.")
        key = ALIASES.get(key, key)
        if key in names:
            own[key] = value
        else:
            others.append(assignment)
    return own, others
