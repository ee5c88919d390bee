"""Training data on disk: text of each language, bitext of pairs, and the multi-way corpus."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.babel.heldout import HeldOut
from crossling.babel.language import Language, text
from crossling.babel.noise import Noise, damage
from crossling.babel.resources import Resources
from crossling.babel.story import documents
from crossling.babel.world import World

MULTI = "multi"


@dataclass(frozen=True)
class Corpora:
    """Writes the corpora of a family of languages, and tells `heldout` all that they say."""

    folder: Path
    world: World
    seed: int
    heldout: HeldOut

    def text(self, language: Language, sentences: int) -> None:
        """One sentence a line, a blank line between documents."""
        part = f"text/{language.code}"
        rng = random.Random(f"{self.seed}/render/{part}")
        written = []
        for document in documents(self.world, self.seed, part, sentences):
            lines = []
            for frame in document:
                self.heldout.saw(frame)
                lines.append(text(language.render(frame, rng)))
            self._saw(language, lines)
            written.append("\n".join(lines) + "\n")
        _write(self.folder / "text" / f"{language.code}.txt", "\n".join(written))

    def pair(self, source: Language, target: Language, rows: int, noise: Noise) -> list[dict[str, Any]]:
        """Source TAB target; what noise did to which row is returned."""
        name = f"{source.code}-{target.code}"
        part = f"pairs/{name}"
        rng = random.Random(f"{self.seed}/render/{part}")
        clean = []
        for document in documents(self.world, self.seed, part, rows):
            for frame in document:
                self.heldout.saw(frame)
                clean.append((text(source.render(frame, rng)), text(target.render(frame, rng))))
        written, record = damage(clean, noise, random.Random(f"{self.seed}/noise/{part}"))
        self._saw(source, [row[0] for row in written])
        self._saw(target, [row[1] for row in written])
        _write(self.folder / "pairs" / f"babel.{name}.tsv", "".join(f"{left}\t{right}\n" for left, right in written))
        return [{"pair": name, **one._asdict()} for one in record]

    def multi(self, languages: list[Language], resources: Resources) -> None:
        """Line i of every file is the same sentence, or empty where a language lacks the translation."""
        rng = random.Random(f"{self.seed}/render/{MULTI}")
        columns: dict[str, list[str]] = {language.code: [] for language in languages}
        for document in documents(self.world, self.seed, MULTI, resources.multi):
            for frame in document:
                self.heldout.saw(frame)
                having = [rng.random() < resources.coverage[language.code] for language in languages]
                if sum(having) < 2:
                    having[:2] = [True, True]
                for language, has in zip(languages, having, strict=True):
                    columns[language.code].append(text(language.render(frame, rng)) if has else "")
        for language in languages:
            self._saw(language, columns[language.code])
            lines = "".join(line + "\n" for line in columns[language.code])
            _write(self.folder / "multi" / "babel" / f"{language.code}.txt", lines)

    def _saw(self, language: Language, lines: list[str]) -> None:
        for line in lines:
            self.heldout.saw_text(language.code, line)


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8", newline="\n")
