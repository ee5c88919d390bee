"""Where the benches measure and at which size: XLM-E Base on a GPU, a few milliseconds' worth on a CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from crossling.bench.clock import Speed, Timing, fresh, timed
from crossling.bench.row import Row
from crossling.errors import BadInput, nearest
from crossling.hardware import device_name
from crossling.model.attention import fused
from crossling.model.shape import SIZES, Shape
from crossling.progress import say

T = TypeVar("T")
CPU_SHAPE = Shape(layers=2, width=64, heads=2, feed_forward=128, generator_layers=1)
# Pieces and tokens of a sequence that a size is made for.
VOCABULARY = {"tiny": 4_000, "small": 32_000}
LENGTH = {"tiny": 128, "small": 256}


@dataclass(frozen=True)
class Setting:
    device: torch.device
    shape: Shape
    vocabulary: int
    length: int  # tokens of a sequence
    batches: tuple[int, ...]  # sequences of a step, each tried
    warmup: int  # runs that are not timed: they compile, and fill caches
    times: int  # runs that are; the median counts
    matrix: int  # side of the matrix product that stands for what the device can do
    corpora: Path | None = None  # text to measure on, where a bench reads text
    failed: list[str] = field(default_factory=list)  # what could not be measured

    @classmethod
    def of(cls, size: str | None = None, corpora: Path | None = None) -> Setting:
        """On the GPU if there is one. The size is base there and less than tiny on a CPU, if not said."""
        if size is not None and size not in SIZES:
            raise BadInput(f"--size {size}: there is no such size{nearest(size, SIZES)}")
        gpu = torch.cuda.is_available()
        size = "base" if gpu and size is None else size
        return cls(
            torch.device("cuda" if gpu else "cpu"),
            shape=SIZES[size] if size else CPU_SHAPE,
            vocabulary=VOCABULARY.get(size, 250_002) if size else 1000,
            length=LENGTH.get(size, 512) if size else 64,
            batches=(64, 256) if gpu else (4, 8),
            warmup=4 if gpu else 1,
            times=12 if gpu else 3,
            matrix=8192 if gpu else 512,
            corpora=corpora,
        )

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def device_name(self) -> str:
        return device_name(self.device)

    @property
    def dtype(self) -> torch.dtype:
        """What matrices are multiplied in."""
        return torch.bfloat16 if self.on_gpu else torch.float32

    @property
    def path(self) -> str:
        """Which way our networks take here."""
        kernels = fused(self.device, self.dtype, self.shape.width // self.shape.heads)
        return "fused kernels" if kernels else "plain torch"

    @property
    def matmul(self) -> float:
        """Operations a second in one large product of random matrices: what MFU is a share of. Measured once."""
        return _matmul(self.device, self.matrix, self.dtype)

    def timed(self, work: Callable[[], object], times: int | None = None, recorded: bool = False) -> Timing:
        return timed(work, self.device, self.warmup, times or self.times, recorded)

    def tried(self, what: str, measure: Callable[[], T]) -> T | None:
        """What was measured, on a device that is free, and said before; or nothing, and why in one line, so that one
        that cannot be measured ends no others."""
        say(f"bench: {what}")
        if self.on_gpu:
            fresh()
        return self.caught(what, measure)

    def caught(self, what: str, measure: Callable[[], T]) -> T | None:
        try:
            return measure()
        except BadInput:
            raise
        except Exception as error:  # of compilers, drivers and peers, each with errors of its own
            reason = (str(error).strip().splitlines() or [""])[0][:300]
            warnings.warn(f"{what} could not be measured: {type(error).__name__}: {reason}", stacklevel=2)
            self.failed.append(what)
            return None

    def ms(self, name: str, ours: Timing, peer: Timing | None, peer_name: str, mfu: float) -> Row:
        """Milliseconds beside the peer's: less is better."""
        return Row(
            name,
            ours.seconds * 1e3,
            peer.seconds * 1e3 if peer else None,
            peer.seconds / ours.seconds if peer else None,
            "ms",
            self.device_name,
            peer_name,
            path=self.path,
            mfu=mfu,
            peak_gib=ours.peak_gib,
            peer_peak_gib=peer.peak_gib if peer else None,
        )

    def tokens(self, name: str, ours: Speed, peer: Speed | None = None, peer_name: str = "") -> Row:
        """Tokens a second beside the peer's: more is better."""
        return Row(
            name,
            ours.tokens,
            peer.tokens if peer else None,
            ours.tokens / peer.tokens if peer else None,
            "tokens/s",
            self.device_name,
            peer_name,
            path=ours.path,
            mfu=ours.mfu,
            peak_gib=ours.peak_gib,
            peer_peak_gib=peer.peak_gib if peer else None,
        )


@cache
def _matmul(device: torch.device, side: int, dtype: torch.dtype) -> float:
    one, other = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 / timed(lambda: one @ other, device, 5, 20).seconds
