"""Sentence retrieval on Tatoeba: of all sentences of the other language, is the nearest by cosine the translation?

Protocol `sweep`: pooling and cosine as in XTREME, but at every layer and in both directions. Equal sentences of a side
are one candidate, and finding it is right for each of their lines.

Protocol `xtreme`: what its scripts compute. English asks, the mean of all positions but padding, one layer; equal
sentences are candidates each for itself, of which the first is found, so that it is wrong for the lines of the others.

Protocol `plug-in`: as `sweep`, but a vector is that of a sentence read with its translation (VECO's cross-attention).
"""
# N lines of the asking side, M of the other, both distinct where it says so; K layers with the embeddings, D width
# P pairs of protocol and layer

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from crossling.benchmarks.lines import read_lines
from crossling.corpora.languages import canonical
from crossling.errors import BadInput
from crossling.evaluate.cosine import unit
from crossling.evaluate.encode import Encoder
from crossling.evaluate.files import choose, tatoeba_files
from crossling.evaluate.measured import Measured, numbers, pair_name
from crossling.evaluate.predictions import Predicted
from crossling.evaluate.scores import Row, Score
from crossling.progress import Counted
from crossling.transfer.cuts import gathered

QUERIES_AT_ONCE = 1024
MEMORY = 2 << 30  # bytes of sentence vectors at all layers that are kept at once
# The languages the papers average over: InfoXLM Tables 2 and 3 (with and without bitext), XLM-E §4.6.
WITH_BITEXT = "ar bg de el es fr hi ru sw th tr ur vi zh"
WITHOUT_BITEXT = "af bn et eu fa fi he hu id it ja jv ka kk ko ml mr nl pt ta te tl"
LISTS = {
    "tatoeba-14": WITH_BITEXT,
    "tatoeba-22": WITHOUT_BITEXT,
    "tatoeba-36": f"{WITH_BITEXT} {WITHOUT_BITEXT}",
}
PLUG_IN = "plug-in"

Read = str | tuple[str, str]  # what a vector is of: a sentence, or one with its translation


@dataclass(frozen=True)
class Side:
    language: str
    sentences: list[str]
    file: Path | None = None  # they were read from
    translations: list[str] | None = None  # what each is read with, where cross-attention is plugged in

    @property
    def read(self) -> list[Read]:
        return list(
            self.sentences if self.translations is None else zip(self.sentences, self.translations, strict=True)
        )


@dataclass(frozen=True)
class Bitext:
    """Two sides; line i of one translates line i of the other."""

    first: Side
    second: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.first, self.second

    @property
    def name(self) -> str:
        return f"{self.first.language}-{self.second.language}"


def read_tatoeba(data: Path, languages: Sequence[str] | None = None) -> list[Bitext]:
    """All pairs of DATA/tatoeba/v1, or those of the languages, in the order of their names."""
    chosen = choose(tatoeba_files(data), languages, data / "tatoeba")
    names = {file.name.split(".")[1] for files in chosen.values() for file in files}
    return [_read_pair(data / "tatoeba" / "v1", name) for name in sorted(names)]


def tatoeba(
    encoder: Encoder,
    data: Path,
    languages: Sequence[str] | None = None,
    pooling: str = "mean",
    plug_in: bool = False,  # every sentence is read with its translation
) -> Iterator[Measured]:
    """Each pair of languages in both directions."""
    bitexts = read_tatoeba(data, languages)
    if plug_in:
        encoder.check_plug_in()
        bitexts = [_translated(bitext) for bitext in bitexts]
    groups = list(_groups(bitexts, encoder))
    distinct_of = [
        dict.fromkeys(each for bitext in group for side in bitext.sides for each in side.read) for group in groups
    ]
    with gathered("tatoeba"), Counted("tatoeba: sentences", sum(map(len, distinct_of))) as progress:
        for group, distinct in zip(groups, distinct_of, strict=True):
            rows = {each: row for row, each in enumerate(distinct)}
            sentences = [each if isinstance(each, str) else each[0] for each in distinct]
            translations = [each[1] for each in distinct] if plug_in else None
            pooled_KND = unit(encoder.pooled(sentences, pooling, told=progress.add, translations=translations))
            yield from _both_ways(encoder, group, rows, pooled_KND, pooling)


