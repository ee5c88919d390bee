"""Progress on standard error: a bar on a terminal, one line every 15 seconds elsewhere."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn
from rich.progress import Progress as Bar

T = TypeVar("T")

LOG_INTERVAL = 15.0  # seconds between two lines without a terminal
command_started: float | None = None  # time.perf_counter() at the start of the command line, if this is one


class Progress:
    """Progress bar of one loop.

    Args:
        title: Name of the loop, shown before the bar.
        total: Number of items.
        done: Items that were done before the loop started. They do not count for the ETA.
        enabled: Print nothing if False.

    Example:
        >>> with Progress("pretrain", total=100) as progress:
        ...     progress.update(1, "mlm 4.2")
    """

    def __init__(self, title: str, total: int, done: int = 0, *, enabled: bool = True) -> None:
        self.title, self.total, self.enabled = title, total, enabled
        self.done = self.first = done
        self.started = self.logged = time.monotonic()
        console = Console(stderr=True)
        fields = "{task.fields[note]}", "{task.fields[eta]}"
        bar = Bar("[bold]{task.description}", BarColumn(bar_width=24), MofNCompleteColumn(), *fields, console=console)
        self.task = bar.add_task(title, total=total, completed=done, note="", eta="")
        self.bar = bar if enabled and console.is_terminal else None

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self.bar:
            self.bar.stop()

    def update(self, done: int, note: str = "", eta: float | None = None) -> None:
        """Set the number of items done. `eta` (seconds) replaces the estimate from the mean time per item."""
        self.done = done
        now = time.monotonic()
        time_note = self._time_note(done, now, eta)
        if self.bar:
            self.bar.update(self.task, completed=done, note=note, eta=time_note)
        elif self.enabled and (now - self.logged >= LOG_INTERVAL or done == self.total):
            self.logged = now
            print_status("  ".join(filter(None, [f"{self.title} {done}/{self.total}", note, time_note])))

    def _time_note(self, done: int, now: float, eta: float | None) -> str:
        """Return the ETA; after one item no estimate, since the first is slow; at the end the time that it took."""
        if done >= self.total:
            return f"in {format_duration(now - self.started)}"
        if eta is None:
            if done - self.first < 2:
                return ""
            eta = (now - self.started) / (done - self.first) * (self.total - done)
        return f"ETA {format_duration(eta)}"

    def advance(self, count: int, note: str = "") -> None:
        """Add `count` items to those done."""
        self.update(self.done + count, note)


def track(title: str, items: Sequence[T], name: Callable[[T], str] = str) -> Iterator[T]:
    """Yield the items under a progress bar that shows their names."""
    with Progress(title, len(items)) as progress:
        for done, item in enumerate(items, start=1):
            yield item
            progress.update(done, name(item))


def print_status(line: str) -> None:
    """Print a line on standard error. Standard output is for results."""
    print(line, file=sys.stderr, flush=True)


def format_duration(seconds: float) -> str:
    """Format seconds: `12 s`, `1 min 15 s`, `1 h 2 min`, `7.4 days`."""
    if seconds >= 86_400:
        return f"{seconds / 86_400:,.1f} days"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def format_count(number: float) -> str:
    """Format a number with a suffix: 2000 as `2k`, 1500000 as `1.5M`."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:.4g}{name}"
    return f"{number:.4g}"


class TruncationCounter:
    """Truncated inputs of one dataset, by kind of truncation and by language."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.language = ""  # current language of the dataset
        self.counts: dict[str, list[tuple[str, int, int]]] = {}  # by description: language, truncated, total

    def add(self, truncated: int, total: int, description: str) -> None:
        """Count a batch of inputs of the current language."""
        self.counts.setdefault(description, []).append((self.language, truncated, total))

    def warn(self) -> None:
        """Issue one warning per kind of truncation."""
        for description, counts in self.counts.items():
            languages = ", ".join(dict.fromkeys(language for language, *_ in counts if language))
            where = f"{self.name} ({languages})" if languages else self.name
            truncated, total = sum(count for _, count, _ in counts), sum(count for _, _, count in counts)
            warnings.warn(f"{where}: {_message(truncated, total, description)}", stacklevel=4)


_counters: list[TruncationCounter] = []  # the innermost is the last


@contextmanager
def count_truncations(name: str) -> Iterator[TruncationCounter]:
    """Collect the truncations of a block and warn once at its end, under the name of the dataset."""
    counter = TruncationCounter(name)
    _counters.append(counter)
    try:
        yield counter
    finally:
        _counters.remove(counter)
        counter.warn()


def record_truncation(truncated: int, total: int, description: str) -> None:
    """Add to the current counter, or warn at once if there is none.

    Args:
        truncated: Number of truncated inputs.
        total: Number of inputs.
        description: Text that follows the numbers, such as "inputs are longer than 128 tokens; truncated at the end".
    """
    if not truncated:
        return
    if _counters:
        _counters[-1].add(truncated, total, description)
    else:
        warnings.warn(_message(truncated, total, description), stacklevel=4)


def _message(truncated: int, total: int, description: str) -> str:
    return f"{truncated:,} of {total:,} {description}"
