"""Speed and memory of the parts, each beside another library (its peer), in one run on one machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from crossling.bench.bench_attention import attention_rows, head_rows
from crossling.bench.bench_bundled import bundled_rows
from crossling.bench.bench_data import data_rows
from crossling.bench.bench_encode import encode_rows, evaluate_rows
from crossling.bench.bench_runs import concurrent_run_rows
from crossling.bench.bench_start import start_rows
from crossling.bench.bench_step import fp8_rows, growth_rows, recipe_rows, step_rows, step_size_rows
from crossling.bench.workload import BenchRow, BenchSetup
from crossling.core.errors import BadInput, Failed, suggestion
from crossling.core.hardware import cpu_name

BENCHES: dict[str, Callable[[BenchSetup], Iterator[BenchRow]]] = {
    "step": step_rows,
    "step-sizes": step_size_rows,
    "fp8": fp8_rows,
    "recipes": recipe_rows,
    "attention": attention_rows,
    "head": head_rows,
    "data": data_rows,
    "encode": encode_rows,
    "evaluate": evaluate_rows,
    "bundled": bundled_rows,
    "growth": growth_rows,
    "start-up": start_rows,
    "runs-at-once": concurrent_run_rows,
}


def bench(
    names: Sequence[str] = (), corpora: str | os.PathLike[str] | None = None, size: str | None = None
) -> Iterator[BenchRow]:
    """Measure speed and memory beside other libraries.

    A measurement that fails gives a warning and is skipped.

    Args:
        names: Benchmarks to run. [default: all of `BENCHES`]
        corpora: Text for the benchmark `data`. [default: synthetic languages]
        size: Model size. [default: base on a GPU, smaller than tiny on a CPU]

    Yields:
        One row for each measurement.

    Raises:
        BadInput: If a name or size is unknown.
        Failed: At the end, if a measurement failed.

    Example:
        >>> rows = list(bench(["attention"]))  # doctest: +SKIP
    """
    for name in names:
        if name not in BENCHES:
            raise BadInput(f"{name}: no such benchmark{suggestion(name, BENCHES)}")
    return _rows(names or [*BENCHES], BenchSetup.of(size, Path(corpora) if corpora else None))


def _rows(names: Sequence[str], at: BenchSetup) -> Iterator[BenchRow]:
    for name in names:
        device = cpu_name() if name in ("data", "bundled") else at.device_name
        rows = BENCHES[name](at)
        while (row := at.catch(f"bench {name}", next, rows, None)) is not None:  # until it fails or ends
            yield replace(row, bench=name, device=device)
    if at.failed:
        raise Failed(f"these measurements failed: {', '.join(at.failed)}. All others succeeded.")


__all__ = ["BENCHES", "BenchRow", "bench"]
