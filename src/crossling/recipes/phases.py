"""Phases of a run: settings of masking and sampling that change at given steps.

A phase setting is `key=value@start`. Its value holds from that step on, until the next one of the same key. The start
is a step, or below 1 a fraction of the steps. mmBERT (Marone et al. 2025) lowers the masking rate and the exponents of
sampling in this way, and adds languages late:

    mlm.rate=0.15@0.6 mlm.rate=0.05@0.9 sampling.text_alpha=0.5@0.6 sampling.languages=de,en,sw@0.9

Only the data depend on these settings. The network and its loss are the same in all phases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from crossling.core.errors import BadInput

SAMPLING_KEYS = ("sampling.languages", "sampling.text_alpha", "sampling.pair_alpha")
_FORM = re.compile(r"(?P<key>(?P<part>\w+)\.(?P<name>\w+))=(?P<value>[^@=]+)@(?P<start>[0-9.eE+]+)")


@dataclass(frozen=True)
class PhaseSetting:
    """A setting from a step on."""

    text: str  # as given
    part: str  # objective, or `sampling`
    assignment: str  # `mlm.rate=0.15`
    start: float  # step, or below 1 a fraction of the steps

    def first_step(self, steps: int) -> int:
        """Return the first step of this value in a run of `steps` steps."""
        return round(self.start * steps) if self.start < 1 else round(self.start)


def is_phase_setting(assignment: str) -> bool:
    """Return True if an assignment has the form `key=value@start`, for a key that may change during a run."""
    match = _FORM.fullmatch(assignment)
    return match is not None and (match["key"] in SAMPLING_KEYS or match["name"] == "rate")


def read_phase_settings(phases: str | None) -> Iterator[PhaseSetting]:
    """Yield the settings in the value of `Recipe.phases`, in the order given.

    Raises:
        BadInput: If one has another form, or its key cannot change during a run.
    """
    for text in (phases or "").split():
        match = _FORM.fullmatch(text)
        if match is None or not is_phase_setting(text):
            keys = ", ".join(SAMPLING_KEYS)
            raise BadInput(f"phases: {text!r} is no phase setting. Give key=value@start for OBJECTIVE.rate, {keys}.")
        try:
            start = float(match["start"])
        except ValueError:
            raise BadInput(f"phases: {text} has no number after @. Give a step, or a fraction of the steps.") from None
        yield PhaseSetting(text, match["part"], text.rpartition("@")[0], start)


def phase_problems(phases: str | None, steps: int) -> Iterator[str]:
    """Yield settings of one key that start at the same step, each as a message."""
    earlier: dict[tuple[str, int], str] = {}
    for setting in read_phase_settings(phases):
        place = setting.assignment.partition("=")[0], setting.first_step(steps)
        if place in earlier:
            yield f"phases: {earlier[place]} and {setting.text} both start at step {place[1]} of {steps}. Change one."
        earlier[place] = setting.text


def add_phase_setting(phases: str | None, assignment: str) -> str:
    """Return the phases with one more setting, which replaces an earlier one of the same key and start."""

    def place(text: str) -> tuple[str, str]:
        return text.partition("=")[0], text.rpartition("@")[2]

    kept = [text for text in (phases or "").split() if place(text) != place(assignment)]
    return " ".join([*kept, assignment])
