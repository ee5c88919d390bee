"""The ways a command can end early, each with the one sentence that helps."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class BadInput(ValueError):
    """What the user gave cannot be used. The message is one sentence: where, what was expected, what to do.

    The command line prints it without a traceback and exits with status 2.
    """


class Failed(RuntimeError):
    """The work cannot go on, though the input was good. One sentence; the command line exits with status 1."""


class Interrupted(Exception):
    """The user stopped the work and nothing is lost. One sentence, or none in a process that is not to speak; the
    command line exits with status 130."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or the valid names when nothing is close and they are few, or nothing."""
    names = sorted(valid)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; valid: {', '.join(names)}" if 0 < len(names) <= 24 else ""
