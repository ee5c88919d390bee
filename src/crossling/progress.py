"""What a person sees while a run goes on: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

QUIET_SECONDS = 15.0  # between two lines where there is no terminal


class Progress:
    """`with Progress("pretrain", total) as progress: progress.update(done, "mlm 4.2")`"""

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        self.title, self.total, self.first = title, total, done
        self.started = self.spoken = time.monotonic()
        console = Console(stderr=True)
        self.bar = (
            Bar(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(compact=True),
                console=console,
            )
            if console.is_terminal
            else None
        )
        self.task = self.bar.add_task(title, total=total, completed=done, note="") if self.bar else None

    def __enter__(self) -> Progress:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self.bar:
            self.bar.stop()

    def update(self, done: int, note: str) -> None:
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=done, note=note)
            return
        now = time.monotonic()
        if now - self.spoken >= QUIET_SECONDS or done == self.total:
            self.spoken = now
            left = (now - self.started) / max(1, done - self.first) * (self.total - done)
            print(f"{self.title} {done}/{self.total}  {note}  {left:.0f} s left", file=sys.stderr, flush=True)
