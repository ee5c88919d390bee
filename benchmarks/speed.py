"""Tables of Markdown from the results of `crossling bench -o`; with --into, put into a page between its marks.

python benchmarks/speed.py RESULTS.json... [--into docs/speed.md]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crossling.bench.results import markdown, put, read
from crossling.disk import new_file


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, help="a page with a place for figures")
    arguments = parser.parse_args()
    tables = markdown([read(file) for file in arguments.results])
    if arguments.into is None:
        print(tables, end="")
        return
    page = put(arguments.into.read_text(encoding="utf-8"), tables, arguments.into)
    with new_file(arguments.into) as new:
        new.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
