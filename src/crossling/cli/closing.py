"""Last lines of a command on the terminal: what was written, and the next command to try.

They go to standard error, because standard output carries the result. Every path in them is one of this call, so that
the command can be pasted.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossling.core.progress import print_status

Command = Sequence[object]  # words after `crossling`

# Vocabulary entries to suggest, by the number of lines. SentencePiece refuses more than the text yields.
VOCABULARY_SIZES = {1_000_000: 32_000, 200_000: 16_000, 50_000: 8_000, 5_000: 2_000, 1_000: 1_000, 0: 400}
SMALL_RUN_TOKENS = 50_000_000  # shards with fewer tokens suggest the size `tiny`


def finish(written: str, *commands: Command | str, json: bool = False) -> None:
    """Print what a command wrote and what to do next.

    Args:
        written: Sentence about what was written and where.
        *commands: Next commands, each as its words, or as a sentence where no command follows.
        json: Print nothing, because the output is for a program.
    """
    if json:
        return
    print_status(written)
    for number, command in enumerate(commands):
        text = command if isinstance(command, str) else format_command(command)
        print_status(f"{'Next' if number == 0 else '  or'}: {text}")


def format_command(words: Command) -> str:
    """Return a command of crossling as it is typed in a shell."""
    return shlex.join(["crossling", *map(str, words)])


def this_command(*more: object) -> str:
    """Return the command that is running, with more words."""
    return format_command([*sys.argv[1:], *more])


def python_command(program: str) -> str:
    """Return the shell command that runs a line of Python."""
    return f'python -c "{program}"' if not set(program) & set('"$`\\!') else f"python -c {shlex.quote(program)}"


def unused(path: Path) -> Path:
    """Return a path that does not exist: `vocab`, or `vocab-2` if there is one."""
    candidates = (
        path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(1, 99)
    )
    return next((each for each in candidates if not each.exists()), path)


def vocabulary_size(lines: int) -> int:
    """Return a vocabulary size that suits a number of lines."""
    return next(size for least, size in VOCABULARY_SIZES.items() if lines >= least)


def vocab_command(corpora: str | Path, lines: int) -> Command:
    """Return the command that trains a vocabulary on corpora."""
    folder = Path() if "://" in str(corpora) else Path(corpora).parent
    return ["vocab", corpora, "--size", vocabulary_size(lines), "-o", unused(folder / "vocab")]


def training_command(verb: str, shards: Path, manifest: Mapping[str, Any]) -> Command:
    """Return the command that plans or trains a model on shards."""
    tokens = sum(entry["tokens"] for entry in manifest["text"].values())
    recipe = "rosetta" if manifest["text"] and (manifest["pairs"] or manifest["multi"]) else "xlm_r"
    size = "tiny" if tokens < SMALL_RUN_TOKENS else "small"
    out = ["-o", unused(shards.parent / "run")] if verb == "pretrain" else []
    return [verb, recipe, "--shards", shards, "--size", size, *out]


def repeated_option(name: str, values: Iterable[str] | None) -> list[str]:
    """Return an option once for each value."""
    return [word for value in values or () for word in (name, value)]
