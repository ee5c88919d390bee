"""Device and size of the benchmarks: XLM-E Base on a GPU, a tiny model on a CPU."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, ParamSpec, TypeVar

import torch

from crossling.core.errors import BadInput, suggestion
from crossling.core.hardware import device_name
from crossling.core.progress import print_status
from crossling.model.attention import uses_attention_kernel
from crossling.model.model_shape import SIZES, ModelShape

T = TypeVar("T")
P = ParamSpec("P")
LESS_IS_BETTER = ("ms", "s", "%")  # units


@dataclass(frozen=True)
class Timing:
    """Time and memory of one workload."""

    seconds: float  # median
    peak_gib: float | None  # None on a CPU


@dataclass(frozen=True)
class Measurement:
    """Figure of one side of a row."""

    value: float
    unit: str  # ms, or tokens/s: real tokens of training steps
    peak_gib: float | None
    mfu: float | None = None
    path: str | None = None  # code path of ours
    host: float | None = None  # time until the host has launched the work, relative to the time of the work


def time_work(
    work: Callable[[], object], device: torch.device, warmup: int, times: int, as_graph: bool = False
) -> Timing:
    """Run `work` `warmup` times, then time it `times` times.

    On a GPU, events on the device time each run, and the host runs ahead as in training. Work that is too short for
    this is captured `as_graph` and replayed.
    """
    for number in range(warmup):
        if device.type == "cuda" and number == 1:  # the second run may capture a graph; replays allocate nothing
            torch.cuda.reset_peak_memory_stats(device)
        work()
    if device.type != "cuda":
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
        return Timing(median(seconds), None)
    torch.cuda.synchronize(device)
    if as_graph:  # a graph has its own memory pool: measure the memory of a plain run
        work()
        peak = torch.cuda.max_memory_allocated(device)
        work = _capture_graph(work)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize(device)
    between = [start.elapsed_time(end) / 1e3 for start, end in pairwise(events)]
    return Timing(median(between), (peak if as_graph else torch.cuda.max_memory_allocated(device)) / 2**30)


def _capture_graph(work: Callable[[], object]) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def free_memory() -> None:
    """Free GPU memory and compiled code of earlier work.

    After eight shapes of one function the compiler would silently stop compiling it.
    """
    gc.collect()
    torch.compiler.reset()
    torch.cuda.empty_cache()


@dataclass(frozen=True)
class BenchRow:
    """One figure of ours beside that of a peer.

    The ratio is above 1 where ours is better. For memory on ten times the corpus it is the growth. Without a peer it is
    None.
    """

    name: str
    ours: float
    peer: float | None
    ratio: float | None = field(init=False)
    unit: str
    device: str = ""  # `bench` adds it
    peer_name: str = ""
    bench: str = ""  # name of the benchmark, added by `bench`
    path: str | None = None  # code path of ours: fused kernels, compiled or plain
    mfu: float | None = None  # relative to one large matrix product in the same run
    host: float | None = None  # time of the host in a step, relative to the step; near 1: the device waits for it
    peak_gib: float | None = None  # device memory
    peer_peak_gib: float | None = None

    def __post_init__(self) -> None:
        ratio = None
        if self.peer is not None:
            ratio = self.peer / self.ours if self.unit in LESS_IS_BETTER else self.ours / self.peer
        object.__setattr__(self, "ratio", ratio)

    def dump(self) -> dict[str, Any]:
        """Return the JSON of `--json`. Fields that do not apply are absent, except a missing peer, which is null."""
        always = ("peer", "ratio")
        return {name: value for name, value in asdict(self).items() if name in always or value not in (None, "")}


def compare(name: str, ours: Measurement, peer: Measurement | None = None, peer_name: str = "") -> BenchRow:
    """Return the row of our measurement beside that of a peer."""
    return BenchRow(
        name,
        ours.value,
        peer.value if peer else None,
        ours.unit,
        peer_name=peer_name,
        path=ours.path,
        mfu=ours.mfu,
        host=ours.host,
        peak_gib=ours.peak_gib,
        peer_peak_gib=peer.peak_gib if peer else None,
    )


def throughput(work: Callable[[int], int], seconds: float) -> float:
    """Return units per second of work(0), work(1), ..., which return their units. The first call is warm-up."""
    work(0)
    done, number, start = 0, 1, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += work(number)
        number += 1
    return done / (time.perf_counter() - start)


CPU_SHAPE = ModelShape(layers=2, width=64, heads=2, feed_forward=128, generator_layers=1)
# Vocabulary size and sequence length of the small sizes.
VOCABULARY = {"tiny": 4_000, "small": 32_000}
LENGTH = {"tiny": 128, "small": 256}


@dataclass(frozen=True)
class BenchSetup:
    """Device, model shape and repetitions of the benchmarks."""

    device: torch.device
    shape: ModelShape
    vocabulary: int
    length: int  # tokens per sequence
    batches: tuple[int, ...]  # sequences per step
    warmup: int  # untimed runs, which compile and fill caches
    times: int  # timed runs; the median counts
    matrix: int  # size of the reference matrix product
    corpora: Path | None = None  # text for the benchmark `data`
    failed: list[str] = field(default_factory=list)  # names of failed measurements

    @classmethod
    def of(cls, size: str | None = None, corpora: Path | None = None) -> BenchSetup:
        """Return the setup for the GPU, if there is one. [default size: base on a GPU, smaller than tiny on a CPU]"""
        if size is not None and size not in SIZES:
            raise BadInput(f"size={size}: no such size{suggestion(size, SIZES)}")
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
        """Data type of matrix products."""
        return torch.bfloat16 if self.on_gpu else torch.float32

    @property
    def path(self) -> str:
        """Code path of our networks on this device."""
        kernels = uses_attention_kernel(self.device, self.dtype, self.shape.width // self.shape.heads)
        return "fused kernels" if kernels else "plain torch"

    @property
    def matmul(self) -> float:
        """FLOP/s of one large matrix product, the reference of MFU. Computed once."""
        return _matmul(self.device, self.matrix, self.dtype)

    def time(self, work: Callable[[], object], times: int | None = None, as_graph: bool = False) -> Timing:
        """Time `work` on the device of the setup."""
        return time_work(work, self.device, self.warmup, times or self.times, as_graph)

    def try_measure(self, what: str, measure: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Measure with free device memory, or warn and return None, so that one failure does not stop the others."""
        print_status(f"bench: {what}")
        if self.on_gpu:
            free_memory()
        return self.catch(what, measure, *args, **kwargs)

    def catch(self, what: str, measure: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call `measure`, or warn about its error and return None."""
        try:
            return measure(*args, **kwargs)
        except BadInput:
            raise
        except Exception as error:  # compilers, drivers and peers raise errors of many types
            reason = (str(error).strip().splitlines() or [""])[0][:300]
            warnings.warn(f"{what} failed: {type(error).__name__}: {reason}", stacklevel=2)
            self.failed.append(what)
            return None

    def milliseconds(self, timing: Timing, operations: float) -> Measurement:
        """Return the time of work of so many FLOPs."""
        mfu = operations / timing.seconds / self.matmul
        return Measurement(timing.seconds * 1e3, "ms", timing.peak_gib, mfu, path=self.path)


@cache
def _matmul(device: torch.device, side: int, dtype: torch.dtype) -> float:
    one, other = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 / time_work(lambda: one @ other, device, 5, 20).seconds
