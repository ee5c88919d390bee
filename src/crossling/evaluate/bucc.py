"""Bitext mining on BUCC 2018: which sentences of two comparable texts translate each other?

Mined by margin (see mining.py) and cut at the threshold with the largest F1 on dev, halfway between two scores; it
holds for test too. A sentence that a side has more than once is found, but never as a pair: which of its ids would be
meant is not known.

Protocol `margin`: at the layers chosen. Protocol `xtreme`: the same at the layer of its scripts, by mean pooling alone:
their shell script asks for [CLS], but their program takes the mean all the same, as the paper.
"""
# P candidate pairs, best first; N sentences, K layers

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crossling.benchmarks.lines import read_lines
from crossling.corpora.languages import canonical
from crossling.errors import BadInput
from crossling.evaluate.encode import Encoder
from crossling.evaluate.files import bucc_files, choose
from crossling.evaluate.measured import Measured, numbers, pair_name
from crossling.evaluate.mining import NEIGHBOURS, one_to_one
from crossling.evaluate.neighbours import Vectors, neighbours
from crossling.evaluate.predictions import Predicted
from crossling.evaluate.scores import Score
from crossling.progress import watched
from crossling.transfer.cuts import gathered

METRICS = ("f1", "precision", "recall")
SPLITS = ("dev", "test")  # the threshold comes from the first

Link = tuple[str, str]
Given = dict[int, dict[str, str]]  # at each layer the partners found for sentences of the first side


@dataclass(frozen=True)
class Pile:
    ids: list[str]
    sentences: list[str]


@dataclass(frozen=True)
class MiningSet:
    languages: tuple[str, str]
    split: str
    first: Pile
    second: Pile
    gold: set[Link]


def read_bucc(data: Path, languages: Sequence[str] | None = None) -> list[dict[str, MiningSet]]:
    """For each pair of DATA/bucc2018, or those of the languages, in the order of their names, its splits: dev, and
    test where it has gold."""
    folder = data / "bucc2018"
    chosen = choose(bucc_files(data), languages, folder)
    there = {tuple(file.name.split(".")[:2]) for files in chosen.values() for file in files}
    names = sorted({name for name, _ in there})
    return [_read_splits(folder, name, [split for split in SPLITS if (name, split) in there]) for name in names]


def bucc(
    encoder: Encoder,
    data: Path,
    layers: Sequence[int],
    languages: Sequence[str] | None = None,
    pooling: str = "mean",
) -> Iterator[Measured]:
    """Each pair of languages, dev and, where it is there, test."""
    protocols: dict[str, Sequence[int]] = {"margin": layers}
    if pooling == "mean":
        protocols["xtreme"] = [xtreme_layer(encoder.layers)]
    wanted = sorted({layer for chosen in protocols.values() for layer in chosen})
    for splits in watched("bucc2018", read_bucc(data, languages), _name):
        thresholds: dict[int, float] = {}
        if len(splits) == 1:
            warnings.warn(
                f"bucc2018 {_name(splits)}: only dev is here, so F1 is on the set that the threshold was chosen on",
                stacklevel=2,
            )
        for split, found in splits.items():
            by_layer: dict[int, dict[Link, float]] = {}
            with gathered(f"bucc2018 {_name(splits)}, {split}"):
                mined = candidates(encoder, found, wanted, pooling)
            for layer, scores in mined.items():
                if split == SPLITS[0]:
                    thresholds[layer] = best_threshold(scores, found.gold)
                by_layer[layer] = {link: score for link, score in scores.items() if score >= thresholds[layer]}
            yield replace(_scored(encoder, found, by_layer, protocols, pooling), parts=len(splits))


def xtreme_layer(layers: int) -> int:
    """XTREME's script takes index 7 of the last 12 blocks, whatever the depth: the 8th of 12, the 20th of 24. In fewer
    than 12 blocks there is none so: it is the one two thirds up, as 8 of 12."""
    return layers - 4 if layers >= 12 else round(layers * 2 / 3)


def candidates(encoder: Encoder, found: MiningSet, layers: Sequence[int], pooling: str) -> dict[int, dict[Link, float]]:
    """At each layer the pairs of ids and their scores, best first."""
    sides, ids = [], []
    for pile in (found.first, found.second):
        times = Counter(pile.sentences)
        sides.append(encoder.pooled(list(times), pooling, layers))
        of = dict(zip(pile.sentences, pile.ids, strict=True))
        ids.append([of[sentence] if count == 1 else None for sentence, count in times.items()])
    by_layer = {}
    for layer, first_ND, second_MD in zip(layers, *sides, strict=True):
        near = neighbours(Vectors.all(first_ND), Vectors.all(second_MD), NEIGHBOURS, encoder.model.device)
        pairs = one_to_one(*near)
        links = zip(pairs.score_P.tolist(), pairs.first_P.tolist(), pairs.second_P.tolist(), strict=True)
        named = ((ids[0][row], ids[1][column], score) for score, row, column in links if score > 0)
        by_layer[layer] = {(one, other): score for one, other, score in named if one and other}
    return by_layer


