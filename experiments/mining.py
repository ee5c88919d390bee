"""Time and memory of the search of `crossling mine`, on random vectors with a noisy partner each.

    python experiments/mining.py [--sentences 100000] [--width 384] [--faiss]

Writes vectors to disk and memory-maps them, as `crossling mine` does. Prints one line of JSON: seconds of the search
and of the matching, peak memory of the process, and the memory of a full similarity matrix. `partners` is the
proportion of matched pairs that are right.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from crossling.inference.encode_file import read_vectors
from crossling.inference.mining import (
    DEFAULT_NEIGHBORS,
    VectorRows,
    find_neighbors,
    find_neighbors_faiss,
    retrieve_pairs,
)

CHUNK = 10_000
NOISE = 1.0  # relative to the vector: the cosine of partners is 0.7


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sentences", type=int, default=100_000, help="sentences per side")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--faiss", action="store_true", help="approximate search with faiss")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        partner_N = write_vectors(Path(folder), arguments.sentences, arguments.width)
        before = peak_gib()
        first, second = (VectorRows.all(read_vectors(Path(folder) / f"{side}.npy")) for side in ("first", "second"))
        start = time.perf_counter()
        neighbors = (
            find_neighbors_faiss(first, second, DEFAULT_NEIGHBORS)
            if arguments.faiss
            else find_neighbors(first, second, DEFAULT_NEIGHBORS, device=device, title="search")
        )
        searched = time.perf_counter()
        pairs = retrieve_pairs(*neighbors)
        end = time.perf_counter()
    right = float(np.mean(partner_N[pairs.first_P] == pairs.second_P))
    print(
        json.dumps(
            {
                "sentences": arguments.sentences,
                "width": arguments.width,
                "search": "faiss" if arguments.faiss else "exact",
                "device": str(device),
                "threads": torch.get_num_threads(),
                "search_seconds": round(searched - start, 1),
                "pairing_seconds": round(end - searched, 1),
                "peak_gib": round(peak_gib(), 2),
                "before_gib": round(before, 2),
                "all_at_once_gib": round(4 * arguments.sentences**2 / 2**30, 1),
                "pairs": len(pairs.score_P),
                "partners": round(right, 4),
            }
        )
    )


def write_vectors(folder: Path, sentences: int, width: int) -> np.ndarray:
    """Write both sides, the second in another order, and return the position of each partner."""
    rng = np.random.default_rng(0)
    partner_N = rng.permutation(sentences)
    first_ND, second_ND = (
        np.lib.format.open_memmap(folder / f"{side}.npy", "w+", np.float32, (sentences, width))
        for side in ("first", "second")
    )
    for start in range(0, sentences, CHUNK):
        stop = min(start + CHUNK, sentences)
        first_ND[start:stop] = rng.standard_normal((stop - start, width))
        second_ND[partner_N[start:stop]] = first_ND[start:stop] + NOISE * rng.standard_normal((stop - start, width))
    return partner_N


def peak_gib() -> float:
    """Return the peak memory of the process in GiB, including mapped files."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
