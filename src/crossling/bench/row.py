from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


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
    bench: str = ""  # that it is from
    path: str | None = None  # which way of ours was taken: fused kernels, compiled, or plain
    mfu: float | None = None  # share of what the device does in one large matrix product, measured in the same run
    peak_gib: float | None = None  # of the device's memory
    peer_peak_gib: float | None = None

    def dump(self) -> dict[str, Any]:
        """What `--json` prints: fields that do not apply are absent, but for the peer, which is null."""
        always = ("peer", "ratio")
        return {name: value for name, value in asdict(self).items() if name in always or value not in (None, "")}


def rate(work: Callable[[int], int], seconds: float) -> float:
    """Units a second of work(0), work(1), ..., each of which says how many units it did; the first does not count."""
    work(0)
    done, number, start = 0, 1, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += work(number)
        number += 1
    return done / (time.perf_counter() - start)
