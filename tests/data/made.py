"""Corpora written by hand, and what tells one state of a folder from another."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossling.corpora.corpus import Corpora
from crossling.data.shards import Sentences
from crossling.vocabulary.vocabulary import EOS, Vocabulary

SYLLABLES = ["ba", "de", "gi", "ko", "lu", "ma", "ne", "pi", "ro", "su", "ta", "ve"]


def line(number: int) -> str:
    """Words that tell the number, and no other number has."""
    draw = random.Random(number)
    digits = "".join(SYLLABLES[int(digit)] for digit in str(number))
    return " ".join([digits, *("".join(draw.choices(SYLLABLES, k=3)) for _ in range(draw.randint(0, 7)))])


def lines(start: int, count: int) -> list[str]:
    return [line(number) for number in range(start, start + count)]


HOLES = {"de": {1, 2}, "en": {2, 5}, "sw": {0, 2}, "zu": set(range(8))}  # rows that a language lacks; zu has 8 and 9
FILES: dict[str, list[str]] = {
    "text/en.txt": [*lines(0, 5), "", *lines(5, 3), "", "", *lines(8, 2)],
    "text/sw.txt": lines(100, 7),
    "pairs/en-sw.tsv": [f"{line(200 + i)}\t{line(300 + i)}" for i in range(9)],
    "pairs/news.en-sw.en": lines(400, 6),
    "pairs/news.en-sw.sw": lines(500, 6),
    **{
        f"multi/bible/{language}.txt": ["" if row in holes else line(1000 * (i + 1) + row) for row in range(10)]
        for i, (language, holes) in enumerate(HOLES.items())
    },
}


def put(root: Path, files: Mapping[str, Sequence[str] | bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content if isinstance(content, bytes) else ("\n".join(content) + "\n").encode())
    return root


def trained(root: Path, size: int) -> Path:
    put(root / "corpora", {"text/en.txt": lines(0, 400)})
    Vocabulary.train(Corpora(root / "corpora"), size, threads=1).save(root / "vocab")
    return root / "vocab"


def decoded(sentences: Sentences, vocabulary: Path) -> list[str]:
    pieces = Vocabulary.load(vocabulary).pieces
    found = []
    for index in range(len(sentences)):
        ids = sentences[index].tolist()
        assert not ids or (ids[-1] == EOS and EOS not in ids[:-1] and len(ids) > 1)
        found.append(pieces.decode(ids[:-1]))
    return found


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """What tells whether a file was written again."""
    stats = {str(file.relative_to(folder)): file.stat() for file in folder.rglob("*") if file.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def leftovers(folder: Path) -> list[Path]:
    """Locks, slices, temporary neighbours, and folders of shards without their last file."""
    hidden = [file for file in folder.rglob("*") if file.name.startswith(".")]
    places = [*folder.glob("text/[!.]*"), *folder.glob("pairs/[!.]*"), *folder.glob("multi/*/[!.]*")]
    return hidden + [place for place in places if not (place / "entry.json").is_file()]


class Stopped(BaseException):
    """Like KeyboardInterrupt: no Exception."""


def failing(call: Callable[..., Any], after: int, error: BaseException) -> Callable[..., Any]:
    """The call, which works so many times and then no more."""
    calls = iter(range(after))

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise error
        return call(*arguments, **options)

    return wrapped
