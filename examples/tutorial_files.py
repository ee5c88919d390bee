"""Write the shipped text as the files that people have, for the tutorials.

    python examples/tutorial_files.py -o files             # five formats: train-on-a-laptop
    python examples/tutorial_files.py -o files --messy     # files with mistakes in them: adapt-an-encoder

The sentences are from tatoeba.org, CC BY 2.0 FR (data/README.md). The first pairs of each language are held out for
evaluation.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path
from xml.sax.saxutils import escape

SHIPPED = Path(__file__).parent / "data"
HELD_OUT = 500  # pairs of each language
Pairs = list[tuple[str, str]]


def read_pairs(name: str, limit: int | None = None) -> Pairs:
    """Return the first pairs of a shipped file, such as `en-de`."""
    with lzma.open(SHIPPED / f"{name}.tsv.xz", "rt", encoding="utf-8", newline="\n") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    return [(english, translation) for english, translation in rows[:limit]]


def write_lines(path: Path, lines: list[str]) -> None:
    """Write one line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def write_tmx(path: Path, pairs: Pairs, language: str) -> None:
    """Write a translation memory of English and another language."""
    units = []
    for sides in pairs:
        segments = [
            f'<tuv xml:lang="{code}"><seg>{escape(side)}</seg></tuv>'
            for code, side in zip(("en", language), sides, strict=True)
        ]
        units.append(f"<tu>{''.join(segments)}</tu>")
    write_lines(path, ['<?xml version="1.0" encoding="UTF-8"?>', '<tmx version="1.4"><header/><body>'])
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in [*units, "</body></tmx>"])


def hold_out(folder: Path, name: str, pairs: Pairs, count: int) -> Pairs:
    """Write the first pairs as two files of a test set and return the others."""
    write_lines(folder / f"test.en-{name}.en", [english for english, _ in pairs[:count]])
    write_lines(folder / f"test.en-{name}.{name}", [translation for _, translation in pairs[:count]])
    return pairs[count:]


def write_files(folder: Path, *, limit: int | None = None, held_out: int = HELD_OUT) -> None:
    """Write English, German and Icelandic text in five formats.

    Args:
        folder: Folder to write.
        limit: Pairs of each language, held-out ones included. [default: all]
        held_out: Pairs of each language for evaluation.
    """
    german = hold_out(folder, "de", read_pairs("en-de", limit), held_out)
    icelandic = hold_out(folder, "is", read_pairs("en-is", limit), held_out)
    write_lines(folder / "english.txt", [english for english, _ in german + icelandic])
    write_lines(folder / "icelandic.txt", [sentence for _, sentence in icelandic])
    write_lines(folder / "german.jsonl", [json.dumps({"text": sentence}) for _, sentence in german])
    write_lines(folder / "phrases.tsv", ["\t".join(pair) for pair in icelandic])
    half = len(german) // 2
    write_lines(folder / "subtitles.en", [english for english, _ in german[:half]])
    write_lines(folder / "subtitles.de", [sentence for _, sentence in german[:half]])
    write_tmx(folder / "memory.tmx", german[half:], "de")


def write_messy_files(folder: Path, *, limit: int | None = None, held_out: int = HELD_OUT) -> None:
    """Write a little Icelandic with mistakes in it, and German and English to keep.

    Args:
        folder: Folder to write.
        limit: Pairs of each language, held-out ones included. [default: all]
        held_out: Pairs of each language for evaluation.
    """
    german = hold_out(folder, "de", read_pairs("en-de", limit), held_out)
    icelandic = hold_out(folder, "is", read_pairs("en-is", limit), held_out)
    # A spreadsheet: a header, rows without a translation (the English was copied), and rows that occur twice.
    rows = ["\t".join(pair) for pair in icelandic]
    untranslated = [f"{english}\t{english}" for english, _ in icelandic[:300]]
    write_lines(folder / "spreadsheet.tsv", ["English\tIcelandic", *rows, *untranslated, *rows[:400]])
    # A crawl with German lines that were taken for Icelandic.
    strays = [sentence for _, sentence in german[:500]]
    write_lines(folder / "crawl.txt", [*(sentence for _, sentence in icelandic), *strays])
    # The languages to keep.
    write_lines(folder / "english.txt", [english for english, _ in german + icelandic])
    write_lines(folder / "german.txt", [sentence for _, sentence in german])
    write_lines(folder / "german.tsv", ["\t".join(pair) for pair in german])


def main() -> None:
    """Write the files of one tutorial."""
    parser = argparse.ArgumentParser(description="Write the shipped text as files in several formats.")
    parser.add_argument("-o", "--out", type=Path, default=Path("files"), help="Folder to write. [default: files]")
    parser.add_argument("--messy", action="store_true", help="Write files with mistakes in them.")
    parser.add_argument("--limit", type=int, help="Pairs of each language. [default: all]")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help=f"Test pairs of each. [default: {HELD_OUT}]")
    arguments = parser.parse_args()
    write = write_messy_files if arguments.messy else write_files
    write(arguments.out, limit=arguments.limit, held_out=arguments.held_out)


if __name__ == "__main__":
    main()
