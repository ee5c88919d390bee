"""Mine bitext from two monolingual files: encode once, then search with a margin.

    python examples/mine_bitext.py german.txt english.txt -o mined.tsv --threshold 1.05

The vectors are kept beside the output, so that another threshold or margin needs no encoding.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import crossling as xl


def mine(model: str | None, first: Path, second: Path, out: Path, threshold: float) -> int:
    """Write `score TAB source TAB target` lines above the threshold and return their number."""
    encoder = xl.load(model)
    vectors = [out.with_name(f"{out.stem}.{number}.npy") for number in (1, 2)]
    for file, target in zip((first, second), vectors, strict=True):
        if not target.exists():
            xl.encode_file(encoder, file, target)
    pairs = xl.mine(None, first, second, vectors=(vectors[0], vectors[1]), threshold=threshold)
    lines = [f"{pair.score:.4f}\t{pair.source}\t{pair.target}\n" for pair in pairs]
    out.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def main() -> None:
    """Mine two files and print the number of pairs."""
    parser = argparse.ArgumentParser(description="Mine bitext from two files of sentences.")
    parser.add_argument("first", type=Path, help="One sentence a line.")
    parser.add_argument("second", type=Path, help="Sentences in the other language.")
    parser.add_argument("-o", "--out", type=Path, required=True, help="TSV file to write.")
    parser.add_argument("--model", help="Model to use. [default: the bundled model]")
    parser.add_argument("--threshold", type=float, default=1.05, help="Smallest margin score. [default: 1.05]")
    arguments = parser.parse_args()
    found = mine(arguments.model, arguments.first, arguments.second, arguments.out, arguments.threshold)
    print(f"{found} pairs in {arguments.out}")


if __name__ == "__main__":
    main()
