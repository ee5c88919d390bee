"""Measure the start of one training process on shards of the size of CC-100 and CCMatrix: seconds and memory.

    python experiments/scale.py [--tokens 300e9] [--languages 100] [--pairs 1015] [--results experiments/results]

Text is sparse files, which take no space on the disk. Pairs are few in number, but of as many language pairs. A new
process opens them, plans the batches of XLM-E Base, and reads two steps. Writes DATE-scale.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import date
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from crossling.core.files import write_json
from crossling.core.hardware import cpu_name
from crossling.data.shards import SHARD_FORMAT, Shards
from crossling.recipes import xlm_e
from crossling.recipes.network import make_batches

SENTENCE = 25  # tokens
ROWS = 10_000  # of each language pair
VOCABULARY = 250_002


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=float, default=300e9)
    parser.add_argument("--languages", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=1015)
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    rows = []
    for factor in (0.001, 1.0):
        with tempfile.TemporaryDirectory() as folder:
            write_shards(Path(folder), round(factor * arguments.tokens), arguments.languages, arguments.pairs)
            command = [sys.executable, __file__, "--measure", folder]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows.append({"tokens": factor * arguments.tokens, "pairs": arguments.pairs, **json.loads(found)})
        print(rows[-1])
    file = arguments.results / f"{date.today()}-scale.json"
    write_json(file, {"device": cpu_name(), "command": "python experiments/scale.py", "rows": rows})
    print(file)


def write_shards(folder: Path, tokens: int, languages: int, pairs: int) -> None:
    """Write the arrays of shards. Text consists of zeros."""
    codes = [f"{first}{second}" for first in "abcdefghij" for second in "klmnopqrst"][:languages]
    each = tokens // languages
    manifest: dict[str, Any] = {
        "format": SHARD_FORMAT,
        "fingerprint": "scale",
        "vocabulary": {"size": VOCABULARY, "fingerprint": "scale"},
        "text": {},
        "pairs": {},
        "multi": {},
    }
    for code in codes:
        place = folder / "text" / code
        place.mkdir(parents=True)
        for name, dtype, length in (
            ("tokens", "<u4", each),
            ("offsets", "<i8", each // SENTENCE + 1),
            ("documents", "<i8", each // (20 * SENTENCE) + 1),
        ):
            with (place / f"{name}.npy").open("wb") as file:
                npy.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": (length,)})
                file.truncate(file.tell() + np.dtype(dtype).itemsize * length)
        manifest["text"][code] = {"tokens": each, "sentences": each // SENTENCE, "documents": each // (20 * SENTENCE)}
    for one, other in islice(combinations(codes, 2), pairs):
        name = f"scale.{one}-{other}"
        place = folder / "pairs" / name
        place.mkdir(parents=True)
        for code in (one, other):
            np.save(place / f"{code}.tokens.npy", np.full(ROWS * SENTENCE, 5, dtype=np.uint32))
            np.save(place / f"{code}.offsets.npy", np.arange(0, (ROWS + 1) * SENTENCE, SENTENCE))
        manifest["pairs"][name] = {"languages": [one, other], "pairs": ROWS, "tokens": [ROWS * SENTENCE] * 2}
    write_json(folder / "manifest.json", manifest)


def measure(folder: Path) -> dict[str, float]:
    """Return seconds and memory of this process."""
    before, start = memory(), time.perf_counter()
    shards = Shards(folder, json.loads((folder / "manifest.json").read_text(encoding="utf-8")))
    batches = make_batches(xlm_e("base"), shards, rank=3, world_size=64)
    planned = time.perf_counter()
    batches[0]
    first = time.perf_counter()
    batches[1_000_000]
    after = memory()
    return {
        "plan_seconds": planned - start,
        "first_step_seconds": first - planned,
        "later_step_seconds": time.perf_counter() - first,
        "own_mib": after["RssAnon"] - before["RssAnon"],
        "mapped_mib": after["RssFile"] - before["RssFile"],
    }


def memory() -> dict[str, float]:
    """Return the memory of this process in MiB: its own, and pages of files."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return {name: int(values[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile")}


if __name__ == "__main__":
    main()
