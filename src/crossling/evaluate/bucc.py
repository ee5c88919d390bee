"""Bitext mining on BUCC 2018: precision, recall and F1 of the translations found in two comparable corpora.

Pairs are mined by margin (see `crossling.inference.mining`). The threshold with the largest F1 on dev, halfway between
two scores, is used on dev and test. Sentences that a side contains more than once take part in the search, but never in
a pair, since it is unknown which of their ids is meant.

Protocol `margin`: at the requested layers. Protocol `xtreme`: the same at the layer of XTREME's scripts, with mean
pooling only, as in their paper. Their shell script requests [CLS]. Their program computed the mean all the same until
October 2021, and takes [CLS] since. Protocol `declared`: with the vectors that the folder of a Sentence Transformers
model declares.

Protocol `mteb`: what MTEB's task BUCC computes. Each sentence of the first side with a gold pair finds its nearest
sentence of the second side, by cosine. The value is the F1 of the lines as classes, at the layer that `encode` reads.
Protocol `mteb-v2`: the same for MTEB's BUCC.v2, whose candidates are the sentences of the gold pairs alone.
"""
# P candidate pairs, best first; N sentences, K layers

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

import numpy as np

from crossling.core.errors import BadInput
from crossling.core.progress import count_truncations, track
from crossling.corpora.languages import canonical_code
from crossling.evaluate.retrieval import MTEB, choose_poolings, f1_by_label, nearest_in_both_directions
from crossling.evaluate.significance import TaskResult, pair_name, rows_by_layer
from crossling.inference.mining import DEFAULT_NEIGHBORS, VectorRows, find_neighbors, retrieve_pairs
from crossling.inference.pooling import DECLARED, normalize_vectors
from crossling.inference.sentence_encoder import Encoder
from crossling.tasks.benchmark_files import find_bucc_files, select_pairs
from crossling.tasks.predictions import ExamplePrediction
from crossling.tasks.readers import read_lines
from crossling.tasks.scores import Score, ScoreRow

METRICS = ("f1", "precision", "recall")
MTEB_V2 = "mteb-v2"
SPLITS = ("dev", "test")  # the threshold is chosen on the first

IdPair = tuple[str, str]
PartnersByLayer = dict[int, dict[str, str]]  # layer -> id of the first side -> id of its partner


@dataclass(frozen=True, kw_only=True)
class BuccSplit:
    """Two comparable corpora and the gold pairs of ids."""

    languages: tuple[str, str]
    split: str
    first: list[tuple[str, str]]  # id and sentence
    second: list[tuple[str, str]]
    gold: set[IdPair]


def read_bucc(data: Path, languages: Sequence[str] | None = None) -> list[dict[str, BuccSplit]]:
    """Return the splits of each pair of DATA/bucc2018, or of some languages: dev, and test if it has gold pairs."""
    folder = data / "bucc2018"
    selected = select_pairs(find_bucc_files(data), languages, folder)
    present = {tuple(file.name.split(".")[:2]) for files in selected.values() for file in files}
    names = sorted({name for name, _ in present})
    return [_read_splits(folder, name, [split for split in SPLITS if (name, split) in present]) for name in names]


