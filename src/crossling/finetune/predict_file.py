"""Predict on a file of the user: tags of words, classes of texts, answers to questions, or sentence vectors.

| model | file | a row |
|---|---|---|
| tagging | `.txt` | a sentence, split at spaces |
| | `.conllu` | words in the second column, an empty line after each sentence |
| | others | words in the first column (CoNLL) |
| classification | `.txt`, `.tsv`, `.csv` | one text, or two in columns |
| QA | `.tsv`, `.csv` | question and context |
| sentence vectors | `.txt`, `.tsv`, `.csv` | one text, or two whose similarity is computed |
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from crossling.core.errors import BadInput
from crossling.core.files import atomic_file
from crossling.core.locks import output_lock
from crossling.core.progress import count_truncations
from crossling.corpora.text_files import COMPRESSION_SUFFIX, SkipReason, clean_line
from crossling.finetune.own_tables import read_texts, usable_line
from crossling.finetune.sentence_vectors.predict_vectors import predict_vectors, write_predictions
from crossling.finetune.sentence_vectors.vector_training import VECTOR_INFO
from crossling.finetune.task_type import TaskConfig
from crossling.finetune.tuned_model import TunedModel
from crossling.ingest.delimited import Cells
from crossling.ingest.encodings import decoded_lines, detect_encoding
from crossling.tasks.examples import ClassificationExample, Example, QAExample, TaggingExample
from crossling.tasks.readers import DOCUMENT_MARK

WINDOW = 2_048  # examples that are sorted by length and predicted together

Row = dict[str, Any]


def predict(
    model: TunedModel | str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    columns: Sequence[str | int] = (),
    language: str | None = None,
    out: str | os.PathLike[str] | None = None,
) -> list[Row] | Path:
    """Predict on a file with a fine-tuned model. Encoding, delimiter and quotes of the file are found by reading it.

    Args:
        model: Fine-tuned model, or its folder.
        file: CoNLL columns or sentences for tagging, texts for classification, questions with contexts for QA, texts or
            pairs of texts for sentence vectors.
        columns: Names or numbers (from 1) of the columns of texts. [default: those of
            the training file if the header has them, else all, at most two]
        language: Use the model of this language, if the folder has one.
        out: File to write: JSON Lines if it ends in `.jsonl`, else CoNLL or TSV. Vectors also as `.npy`. [default:
            return the rows]

    Returns:
        Rows with the input, the prediction and its score, or the path `out`.

    Raises:
        BadInput: If the model cannot predict on its own, or the file cannot be read.

    Example:
        >>> predict("tuned-panx", "sentences.txt")[0]["tags"]
        ['B-PER', 'O']
    """
    if not isinstance(model, TunedModel) and VECTOR_INFO.exists(Path(model)):
        rows = predict_vectors(Path(model), Path(file), columns)
        return list(rows) if out is None else write_predictions(rows, Path(out))
    tuned = model if isinstance(model, TunedModel) else TunedModel.load(model, language)
    rows = predict_rows(tuned, Path(file), columns)
    if out is None:
        return list(rows)
    out = Path(out)
    with output_lock(out), atomic_file(out) as temporary, temporary.open("w", encoding="utf-8") as written:
        for row in rows:
            written.write(json.dumps(row, ensure_ascii=False) + "\n" if out.suffix == ".jsonl" else format_row(row))
    return out


def predict_rows(tuned: TunedModel, file: Path, columns: Sequence[str | int] = ()) -> Iterator[Row]:
    """Yield one row for each example of a file, in order."""
    config = tuned.task_type.config
    if config.plug_in or config.head_type == "choice":
        kind = "plug-in cross-attention" if config.plug_in else "multiple choice"
        raise BadInput(f"{file}: a model with {kind} needs a data set. Score it with crossling evaluate.")
    examples = _read_examples(file, config, columns)
    number = 0
    with count_truncations(file.name):
        while window := list(islice(examples, WINDOW)):
            for example, (prediction, score) in zip(window, tuned.predict_with_scores(window), strict=True):
                number += 1
                yield _make_row(example, prediction, score)
    if not number:
        raise BadInput(f"{file}: no examples. Give a file with one example on each line.")


def format_row(row: Row) -> str:
    """Return a row as text: lines of word, tag and score, or a line of prediction, score and texts."""
    if "tags" in row:
        cells = zip(row["words"], row["tags"], row["scores"], strict=True)
        return "".join(f"{word}\t{tag}\t{score:.4f}\n" for word, tag, score in cells) + "\n"
    score = "" if row["score"] is None else f"{row['score']:.4f}"
    texts = [clean_line(text) for text in row["texts"]]
    return "\t".join([str(row["prediction"]), score, *texts]) + "\n"


def _make_row(example: Example, prediction: Any, score: Any) -> Row:
    if isinstance(example, TaggingExample):
        return {"words": [*example.words], "tags": [*prediction], "scores": [*score]}
    texts = [example.question] if isinstance(example, QAExample) else [*example.texts]
    return {"texts": texts, "prediction": prediction, "score": score}


# ---- reading -------------------------------------------------------------------------------------------------


def _read_examples(file: Path, config: TaskConfig, columns: Sequence[str | int]) -> Iterator[Example]:
    if not file.is_file():
        raise BadInput(f"{file}: no such file. Check the name.")
    if config.head_type == "tagging":
        ending = COMPRESSION_SUFFIX.sub("", file.name).rpartition(".")[2].lower()
        lines = decoded_lines(file, detect_encoding(file))
        if columns:
            raise BadInput(f"columns={','.join(map(str, columns))}: a tagger reads words. Omit them.")
        sentences = _split_text(lines, file) if ending == "txt" else _split_columns(lines, file, ending)
        return (TaggingExample(str(row), words, None) for row, words in enumerate(sentences))
    rows = read_texts(file, columns, config.columns)
    if config.head_type == "qa":
        return (_question(str(number), cells, file) for number, cells in enumerate(rows))
    return (ClassificationExample(str(number), tuple(cells), None) for number, cells in enumerate(rows))


def _split_text(lines: Iterator[str | SkipReason], file: Path) -> Iterator[tuple[str, ...]]:
    return (tuple(words) for line in lines if (words := usable_line(line, file).split()))


def _split_columns(lines: Iterator[str | SkipReason], file: Path, ending: str) -> Iterator[tuple[str, ...]]:
    words: list[str] = []
    for raw in lines:
        line = usable_line(raw, file)
        if not line.strip():
            if words:
                yield tuple(words)
            words = []
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        if cells[0] == DOCUMENT_MARK or (ending == "conllu" and (line[0] == "#" or not cells[0].isdecimal())):
            continue
        column = 1 if ending == "conllu" else 0
        if column >= len(cells) or not cells[column].strip():
            raise BadInput(f"{file}: no word in {line[:40]!r}. Write one word with its columns on each line.")
        words.append(cells[column].strip())
    if words:
        yield tuple(words)


def _question(name: str, cells: Cells, file: Path) -> QAExample:
    if len(cells) != 2:
        raise BadInput(f"{file}: {len(cells)} column, expected two. Give the question and the context of each row.")
    return QAExample(name, cells[0], cells[1], ())
