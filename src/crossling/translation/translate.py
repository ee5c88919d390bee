"""A file or some lines, translated; what was begun is gone on with."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import xxhash

from crossling.corpora.files import Skip, clean, count_lines, lines
from crossling.disk import write_json
from crossling.errors import BadInput
from crossling.progress import Progress
from crossling.translation.directions import target
from crossling.translation.translator import BEAM, Translator, is_translator

STDIN = "-"
WINDOW = 2_048  # lines sorted by length together; also how often what is there so far is handed on and made safe
FIRST = 64  # lines of the first window: whoever waits sees something soon


def translate(
    mt: Translator | Path | str,
    text: Path | str | Sequence[str],
    *,
    to: str | None = None,
    out: Path | str | None = None,
    beam: int = BEAM,
    length_penalty: float = 1.0,
) -> list[str] | Path:
    """Translations of a list of lines, or of a file given by its path; with `out` they are written there, line i of
    line i, and the path is returned. `to` is needed where the model knows several languages."""
    translator = mt if isinstance(mt, Translator) else Translator.load(mt)
    language = _checked(translator, to, beam)
    if out is not None:
        if not isinstance(text, str | Path):
            raise BadInput("out: only a file is translated into a file; give the path of one, or leave out away")
        return write_translation(translator, Path(text), Path(out), language, beam, length_penalty)
    source = lines_of(Path(text)) if isinstance(text, str | Path) else text
    return [line for _, line in stream(translator, source, language, beam, length_penalty)]


def stream(
    translator: Translator, text: Iterable[str], to: str | None, beam: int = BEAM, length_penalty: float = 1.0
) -> Iterator[tuple[str, str]]:
    """Lines without end, each with its translation, in their order, some at a time."""
    language = _checked(translator, to, beam)
    rest = iter(text)
    for size in chain([FIRST], _forever(WINDOW)):
        window = list(islice(rest, size))
        if not window:
            return
        yield from zip(window, translator.translate(window, language, beam, length_penalty), strict=True)


def write_translation(translator: Translator, file: Path, out: Path, to: str, beam: int, length_penalty: float) -> Path:
    """Goes on where it was stopped, if file, model and settings are the same."""
    if out.is_dir():
        raise BadInput(f"{out}: this is a folder; give a name for the file")
    if str(file) == STDIN:
        raise BadInput("-o: what comes from a pipe cannot be gone on with; give a file, or write > OUT")
    if file.exists() and out.exists() and out.samefile(file):
        raise BadInput(f"-o {out}: this is the file to translate, which would be lost; give another name")
    text = list(lines_of(file))
    work = _Work(out, _what(translator, text, to, beam, length_penalty))
    done = work.done()
    with Progress(f"translate {file.name}", len(text), done) as progress:
        for start in range(done, len(text), WINDOW):
            window = text[start : start + WINDOW]
            at = start

            def told(more: int) -> None:
                nonlocal at
                at += more
                progress.update(at, f"lines into {to}")

            work.add(translator.translate(window, to, beam, length_penalty, told), start + len(window))
    work.finish()
    return out


def open_translator(mt: Path | str) -> Translator:
    if not is_translator(Path(mt)):
        raise BadInput(
            f"{mt}: no translator here; make one with crossling finetune MODEL --task translation --pairs LL-LL"
            " --data DIR -o MT"
        )
    return Translator.load(mt)


def _checked(translator: Translator, to: str | None, beam: int) -> str:
    if beam < 1:
        raise BadInput(f"--beam {beam}: expected at least 1")
    return target(translator.directions, to, translator.name)


def lines_of(file: Path) -> Iterator[str]:
    """Lines of a file, plain or packed, or of standard input; one that cannot be read is told of."""
    if str(file) == STDIN:
        yield from (clean(line) for line in sys.stdin)
        return
    if not file.is_file():
        raise BadInput(f"{file}: no such file; give a file with one sentence a line, or - for standard input")
    if not count_lines(file):
        raise BadInput(f"{file}: the file is empty, expected one sentence a line")
    for number, line in enumerate(lines(file), start=1):
        if isinstance(line, Skip):
            raise BadInput(f"{file}: line {number} cannot be read ({line.value}); mend or remove it")
        yield clean(line)


def _what(translator: Translator, text: Sequence[str], to: str, beam: int, length_penalty: float) -> dict[str, object]:
    weights = xxhash.xxh3_64()
    for name, values in sorted(translator.model.state_dict().items()):
        weights.update(name.encode())
        weights.update(values.detach().flatten()[:1024].float().cpu().numpy().tobytes())
    told = xxhash.xxh3_64_hexdigest("\n".join(text).encode())
    return {"model": weights.hexdigest(), "text": told, "to": to, "beam": beam, "length_penalty": length_penalty}


def _forever(size: int) -> Iterator[int]:
    while True:
        yield size


class _Work:
    """A translation in the making, beside where it will be: its lines, and how many bytes of them are right."""

    def __init__(self, out: Path, what: dict[str, object]) -> None:
        self.out, self.what = out, what
        self.part = out.with_name(f".{out.name}.part")
        self.state = out.with_name(f".{out.name}.json")

    def done(self) -> int:
        """Lines that are there already; what was written after them is cut off."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        try:
            state = json.loads(self.state.read_text(encoding="utf-8"))
            if state["what"] == self.what and self.part.stat().st_size >= state["bytes"]:
                with self.part.open("r+b") as file:
                    file.truncate(state["bytes"])
                return int(state["done"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        self.part.write_bytes(b"")
        return 0

    def add(self, translations: Sequence[str], done: int) -> None:
        with self.part.open("ab") as file:
            file.write("".join(f"{line}\n" for line in translations).encode())
            size = file.tell()
        write_json(self.state, {"what": self.what, "done": done, "bytes": size})

    def finish(self) -> None:
        self.part.replace(self.out)
        self.state.unlink(missing_ok=True)
