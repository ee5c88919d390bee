"""Translate sentences, a stream of lines, or a file. An interrupted file translation resumes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from pathlib import Path

import xxhash

from crossling.core.errors import BadInput
from crossling.core.locks import output_lock
from crossling.core.progress import Progress
from crossling.core.resumable import PartialOutput
from crossling.corpora.text_files import clean_line, count_lines
from crossling.finetune.translation.parallel_text import read_sentences, resolve_target
from crossling.finetune.translation.translator import DEFAULT_BEAM, Translator
from crossling.model.fingerprint import model_fingerprint

STDIN = "-"
WINDOW = 2_048  # lines that are sorted by length, translated and saved together
FIRST_WINDOW = 64  # smaller, so that the first translations appear soon


def translate(
    translator: Translator | str | os.PathLike[str],
    text: str | os.PathLike[str] | Sequence[str],
    *,
    to: str | None = None,
    out: str | os.PathLike[str] | None = None,
    beam: int = DEFAULT_BEAM,
    length_penalty: float = 1.0,
) -> list[str] | Path:
    """Translate a list of sentences, or a file with one sentence per line. The command line takes files only.

    Args:
        translator: Loaded translator, or its folder.
        text: Sentences, or the path of a file. `-` is standard input.
        to: Target language. [default: the only one of the translator]
        out: File to write, for a file only. Calling it again resumes an interrupted translation.
        beam: Beam size. 1 is greedy decoding.
        length_penalty: Exponent of the length. Values above 0 prefer longer translations.

    Returns:
        The translations, in the order of the lines, or the path `out`.

    Raises:
        BadInput: The folder, the language, the text or the output cannot be used.

    Example:
        >>> translate("mt", ["A dog runs."], to="de")
        ['Ein Hund rennt.']
        >>> translate("mt", "sentences.de", to="en", out="sentences.en")
    """
    model = translator if isinstance(translator, Translator) else Translator.load(translator)
    language = _check_options(model, to, beam)
    if not isinstance(text, str | os.PathLike):
        if out is not None:
            raise BadInput(f"out={out}: only a file is translated into a file. Use the path of one, or omit out.")
        lines: Iterable[str] = text
    elif out is not None:
        with output_lock(out):
            return _translate_file(model, Path(text), Path(out), to=language, beam=beam, length_penalty=length_penalty)
    else:
        lines = read_source_lines(Path(text))
    return [line for _, line in stream(model, lines, language, beam=beam, length_penalty=length_penalty)]


def stream(
    translator: Translator,
    text: Iterable[str],
    to: str | None,
    *,
    beam: int = DEFAULT_BEAM,
    length_penalty: float = 1.0,
) -> Iterator[tuple[str, str]]:
    """Yield each line with its translation, in order. The text may be endless."""
    language = _check_options(translator, to, beam)
    lines = iter(text)
    for size in chain([FIRST_WINDOW], repeat(WINDOW)):
        window = list(islice(lines, size))
        if not window:
            return
        translations = translator.translate(window, language, beam=beam, length_penalty=length_penalty)
        yield from zip(window, translations, strict=True)


def _translate_file(
    translator: Translator, file: Path, out: Path, *, to: str, beam: int, length_penalty: float
) -> Path:
    """Translate a file, or resume if text, model and settings are the same."""
    if out.is_dir():
        raise BadInput(f"out={out}: this is a folder. Use a file name.")
    if str(file) == STDIN:
        raise BadInput(f"out={out}: standard input cannot be resumed. Use a file, or redirect the output with > OUT.")
    if file.exists() and out.exists() and out.samefile(file):
        raise BadInput(f"out={out}: this is the file to translate, which would be lost. Use another name.")
    text = list(read_source_lines(file))
    description = {
        "model": model_fingerprint(translator.model),
        "text": xxhash.xxh3_64_hexdigest("\n".join(text).encode()),
        "to": to,
        "beam": beam,
        "length_penalty": length_penalty,
    }
    partial = PartialOutput(out, description)
    translations: list[str] = []
    while window := partial.done(str(len(translations))):  # keyed by the number of the first line
        translations += window
    note = f"lines into {to}"
    with Progress(f"translate {file.name}", len(text), len(translations)) as progress:
        for start in range(len(translations), len(text), WINDOW):
            window = translator.translate(
                text[start : start + WINDOW],
                to,
                beam=beam,
                length_penalty=length_penalty,
                on_progress=lambda lines: progress.advance(lines, note),
            )
            partial.record(str(start), window)
            translations += window
            progress.update(len(translations), note)
    complete = partial.folder / "translations.txt"
    complete.write_bytes("".join(f"{line}\n" for line in translations).encode())
    partial.publish(complete)
    return out


def _check_options(translator: Translator, to: str | None, beam: int) -> str:
    if beam < 1:
        raise BadInput(f"beam={beam}: expected at least 1.")
    return resolve_target(translator.directions, to, translator.name)


def read_source_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a file, plain or compressed, or of standard input."""
    if str(file) == STDIN:
        yield from (clean_line(line) for line in sys.stdin)
        return
    if not file.is_file():
        raise BadInput(f"{file}: no such file. Use a file with one sentence per line, or - for standard input.")
    if not count_lines(file):
        raise BadInput(f"{file}: the file is empty. Expected one sentence per line.")
    yield from read_sentences(file)
