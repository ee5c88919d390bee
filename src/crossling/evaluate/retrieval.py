"""Sentence retrieval on Tatoeba: of all sentences of the other language, is the nearest by cosine the translation?

Protocol `sweep`: pooling and cosine as in XTREME, but at every layer and in both directions. Equal sentences of a side
are one candidate, and finding it is right for each of their lines. `xtreme` is kept for what its scripts compute
themselves.
"""
# N queries, M candidates, K layers with the embeddings, D width

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crossling.corpora.languages import canonical
from crossling.errors import BadInput
from crossling.evaluate.cosine import unit
from crossling.evaluate.encode import Encoder
from crossling.evaluate.lines import read_lines
from crossling.evaluate.scores import Row, Score

QUERIES_AT_ONCE = 1024
# The languages the papers average over: InfoXLM Tables 2 and 3 (with and without bitext), XLM-E §4.6.
WITH_BITEXT = "ar bg de el es fr hi ru sw th tr ur vi zh"
WITHOUT_BITEXT = "af bn et eu fa fi he hu id it ja jv ka kk ko ml mr nl pt ta te tl"
LISTS = {
    "tatoeba-14": WITH_BITEXT,
    "tatoeba-22": WITHOUT_BITEXT,
    "tatoeba-36": f"{WITH_BITEXT} {WITHOUT_BITEXT}",
}
_FILE = re.compile(r"tatoeba\.(?P<pair>[^.]+-[^.]+)\.[^.]+(\.gz)?")


@dataclass(frozen=True)
class Side:
    language: str
    sentences: list[str]


@dataclass(frozen=True)
class Bitext:
    """Two sides; line i of one translates line i of the other."""

    first: Side
    second: Side


def read_tatoeba(data: Path) -> list[Bitext]:
    """All pairs of DATA/tatoeba/v1, in the order of their names."""
    folder = data / "tatoeba" / "v1"
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; put the files tatoeba.XXX-eng.{{XXX,eng}} there")
    names = {match["pair"] for file in folder.iterdir() if (match := _FILE.fullmatch(file.name))}
    if not names:
        raise BadInput(f"{folder}: no files named tatoeba.XXX-YYY.XXX here; put the benchmark there")
    return [_read_pair(folder, name) for name in sorted(names)]


def tatoeba(encoder: Encoder, data: Path, pooling: str = "mean") -> list[Row]:
    bitexts = read_tatoeba(data)
    vectors = _Vectors(encoder, pooling, [side for bitext in bitexts for side in (bitext.first, bitext.second)])
    rows = []
    for bitext in bitexts:
        first_NKD, second_NKD = vectors.of(bitext.first), vectors.of(bitext.second)
        for layer in range(encoder.layers + 1):
            for query, candidate, query_ND, candidate_ND in (
                (bitext.first, bitext.second, first_NKD[:, layer], second_NKD[:, layer]),
                (bitext.second, bitext.first, second_NKD[:, layer], first_NKD[:, layer]),
            ):
                language, direction = _names(bitext, query, candidate)
                score = Score(
                    model=encoder.name,
                    task="tatoeba",
                    protocol="sweep",
                    metric="accuracy",
                    language=language,
                    direction=direction,
                    layer=layer,
                    pooling=pooling,
                    seed=encoder.seed,
                    examples=len(query.sentences),
                    value=accuracy(query_ND, candidate_ND, candidate.sentences),
                )
                rows.append(score.row())
    return rows


def by_list(rows: Sequence[Row]) -> list[Row]:
    """The Tatoeba rows once more for each list of the papers they belong to, under its name; a list that is not whole
    says so: `tatoeba-36 (28 of 36)`."""
    found = []
    for name, names in LISTS.items():
        languages = names.split()
        chosen = [row for row in rows if row["task"] == "tatoeba" and row["language"] in languages]
        present = len({row["language"] for row in chosen})
        title = name if present == len(languages) else f"{name} ({present} of {len(languages)})"
        found += [{**row, "task": title} for row in chosen]
    return found


def accuracy(query_ND: np.ndarray, candidate_ND: np.ndarray, candidates: Sequence[str]) -> float:
    """Percent of queries whose nearest candidate is the sentence of their own line."""
    place = {
        sentence: row for row, sentence in reversed(list(enumerate(candidates)))
    }  # the first line of each sentence
    truth_N = np.array([place[sentence] for sentence in candidates])
    distinct_M = np.unique(truth_N)
    found_N = distinct_M[nearest_rows(query_ND, candidate_ND[distinct_M])]
    return 100 * float(np.mean(found_N == truth_N))


def nearest_rows(query_ND: np.ndarray, candidate_MD: np.ndarray) -> np.ndarray:
    """For each query the row of the candidate with the largest cosine; of equals the first."""
    candidate_MD = unit(candidate_MD)
    chunks = [
        (unit(query_ND[start : start + QUERIES_AT_ONCE]) @ candidate_MD.T).argmax(axis=1)
        for start in range(0, len(query_ND), QUERIES_AT_ONCE)
    ]
    return np.concatenate(chunks)


class _Vectors:
    """Sentence vectors, each computed once and kept only while a side still to come needs it."""

    def __init__(self, encoder: Encoder, pooling: str, sides: Sequence[Side]) -> None:
        self.encoder = encoder
        self.pooling = pooling
        self.uses = Counter((side.language, sentence) for side in sides for sentence in set(side.sentences))
        self.kept: dict[tuple[str, str], np.ndarray] = {}

    def of(self, side: Side) -> np.ndarray:
        """[N, K, D] for the next side in order."""
        distinct = list(dict.fromkeys(side.sentences))
        new = [sentence for sentence in distinct if (side.language, sentence) not in self.kept]
        new_KMD = self.encoder.pooled(new, self.pooling)
        for row, sentence in enumerate(new):
            self.kept[side.language, sentence] = new_KMD[:, row].copy()  # a view would keep the whole array alive
        vectors_NKD = np.stack([self.kept[side.language, sentence] for sentence in side.sentences])
        for sentence in distinct:
            self.uses[side.language, sentence] -= 1
            if not self.uses[side.language, sentence]:
                del self.kept[side.language, sentence]
        return vectors_NKD


def _read_pair(folder: Path, name: str) -> Bitext:
    codes = name.split("-")
    if len(codes) != 2:
        raise BadInput(f"{folder}: the name tatoeba.{name} is no pair of languages, expected XXX-YYY; rename the file")
    sides = []
    for code in codes:
        path = folder / f"tatoeba.{name}.{code}"
        sentences = read_lines(path)
        if not all(sentence.strip() for sentence in sentences):
            line = next(number for number, sentence in enumerate(sentences, start=1) if not sentence.strip())
            raise BadInput(f"{path}: line {line} is empty, expected a sentence; remove the line from both sides")
        sides.append(Side(canonical(code), sentences))
    first, second = sides
    if len(first.sentences) != len(second.sentences):
        raise BadInput(
            f"{folder / f'tatoeba.{name}'}: {len(first.sentences)} lines in .{codes[0]} but {len(second.sentences)} "
            f"in .{codes[1]}, expected line i to translate line i; fetch the files again"
        )
    return Bitext(first, second)


def _names(bitext: Bitext, query: Side, candidate: Side) -> tuple[str, str]:
    """Language and direction of a row: as the papers do with English, else by the codes of both."""
    first, second = bitext.first.language, bitext.second.language
    if "en" in (first, second):
        return (second if first == "en" else first), ("en-xx" if query.language == "en" else "xx-en")
    return f"{first}-{second}", f"{query.language}-{candidate.language}"
