"""Measure how evenly processes share the tokens of a step, and what a step reads from disk with shuffle windows.

    python experiments/step_data.py

The steps are those of XLM-E Base: 2,048 blocks of text, or a million tokens of translation pairs. Lengths of sentences
and documents are log-normal. The text is a real file, which is not in the page cache when its first step is read. Linux
only. The result goes to experiments/results, and docs/research/scaling.md has its tables.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from crossling.core.files import write_json
from crossling.core.hardware import cpu_name
from crossling.data.balanced_parts import balanced_parts
from crossling.data.example_groups import ExampleGroup, FullTextGroup, PairGroup, TextGroup, example_lengths
from crossling.data.example_sampler import ExampleSampler
from crossling.data.shards import ArrayWriter, TokenizedBitext, TokenizedSentences, map_array

TOKENS = 1 << 20  # of a step
LENGTH = 512
PAIRS = 4000  # of each corpus
WORLD_SIZES = (64, 512)
WINDOWS = (None, 1 << 18, 1 << 20, 1 << 22)  # tokens of a shuffle window
STRETCH = 1 << 20  # tokens of a stretch of the corpus
NEAR = 4096  # tokens between two examples that may be of one document or site
STEPS = 16  # which read as many tokens as sixteen windows of 2^20 have


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpora", type=int, default=1015)
    parser.add_argument("--text", type=int, default=1 << 30, help="tokens of the text file")
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    parser.add_argument("--measure", nargs=2, metavar=("FILE", "WINDOW"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        file, window = arguments.measure
        print(json.dumps(measure_reads(Path(file), int(window) or None)))
        return
    balance = [
        row for name, groups in example_groups(arguments.corpora).items() for row in measure_balance(name, groups)
    ]
    reads = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        file = write_text(Path(folder), arguments.text)
        for window in WINDOWS:
            command = [sys.executable, __file__, "--measure", str(file), str(window or 0)]
            reads.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    rows = {"balance": balance, "reads": reads}
    file = arguments.results / f"{date.today()}-step-data.json"
    write_json(file, {"device": cpu_name(), "command": "python experiments/step_data.py", **rows})
    print(json.dumps(rows, indent=1), file, sep="\n")


def example_groups(corpora: int) -> dict[str, Sequence[ExampleGroup]]:
    """Return groups whose examples have lengths as those of real corpora. Their tokens are zeros."""
    rng = np.random.default_rng(0)
    documents_D = np.clip(rng.lognormal(np.log(16), 1.0, 40_000), 1, 4000).astype(np.int64)  # sentences
    sentence_lengths = np.clip(rng.lognormal(3.05, 0.6, documents_D.sum()), 3, 300).astype(np.int64)
    text = sentences(sentence_lengths, np.concatenate([[0], np.cumsum(documents_D)]))
    bitexts = []
    for number in range(corpora):
        center = rng.normal(3.15, 0.3)  # corpora of long sentences, and of short ones
        common_N = rng.normal(0.0, 0.6, PAIRS)
        sides = [np.exp(center + common_N + rng.normal(0.0, 0.2, PAIRS)) for _ in range(2)]
        source, target = (sentences(np.clip(side, 3, 400).astype(np.int64)) for side in sides)
        bitexts.append(
            TokenizedBitext(
                corpus=str(number), languages=("en", "de"), sides=(source, target), pairs=PAIRS, corpus_id=number
            )
        )
    return {
        f"pairs of {corpora:,} corpora": [PairGroup(each.corpus, each, 1.0, LENGTH) for each in bitexts],
        "blocks that stop at documents": [TextGroup("en", text, 1.0, LENGTH)],
        "full blocks": [FullTextGroup("en", text, 1.0, LENGTH)],
    }


def sentences(lengths: np.ndarray, documents: np.ndarray | None = None) -> TokenizedSentences:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return TokenizedSentences(np.broadcast_to(np.uint32(0), int(offsets[-1])), offsets, documents)


def measure_balance(name: str, groups: Sequence[ExampleGroup], steps: int = 8) -> list[dict[str, Any]]:
    """Return how far the largest process is above the mean, and the least CPU milliseconds of a step."""
    mean_length = float(np.mean([group.mean_length for group in groups]))
    number = TOKENS // LENGTH if isinstance(groups[0], FullTextGroup) else round(TOKENS / mean_length)
    sampler = ExampleSampler([1.0] * len(groups), [*map(len, groups)], examples_per_step=number, key=[0])
    rows = []
    for world_size in WORLD_SIZES:
        excess: dict[str, list[float]] = {"consecutive": [], "balanced": []}
        seconds: dict[str, list[float]] = {"sample_ms": [], "lengths_ms": [], "assign_ms": []}
        for step in range(steps):
            times = [time.process_time()]
            group_N, index_N = sampler[step]
            times.append(time.process_time())
            length_N = example_lengths(groups, group_N, index_N)
            times.append(time.process_time())
            parts = balanced_parts(length_N, world_size)
            times.append(time.process_time())
            for part, duration in zip(seconds, np.diff(times), strict=True):
                seconds[part].append(1000 * float(duration))
            for way, divided in (("consecutive", np.array_split(np.arange(number), world_size)), ("balanced", parts)):
                tokens = np.array([length_N[part].sum() for part in divided])
                excess[way].append(100 * float(tokens.max() / tokens.mean() - 1))
        percent = {f"{way}_percent": round(max(values), 3) for way, values in excess.items()}
        least = {part: round(min(values), 2) for part, values in seconds.items()}
        rows.append({"examples": name, "number": number, "world_size": world_size, **percent, **least})
    return rows


def write_text(folder: Path, tokens: int) -> Path:
    """Write a file of random tokens. A sparse file would be read from no disk."""
    file, rng = folder / "tokens.npy", np.random.default_rng(0)
    with ArrayWriter(file, np.uint32) as column:
        for start in range(0, tokens, 1 << 24):
            column.add(rng.integers(5, 250_000, min(1 << 24, tokens - start), dtype=np.uint32))
    with file.open("rb+") as written:
        os.fsync(written.fileno())
    return file


def measure_reads(file: Path, window: int | None) -> dict[str, Any]:
    """Read steps of one corpus from a cold file. Return what a step reads, and how its examples are mixed."""
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    tokens = map_array(file)
    group = FullTextGroup("en", TokenizedSentences(tokens, np.asarray([0, len(tokens)])), 1.0, LENGTH)
    order = [index_N for _, index_N in sampled_steps(len(group), window)]
    faults, read, start = page_faults(), bytes_read(), time.perf_counter()
    for index in np.concatenate(order).tolist():
        group.example(index)[0].sum()
    found = {
        "page_faults": sum(page_faults()) - sum(faults),
        "major_faults": page_faults()[1] - faults[1],
        "mib_read": (bytes_read() - read) / 2**20,
        "milliseconds": 1000 * (time.perf_counter() - start),
    }
    per_step = {name: round(value / STEPS, 1) for name, value in found.items()}
    return {"window": window, **per_step, **{f"{n}_corpora": measure_mixing(len(group), window, n) for n in (1, 100)}}


def sampled_steps(blocks: int, window: int | None, corpora: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the corpus and the block of each example of the first steps."""
    windows = None if window is None else [window // LENGTH] * corpora
    size = TOKENS // LENGTH
    sampler = ExampleSampler([1.0] * corpora, [blocks] * corpora, examples_per_step=size, key=[0], windows=windows)
    return [sampler[step] for step in range(STEPS)]


def measure_mixing(blocks: int, window: int | None, corpora: int) -> dict[str, float]:
    """Return how many stretches of a corpus a step reads, and how many of its examples have another one nearby."""
    stretches, near = [], []
    for group_N, index_N in sampled_steps(blocks, window, corpora):
        start_N = np.sort(group_N * (blocks + NEAR) * LENGTH + index_N * (LENGTH - 1))
        stretches.append(len(np.unique(start_N // STRETCH)))
        gaps = np.diff(start_N) < NEAR
        near.append(float((np.pad(gaps, (1, 0)) | np.pad(gaps, (0, 1))).mean()))
    return {"stretches": round(float(np.mean(stretches))), "near_percent": round(100 * float(np.mean(near)), 1)}


def page_faults() -> tuple[int, int]:
    """Return the page faults of this process so far: minor ones, and those that waited for a disk."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt, usage.ru_majflt


def bytes_read() -> int:
    """Return the bytes that this process had read from disks."""
    lines = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


if __name__ == "__main__":
    main()
