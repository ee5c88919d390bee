"""Measure `crossling clean`: megabytes a second and core, memory, disk, and hours for a corpus of the size of CC-100.

    python experiments/cleaning.py [--gigabytes 2] [--results experiments/results]
    python experiments/cleaning.py --compare EARLIER/src --corpora CORPORA

Text is generated: lines of words from docs/. One in fifty is an exact copy of an earlier line, and one in fifty has one
word more. Time is that of the processor, in all processes, so that other work on the machine counts little. The
expensive rules are applied to a tenth of the text. `--compare` cleans one folder with the code of an earlier commit and
with this one, rule by rule and in turns. Writes DATE-cleaning.json or DATE-cleaning-rules.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crossling.core.files import write_json
from crossling.core.hardware import cpu_name

DOCS = Path(__file__).resolve().parents[1] / "docs"
SOURCE = Path(__file__).resolve().parents[1] / "src"
CC100_BYTES, CORES = 2.5e12, 64
LINES_PER_DOCUMENT = 20
RULE_SETS = {
    "length, duplicates": ["--length", "2:10000", "--duplicates"],
    "near duplicates": ["--near-duplicates"],
    "all": ["--all"],
}
SMALL = {"near duplicates": 0.1, "all": 0.1}  # part of the text on which expensive rules are measured
COMPARED = {
    "none but length": ["--length", "2:10000"],
    "language": ["--language"],
    "near copies": ["--near-copies"],
    "near duplicates": ["--near-duplicates"],
    "all": ["--all"],
}
TURNS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rules", nargs="+", choices=RULE_SETS, default=[*RULE_SETS])
    parser.add_argument("--compare", type=Path, metavar="SRC")
    parser.add_argument("--corpora", type=Path)
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    arguments = parser.parse_args()
    command = "python experiments/cleaning.py"
    if arguments.compare:
        name, command = "cleaning-rules", f"{command} --compare EARLIER/src --corpora CORPORA"
        rows = compare(arguments.compare, arguments.corpora)
    else:
        name, command = "cleaning", f"{command} --gigabytes {arguments.gigabytes} --workers {arguments.workers}"
        rows = measure(round(arguments.gigabytes * 1e9), arguments.workers, arguments.rules)
    file = arguments.results / f"{date.today()}-{name}.json"
    write_json(file, {"device": cpu_name(), "command": command, "rows": rows})
    print(file)


def measure(size: int, workers: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """Clean generated text with each of some sets of rules."""
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            corpora = Path(folder) / "corpora"
            written = write_text(corpora / "text" / "en.txt", round(size * SMALL.get(name, 1.0)))
            row = {"rules": name, "bytes": written, "workers": workers, **clean(corpora, RULE_SETS[name], workers)}
        speed = written / row["cpu_seconds"]
        rows.append(row | {"mb_per_second_and_core": speed / 1e6, "cc100_hours": CC100_BYTES / speed / CORES / 3600})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def compare(earlier: Path, corpora: Path) -> list[dict[str, Any]]:
    """Clean a folder with two versions of the code, in turns, and return the least times."""
    rows = []
    for name, options in COMPARED.items():
        turns = [
            [clean(corpora, options, 1, source)["cpu_seconds"] for source in (earlier, SOURCE)] for _ in range(TURNS)
        ]
        before, after = map(min, zip(*turns, strict=True))
        rows.append({"rules": name, "before": before, "after": after, "ratio": before / after})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def clean(corpora: Path, options: Sequence[str], workers: int, source: Path = SOURCE) -> dict[str, Any]:
    """Run the command in a new process. Return its processor time with that of its workers, and the largest memory."""
    with tempfile.TemporaryDirectory() as out:
        command = [
            sys.executable,
            "-m",
            "crossling",
            "clean",
            str(corpora),
            "-o",
            f"{out}/cleaned",
            "--workers",
            str(workers),
        ]
        environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen([*command, *options, "--json"], env=environment, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)  # of the process with all its workers
        assert status == 0
        report = json.loads(Path(out, "cleaned", "cleaning.json").read_text(encoding="utf-8"))
    return {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "max_rss_mib": usage.ru_maxrss / 1024,
        "read": sum(row["read"] for row in report["corpora"]),
        "kept": sum(row["kept"] for row in report["corpora"]),
    }


def write_text(file: Path, size: int) -> int:
    """Write about `size` bytes of lines, and return their number."""
    file.parent.mkdir(parents=True)
    lines, written = generate_lines(), 0
    with file.open("w", encoding="utf-8", newline="\n") as handle:
        while written < size:
            written += handle.write("\n".join(islice(lines, LINES_PER_DOCUMENT)) + "\n\n")
    return file.stat().st_size


def generate_lines(seed: int = 0) -> Iterator[str]:
    """Yield lines of words, with the frequencies that they have in the documentation."""
    words = re.findall(
        r"[A-Za-z]+[,.;]?", "\n".join(file.read_text(encoding="utf-8") for file in sorted(DOCS.rglob("*.md")))
    )
    rng, pool = np.random.default_rng(seed), np.array(words, dtype=object)
    copied: list[list[str]] = []
    while True:
        lengths, kinds = rng.integers(6, 36, 10_000).tolist(), rng.random(10_000).tolist()
        sampled, start = pool[rng.integers(0, len(pool), sum(lengths))].tolist(), 0
        for length, kind in zip(lengths, kinds, strict=True):
            line, start = sampled[start : start + length], start + length
            if kind < 0.04 and copied:
                line = copied[start % len(copied)]
                line = [*line[:3], "another", *line[3:]] if kind < 0.02 else line
            elif kind > 0.999 and len(copied) < 100_000:
                copied.append(line)
            yield " ".join(line)


if __name__ == "__main__":
    main()
