"""The verb that translates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from crossling.cli.options import Json


def translate(
    mt: Annotated[Path, typer.Argument(metavar="MT", help="A translator made by crossling finetune.")],
    file: Annotated[Path, typer.Argument(help="One sentence a line, plain or packed; - for standard input.")],
    to: Annotated[str | None, typer.Option(help="The language to translate into, if the model knows several.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file to write; one that was stopped is gone on with.")
    ] = None,
    beam: Annotated[int, typer.Option(help="Translations that are followed side by side; 1 is greedy.", min=1)] = 5,
    length_penalty: Annotated[float, typer.Option(help="Above 0, longer translations are preferred.")] = 1.0,
    json_: Json = False,
) -> None:
    """Translate a file line by line, printed as it goes, or into a file.

    Example: crossling translate mt sentences.de --to en -o sentences.en
    """
    from crossling.translation.translate import lines_of, open_translator, stream, translate

    translator = open_translator(mt)
    if out is not None:
        written = translate(translator, file, to=to, out=out, beam=beam, length_penalty=length_penalty)
        print(json.dumps({"out": str(written)}) if json_ else written)
        return
    for source, line in stream(translator, lines_of(file), to, beam, length_penalty):
        print(json.dumps({"source": source, "translation": line}, ensure_ascii=False) if json_ else line, flush=True)
