"""What a person sees while a run goes on: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

T = TypeVar("T")

QUIET_SECONDS = 15.0  # between two lines where there is no terminal


class Progress:
    """`with Progress("pretrain", total) as progress: progress.update(done, "mlm 4.2")`"""

    def __init__(self, title: str, total: int, done: int = 0, shown: bool = True) -> None:
        self.title, self.total, self.first, self.shown = title, total, done, shown
        self.started = self.spoken = time.monotonic()
        console = Console(stderr=True)
        self.bar = (
            Bar(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TextColumn("{task.fields[left]}"),
                console=console,
            )
            if shown and console.is_terminal
            else None
        )
        self.task = self.bar.add_task(title, total=total, completed=done, note="", left="") if self.bar else None

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self.bar:
            self.bar.stop()

    def update(self, done: int, note: str, left: float | None = None) -> None:
        """`left`, in seconds, is for those who know it better than by what the whole so far took."""
        now = time.monotonic()
        if left is None:
            left = (now - self.started) / max(1, done - self.first) * (self.total - done)
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=done, note=note, left=f"{duration(left)} left")
        elif self.shown and (now - self.spoken >= QUIET_SECONDS or done == self.total):
            self.spoken = now
            say(f"{self.title} {done}/{self.total}  {note}  {duration(left)} left")


class Counted(Progress):
    """For work that is done in parts, here and there: it knows how much there is by now."""

    done = 0

    def add(self, more: int, note: str = "") -> None:
        self.done += more
        self.update(self.done, note)


def watched(title: str, things: Sequence[T], name: Callable[[T], str]) -> Iterator[T]:
    """Each of them, under a bar."""
    with Progress(title, len(things)) as progress:
        for done, each in enumerate(things, start=1):
            yield each
            progress.update(done, name(each))


def say(line: str) -> None:
    """Beside what is printed as a result."""
    print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    if seconds >= 86_400:
        return f"{seconds / 86_400:,.1f} days"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
