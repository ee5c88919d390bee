"""Make the sentence pairs that the package ships for `crossling adapt`: replay.tsv.xz and en-is.tsv.xz.

    python experiments/adapt_samples.py PRETRAIN

PRETRAIN has `multi/tatoeba` with one file for each language, where line n of one translates line n of the others. Rows
with translations in many languages come first, because they compress well. Icelandic, Lithuanian and Macedonian are
excluded from the replay sample: they are the languages on which adaptation is measured.
"""

from __future__ import annotations

import argparse
import lzma
from pathlib import Path

DATA = Path(__file__).parent.parent / "src" / "crossling" / "adapt" / "data"
RESERVED = ("is", "lt", "mk")
KEPT, HELD_OUT = 160, 50  # pairs of each language
LENGTHS = range(15, 100)  # characters of both sides
DEMO = "is"


def read_rows(pretrain: Path) -> dict[str, list[str]]:
    """Return the lines of each language."""
    files = sorted((pretrain / "multi" / "tatoeba").glob("*.txt.xz"))
    return {
        file.name.partition(".")[0]: lzma.decompress(file.read_bytes()).decode().removesuffix("\n").split("\n")
        for file in files
    }


def replay_rows(lines: dict[str, list[str]]) -> list[str]:
    """Return rows `part TAB language TAB English TAB translation`. No English sentence is in both parts."""
    languages = [language for language in lines if language not in (*RESERVED, "en")]
    counts = [sum(bool(lines[language][row]) for language in languages) for row in range(len(lines["en"]))]
    order = sorted(range(len(counts)), key=lambda row: -counts[row])
    chosen = []
    for part, number, offset in (("held-out", HELD_OUT, 0), ("train", KEPT, 1)):
        rows = [row for place, row in enumerate(order) if (place % 3 > 0) == offset]
        for language in languages:
            usable = [row for row in rows if len(lines["en"][row]) in LENGTHS and len(lines[language][row]) in LENGTHS]
            sides = [(lines["en"][row], lines[language][row]) for row in usable[:number]]
            if len(sides) == number:
                chosen += [f"{part}\t{language}\t{english}\t{text}\n" for english, text in sides]
    return chosen


def demo_rows(lines: dict[str, list[str]]) -> list[str]:
    """Return rows `English TAB translation` of the language of the demo."""
    both = zip(lines["en"], lines[DEMO], strict=True)
    return [f"{english}\t{text}\n" for english, text in both if english and text]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pretrain", type=Path)
    lines = read_rows(parser.parse_args().pretrain)
    for name, rows in (("replay", replay_rows(lines)), (f"en-{DEMO}", demo_rows(lines))):
        packed = lzma.compress("".join(rows).encode(), preset=9 | lzma.PRESET_EXTREME)
        (DATA / f"{name}.tsv.xz").write_bytes(packed)
        print(f"{name}: {len(rows):,} rows, {len(packed):,} bytes")


if __name__ == "__main__":
    main()
