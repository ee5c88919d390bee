"""Synthetic corpora on disk: text, bitext with optional noise, and the multi-way corpus."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from crossling.core.errors import BadInput
from crossling.core.settings import PROBABILITY, check_bounds
from crossling.synthetic.frames import Frame
from crossling.synthetic.heldout import HeldOut, Pair, write_text
from crossling.synthetic.language import LanguageFamily, SyntheticLanguage, join_words

Row = tuple[str, str]
CROWD = 8  # sources per target of many-to-one noise


@dataclass(frozen=True)
class BitextNoise:
    """Proportions of the pairs of each file that get each kind of noise. A pair gets at most one kind.

    Args:
        wrong: Target of another pair.
        copies: Target equal to the source.
        near_duplicates: Another pair with a small edit.
        many_to_one: Several sources with the target of one other pair.

    Example:
        >>> noise = BitextNoise(wrong=0.05, copies=0.02)
    """

    wrong: Annotated[float, PROBABILITY] = 0.0
    copies: Annotated[float, PROBABILITY] = 0.0
    near_duplicates: Annotated[float, PROBABILITY] = 0.0
    many_to_one: Annotated[float, PROBABILITY] = 0.0

    def __post_init__(self) -> None:
        check_bounds(self, "noise")
        total = sum(asdict(self).values())
        if total > 1:
            raise BadInput(f"noise: the proportions add up to {total:g}, expected at most 1. Lower some.")


class NoiseRecord(NamedTuple):
    """Noise of kind `kind` in row `row`, made with row `origin`; rows count from 0."""

    row: int
    kind: str
    origin: int


def add_noise(rows: list[Row], noise: BitextNoise, rng: random.Random) -> tuple[list[Row], list[NoiseRecord]]:
    """Return the rows with noise, and a record of each noisy row."""
    order = rng.sample(range(len(rows)), len(rows))
    kinds = [kind for kind, proportion in asdict(noise).items() for _ in range(round(proportion * len(rows)))]
    kinds = kinds[: len(rows)]
    intact = order[len(kinds) :] or order  # repeated rows also occur without noise, if any row has none
    noisy = list(rows)
    record: list[NoiseRecord] = []
    crowd = 0
    for row, kind in zip(order, kinds, strict=False):
        origin = row if kind == "copies" else _other(rows, row, intact, rng)
        if kind == "many_to_one":
            crowd += 1
            if crowd % CROWD != 1 and rows[record[-1].origin][1] != rows[row][1]:
                origin = record[-1].origin
        noisy[row] = _noisy_row(kind, rows[row], rows[origin], rng)
        record.append(NoiseRecord(row, kind, origin))
    return noisy, sorted(record)


def _noisy_row(kind: str, row: Row, origin: Row, rng: random.Random) -> Row:
    if kind == "copies":
        return row[0], row[0]
    return _edit(origin[0], rng) if kind == "near_duplicates" else row[0], origin[1]


def _other(rows: list[Row], row: int, intact: list[int], rng: random.Random) -> int:
    """Sample an intact row with another target."""
    for _ in range(1000):
        other = rng.choice(intact)
        if rows[other][1] != rows[row][1]:
            return other
    raise AssertionError("all rows of a pair have the same target")


def _edit(sentence: str, rng: random.Random) -> str:
    """Delete a word, repeat it, or swap it with the next one."""
    words = sentence.split(" ")
    at = rng.randrange(len(words) - 1)
    word, following = words[at : at + 2]
    words[at : at + 2] = ([following], [word, word, following], [following, word])[rng.randrange(3)]
    return " ".join(words)


MULTI = "multi"


@dataclass(frozen=True)
class SyntheticCorpora:
    """Writes the corpora of a language family and registers their content with `heldout`."""

    folder: Path
    family: LanguageFamily
    heldout: HeldOut

    def text(self, language: SyntheticLanguage, sentences: int) -> None:
        """Write text: one sentence a line, a blank line between documents."""
        part = f"text/{language.code}"
        rng = self._rng(f"render/{part}")
        written = []
        for document in self._documents(part, sentences):
            lines = [join_words(language.render(frame, rng)) for frame in document]
            self._register(language, lines)
            written.append("\n".join(lines) + "\n")
        write_text(self.folder / "text" / f"{language.code}.txt", "\n".join(written))

    def pair(
        self, source: SyntheticLanguage, target: SyntheticLanguage, rows: int, noise: BitextNoise
    ) -> list[dict[str, Any]]:
        """Write bitext as source TAB target, and return the record of noisy rows."""
        name = f"{source.code}-{target.code}"
        part = f"pairs/{name}"
        rng = self._rng(f"render/{part}")
        clean = [
            (join_words(source.render(frame, rng)), join_words(target.render(frame, rng)))
            for document in self._documents(part, rows)
            for frame in document
        ]
        written, record = add_noise(clean, noise, self._rng(f"noise/{part}"))
        self._register(source, [row[0] for row in written])
        self._register(target, [row[1] for row in written])
        lines = "".join(f"{left}\t{right}\n" for left, right in written)
        write_text(self.folder / "pairs" / f"synthetic.{name}.tsv", lines)
        return [{"pair": name, **one._asdict()} for one in record]

    def multi(self, resources: Resources) -> None:
        """Write the multi-way corpus: line i of every file is the same sentence, or empty."""
        rng, languages = self._rng(f"render/{MULTI}"), self.family.languages
        columns: dict[str, list[str]] = {language.code: [] for language in languages}
        for document in self._documents(MULTI, resources.multi):
            for frame in document:
                present = [rng.random() < resources.coverage[language.code] for language in languages]
                if sum(present) < 2:
                    present[:2] = [True, True]
                for language, has in zip(languages, present, strict=True):
                    columns[language.code].append(join_words(language.render(frame, rng)) if has else "")
        for language in languages:
            self._register(language, columns[language.code])
            lines = "".join(line + "\n" for line in columns[language.code])
            write_text(self.folder / "multi" / "synthetic" / f"{language.code}.txt", lines)

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.family.seed}/{purpose}")

    def _documents(self, part: str, sentences: int) -> Iterator[list[Frame]]:
        """Yield the documents of a part and register their content."""
        for document in self.family.documents(part, sentences):
            for frame in document:
                self.heldout.add_training_frame(frame)
            yield document

    def _register(self, language: SyntheticLanguage, lines: list[str]) -> None:
        for line in lines:
            self.heldout.add_training_text(language.code, line)


# Languages have unequal amounts of text and bitext, so that sampling matters.
RESOURCE_EXPONENT = 0.7  # the language of rank r has r^-0.7 of the sentences of the first one
MIN_ROWS = 20  # of any file
MAX_LANGUAGES_ALL_PAIRS = 8  # with more languages, only some pairs have bitext


@dataclass(frozen=True)
class Resources:
    """Sentences by language, rows by pair, rows of the multi-way corpus, and its coverage by language."""

    text: dict[str, int]
    pairs: dict[Pair, int]
    multi: int
    coverage: dict[str, float]

    @classmethod
    def plan(cls, codes: list[str], sentences: int) -> Resources:
        proportion = {code: rank**-RESOURCE_EXPONENT for rank, code in enumerate(codes, start=1)}
        return cls(
            text={code: max(MIN_ROWS, round(sentences * proportion[code])) for code in codes},
            pairs={
                (a, b): max(MIN_ROWS, round(sentences / 2 * proportion[a] * proportion[b]))
                for a, b in select_pairs(codes)
            },
            multi=max(MIN_ROWS, sentences // 5),
            coverage={code: round(proportion[code], 4) for code in codes},
        )


def select_pairs(codes: list[str]) -> list[Pair]:
    """Return every pair of a few languages; of many, each with the first and the next two in rank."""
    all_pairs = len(codes) <= MAX_LANGUAGES_ALL_PAIRS
    ranked = combinations(enumerate(codes), 2)
    return [(a, b) for (rank, a), (other, b) in ranked if all_pairs or rank == 0 or other - rank <= 2]