def evaluate_bucc(
    encoder: Encoder, data: Path, layers: Sequence[int], languages: Sequence[str] | None = None, pooling: str = "auto"
) -> Iterator[TaskResult]:
    """Yield the result of each language pair on dev and, if it exists, on test."""
    poolings = choose_poolings(encoder, pooling)
    for splits in track("bucc2018", read_bucc(data, languages), _name):
        thresholds: dict[tuple[str, int], float] = {}
        if len(splits) == 1:
            warnings.warn(
                f"bucc2018 {_name(splits)}: no test split, so F1 is measured on the split that selects the threshold",
                stacklevel=2,
            )
        for each, (name, split) in product(poolings, splits.items()):
            protocols = _protocols(encoder, layers, each)
            extracted: dict[int, dict[IdPair, float]] = {}
            mining = sorted({*chain(*protocols.values())})
            mteb_layer = _mteb_layer(encoder, each)
            used = sorted({*mining, *([] if mteb_layer is None else [mteb_layer])})
            with count_truncations(f"bucc2018 {_name(splits)}, {name}"):
                sides = encode_sides(encoder, split, used, each)
            mined = mine_candidates(encoder, sides, mining)
            for layer, scores in mined.items():
                if name == SPLITS[0]:
                    thresholds[each, layer] = best_threshold(scores, split.gold)
                least = thresholds[each, layer]
                extracted[layer] = {pair: score for pair, score in scores.items() if score >= least}
            result = _score(encoder, split, extracted, protocols, each)
            if mteb_layer is not None:
                result.rows.extend(_mteb_rows(encoder, split, sides, mteb_layer, pooling=each))
            yield replace(result, parts=len(poolings) * len(splits))


def _protocols(encoder: Encoder, layers: Sequence[int], pooling: str) -> dict[str, Sequence[int]]:
    """Return the layers that each protocol scores."""
    if pooling == DECLARED:
        return {DECLARED: [encoder.declared_layer]}
    xtreme = {"xtreme": [xtreme_bucc_layer(encoder.num_layers)]} if pooling == "mean" else {}
    return {"margin": layers, **xtreme}


def xtreme_bucc_layer(num_layers: int) -> int:
    """Return the layer of XTREME's script: index 7 of the last 12 blocks, so the 8th of 12 and the 20th of 24.

    Models with fewer than 12 blocks use the layer at two thirds, as 8 of 12.
    """
    return num_layers - 4 if num_layers >= 12 else round(num_layers * 2 / 3)


@dataclass(frozen=True, kw_only=True)
class EncodedSide:
    """Sentences of one side with the vectors of the distinct ones."""

    sentences: list[tuple[str, str]]  # id and sentence
    row_of: dict[str, int]  # distinct sentence -> row of the vectors
    vectors: dict[int, np.ndarray]  # by layer

    def ids(self) -> list[str | None]:
        """Return the id of each distinct sentence, None for those that occur more than once."""
        frequency = Counter(sentence for _, sentence in self.sentences)
        id_of = {sentence: sentence_id for sentence_id, sentence in self.sentences}
        return [id_of[sentence] if frequency[sentence] == 1 else None for sentence in self.row_of]


def encode_sides(
    encoder: Encoder, split: BuccSplit, layers: Sequence[int], pooling: str
) -> tuple[EncodedSide, EncodedSide]:
    """Return the vectors of both sides at some layers."""
    first, second = (_encode_side(encoder, side, layers, pooling) for side in (split.first, split.second))
    return first, second


def _encode_side(
    encoder: Encoder, sentences: list[tuple[str, str]], layers: Sequence[int], pooling: str
) -> EncodedSide:
    row_of: dict[str, int] = {}
    for _, sentence in sentences:
        row_of.setdefault(sentence, len(row_of))
    vectors_KND = encoder.encode_layers(list(row_of), pooling, layers)
    return EncodedSide(sentences=sentences, row_of=row_of, vectors=dict(zip(layers, vectors_KND, strict=True)))


def mine_candidates(
    encoder: Encoder, sides: tuple[EncodedSide, EncodedSide], layers: Sequence[int]
) -> dict[int, dict[IdPair, float]]:
    """Return the pairs of ids and their scores at each layer, best first."""
    ids = [side.ids() for side in sides]
    by_layer = {}
    for layer in layers:
        first, second = (VectorRows.all(side.vectors[layer]) for side in sides)
        pairs = retrieve_pairs(*find_neighbors(first, second, DEFAULT_NEIGHBORS, device=encoder.model.device))
        found = zip(pairs.score_P.tolist(), pairs.first_P.tolist(), pairs.second_P.tolist(), strict=True)
        named = ((ids[0][one], ids[1][other], score) for score, one, other in found if score > 0)
        by_layer[layer] = {(one, other): score for one, other, score in named if one and other}
    return by_layer


