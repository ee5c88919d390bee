from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure of ours beside the peer's. The ratio is how many times better ours is (for memory at ten times the
    corpus: how many times more it is); none without a peer."""

    name: str
    ours: float
    peer: float | None
    ratio: float | None
    unit: str
    device: str
    peer_name: str = ""


def processor() -> str:
    """What figures of one core were measured on."""
    return f"CPU, {os.cpu_count()} cores ({platform.machine()})"


def rate(work: Callable[[int], int], seconds: float) -> float:
    """Units a second of work(0), work(1), ..., each of which says how many units it did; the first does not count."""
    work(0)
    done, number, start = 0, 1, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += work(number)
        number += 1
    return done / (time.perf_counter() - start)
