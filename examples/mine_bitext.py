"""Mine bitext from two monolingual files: encode them, then search with a margin.

    python examples/mine_bitext.py german.txt english.txt -o mined.tsv --threshold 1.05

`crossling embed` stores the vectors of files that are mined more than once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import crossling as xl


def mine(model: str | None, first: Path, second: Path, *, out: Path, threshold: float) -> int:
    """Write `score TAB source TAB target` lines above the threshold and return their number."""
    lines = []
    for pair in xl.mine(xl.load(model), first, second, threshold=threshold):
        source, target = (side.replace("\t", " ") for side in (pair.source, pair.target))  # a tab starts a column
        lines.append(f"{pair.score:.4f}\t{source}\t{target}\n")
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
    found = mine(arguments.model, arguments.first, arguments.second, out=arguments.out, threshold=arguments.threshold)
    print(f"{found} pairs in {arguments.out}")


if __name__ == "__main__":
    main()
