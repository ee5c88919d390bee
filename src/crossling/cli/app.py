"""The program: its verbs in the order of the work, and how it ends."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import Annotated

import typer

from crossling import __version__
from crossling.cli.auditing import audit
from crossling.cli.data import babel, check, clean, encode, vocab
from crossling.cli.measuring import align, bench, demo, embed, evaluate, mine, report
from crossling.cli.studying import lab
from crossling.cli.training import export, inspect, pretrain
from crossling.cli.translating import translate
from crossling.cli.tuning import finetune
from crossling.errors import BadInput, Failed, Interrupted

VERBS = (
    *(demo, babel, check, clean, vocab, encode, inspect, pretrain, audit, finetune),
    *(evaluate, align, embed, mine, translate, report, export, lab, bench),
)

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS)
MISPLACED = (
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
)  # a file where a folder should be, ...

app = typer.Typer(
    help="Pre-train, adapt, fine-tune and evaluate cross-lingual language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in VERBS:  # --help shows them in this order
    app.command()(verb)


def _version(asked: bool) -> None:
    if asked:
        print(f"crossling {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit.")] = False,
) -> None:
    """Pre-train, adapt, fine-tune and evaluate cross-lingual language models."""


def main() -> None:
    """Turns every expected end into its sentence and its exit status."""
    # Threads that spin while they wait for each other make a busy machine up to five times slower; with few spins an
    # idle one loses some 7%. Must be set before torch is first imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its remarks on performance, once for every process
    warnings.showwarning = lambda message, *_, **__: print(f"crossling: note: {message}", file=sys.stderr)
    try:
        app()
    except BadInput as error:
        _end(str(error), 2)
    except Failed as error:
        _end(str(error), 1)
    except Interrupted as error:
        _end(str(error), 130)
    except SystemExit as end:
        if end.code == 130:  # Ctrl-C: typer has already taken the exception
            print("crossling: interrupted; the same command does the rest", file=sys.stderr)
        raise
    except OSError as error:
        if error.errno in MISPLACED:
            _end(f"{error.filename}: {error.strerror}; give another path", 2)
        # NumPy reports a full disk without a number: "1000 requested and 12 written".
        if error.errno not in DISK and not (error.errno is None and str(error).endswith(" written")):
            raise
        where, what = error.filename or "the output folder", error.strerror or f"no space left ({error})"
        _end(f"{where}: {what}; what was finished before is kept", 1)


def _end(sentence: str, status: int) -> None:
    if sentence:
        print(f"crossling: {sentence}", file=sys.stderr)
    sys.exit(status)