def _mteb_layer(encoder: Encoder, pooling: str) -> int | None:
    """Return the layer of protocol `mteb`, that of `encode`. None if `encode` would return other vectors."""
    if pooling == DECLARED:
        return encoder.declared_layer
    return encoder.universal_layer if encoder.head is None else None


def _mteb_rows(
    encoder: Encoder, split: BuccSplit, sides: tuple[EncodedSide, EncodedSide], layer: int, *, pooling: str
) -> Iterator[ScoreRow]:
    """Yield the score of MTEB's BUCC, and of BUCC.v2, whose candidates are the sentences of the gold pairs."""
    first, second = sides
    line_of = [{name: line for line, (name, _) in enumerate(side.sentences)} for side in sides]
    gold = sorted((line_of[0][one], line_of[1][other]) for one, other in split.gold)
    query_rows = [first.row_of[first.sentences[line][1]] for line, _ in gold]
    queries_ND = normalize_vectors(first.vectors[layer][query_rows])
    second_MD = normalize_vectors(second.vectors[layer])
    row_of_line = [second.row_of[sentence] for _, sentence in second.sentences]
    every, gold_lines = [*range(len(second.sentences))], [line for _, line in gold]
    labels = {MTEB: (every, gold_lines), MTEB_V2: (gold_lines, [*range(len(gold))])}
    score = replace(_base_score(encoder, split, pooling), metric="f1")
    for protocol, (candidates, label_N) in labels.items():
        candidates_MD = second_MD[[row_of_line[line] for line in candidates]]
        found_N, _ = nearest_in_both_directions(queries_ND, candidates_MD, encoder.model.device)
        statistics_NK3 = f1_by_label(found_N[None], np.array(label_N))
        yield from rows_by_layer(replace(score, protocol=protocol), statistics_NK3, [layer])


def best_threshold(scores: dict[IdPair, float], gold: set[IdPair]) -> float:
    """Return the threshold with the largest F1, halfway between two scores. 0 if no candidate is correct.

    Args:
        scores: Candidates with their scores, best first.
        gold: Correct pairs.
    """
    score_P = np.fromiter(scores.values(), np.float64, len(scores))
    correct_P = np.cumsum(np.fromiter((pair in gold for pair in scores), np.int64, len(scores)))
    if not len(scores) or not correct_P[-1]:
        return 0.0
    precision_P, recall_P = correct_P / np.arange(1, len(scores) + 1), correct_P / len(gold)
    with np.errstate(invalid="ignore"):
        f1_P = np.nan_to_num(2 * precision_P * recall_P / (precision_P + recall_P))
    best = int(f1_P.argmax())
    return float(score_P[best : best + 2].mean())


def _score(
    encoder: Encoder,
    split: BuccSplit,
    extracted: dict[int, dict[IdPair, float]],
    protocols: dict[str, Sequence[int]],
    pooling: str,
) -> TaskResult:
    """Score the pairs extracted at each layer."""
    score = _base_score(encoder, split, pooling)
    gold: dict[str, set[str]] = {}
    for first, second in split.gold:
        gold.setdefault(first, set()).add(second)
    partners = {layer: dict(list(pairs)) for layer, pairs in extracted.items()}  # each first id is in one pair at most
    # Sentences without a pair add nothing to any sum, so the bootstrap may omit them.
    paired = sorted(gold.keys() | {first for by_id in partners.values() for first in by_id})
    statistics_NK3 = np.array([list(_statistics(first, partners, gold).values()) for first in paired])
    by_metric = [rows_by_layer(replace(score, metric=metric), statistics_NK3, partners) for metric in METRICS]
    at_layer = dict(zip(partners, zip(*by_metric, strict=True), strict=True))
    return TaskResult(
        name="-".join(split.languages),
        rows=[
            {**row, "protocol": protocol}
            for protocol, layers in protocols.items()
            for layer in layers
            for row in at_layer[layer]
        ],
        variant=None if pooling == "mean" else pooling,
        examples=_iter_examples(encoder, [each for each, _ in split.first], partners, gold, protocols),
    )