def _both_ways(
    encoder: Encoder, group: Sequence[Bitext], rows: dict[Read, int], pooled_KND: np.ndarray, pooling: str
) -> Iterator[Measured]:
    for bitext in group:
        first, second = (_Lines.of(side.read) for side in bitext.sides)
        first_KND, second_KMD = (pooled_KND[:, [rows[each] for each in side.distinct]] for side in (first, second))
        pairs = [
            nearest_both(one_ND, other_MD, encoder.model.device)
            for one_ND, other_MD in zip(first_KND, second_KMD, strict=True)
        ]
        forward_KN, back_KM = (np.stack(found) for found in zip(*pairs, strict=True))
        yield _scored(encoder, bitext, bitext.sides, second.found(forward_KN[:, first.of_line]), second, pooling)
        yield _scored(encoder, bitext, bitext.sides[::-1], first.found(back_KM[:, second.of_line]), first, pooling)


def xtreme_layer(layers: int) -> int:
    """XTREME leaves out the embeddings and takes index 7 of 12 blocks, the 8th, and index 13 of 24, the 14th. It knows
    no other depths: there it is the block two thirds up, as 8 of 12."""
    return {12: 8, 24: 14}.get(layers, round(layers * 2 / 3))


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
    """Percent of queries whose nearest candidate is the sentence of their own line; equal ones are one candidate."""
    lines = _Lines.of(candidates)
    found_N, _ = nearest_both(unit(query_ND), unit(candidate_ND[lines.first_line]))
    return 100 * float(np.mean(found_N == lines.of_line))


