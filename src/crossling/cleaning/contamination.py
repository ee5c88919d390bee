"""Find benchmark sentences in training text: the sentences of benchmark files, and an index of them.

Benchmark files may be tables, token columns, JSON, `source ||| target` or plain text. The layout is detected from the
content. Short texts and identifiers are skipped, so that labels, names and numbers are not taken for sentences.

Texts on both sides are split into sentences and compared in their plain form, so a benchmark sentence is also found
inside a longer line. Equal forms are found by hash, similar ones by MinHash. The index takes about 700 bytes a sentence
on disk, and is memory-mapped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import xxhash

from crossling.cleaning import minhash
from crossling.cleaning.minhash import BANDS, compute_signatures, has_signature
from crossling.cleaning.plain_text import plain_forms, split_sentences, text_weight
from crossling.core.errors import BadInput
from crossling.core.locks import LOCK_SUFFIX, lock_file
from crossling.core.resumable import fingerprint, is_finished, read_entry, write_finished_folder
from crossling.corpora.languages import find_code
from crossling.corpora.text_files import COMPRESSION_SUFFIX, TextFile, read_lines

MIN_LETTERS = 20  # shorter sentences ("I do not know.") occur by chance
MAX_LINE_BYTES = 1 << 30  # a JSON file may be one line
MAX_WORD_LETTERS = 12  # on average; longer texts are no words
LAYOUT_LINES = 5000  # read to detect the layout
SENTENCES_PER_BATCH = 8192
CANDIDATES_PER_BAND = 4  # sentences compared in a band; more of them are variations of each other

_NO_SENTENCES = re.compile(r"\.|readme|licen[cs]e|notice|.*\.(md|ids|gold|py)$", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[!-~]*")  # ASCII without a space
_CONLL_CODES = {"esp": "es", "ned": "nl"}


@dataclass(frozen=True)
class BenchmarkFile:
    """One file of a benchmark."""

    path: Path
    name: str  # of the benchmark: first folder below the given one
    language: str  # from the file name, or empty

    def sentences(self) -> Iterator[tuple[str, str]]:
        """Yield sentences that are long enough to be distinctive, each with its plain form."""
        texts = _read_texts(self.path)
        while batch := list(islice(texts, SENTENCES_PER_BATCH)):
            for _, sentence, form in _long_sentences(batch):
                if not _IDENTIFIER.fullmatch(sentence):
                    yield sentence, form


def _long_sentences(texts: Sequence[str]) -> list[tuple[int, str, str]]:
    """Return the number of its text, the sentence and its plain form for every sentence that is long enough."""
    sentences = [(number, sentence) for number, text in enumerate(texts) for sentence in split_sentences(text)]
    forms = plain_forms([sentence for _, sentence in sentences])
    found = zip(sentences, forms, strict=True)
    return [(number, sentence, form) for (number, sentence), form in found if text_weight(form) >= MIN_LETTERS]


def find_benchmark_files(data: Path) -> list[BenchmarkFile]:
    """Return all files of a folder that may have sentences."""
    if not data.is_dir():
        raise BadInput(f"{data}: folder not found. Give a folder with benchmarks.")
    benchmarks = []
    for file in sorted(data.rglob("*")):
        *folders, last = file.relative_to(data).parts
        parts = [*folders, COMPRESSION_SUFFIX.sub("", last)]
        if file.is_file() and not any(map(_NO_SENTENCES.match, parts)):
            name = folders[0] if folders else data.resolve().name
            benchmarks.append(BenchmarkFile(file, name, _find_language(parts)))
    return benchmarks


# ---- languages ----------------------------------------------------------------------------------------------


def _find_language(parts: list[str]) -> str:
    """Return the language code in a name: `tatoeba.afr-eng.afr`, `dev-sw.tsv`, `deen.src-tgt`, `hau/test.txt`."""
    *folders, name = parts
    stem, _, ending = name.rpartition(".")
    for name_part in (ending, stem):
        if code := _code(name_part, 3):
            return code
    words = re.split(r"[-._]", name)
    joined = re.fullmatch("(?!test)([a-z]{2})([a-z]{2})", words[0])
    for candidates in (words, joined.groups() if joined else ()):
        if codes := [code for word in candidates if (code := _code(word, 2))]:
            return "-".join(dict.fromkeys(codes))
    return next((code for folder in reversed(folders) if (code := _code(folder, 3))), "")


def _code(word: str, longest: int) -> str:
    if word in _CONLL_CODES:
        return _CONLL_CODES[word]
    if not re.fullmatch(f"[a-z]{{2,{longest}}}", word) or word in ("dev", "val", "txt", "tsv", "csv"):
        return ""
    return find_code(word) or ""


# ---- layouts ------------------------------------------------------------------------------------------------


def _read_texts(file: Path) -> Iterator[str]:
    """Yield the texts of a file: sentences, paragraphs, or labels."""
    content = [line.rstrip("\r\n") for line in read_lines(file, MAX_LINE_BYTES) if isinstance(line, str)]
    first = next((line for line in content if line.strip()), "")
    if first.lstrip().startswith(("{", "[")):
        yield from _read_json(content)
        return
    column = _find_token_column(content[:LAYOUT_LINES])
    if column is not None:
        yield from _join_tokens(content, column)
        return
    for line in content:
        for cell in line.split("\t"):
            yield from cell.split(" ||| ")


def _read_json(content: list[str]) -> Iterator[str]:
    for texts in (content, ["\n".join(content)]):  # one value a line, or one value in the file
        try:
            values = [json.loads(line) for line in texts if line.strip()]
        except (ValueError, RecursionError):
            continue
        for value in values:
            yield from _strings(value)
        return
    yield from content


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _find_token_column(head: list[str]) -> int | None:
    """Return the column of the words in a file with one word a line, or None if it has another layout."""
    rows = [_columns(line) for line in head if line.strip() and not line.startswith("# ")]
    widths = {len(row) for row in rows}
    has_spaces = any(" " in cell.strip() for row in rows for cell in row[:2])
    if len(widths) != 1 or all(line.strip() for line in head) or has_spaces:
        return None
    # A file without tags has words, or sentences without spaces.
    if widths == {1} and fmean(len(row[0]) for row in rows) > MAX_WORD_LETTERS:
        return None
    return 1 if all(re.fullmatch(r"[\d.-]+", row[0]) for row in rows) else 0


def _columns(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split(" ")


def _join_tokens(content: list[str], column: int) -> Iterator[str]:
    """Yield the sentences of CoNLL-U comments (`# text = ...`), or else the words joined by spaces."""
    for has_text, block in groupby(content, key=lambda line: bool(line.strip())):
        if not has_text:
            continue
        lines = list(block)
        comments = [line.removeprefix("# text = ") for line in lines if line.startswith("# text = ")]
        rows = [_columns(line) for line in lines if not line.startswith("# ")]
        yield comments[0] if comments else " ".join(row[column] for row in rows if len(row) > column)


# ---- index ---------------------------------------------------------------------------------------------------


def benchmark_fingerprint(data: Path) -> str:
    """Fingerprint of all benchmark files of a folder."""
    files = (file.path for file in find_benchmark_files(data))
    return fingerprint([[file.relative_to(data).as_posix(), TextFile(file).digest()] for file in files])


def build_index(data: Path, folder: Path) -> None:
    """Build the index of all benchmarks in a folder, unless it is there already. Another machine waits for it."""
    key = benchmark_fingerprint(data)
    with lock_file(folder.with_name(f".{folder.name}{LOCK_SUFFIX}"), remove=True):
        if is_finished(folder, key):
            return
        with write_finished_folder(folder, key) as (new, entry):
            entry["benchmarks"] = _write_sentences(find_benchmark_files(data), data, new)
            if not any(file["sentences"] for file in entry["benchmarks"]):
                raise BadInput(f"{data}: no benchmark sentence found. Give a folder with benchmarks.")
            _write_bands(new)


def _write_sentences(benchmarks: list[BenchmarkFile], data: Path, folder: Path) -> list[dict[str, Any]]:
    """Write every sentence once, with its signature. Return the number of sentences of each file."""
    numbers: dict[int, int] = {}  # of sentences, by hash
    forms: list[str] = []  # still without signature
    ends: list[int] = []
    owners: list[tuple[int, int]] = []  # sentence and file
    files: list[dict[str, Any]] = []
    with (folder / "texts").open("wb") as texts, (folder / "signatures").open("wb") as signature_file:
        for file, benchmark in enumerate(benchmarks):
            in_file: set[int] = set()
            for text, form in benchmark.sentences():
                number = numbers.setdefault(_hash(form), len(numbers))
                in_file.add(number)
                if number == len(ends):
                    forms.append(form)
                    texts.write(text.encode())
                    ends.append(texts.tell())
                if len(forms) == SENTENCES_PER_BATCH:
                    signature_file.write(compute_signatures(forms).tobytes())
                    forms = []
            owners += [(number, file) for number in sorted(in_file)]
            path = benchmark.path.relative_to(data).as_posix()
            names = {"benchmark": benchmark.name, "file": path, "language": benchmark.language}
            files.append({**names, "sentences": len(in_file)})
        signature_file.write(compute_signatures(forms).tobytes())
    hashes = np.fromiter(numbers, dtype=np.uint64, count=len(numbers))
    order = np.argsort(hashes)
    for name, array in {"hashes": hashes[order], "numbers": order, "ends": ends, "owners": sorted(owners)}.items():
        np.save(folder / f"{name}.npy", np.asarray(array))
    return files


def _write_bands(folder: Path) -> None:
    """Write the sentences of each band, sorted by the hash of their band."""
    signatures = _map_signatures(folder)
    rows = np.flatnonzero(has_signature(signatures))
    values = np.empty((BANDS, len(rows)), dtype=np.uint64)
    sentence = np.empty((BANDS, len(rows)), dtype=np.uint32)
    for band in range(BANDS):
        value = minhash.hash_band(signatures[rows, minhash.band_slice(band)])
        order = np.argsort(value, kind="stable")
        values[band], sentence[band] = value[order], rows[order]
    np.save(folder / "bands.npy", values)
    np.save(folder / "in_bands.npy", sentence)


def _map_signatures(folder: Path) -> np.ndarray:
    return np.memmap(folder / "signatures", dtype=np.uint16, mode="r").reshape(-1, minhash.PERMUTATIONS)


class BenchmarkIndex:
    """Index that `build_index` wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        entry = read_entry(folder)
        if entry is None:
            raise BadInput(f"{folder}: the index of the benchmarks is damaged. Remove the folder and run again.")
        self.key: str = entry["key"]
        self.files: list[dict[str, Any]] = entry["benchmarks"]
        self.signatures = _map_signatures(folder)
        self.hashes, self.numbers, self.bands, self.in_bands, self.owners, self.ends = (
            np.load(folder / f"{name}.npy", mmap_mode="r")
            for name in ("hashes", "numbers", "bands", "in_bands", "owners", "ends")
        )

    def find(self, lines: Sequence[str]) -> np.ndarray:
        """Find benchmark sentences. Return sorted rows of (line, sentence of the index, is only similar)."""
        found = _long_sentences(lines)
        if not found:
            return np.empty((0, 3), dtype=np.int64)
        owners, _, forms = zip(*found, strict=True)
        hashes = np.fromiter(map(_hash, forms), dtype=np.uint64, count=len(forms))
        nearest = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        is_equal = self.hashes[nearest] == hashes
        rest = np.flatnonzero(~is_equal)
        rows = np.array(owners)
        zeros = np.zeros(is_equal.sum(), dtype=np.int64)
        exact = np.stack([rows[is_equal], self.numbers[nearest[is_equal]], zeros], axis=1)
        texts, sentences = self._find_similar([forms[position] for position in rest])
        similar = np.stack([rows[rest[texts]], sentences, np.ones(len(sentences), dtype=np.int64)], axis=1)
        return np.unique(np.concatenate([exact, similar]), axis=0)

    def text(self, number: int) -> str:
        """Return a sentence as the benchmark has it."""
        with (self.folder / "texts").open("rb") as handle:
            start = int(self.ends[number - 1]) if number else 0
            handle.seek(start)
            return handle.read(int(self.ends[number]) - start).decode()

    def _find_similar(self, forms: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return positions of texts, and a similar sentence for each of them."""
        signatures = compute_signatures(forms)
        rows = np.flatnonzero(has_signature(signatures))
        matches = [(rows[:0], rows[:0])]
        for band in range(BANDS):
            value = minhash.hash_band(signatures[rows, minhash.band_slice(band)])
            start = np.searchsorted(self.bands[band], value, side="left")
            end = np.searchsorted(self.bands[band], value, side="right")
            for step in range(CANDIDATES_PER_BAND):
                matching = np.flatnonzero(start + step < end)
                sentence = self.in_bands[band][start[matching] + step]
                estimates = minhash.similarity(signatures[rows[matching]], self.signatures[sentence])
                is_similar = estimates >= minhash.SIMILARITY_THRESHOLD
                matches.append((rows[matching[is_similar]], sentence[is_similar]))
        texts, sentences = map(np.concatenate, zip(*matches, strict=True))
        return texts, sentences


def _hash(form: str) -> int:
    return xxhash.xxh3_64_intdigest(form.encode())
