"""Format the results of `crossling bench -o` as Markdown tables.

    python experiments/speed.py RESULTS.json... [--into docs/research/speed.md]

With --into, replaces the tables between the marks of a page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crossling.bench.bench_results import insert_tables, read_results, results_markdown
from crossling.core.files import atomic_file


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, help="page with marks for the tables")
    arguments = parser.parse_args()
    tables = results_markdown([read_results(file) for file in arguments.results])
    if arguments.into is None:
        print(tables, end="")
        return
    page = insert_tables(arguments.into.read_text(encoding="utf-8"), tables, arguments.into)
    with atomic_file(arguments.into) as new:
        new.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
