"""Small corpora, and helpers that compare the files of a folder."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from crossling.corpora.corpus import Corpora
from crossling.data.shards import TokenizedSentences
from crossling.vocabulary.vocabulary import EOS, Vocabulary

SYLLABLES = ["ba", "de", "gi", "ko", "lu", "ma", "ne", "pi", "ro", "su", "ta", "ve"]


def line(number: int) -> str:
    """Return a line that is different for each number."""
    rng = random.Random(number)
    digits = "".join(SYLLABLES[int(digit)] for digit in str(number))
    return " ".join([digits, *("".join(rng.choices(SYLLABLES, k=3)) for _ in range(rng.randint(0, 7)))])


def lines(start: int, count: int) -> list[str]:
    return [line(number) for number in range(start, start + count)]


EMPTY_ROWS = {
    "de": {1, 2},
    "en": {2, 5},
    "sw": {0, 2},
    "zu": set(range(8)),
}  # rows without a translation; zu has 8 and 9
FILES: dict[str, list[str]] = {
    "text/en.txt": [*lines(0, 5), "", *lines(5, 3), "", "", *lines(8, 2)],
    "text/sw.txt": lines(100, 7),
    "pairs/en-sw.tsv": [f"{line(200 + i)}\t{line(300 + i)}" for i in range(9)],
    "pairs/news.en-sw.en": lines(400, 6),
    "pairs/news.en-sw.sw": lines(500, 6),
    **{
        f"multi/bible/{language}.txt": ["" if row in empty else line(1000 * (i + 1) + row) for row in range(10)]
        for i, (language, empty) in enumerate(EMPTY_ROWS.items())
    },
}


def write_files(root: Path, files: Mapping[str, Sequence[str] | bytes]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text if isinstance(text, bytes) else ("\n".join(text) + "\n").encode())
    return root


def train_vocabulary(root: Path, size: int) -> Path:
    write_files(root / "corpora", {"text/en.txt": lines(0, 400)})
    Vocabulary.train(Corpora(root / "corpora"), size, threads=1).save(root / "vocab")
    return root / "vocab"


def decode(sentences: TokenizedSentences, vocabulary: Path) -> list[str]:
    processor = Vocabulary.load(vocabulary).processor
    texts = []
    for index in range(len(sentences)):
        ids = sentences[index].tolist()
        assert not ids or (ids[-1] == EOS and EOS not in ids[:-1] and len(ids) > 1)
        texts.append(processor.decode(ids[:-1]))
    return texts


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def file_states(folder: Path) -> dict[str, tuple[int, int]]:
    """Return values that change when a file is written again."""
    stats = {str(file.relative_to(folder)): file.stat() for file in folder.rglob("*") if file.is_file()}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def unfinished_files(folder: Path) -> list[Path]:
    """Return locks, slices, temporary files, and folders of shards without entry.json."""
    hidden = [file for file in folder.rglob("*") if file.name.startswith(".")]
    parts = [*folder.glob("text/[!.]*"), *folder.glob("pairs/[!.]*"), *folder.glob("multi/*/[!.]*")]
    return hidden + [part for part in parts if not (part / "entry.json").is_file()]


class Interruption(BaseException):
    """Interruption that is no Exception, as KeyboardInterrupt."""


def fail_after(call: Callable[..., Any], after: int, error: BaseException) -> Callable[..., Any]:
    """Return a function that fails after so many calls."""
    calls = iter(range(after))

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise error
        return call(*arguments, **options)

    return wrapped


def record_calls(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[tuple[Any, ...]]:
    """Return a list that gets the arguments of every later call."""
    calls: list[tuple[Any, ...]] = []
    call = getattr(where, name)

    def wrapped(*arguments: Any) -> Any:
        calls.append(arguments)
        return call(*arguments)

    monkeypatch.setattr(where, name, wrapped)
    return calls