def nearest_both(
    first_ND: np.ndarray, second_MD: np.ndarray, device: torch.device | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """For each unit vector the row of the nearest on the other side, [N] and [M]; of equals the first. No more than
    QUERIES_AT_ONCE x M similarities at a time."""
    second = torch.from_numpy(second_MD).to(device)
    best_M = torch.full((len(second_MD),), -torch.inf, dtype=second.dtype, device=device)
    back_M = torch.zeros(len(second_MD), dtype=torch.long, device=device)
    forward = []
    for start in range(0, len(first_ND), QUERIES_AT_ONCE):
        cosine_BM = torch.from_numpy(first_ND[start : start + QUERIES_AT_ONCE]).to(device) @ second.T
        forward.append(cosine_BM.argmax(dim=1).cpu().numpy())
        largest_M, row_M = cosine_BM.max(dim=0)
        back_M = torch.where(largest_M > best_M, row_M + start, back_M)
        best_M = torch.maximum(largest_M, best_M)
    return np.concatenate(forward), back_M.cpu().numpy()


@dataclass(frozen=True)
class _Lines:
    """Lines of one side and the distinct sentences they are."""

    distinct: list[Read]
    of_line: np.ndarray  # which of the distinct a line is
    first_line: np.ndarray  # of each of the distinct

    @classmethod
    def of(cls, sentences: Sequence[Read]) -> _Lines:
        place: dict[Read, int] = {}
        of_line = np.array([place.setdefault(sentence, len(place)) for sentence in sentences])
        return cls(list(place), of_line, np.unique(of_line, return_index=True)[1])

    def found(self, distinct_KN: np.ndarray) -> np.ndarray:
        """Their first lines."""
        return self.first_line[distinct_KN]


def _scored(
    encoder: Encoder, bitext: Bitext, sides: Sequence[Side], found_KN: np.ndarray, candidates: _Lines, pooling: str
) -> Measured:
    """One direction; `found_KN` are lines of the candidates."""
    query, _ = sides
    language, direction = _names(bitext, query)
    lines, plugged = len(query.sentences), query.translations is not None
    merged_KN = found_KN == candidates.first_line[candidates.of_line]
    score = Score(
        model=encoder.name,
        task="tatoeba",
        protocol=PLUG_IN if plugged else "sweep",
        metric="accuracy",
        language=language,
        direction=direction,
        pooling=pooling,
        setting=PLUG_IN if plugged else "training-free",
        seed=encoder.seed,
        examples=lines,
        value=0,
    )
    by_protocol = {f"{score.protocol}/accuracy": merged_KN}
    places = [(score.protocol, layer, right_N) for layer, right_N in enumerate(merged_KN)]
    if direction == "en-xx" and pooling == "mean" and not plugged:
        layer = xtreme_layer(encoder.layers)
        own_KN = found_KN == np.arange(lines)
        by_protocol["xtreme/accuracy"] = own_KN
        places.append(("xtreme", layer, own_KN[layer]))
    right_NP = np.stack([right_N for *_, right_N in places], axis=1)
    measured = numbers("accuracy", np.stack([right_NP, np.ones_like(right_NP)], axis=-1))
    rows = [
        replace(score, protocol=protocol, layer=layer, value=value, low=low, high=high).row()
        for (protocol, layer, _), (value, low, high) in zip(places, measured, strict=True)
    ]
    examples = (
        Predicted(
            str(line + 1),
            (found_KN[:, line] + 1).tolist(),
            {label: [[int(right), 1] for right in right_KN[:, line]] for label, right_KN in by_protocol.items()},
        )
        for line in range(lines)
    )
    variant = ".".join([direction, *[pooling] * (pooling != "mean"), *[PLUG_IN] * plugged])
    return Measured(bitext.name, rows, "tatoeba", "test", language, variant, examples, parts=2)


def _groups(bitexts: Sequence[Bitext], encoder: Encoder) -> Iterator[list[Bitext]]:
    """Neighbouring pairs whose sentences are embedded together: batches of one length over all of them, and the
    sentences they share only once, as far as memory goes."""
    group: list[Bitext] = []
    seen: set[Read] = set()
    for bitext in bitexts:
        width = encoder.width * (1 if bitext.first.translations is None else 2)
        room = MEMORY // (4 * width * (encoder.layers + 1))  # sentences
        new = {each for side in bitext.sides for each in side.read}
        if group and len(seen | new) > room:
            yield group
            group, seen = [], set()
        group.append(bitext)
        seen |= new
    if group:
        yield group


def _read_pair(folder: Path, name: str) -> Bitext:
    codes = name.split("-")
    if len(codes) != 2:
        raise BadInput(f"{folder}: the name tatoeba.{name} is no pair of languages, expected XXX-YYY; rename the file")
    sides = []
    for code in codes:
        path = folder / f"tatoeba.{name}.{code}"
        sentences = _read_sentences(path)
        sides.append(Side(canonical(code), sentences, path))
    first, second = sides
    if len(first.sentences) != len(second.sentences):
        raise BadInput(
            f"{folder / f'tatoeba.{name}'}: {len(first.sentences)} lines in .{codes[0]} but {len(second.sentences)} "
            f"in .{codes[1]}, expected line i to translate line i; fetch the files again"
        )
    return Bitext(first, second)


def _read_sentences(path: Path) -> list[str]:
    sentences = read_lines(path)
    if not all(sentence.strip() for sentence in sentences):
        line = next(number for number, sentence in enumerate(sentences, start=1) if not sentence.strip())
        raise BadInput(f"{path}: line {line} is empty, expected a sentence; remove the line from both sides")
    return sentences


def _translated(bitext: Bitext) -> Bitext:
    """Each side with its sentences in the language of the other: tatoeba/translated/eng/tatoeba.deu-eng.deu is in
    English. Equal sentences are read with the translation of the first, so that they stay one candidate."""
    return Bitext(*(_with_translations(*sides) for sides in (bitext.sides, bitext.sides[::-1])))


def translated_files(files: Sequence[Path]) -> list[Path]:
    """What is read beside the two files of a pair where cross-attention is plugged in, as far as it is there."""
    plain = [file.with_suffix("") if file.suffix == ".gz" else file for file in files]
    paths = [_translation(one, other) for one in plain for other in plain if one != other]
    return [file for path in paths for file in (path, path.with_name(f"{path.name}.gz")) if file.is_file()]


def _translation(file: Path, other: Path) -> Path:
    """Of a file of one side into the language of the other."""
    return file.parents[1] / "translated" / other.suffix[1:] / file.name


def _with_translations(side: Side, other: Side) -> Side:
    assert side.file is not None and other.file is not None  # noqa: PT018
    path = _translation(side.file, other.file)
    if not any(file.is_file() for file in (path, path.with_name(f"{path.name}.gz"))):
        raise BadInput(
            f"{path}: no such file, plain or .gz; to plug cross-attention in, put the lines of {side.file.name} there,"
            f" translated into {other.language}"
        )
    translations = _read_sentences(path)
    if len(translations) != len(side.sentences):
        raise BadInput(
            f"{path}: {len(translations)} lines, but {side.file} has {len(side.sentences)}, expected line i to"
            f" translate line i; line {min(len(translations), len(side.sentences)) + 1} of one has no partner"
        )
    first: dict[str, str] = {}
    same = [first.setdefault(*each) for each in zip(side.sentences, translations, strict=True)]
    return replace(side, translations=same)


def _names(bitext: Bitext, query: Side) -> tuple[str, str]:
    """Language and direction of a row."""
    language = pair_name(bitext.first.language, bitext.second.language)
    if "-" not in language:
        return language, "en-xx" if query.language == "en" else "xx-en"
    [candidate] = [side.language for side in bitext.sides if side is not query]
    return language, f"{query.language}-{candidate}"
