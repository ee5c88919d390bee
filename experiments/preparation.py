"""Measure the speed of `vocab` and `tokenize` by stage: MB/s per core, and hours for CC-100 on 64 cores.

    python experiments/preparation.py [--gigabytes 2.1] [--work FOLDER] [--results experiments/results]

Text is random words of three alphabets, in plain files, in .zst of many frames and in two sides of a bitext. Words are
Zipf-distributed. Seconds are CPU time of one process (user and system), so that other load changes little. The text is
removed at the end. Writes DATE-preparation.json.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crossling.core.files import write_json
from crossling.core.hardware import cpu_name
from crossling.core.jobs import Job, Share
from crossling.corpora.corpus import Corpora
from crossling.corpora.source_parts import source_parts
from crossling.data import tokenize as tokenize_module
from crossling.data.tokenize import tokenize
from crossling.vocabulary import text_sample
from crossling.vocabulary.vocabulary import Vocabulary

CC100_BYTES, CORES = 2.5e12, 64
ALPHABETS = {
    "en": "abcdefghijklmnopqrstuvwxyz",
    "ru": "абвгдежзийклмнопрстуфхцчшщыьэюя",
    "hi": "कखगघचछजझटठडढणतथदधनपबमयरलवशसहािीुे",
}
WORDS = 100_000  # of each language
LINES_AT_ONCE = 20_000
FRAME_LINES = 20_000
SAMPLE = 10_000_000  # characters
SIZE = 32_000  # vocabulary entries


class TextGenerator:
    """Random lines of one language."""

    def __init__(self, language: str) -> None:
        self.random = np.random.default_rng([ord(letter) for letter in language])
        letters = list(ALPHABETS[language])
        lengths = self.random.integers(2, 11, WORDS)
        self.words = np.array(["".join(self.random.choice(letters, length)) for length in lengths], dtype=object)
        weights = 1 / np.arange(10, WORDS + 10)
        self.limits = np.cumsum(weights / weights.sum())

    def lines(self, count: int) -> list[str]:
        """Return lines of 5 to 40 words."""
        lengths = self.random.integers(5, 41, count)
        ranks = np.searchsorted(self.limits, self.random.random(int(lengths.sum()))).clip(max=WORDS - 1)
        words = self.words[ranks].tolist()
        ends = np.cumsum(lengths).tolist()
        return [" ".join(words[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]


def write_text(folder: Path, size: float) -> int:
    """Write corpora of about `size` bytes of text, and return their exact number."""
    for kind in ("text", "pairs"):
        (folder / kind).mkdir(parents=True)
    plan = {
        "text/en.txt": 0.5,
        "text/ru.txt.zst": 0.2,
        "text/hi.txt": 0.15,
        "pairs/en-ru.en": 0.05,
        "pairs/en-ru.ru": 0.1,
    }
    total, rows = 0, 0
    for name, part in plan.items():
        generator = TextGenerator(name.split(".")[0][-2:] if name.startswith("text") else name[-2:])
        written = lines = 0
        with (folder / name).open("wb") as file:
            while lines < rows if name.endswith(".ru") else written < part * size:
                block = generator.lines(LINES_AT_ONCE)
                gap = "\n" if name.startswith("pairs") else "\n\n"
                raw = "".join(
                    f"{line}{gap if number % 20 == 19 else chr(10)}" for number, line in enumerate(block)
                ).encode()
                file.write(pa.compress(raw, codec="zstd", asbytes=True) if name.endswith(".zst") else raw)
                written, lines = written + len(raw), lines + LINES_AT_ONCE
        total, rows = total + written, lines
    return total


def measure(folder: Path, size: int) -> list[dict[str, Any]]:
    """Return a row for each stage: CPU seconds, MB/s and hours for CC-100."""
    corpora = Corpora(folder / "corpora")
    rows = []
    start = time.process_time()
    sample = text_sample.sample_corpora(corpora, folder / "sample", text_sample.SampleSettings(SAMPLE))
    assert sample is not None
    rows.append(stage("vocab: read", time.process_time() - start, size))
    vocabulary = Vocabulary.from_sample(sample, SIZE, threads=1, where=folder)
    vocabulary.save(folder / "vocab")
    run, seconds = tokenize_module.run_jobs, dict[str, float]()

    def timed(title: str, jobs: Sequence[Job], workers: int = 1, share: Share | None = None) -> None:
        start = time.process_time()
        run(title, jobs, workers, share)
        seconds[title] = time.process_time() - start

    tokenize_module.run_jobs = timed
    shards = tokenize(corpora, folder / "vocab", folder / "shards")
    rows += [stage(f"tokenize: {title}", value, size) for title, value in seconds.items()]
    rows[-1]["tokens"] = sum(entry["tokens"] for entry in shards.manifest["text"].values())
    return rows


def stage(name: str, seconds: float, size: int) -> dict[str, Any]:
    """Return the row of a stage. Joining is not divided by cores: the largest language is one job."""
    speed = size / seconds
    hours = CC100_BYTES / speed / 3600 / CORES
    row = {
        "stage": name,
        "cpu_seconds": round(seconds, 1),
        "mb_per_second": round(speed / 1e6, 1),
        "hours": round(hours, 2),
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.1)
    parser.add_argument("--work", type=Path, help="folder for the text [default: a temporary one]")
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        size = write_text(Path(work) / "corpora", options.gigabytes * 1e9)
        slices = {part.name: part.slices for part in source_parts(Corpora(Path(work) / "corpora"))}
        print(f"{size:,} bytes of text, slices: {slices}", flush=True)
        rows = measure(Path(work), size)
    result = {
        "device": cpu_name(),
        "command": f"python experiments/preparation.py --gigabytes {options.gigabytes}",
        "bytes": size,
        "slices": slices,
        "vocabulary": SIZE,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "rows": rows,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    file = options.results / f"{date.today()}-preparation.json"
    write_json(file, result)
    print(file)


if __name__ == "__main__":
    main()
