"""Predict with trained sentence vectors: the vector of each text of a file, or the similarity of each pair."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file
from crossling.core.locks import output_lock
from crossling.core.progress import count_truncations
from crossling.finetune.own_tables import read_texts
from crossling.finetune.sentence_vectors.sentence_pairs import find_role
from crossling.finetune.sentence_vectors.vector_model import find_prompts
from crossling.inference.load import load
from crossling.inference.pooling import normalize_vectors
from crossling.inference.sentence_encoder import Encoder
from crossling.ingest.delimited import Cells

WINDOW = 2_048  # rows whose texts are sorted by length and encoded together

Row = dict[str, Any]


def predict_vectors(folder: Path, file: Path, columns: Sequence[str | int] = ()) -> Iterator[Row]:
    """Yield the text and the vector of each row with one text, or the texts and the cosine of each row with two.

    Args:
        folder: Folder that `finetune` with the type `embedding` wrote.
        file: Text with one example on each line, or a table.
        columns: Names or numbers (from 1) of the columns. [default: all, at most two]

    Raises:
        BadInput: If the file cannot be read or has no texts.
    """
    encoder = load(folder)
    rows = _without_header(read_texts(file, columns), columns)
    number = 0
    with count_truncations(file.name):
        while window := list(islice(rows, WINDOW)):
            number += len(window)
            sides = [
                _encode(encoder, [cells[side] for cells in window], side if len(window[0]) > 1 else 1)
                for side in range(len(window[0]))
            ]
            if len(sides) == 1:
                vectors = zip(window, sides[0], strict=True)
                yield from ({"text": cells[0], "vector": vector.tolist()} for cells, vector in vectors)
            else:
                cosine_N = (normalize_vectors(sides[0]) * normalize_vectors(sides[1])).sum(1)
                pairs = zip(window, cosine_N.tolist(), strict=True)
                yield from ({"texts": [*cells], "score": cosine} for cells, cosine in pairs)
    if not number:
        raise BadInput(f"{file}: no texts. Give a file with one text on each line, or two columns.")


def write_predictions(rows: Iterator[Row], out: Path) -> Path:
    """Write rows: vectors as an array (`.npy`) or JSON Lines, similarities as TSV or JSON Lines (`.jsonl`)."""
    with output_lock(out), atomic_file(out) as temporary:
        if out.suffix == ".npy":
            vectors = [row.get("vector") for row in rows]
            if None in vectors:
                raise BadInput(f"{out}: the rows have two texts, whose similarity is one number. Write .tsv or .jsonl.")
            with temporary.open("wb") as file:
                np.save(file, np.asarray(vectors, dtype=np.float32), allow_pickle=False)
        else:
            with temporary.open("w", encoding="utf-8") as written:
                for row in rows:
                    written.write(
                        json.dumps(row, ensure_ascii=False) + "\n" if out.suffix == ".jsonl" else format_vectors(row)
                    )
    return out


def format_vectors(row: Row) -> str:
    """Return a row as text: score and texts by tabs, or the vector and its text as JSON."""
    if "score" not in row:
        return json.dumps(row, ensure_ascii=False) + "\n"
    return "\t".join([f"{row['score']:.6f}", *(" ".join(text.split()) for text in row["texts"])]) + "\n"


def _without_header(rows: Iterator[Cells], columns: Sequence[str | int]) -> Iterator[Cells]:
    """Skip a first row that has names of columns, if none are given."""
    first = next(rows, None)
    if first is None:
        return iter(())
    is_header = not columns and all(find_role(cell) is not None for cell in first)
    return rows if is_header else chain([first], rows)


def _encode(encoder: Encoder, texts: Sequence[str], role: int) -> np.ndarray:
    pooling, layer = encoder.resolve_pooling("auto")
    prompt = find_prompts(encoder.head)[role] if encoder.head else None
    [vectors] = encoder.encode_layers(texts, pooling, [layer], prompt=prompt)
    return np.asarray(vectors)
