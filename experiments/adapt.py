"""Adapt the bundled model to Icelandic, Lithuanian and Macedonian, from messy files made of real text.

    python experiments/adapt.py files PRETRAIN -o FILES
    python experiments/adapt.py run FILES -o RUNS [--languages is,lt,mk] [--minutes M] [--set KEY=VALUE]
    python experiments/adapt.py collect RUNS -o experiments/results/DATE-adapt.json

The bundled model was trained on none of the three languages. `files` writes the pairs of the `tatoeba` set in several
formats and encodings, and the text of Common Voice. They have header rows, extra columns, HTML entities, copies,
repeated rows and CR line ends. `run` gives all of them to `crossling adapt`.
"""

from __future__ import annotations

import argparse
import csv
import html
import json
import lzma
import random
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import crossling as xl

LANGUAGES = {"is": ("Icelandic", "cp1252"), "lt": ("Lithuanian", "cp1257"), "mk": ("Macedonian", "cp1251")}
Pairs = list[tuple[str, str]]


# ---- messy files ------------------------------------------------------------------------------------------------


def write_files(pretrain: Path, out: Path, languages: Sequence[str] = tuple(LANGUAGES)) -> None:
    """Write a folder of messy files for each language."""
    english = read_lines(pretrain / "multi" / "tatoeba" / "en.txt.xz")
    for language in languages:
        other = read_lines(pretrain / "multi" / "tatoeba" / f"{language}.txt.xz")
        pairs = [(one, two) for one, two in zip(english, other, strict=True) if one and two]
        random.Random(0).shuffle(pairs)
        crawl = pretrain / "text" / f"{language}.txt.xz"
        text = [line for line in read_lines(crawl) if line] if crawl.is_file() else []
        write_language(out / language, language, pairs, text)


def write_language(folder: Path, language: str, pairs: Pairs, text: list[str]) -> None:
    """Write the files of one language: a quarter of the pairs in each of four formats, and the text."""
    folder.mkdir(parents=True, exist_ok=True)
    name, codec = LANGUAGES[language]
    quarter = len(pairs) // 4
    parts = [pairs[start : start + quarter] for start in range(0, 4 * quarter, quarter)]
    write_csv(folder / "export.csv", name, parts[0], codec)
    write_tmx(folder / "memory.tmx", language, parts[1])
    write_workbook(folder / "glossary.xlsx", [("English", name), *parts[2]])
    rows = [f"{one}\t{two}" for one, two in [*parts[3], *parts[3][:100]]]  # the first rows once more
    (folder / f"chat.en-{language}.tsv").write_bytes("\r\n".join(rows).encode("utf-16"))
    if text:
        lines = [html.escape(line).replace("'", "&#39;") for line in text]
        (folder / f"crawl.{language}.txt").write_bytes("\r".join(lines).encode())


def read_lines(file: Path) -> list[str]:
    """Return the lines of a compressed file."""
    return lzma.decompress(file.read_bytes()).decode().removesuffix("\n").split("\n")


def write_csv(file: Path, name: str, pairs: Pairs, codec: str) -> None:
    """Write a table with semicolons in an old encoding, a header row, an extra column, entities, and copies."""
    with file.open("w", newline="", encoding=codec, errors="xmlcharrefreplace") as handle:
        writer = csv.writer(handle, delimiter=";")
        writer.writerow(["id", "English", name, "remark"])
        for number, (one, two) in enumerate(pairs):
            target = one if number % 50 == 0 else two.replace("&", "&amp;")  # not translated
            writer.writerow([number, one.replace("'", "&#39;"), target, "checked"])


def write_tmx(file: Path, language: str, pairs: Pairs) -> None:
    """Write a translation memory in UTF-16."""
    units = "".join(
        f'<tu><tuv xml:lang="en-US"><seg>{escape(one)}</seg></tuv>'
        f'<tuv xml:lang="{language}"><seg>{escape(two)}</seg></tuv></tu>\n'
        for one, two in pairs
    )
    text = f'<?xml version="1.0" encoding="UTF-16"?>\n<tmx version="1.4"><header/><body>\n{units}</body></tmx>\n'
    file.write_bytes(text.encode("utf-16"))


def write_workbook(file: Path, rows: Sequence[tuple[str, str]]) -> None:
    """Write an Excel workbook with one sheet."""
    cells = "".join(
        "<row>" + "".join(f'<c t="inlineStr"><is><t>{escape(cell)}</t></is></c>' for cell in row) + "</row>"
        for row in rows
    )
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    parts = {
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{relations}"><sheets>'
        '<sheet name="Terms" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}"><Relationship Id="rId1" '
        f'Type="{relations}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{cells}</sheetData></worksheet>',
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')


# ---- runs -------------------------------------------------------------------------------------------------------


def run(files: Path, out: Path, languages: Sequence[str], minutes: float | None, settings: Sequence[str]) -> None:
    """Adapt the bundled model to each language."""
    for language in languages:
        folder = files / language
        pairs = [folder / "export.csv", folder / "memory.tmx", folder / "glossary.xlsx"]
        result = xl.adapt(
            "bundled",
            out / language,
            text=sorted(folder.glob("crawl.*")),
            pairs=[*pairs, folder / f"chat.en-{language}.tsv"],
            pair=f"en-{language}",
            minutes=minutes,
            set=settings,
        )
        print(language, [(each.language, each.before, each.after) for each in result.changes if each.role == "new"])


def collect(runs: Path) -> dict[str, Any]:
    """Return the stored result of every run."""
    found = {}
    for file in sorted(runs.glob("*/adapt.json")):
        stored = json.loads(file.read_text(encoding="utf-8"))
        found[file.parent.name] = {key: stored[key] for key in ("settings", "training", "seconds", "text", "changes")}
    return {"command": "python experiments/adapt.py run FILES -o RUNS", "seed": 0, "runs": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("files", "run", "collect"))
    parser.add_argument("source", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--languages", default=",".join(LANGUAGES))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    languages = given.languages.split(",")
    if given.action == "files":
        write_files(given.source, given.out, languages)
    elif given.action == "run":
        run(given.source, given.out, languages, given.minutes, given.set)
    else:
        given.out.write_text(json.dumps(collect(given.source), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
