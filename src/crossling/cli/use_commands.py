"""Commands that use a model: align, embed, mine, translate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from crossling.cli.options import Json, Layer, Model, Pooling
from crossling.core.errors import BadInput


def align(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines of `source ||| target`.")],
    model: Model = None,
    layer: Layer = None,
    method: Annotated[str, typer.Option("--method", metavar="METHOD", help="ot, argmax or itermax.")] = "ot",
    json_: Json = False,
) -> None:
    """Print word alignments: one line of Pharaoh `i-j` links for each line of the file.

    Words are separated by spaces. Segment Chinese, Japanese and Thai first.

    Example: crossling align pairs.txt
    """
    from crossling.bundled import folder
    from crossling.core.hub import find_local_folder
    from crossling.inference.word_links import check_methods

    check_methods([method])
    find_local_folder(model or folder())
    _check_files(file)
    from crossling.inference.align_file import align
    from crossling.inference.load import load

    for links in align(load(model), file, layer=layer, method=method):
        print(json.dumps(links) if json_ else " ".join(f"{i}-{j}" for i, j in links))


def embed(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="One sentence a line, plain or compressed (.gz, .xz, .zst).")
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="Write this .npy file: row i is the vector of line i.")
    ],
    model: Model = None,
    layer: Layer = None,
    pooling: Pooling = "mean",
    half: Annotated[bool, typer.Option("--half", help="Write float16.")] = False,
    json_: Json = False,
) -> None:
    """Write the sentence vectors of a file of any length. Resumes where it was stopped.

    Example: crossling embed sentences.txt -o vectors.npy
    """
    from crossling.bundled import folder
    from crossling.core.hub import find_local_folder
    from crossling.inference.pooling import check_pooling

    check_pooling(pooling)
    find_local_folder(model or folder())
    _check_files(file)
    from crossling.inference.encode_file import encode_file, read_vectors
    from crossling.inference.load import load

    written = encode_file(load(model), file, out, layer=layer, pooling=pooling, half=half)
    rows, width = read_vectors(written).shape
    print(json.dumps({"out": str(written), "sentences": rows, "width": width}) if json_ else written)


def mine(
    first: Annotated[Path, typer.Argument(metavar="A", help="One sentence a line, plain or compressed.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Sentences in the other language.")],
    model: Model = None,
    layer: Layer = None,
    pooling: Pooling = "mean",
    margin: Annotated[str, typer.Option("--margin", metavar="MARGIN", help="ratio, distance or absolute.")] = "ratio",
    neighbours: Annotated[int, typer.Option("--k", metavar="K", help="Neighbours in the margin.", min=1)] = 4,
    threshold: Annotated[float, typer.Option(metavar="SCORE", help="Print pairs above this score.")] = 0.0,
    vectors: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Vectors of crossling embed in place of a model: once for A, once for B."),
    ] = None,
    faiss: Annotated[bool, typer.Option("--faiss", help="Search clusters with faiss: faster, approximate.")] = False,
    json_: Json = False,
) -> None:
    """Find translations in two files: score, source and target by tabs, best first, each sentence at most once.

    Example: crossling mine german.txt english.txt --threshold 1.05
    """
    from crossling.bundled import folder
    from crossling.core.hub import find_local_folder
    from crossling.inference.pooling import check_pooling

    if vectors and len(vectors) != 2:
        raise BadInput(f"--vectors: expected it twice, for A and for B, found it {len(vectors)} times.")
    check_pooling(pooling)
    if not vectors:
        find_local_folder(model or folder())
    _check_files(first, second, *(vectors or ()))
    from crossling.inference.load import load
    from crossling.inference.mining import mine

    pairs = mine(
        None if vectors else load(model),
        first,
        second,
        layer=layer,
        pooling=pooling,
        margin=margin,
        k=neighbours,
        threshold=threshold,
        vectors=(vectors[0], vectors[1]) if vectors else None,
        faiss=faiss,
    )
    for pair in pairs:
        if json_:
            print(json.dumps({"score": pair.score, "source": pair.source, "target": pair.target}, ensure_ascii=False))
        else:  # a tab inside a sentence would start a column
            print(f"{pair.score:.6f}", *(side.replace("\t", " ") for side in (pair.source, pair.target)), sep="\t")


def translate(
    mt: Annotated[Path, typer.Argument(metavar="MT", help="Translator made by crossling finetune.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="One sentence a line, plain or compressed; - for standard input.")
    ],
    to: Annotated[
        str | None, typer.Option(metavar="LANG", help="Target language, if the translator has several.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write to this file. Resumable.")
    ] = None,
    beam: Annotated[int, typer.Option(metavar="N", help="Beam size; 1 is greedy search.", min=1)] = 5,
    length_penalty: Annotated[float, typer.Option(metavar="X", help="Above 0 favours longer translations.")] = 1.0,
    json_: Json = False,
) -> None:
    """Translate a file line by line to standard output, or to a file.

    Example: crossling translate mt sentences.de --to en -o sentences.en
    """
    from crossling.finetune.translation.translate import read_source_lines, stream, translate
    from crossling.finetune.translation.translator import Translator

    translator = Translator.load(mt)
    if out is not None:
        written = translate(translator, file, to=to, out=out, beam=beam, length_penalty=length_penalty)
        print(json.dumps({"out": str(written)}) if json_ else written)
        return
    for source, line in stream(translator, read_source_lines(file), to, beam=beam, length_penalty=length_penalty):
        print(json.dumps({"source": source, "translation": line}, ensure_ascii=False) if json_ else line, flush=True)


def _check_files(*files: Path) -> None:
    for file in files:
        if not file.exists() and not file.with_name(f"{file.name}.gz").exists():
            raise BadInput(f"{file}: no such file. Check the name.")
