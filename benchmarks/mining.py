"""How long the search of `crossling mine` takes, and in how much memory: random vectors, each with its noisy partner.

    python benchmarks/mining.py [--sentences 100000] [--width 384] [--faiss]

Vectors are written to disk first and mapped from there, as those of sentences are. Prints one line of JSON: seconds of
the search and of the pairing, the most memory the process held, what all similarities at once would take, and the
share of pairs that are partners.
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

from crossling.evaluate.embedding import read_vectors
from crossling.evaluate.mining import NEIGHBOURS, one_to_one
from crossling.evaluate.neighbours import Vectors, approximate, neighbours

CHUNK = 10_000
NOISE = 1.0  # as long as the vector: the cosine of partners is 0.7


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sentences", type=int, default=100_000, help="of each side")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--faiss", action="store_true", help="by clusters")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        partner_N = write(Path(folder), arguments.sentences, arguments.width)
        before = peak()
        sides = [Vectors.all(read_vectors(Path(folder) / f"{side}.npy")) for side in ("first", "second")]
        start = time.perf_counter()
        found = approximate(*sides, NEIGHBOURS) if arguments.faiss else neighbours(*sides, NEIGHBOURS, device, "search")
        searched = time.perf_counter()
        pairs = one_to_one(*found)
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
                "peak_gib": round(peak(), 2),
                "before_gib": round(before, 2),
                "all_at_once_gib": round(4 * arguments.sentences**2 / 2**30, 1),
                "pairs": len(pairs.score_P),
                "partners": round(right, 4),
            }
        )
    )


def write(folder: Path, sentences: int, width: int) -> np.ndarray:
    """The first side, and the second in another order; returns where the partners are."""
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


def peak() -> float:
    """GiB that the process held at most, mapped files included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
