"""Read each slice of the corpora once: the faults of its rows, and arrays to compare rows with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
import xxhash

from crossling.cleaning.contamination import BenchmarkIndex
from crossling.cleaning.conversion_damage import ENTITIES, count_entities, find_file_damage
from crossling.cleaning.corpus_parts import CorpusPart
from crossling.cleaning.duplicates import ROW_KEY, SIDE_KEYS, band_key
from crossling.cleaning.minhash import BANDS, band_slice, compute_signatures, has_signature, hash_band
from crossling.cleaning.plain_text import plain_forms, text_weight
from crossling.cleaning.rules import BIT, Reason, RowFilter, Rules, TextRow, log_length_ratio
from crossling.cleaning.sorted_keys import KeyWriter
from crossling.cleaning.stored_arrays import append_array, stored_key
from crossling.core.resumable import is_finished, write_finished_folder

ROWS_PER_CHUNK = 4096
MIN_SIDE_LETTERS = 20  # shorter texts, such as "Yes.", may have many translations


def scan_slice(
    part: CorpusPart, number: int, rules: Rules, folder: Path, plans: Path, index_folder: Path | None
) -> None:
    """Read one slice of a part, unless that was done with the same rules and sources.

    Args:
        part: The whole part.
        number: Number of the slice.
        rules: Rules, some of which need arrays.
        folder: Folder to write.
        plans: Folder of the plans of all parts.
        index_folder: Folder of the benchmark index.
    """
    index = BenchmarkIndex(index_folder) if index_folder else None
    plan = part.plan(plans)
    index_key = index.key if index else None
    key = stored_key(part.name, part.pivot, rules.to_json(), index_key, plan.sources, number, part.slices)
    if is_finished(folder, key):
        return
    damage = Counter[str]() if number else find_file_damage(part.own_sources, part.languages)
    part = part.slice(number, plan)
    row_filter = RowFilter(rules, part.languages, part.pair)
    malformed: Counter[str] = Counter()
    counts = Counter(rows=0, characters=0, words=0)
    rows = part.rows(malformed)
    total = 0
    with write_finished_folder(folder, key) as (new, entry):
        keys = KeyWriter(new)
        while chunk := list(islice(rows, ROWS_PER_CHUNK)):
            forms = list(zip(*map(plain_forms, zip(*chunk, strict=True)), strict=True))
            arrays = _compute_arrays(chunk, forms, part, rules)
            flags = np.fromiter(map(row_filter.find_faults, chunk, forms), dtype=np.uint16, count=len(chunk))
            if index:
                hits = _find_hits(chunk, part, index)
                bits = np.where(hits[:, 2], BIT[Reason.NEAR_BENCHMARK], BIT[Reason.IN_BENCHMARK])
                np.bitwise_or.at(flags, hits[:, 0], bits)
                hits[:, 0] += total
                arrays["hits"] = hits
            for name, values in (arrays | {"flags": flags}).items():
                append_array(new, name, values)
            keys.add(_hashes_by_key(arrays), len(chunk))
            total += len(chunk)
            _count(chunk, part, counts)
            damage[ENTITIES] += count_entities((line, other if part.kind == "pairs" else "") for line, other in chunk)
        keys.flush()
        detected = {language: dict(others.most_common()) for language, others in row_filter.detected.items() if others}
        entry |= {"sources": plan.sources, **counts, "malformed": dict(malformed), "detected": detected}
        entry |= {"unchecked_languages": row_filter.unchecked_languages, "runs": keys.runs}
        entry["damage"] = dict(+damage)


def _hashes_by_key(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the hashes of the rows by the name of a key. Rows without a signature have the hash 0."""
    hashes = {ROW_KEY: arrays["hashes"]} if "hashes" in arrays else {}
    if "sides" in arrays:
        hashes |= dict(zip(SIDE_KEYS, arrays["sides"].T, strict=True))
    if "signatures" in arrays:
        signatures = arrays["signatures"]
        is_long = has_signature(signatures)
        hashes |= {
            band_key(band): np.where(is_long, hash_band(signatures[:, band_slice(band)]), 0) for band in range(BANDS)
        }
    return hashes


def _count(chunk: list[TextRow], part: CorpusPart, counts: Counter[str]) -> None:
    lines = [line for line, _ in chunk if line] + ([other for _, other in chunk] if len(part.languages) == 2 else [])
    counts["rows"] += sum(1 for line, _ in chunk if line)
    counts["characters"] += sum(map(len, lines))
    counts["words"] += sum(len(line.split()) for line in lines)


def _compute_arrays(
    chunk: list[TextRow], forms: list[TextRow], part: CorpusPart, rules: Rules
) -> dict[str, np.ndarray]:
    """Arrays to compare rows by. None for a pivot, which repeats a line as often as it has translations."""
    if part.kind != "text" and part.pair is None:
        return {}
    arrays = {}
    is_complete = [bool(line) and (bool(other) or part.pair is None) for line, other in chunk]
    if rules.duplicates:
        is_swapped = part.pair is not None and part.pair[0] > part.pair[1]  # both orders of two languages are one group
        arrays["hashes"] = _hash_texts((f"{b}\t{a}" if is_swapped else f"{a}\t{b}" for a, b in chunk), is_complete)
    if rules.near_duplicates:
        texts = [a + b if complete else "" for (a, b), complete in zip(forms, is_complete, strict=True)]
        arrays["signatures"] = compute_signatures(texts)
    if rules.many_to_one and part.pair:
        sides = []
        for side in zip(*forms, strict=True):
            is_long = [text_weight(text) >= MIN_SIDE_LETTERS for text in side]
            sides.append(_hash_texts(side, [a and b for a, b in zip(is_complete, is_long, strict=True)]))
        arrays["sides"] = np.stack(sides, axis=1)
    if rules.ratio and part.pair:
        pairs = zip(chunk, is_complete, strict=True)
        arrays["proportions"] = np.array([log_length_ratio(*row) if complete else np.nan for row, complete in pairs])
    return arrays


def _hash_texts(texts: Iterable[str], mask: list[bool]) -> np.ndarray:
    """Hash the texts of a mask. Others have the hash 0."""
    pairs = zip(texts, mask, strict=True)
    hashes = (xxhash.xxh3_64_intdigest(text.encode()) if is_included else 0 for text, is_included in pairs)
    return np.fromiter(hashes, dtype=np.uint64, count=len(mask))


def _find_hits(chunk: list[TextRow], part: CorpusPart, index: BenchmarkIndex) -> np.ndarray:
    hits = [index.find([row[side] for row in chunk]) for side in range(len(part.languages))]
    return np.unique(np.concatenate(hits), axis=0)