def _base_score(encoder: Encoder, split: BuccSplit, pooling: str) -> Score:
    """Return a score of a split without protocol, metric and value."""
    return Score(
        model=encoder.name,
        task="bucc2018",
        protocol="",
        metric="",
        language=pair_name(*split.languages),
        pooling=pooling,
        prompt=encoder.prompt_for(pooling) or None,
        seed=encoder.seed,
        split=split.split,
        examples=len(split.gold),
        value=0,
    )


def _statistics(first: str, partners: PartnersByLayer, gold: dict[str, set[str]]) -> dict[int, list[int]]:
    """Return [correct, predicted, gold] of one sentence at each layer."""
    correct = gold.get(first, set())
    return {
        layer: [int(by_id.get(first) in correct), int(first in by_id), len(correct)]
        for layer, by_id in partners.items()
    }


def _iter_examples(
    encoder: Encoder,
    ids: Sequence[str],
    partners: PartnersByLayer,
    gold: dict[str, set[str]],
    protocols: dict[str, Sequence[int]],
) -> Iterator[ExamplePrediction]:
    """Yield one example for each sentence of the first side, so that two models can be compared in a paired test."""
    layers = range(encoder.num_layers + 1)
    for first in ids:
        statistics = _statistics(first, partners, gold)
        yield ExamplePrediction(
            first,
            [partners[layer].get(first) if layer in partners else None for layer in layers],
            {
                f"{protocol}/{metric}": [statistics[layer] if layer in scored else None for layer in layers]
                for protocol, scored in protocols.items()
                for metric in METRICS
            },
        )


def _name(splits: dict[str, BuccSplit]) -> str:
    return "-".join(splits[SPLITS[0]].languages)


def _read_splits(folder: Path, name: str, present: list[str]) -> dict[str, BuccSplit]:
    if SPLITS[0] not in present:
        raise BadInput(f"{folder}: {name} has no dev files, which select the threshold. Add {name}.dev.*.")
    splits = {}
    for split in present:
        gold = folder / f"{name}.{split}.gold"
        if split != SPLITS[0] and not (gold.is_file() or gold.with_name(f"{gold.name}.gz").is_file()):
            warnings.warn(f"{gold}: no such file; skipped the {split} split", stacklevel=3)
            continue
        splits[split] = _read_split(folder, name, split)
    return splits


def _read_split(folder: Path, name: str, split: str) -> BuccSplit:
    codes = name.split("-")
    if len(codes) != 2:
        raise BadInput(f"{folder}: {name} is not a language pair. Rename the files to xx-yy.*.")
    first, second = (_read_pairs(folder / f"{name}.{split}.{code}", "`id TAB sentence`") for code in codes)
    path = folder / f"{name}.{split}.gold"
    gold = set(_read_pairs(path, "`id TAB id`"))
    first_ids, second_ids = ({sentence_id for sentence_id, _ in side} for side in (first, second))
    for one, other in gold:
        if one not in first_ids or other not in second_ids:
            raise BadInput(f"{path}: pair {one} {other}: no sentence has this id. Download the files again.")
    return BuccSplit(
        languages=(canonical_code(codes[0]), canonical_code(codes[1])),
        split=split,
        first=first,
        second=second,
        gold=gold,
    )


def _read_pairs(path: Path, expected: str) -> list[tuple[str, str]]:
    """Return the two columns of each line."""
    rows = []
    for number, line in enumerate(read_lines(path), start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 2 or not all(cells):
            raise BadInput(f"{path}: line {number}: expected {expected}. Fix or remove the line.")
        rows.append((cells[0], cells[1]))
    return rows
