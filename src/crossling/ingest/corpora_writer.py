"""Write a folder of corpora as a whole: earlier files stay, and a failed input leaves nothing behind."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from crossling.core.files import link_or_copy

_NOT_IN_NAMES = re.compile(r"[^\w+-]+")
_IGNORED = re.compile("readme|licen[cs]e", re.IGNORECASE)  # names that are no data in a folder of corpora


class CorporaWriter:
    """Adds text and translations to a copy of a folder of corpora.

    Args:
        folder: Empty folder to write. It becomes the output.
        earlier: Folder of earlier output, whose files are kept. It may be missing.
    """

    def __init__(self, folder: Path, earlier: Path) -> None:
        self.folder, self.earlier = folder, earlier
        self.sizes: dict[Path, int] = {}  # of the files that are extended, before that

    def new_name(self, name: str, languages: Sequence[str]) -> str:
        """Return the name of a collection that is not used yet, from that of a file."""
        plain = _NOT_IN_NAMES.sub("-", name).strip("-")
        plain = f"corpus-{plain}" if _IGNORED.match(plain) else plain
        numbered = (plain if number == 1 else f"{plain or 'part'}-{number}" for number in range(1, 1 << 20))
        return next(each for each in numbered if not self._is_used(each, languages))

    def _is_used(self, name: str, languages: Sequence[str]) -> bool:
        if len(languages) == 1:
            return False
        if len(languages) > 2 and not name:
            return True
        files = corpus_files(name, languages)
        return any((folder / file).exists() for folder in (self.folder, self.earlier) for file in files)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Remove what the block wrote if it fails."""
        self.sizes = {}
        try:
            yield
        except BaseException:
            for path, size in self.sizes.items():
                with path.open("ab") as handle:
                    handle.truncate(size)
            raise
        finally:
            for path in self.sizes:
                if path.stat().st_size == 0:
                    path.unlink()

    @contextmanager
    def open(self, files: Sequence[str]) -> Iterator[list[IO[str]]]:
        """Open files of the output to append to them, inside of `all_or_nothing`."""
        paths = [self.folder / file for file in files]
        with ExitStack() as stack:
            for path, file in zip(paths, files, strict=True):
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists() and (self.earlier / file).exists():
                    shutil.copyfile(self.earlier / file, path)
                self.sizes.setdefault(path, path.stat().st_size if path.exists() else 0)
            yield [stack.enter_context(path.open("a", encoding="utf-8", newline="\n")) for path in paths]

    def finish(self) -> None:
        """Take over the earlier files that were not extended."""
        for file in sorted(self.earlier.rglob("*")) if self.earlier.is_dir() else []:
            target = self.folder / file.relative_to(self.earlier)
            if file.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(file, target)
        for folder in sorted((path for path in self.folder.rglob("*") if path.is_dir()), reverse=True):
            if not any(folder.iterdir()):
                folder.rmdir()


def corpus_files(name: str, languages: Sequence[str]) -> tuple[str, ...]:
    """Return the files of a corpus in a folder of corpora.

    Args:
        name: Name of the collection. It may be empty for up to two languages.
        languages: One language of text, two of a pair, more of a multi-way corpus.
    """
    if len(languages) == 1:
        return (f"text/{languages[0]}.txt",)
    if len(languages) == 2:
        return (f"pairs/{'.'.join(filter(None, [name, '-'.join(languages)]))}.tsv",)
    return tuple(f"multi/{name}/{language}.txt" for language in languages)
