"""Commands that use a model: align, embed, mine, translate."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import crossling as xl
from crossling.cli.closing import finish, python_command, this_command, unused
from crossling.cli.options import (
    Json,
    Layer,
    Model,
    OutFile,
    Pooling,
    Precision,
    argument,
    check_folder,
    check_model,
    flag,
    option,
)
from crossling.core.errors import BadInput
from crossling.core.garbage_collection import pause_garbage_collection

GOOD_MARGIN = 1.05  # threshold of ratio margins above which most pairs are translations


def align(
    file: Annotated[Path, argument("FILE", "Lines of `source ||| target`.")],
    model: Model = None,
    layer: Layer = None,
    method: Annotated[str, option("METHOD", "ot, argmax or itermax.", "--method")] = "ot",
    precision: Precision = "auto",
    json_: Json = False,
) -> None:
    """Print word alignments: one line of Pharaoh `i-j` links for each line of the file.

    Words are separated by spaces. Segment Chinese, Japanese and Thai first.

    Example: crossling align pairs.txt
    """
    from crossling.inference.word_links import check_methods

    check_methods([method])
    check_model(model)
    _check_files(file)
    with pause_garbage_collection():
        from crossling.inference.load_network import load_network

    for links in xl.align(load_network(model, precision), file, layer=layer, method=method):
        print(json.dumps(links) if json_ else " ".join(f"{i}-{j}" for i, j in links))


def embed(
    file: Annotated[Path, argument("FILE", "One sentence a line, plain or compressed (.gz, .xz, .zst).")],
    out: Annotated[Path, option("FILE", "Write this .npy file: row i is the vector of line i.", "-o", "--out")],
    model: Model = None,
    layer: Layer = None,
    pooling: Pooling = "auto",
    half: Annotated[bool, flag("--half", "Write float16.")] = False,
    precision: Precision = "auto",
    json_: Json = False,
) -> None:
    """Write the sentence vectors of a file of any length. Resumes where it was stopped.

    Example: crossling embed sentences.txt -o vectors.npy
    """
    from crossling.inference.pooling import check_pooling

    check_pooling(pooling)
    check_model(model)
    _check_files(file)
    from crossling.inference.encode_file import read_vectors

    with pause_garbage_collection():
        from crossling.inference.load_network import load_network

    written = xl.encode_file(load_network(model, precision), file, out, layer=layer, pooling=pooling, half=half)
    rows, width = read_vectors(written).shape
    print(json.dumps({"out": str(written), "sentences": rows, "width": width}) if json_ else written)
    program = python_command(f"import numpy as np; print(np.load({str(written)!r}).shape)")
    finish(f"Wrote {rows:,} vectors of width {width} to {written}.", program, json=json_)


def mine(
    first: Annotated[Path, argument("A", "One sentence a line, plain or compressed.")],
    second: Annotated[Path, argument("B", "Sentences in the other language.")],
    model: Model = None,
    layer: Layer = None,
    pooling: Pooling = "auto",
    margin: Annotated[str, option("MARGIN", "ratio, distance or absolute.", "--margin")] = "ratio",
    k: Annotated[int, option("K", "Neighbors in the margin.", "--k", min=1)] = 4,
    threshold: Annotated[float, option("SCORE", "Print pairs above this score.")] = 0.0,
    retrieval: Annotated[str, option("WAY", "max, forward, backward or intersection.", "--retrieval")] = "max",
    vectors: Annotated[
        list[Path] | None, option("FILE", "Vectors of crossling embed in place of a model: once for A, once for B.")
    ] = None,
    faiss: Annotated[bool, flag("--faiss", "Search clusters with faiss: faster, approximate.")] = False,
    precision: Precision = "auto",
    json_: Json = False,
) -> None:
    """Find translations in two files: score, source and target by tabs, best first.

    Each sentence occurs at most once, except on the searched side of --retrieval forward or backward.

    Example: crossling mine german.txt english.txt --threshold 1.05
    """
    from crossling.inference.pooling import check_pooling

    if vectors and len(vectors) != 2:
        raise BadInput(f"--vectors: expected it twice, for A and for B, found it {len(vectors)} times.")
    check_pooling(pooling)
    if not vectors:
        check_model(model)
    _check_files(first, second, *(vectors or ()))
    with pause_garbage_collection():
        from crossling.inference.load_network import load_network

    pairs = xl.mine(
        None if vectors else load_network(model, precision),
        first,
        second,
        layer=layer,
        pooling=pooling,
        margin=margin,
        k=k,
        threshold=threshold,
        retrieval=retrieval,
        vectors=(vectors[0], vectors[1]) if vectors else None,
        faiss=faiss,
    )
    found = 0
    for pair in pairs:
        found += 1
        if json_:
            print(json.dumps({"score": pair.score, "source": pair.source, "target": pair.target}, ensure_ascii=False))
        else:  # a tab inside a sentence would start a column
            print(f"{pair.score:.6f}", *(side.replace("\t", " ") for side in (pair.source, pair.target)), sep="\t")
    better = ["--threshold", GOOD_MARGIN] if margin == "ratio" and not threshold else []
    command = f"{this_command(*better)} > {shlex.quote(str(unused(Path('mined.tsv'))))}"
    finish(f"Printed {found:,} pairs, best first.", command, json=json_)


def predict(
    model: Annotated[Path, argument("TUNED", "Fine-tuned model, made by crossling finetune.")],
    file: Annotated[Path, argument("FILE", "Words in columns, sentences, texts, or questions with contexts.")],
    columns: Annotated[
        str | None, option("A,B", "Names or numbers of the columns of texts. [default: all, at most two]")
    ] = None,
    language: Annotated[str | None, option("LL", "Use the model of this language, if there is one.")] = None,
    out: OutFile = None,
    json_: Json = False,
) -> None:
    """Predict on a file with a fine-tuned model: tags, classes, answers, vectors or similarities.

    Example: crossling predict tuned sentences.txt -o tagged.tsv

    Sentence vectors: crossling predict embedding sentences.txt -o vectors.npy
    """
    check_folder(model, "Train the model with crossling finetune.")
    _check_files(file)
    from crossling.finetune.predict_file import format_row, predict_rows
    from crossling.finetune.sentence_vectors.predict_vectors import format_vectors, predict_vectors
    from crossling.finetune.sentence_vectors.vector_training import VECTOR_INFO

    chosen = columns.split(",") if columns else ()
    if out is not None:
        written = xl.predict(model, file, columns=chosen, language=language, out=out)
        print(json.dumps({"out": str(written)}) if json_ else written)
        return
    if VECTOR_INFO.exists(model):
        for row in predict_vectors(model, file, chosen):
            print(json.dumps(row, ensure_ascii=False) if json_ else format_vectors(row).removesuffix("\n"))
        return
    for row in predict_rows(xl.TunedModel.load(model, language), file, chosen):
        print(json.dumps(row, ensure_ascii=False) if json_ else format_row(row).removesuffix("\n"))


def translate(
    translator: Annotated[Path, argument("MT", "Translator made by crossling finetune.")],
    text: Annotated[Path, argument("FILE", "One sentence a line, plain or compressed; - for standard input.")],
    to: Annotated[str | None, option("LANG", "Target language, if the translator has several.")] = None,
    out: Annotated[Path | None, option("FILE", "Write to this file. Resumable.", "-o", "--out")] = None,
    beam: Annotated[int, option("N", "Beam size; 1 is greedy search.", min=1)] = 5,
    length_penalty: Annotated[float, option("X", "Above 0 favours longer translations.")] = 1.0,
    json_: Json = False,
) -> None:
    """Translate a file line by line to standard output, or to a file.

    Example: crossling translate mt sentences.de --to en -o sentences.en
    """
    check_folder(translator, "Train the model with crossling finetune MODEL --task translation.")
    if str(text) != "-":
        _check_files(text)
    from crossling.finetune.translation.translate import read_source_lines, stream

    model = xl.Translator.load(translator)
    if out is not None:
        written = xl.translate(model, text, to=to, out=out, beam=beam, length_penalty=length_penalty)
        print(json.dumps({"out": str(written)}) if json_ else written)
        finish(f"Wrote the translations to {written}.", shlex.join(["paste", str(text), str(written)]), json=json_)
        return
    for source, line in stream(model, read_source_lines(text), to, beam=beam, length_penalty=length_penalty):
        print(json.dumps({"source": source, "translation": line}, ensure_ascii=False) if json_ else line, flush=True)


def _check_files(*files: Path) -> None:
    for file in files:
        if not file.exists() and not file.with_name(f"{file.name}.gz").exists():
            raise BadInput(f"{file}: no such file. Check the name.")
