"""Errors with a message for the user. The command line prints the message without a traceback."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class BadInput(ValueError):
    """Input that cannot be used. The command line exits with status 2.

    The message names the place, the problem with the value found, and the fix.

    Example:
        >>> raise BadInput("alpha=3: expected a number from 0 to 1.")
    """


class Failed(RuntimeError):
    """Work that cannot continue although the input was valid. The command line exits with status 1.

    Example:
        >>> raise Failed("the loss is not finite at step 300. Lower the learning rate and resume.")
    """


class Interrupted(Exception):
    """Work that the user stopped and that can be resumed. The command line exits with status 130.

    The message is empty in every process but the main one, so that it is printed once.

    Example:
        >>> raise Interrupted("stopped at step 300. Run the same command again to resume.")
    """


@contextmanager
def prefix_errors(where: object) -> Iterator[None]:
    """Put `where` in front of the message of a BadInput."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def shorten(value: object, limit: int = 80) -> str:
    """Return a value as text for an error message, cut after `limit` characters."""
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def first_line(error: Exception) -> str:
    """Return the first line of an error message, or the type of an error without a message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def import_package(module: str, where: object, extra: str = "data") -> Any:
    """Import a module of an optional package.

    Args:
        module: Module, such as `pyarrow.parquet`.
        where: Start of the error message: what needs the package.
        extra: Extra of crossling that has the package.

    Raises:
        BadInput: If the package is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise BadInput(
            f"{where}: needs the package {package}. Install it with `pip install crossling[{extra}]`."
        ) from None


def suggestion(name: str, valid: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for an unknown name.

    Returns the valid names if none is similar and there are at most 24 of them, else an empty string.
    """
    names = sorted(valid)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; valid: {', '.join(names)}" if 0 < len(names) <= 24 else ""
