"""Measure the data of one process that trains a translator on shards of the size of WMT14: seconds and memory.

    python experiments/translation_scale.py [--pairs 40e6] [--results experiments/results]

Sentence lengths are random. Token ids are sparse files, which take no space on the disk. Two processes, one after the
other, open the shards, plan the batches of VECO's preset for WMT14 en-fr, and read their part of the steps of two
megabatches. The second finds the pages of the files in memory. Writes DATE-translation-scale.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from crossling.core.files import write_json
from crossling.core.hardware import cpu_name
from crossling.data.shards import SHARD_FORMAT, ArrayWriter, Shards
from crossling.finetune.finetune_settings import TRANSLATION_PRESETS
from crossling.finetune.translation.parallel_text import parse_directions
from crossling.finetune.translation.translation_batches import TranslationBatches
from crossling.finetune.translation.translation_pairs import DirectedBitext, TranslationPairs

PRESET = "veco-wmt14-en-fr"
DIRECTIONS = parse_directions("en-fr,fr-en")
MEAN_LENGTH = 30  # tokens of a sentence
VOCABULARY = 250_002
LATER_STEP = 90_000
WORLD_SIZE = 8
CHUNK = 1 << 20  # pairs that are generated together


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=float, default=40e6)
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    rows = []
    for factor in (0.01, 1.0):
        pairs = round(factor * arguments.pairs)
        with tempfile.TemporaryDirectory() as folder:
            write_shards(Path(folder), pairs)
            command = [sys.executable, __file__, "--measure", folder]
            for pages in ("cold", "warm"):
                found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                rows.append({"pairs": pairs, "pages": pages, **json.loads(found)})
                print(rows[-1])
    file = arguments.results / f"{date.today()}-translation-scale.json"
    write_json(file, {"device": cpu_name(), "command": "python experiments/translation_scale.py", "rows": rows})
    print(file)


def write_shards(folder: Path, pairs: int) -> None:
    """Write the arrays of one corpus. All token ids are 0."""
    name, codes = "scale.en-fr", ("en", "fr")
    place = folder / "pairs" / name
    place.mkdir(parents=True)
    rng, tokens = np.random.default_rng(0), dict.fromkeys(codes, 0)
    with (
        ArrayWriter(place / "en.offsets.npy", np.int64) as english,
        ArrayWriter(place / "fr.offsets.npy", np.int64) as french,
    ):
        english.add(np.zeros(1))
        french.add(np.zeros(1))
        for start in range(0, pairs, CHUNK):
            size = min(CHUNK, pairs - start)
            length_N = np.minimum(rng.geometric(1 / MEAN_LENGTH, size) + 1, 300)
            other_N = np.maximum(2, np.rint(length_N * rng.normal(1.1, 0.15, size)).astype(np.int64))
            for code, writer, own_N in zip(codes, (english, french), (length_N, other_N), strict=True):
                writer.add(tokens[code] + np.cumsum(own_N))
                tokens[code] += int(own_N.sum())
    for code in codes:
        with (place / f"{code}.tokens.npy").open("wb") as file:
            npy.write_array_header_1_0(file, {"descr": "<u4", "fortran_order": False, "shape": (tokens[code],)})
            file.truncate(file.tell() + 4 * tokens[code])
    entry = {"languages": [*codes], "pairs": pairs, "tokens": [*tokens.values()]}
    manifest: dict[str, Any] = {
        "format": SHARD_FORMAT,
        "fingerprint": "scale",
        "vocabulary": {"size": VOCABULARY, "fingerprint": "scale"},
        "text": {},
        "pairs": {name: entry},
        "multi": {},
    }
    write_json(folder / "manifest.json", manifest)


def measure(folder: Path) -> dict[str, float]:
    """Return seconds and memory of this process. Memory is the largest at any time, above that before."""
    settings = TRANSLATION_PRESETS[PRESET]
    with PeakMemory() as peak:
        start = time.perf_counter()
        shards = Shards(folder, json.loads((folder / "manifest.json").read_text(encoding="utf-8")))
        [bitext] = shards.bitexts
        before, after = np.asarray([0, VOCABULARY]), np.asarray([2])
        groups = [
            DirectedBitext(direction=direction, bitext=bitext, before=before, after=after, end=2)
            for direction in DIRECTIONS
        ]
        batches = TranslationBatches(
            TranslationPairs(groups),
            tokens=settings.tokens,
            pair_alpha=settings.pair_alpha,
            seed=0,
            micro_tokens=settings.micro_tokens,
            start_token=0,
            pad_token=1,
            length=settings.length,
            max_length=514,
            rank=3,
            world_size=WORLD_SIZE,
        )
        planned = time.perf_counter()
        batches[0]
        first = time.perf_counter()
        steps = 2 * batches.megabatch_steps
        for step in range(LATER_STEP, LATER_STEP + steps):
            batches[step]
        end = time.perf_counter()
    return {
        "plan_seconds": planned - start,
        "first_step_seconds": first - planned,
        "mean_step_seconds": (end - first) / steps,
        "steps_per_megabatch": batches.megabatch_steps,
        "own_mib": peak.own,
        "mapped_mib": peak.mapped,
    }


class PeakMemory:
    """Largest memory of this process in MiB while the block runs, above that at its start."""

    def __enter__(self) -> PeakMemory:
        self.own = self.mapped = 0.0
        self._before, self._ended = memory(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            is_last = self._ended.wait(0.002)
            now = memory()
            self.own = max(self.own, now["RssAnon"] - self._before["RssAnon"])
            self.mapped = max(self.mapped, now["RssFile"] - self._before["RssFile"])
            if is_last:
                return


def memory() -> dict[str, float]:
    """Return the memory of this process in MiB: its own, and pages of files."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return {name: int(values[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile")}


if __name__ == "__main__":
    main()