def best_threshold(scores: dict[Link, float], gold: set[Link]) -> float:
    """Halfway between the scores around the cut with the largest F1, the first of equals; 0 if no candidate is right.
    `scores` are best first."""
    score_P = np.fromiter(scores.values(), np.float64, len(scores))
    right_P = np.cumsum(np.fromiter((link in gold for link in scores), np.int64, len(scores)))
    if not len(scores) or not right_P[-1]:
        return 0.0
    precision_P, recall_P = right_P / np.arange(1, len(scores) + 1), right_P / len(gold)
    with np.errstate(invalid="ignore"):
        f1_P = np.nan_to_num(2 * precision_P * recall_P / (precision_P + recall_P))
    cut = int(f1_P.argmax())
    return float(score_P[cut : cut + 2].mean())


def _scored(
    encoder: Encoder,
    found: MiningSet,
    by_layer: dict[int, dict[Link, float]],
    protocols: dict[str, Sequence[int]],
    pooling: str,
) -> Measured:
    """From the pairs extracted at each layer."""
    language = pair_name(*found.languages)
    score = Score(
        model=encoder.name,
        task="bucc2018",
        protocol="",
        metric="",
        language=language,
        pooling=pooling,
        seed=encoder.seed,
        split=found.split,
        examples=len(found.gold),
        value=0,
    )
    gold: dict[str, set[str]] = {}
    for one, other in found.gold:
        gold.setdefault(one, set()).add(other)
    # Each first id is in one pair at most.
    given = {layer: dict(list(links)) for layer, links in by_layer.items()}
    # Most sentences are in no pair: they add nothing to any sum, and a ratio varies no less when they are not drawn.
    paired = sorted(gold.keys() | {one for links in given.values() for one in links})
    statistics_NK3 = np.array([list(_statistics(one, given, gold).values()) for one in paired])
    measured = {metric: dict(zip(given, numbers(metric, statistics_NK3), strict=True)) for metric in METRICS}
    rows = []
    for protocol, layers in protocols.items():
        for layer in layers:
            for metric in METRICS:
                value, low, high = measured[metric][layer]
                numbered = replace(score, layer=layer, value=value, low=low, high=high)
                rows.append(replace(numbered, protocol=protocol, metric=metric).row())
    variant = None if pooling == "mean" else pooling
    examples = _examples(encoder, found.first.ids, given, gold, protocols)
    return Measured("-".join(found.languages), rows, "bucc2018", found.split, language, variant, examples)


def _statistics(one: str, given: Given, gold: dict[str, set[str]]) -> dict[int, list[int]]:
    """Right, found and to be found of one sentence, at each layer."""
    known = gold.get(one, set())
    return {layer: [int(links.get(one) in known), int(one in links), len(known)] for layer, links in given.items()}


def _examples(
    encoder: Encoder,
    ids: Sequence[str],
    given: Given,
    gold: dict[str, set[str]],
    protocols: dict[str, Sequence[int]],
) -> Iterator[Predicted]:
    """One for each sentence of the first side, so that those of two models can be paired."""
    every = range(encoder.layers + 1)
    for one in ids:
        statistics = _statistics(one, given, gold)
        yield Predicted(
            one,
            [given[layer].get(one) if layer in given else None for layer in every],
            {
                f"{protocol}/{metric}": [statistics[layer] if layer in layers else None for layer in every]
                for protocol, layers in protocols.items()
                for metric in METRICS
            },
        )


def _name(splits: dict[str, MiningSet]) -> str:
    return "-".join(splits[SPLITS[0]].languages)


def _read_splits(folder: Path, name: str, there: list[str]) -> dict[str, MiningSet]:
    if SPLITS[0] not in there:
        raise BadInput(f"{folder}: {name} has no dev files, on which the threshold is chosen; put them there")
    splits = {}
    for split in there:
        gold = folder / f"{name}.{split}.gold"
        if split != SPLITS[0] and not (gold.is_file() or gold.with_name(f"{gold.name}.gz").is_file()):
            warnings.warn(f"{gold}: no gold pairs of {split}, which is left out", stacklevel=3)
            continue
        splits[split] = _read_set(folder, name, split)
    return splits


def _read_set(folder: Path, name: str, split: str) -> MiningSet:
    codes = name.split("-")
    if len(codes) != 2:
        raise BadInput(f"{folder}: the name {name} is no pair of languages, expected xx-yy; rename the file")
    first, second = (_read_pile(folder / f"{name}.{split}.{code}") for code in codes)
    path = folder / f"{name}.{split}.gold"
    gold = {(one, other) for one, other in _columns(path, "`id TAB id`")}
    known, known_other = set(first.ids), set(second.ids)
    for one, other in gold:
        if one not in known or other not in known_other:
            raise BadInput(f"{path}: the pair {one} {other} names a sentence that is not there; fetch the files again")
    return MiningSet((canonical(codes[0]), canonical(codes[1])), split, first, second, gold)


def _read_pile(path: Path) -> Pile:
    columns = _columns(path, "`id TAB sentence`")
    return Pile([each[0] for each in columns], [each[1] for each in columns])


def _columns(path: Path, expected: str) -> list[list[str]]:
    rows = [[part.strip() for part in line.split("\t")] for line in read_lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2 or not all(row):
            raise BadInput(f"{path}: line {number} is not {expected}; mend or remove the line")
    return rows
