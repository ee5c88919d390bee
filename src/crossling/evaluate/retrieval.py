"""Sentence retrieval on Tatoeba, FLORES and own pairs: accuracy of the nearest sentence of the other side by cosine.

Protocol `sweep`: pooling and cosine as in XTREME, but at every layer and in both directions. Equal sentences of a side
are one candidate, and finding it is correct for each of their lines.

Protocol `xtreme`: what its scripts compute. English sentences are the queries, pooled by mean, at one layer. Equal
sentences are separate candidates. The first is found, so the lines of the others count as wrong.

Protocol `mteb`: what MTEB's bitext mining computes. F1 in both directions, of the declared vectors if there are any, or
else at the universal layer. Each line is a class: a line that many queries find has a low precision. Equal sentences
are separate candidates, as in `xtreme`.

Protocol `declared`: as `sweep`, with the sentence vectors that the folder of a Sentence Transformers model declares.

Protocols `sweep-64` and `declared-64`: as `sweep` and `declared`, with the first 64 dimensions of the vectors, at the
layer that `encode` reads.

Protocol `plug-in`: as `sweep`, but each sentence attends to its translation (VECO's cross-attention).
"""
# N lines or distinct sentences of the query side, M of the other; K layers with the embeddings, D width
# P pairs of protocol and layer

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from crossling.core.errors import BadInput
from crossling.core.progress import Progress, count_truncations
from crossling.evaluate.retrieval_pairs import (
    RetrievalInput,
    RetrievalPair,
    RetrievalSide,
    add_translations,
    read_flores_pairs,
    read_tatoeba,
)
from crossling.evaluate.significance import TaskResult, pair_name, rows_by_layer
from crossling.inference.pooling import DECLARED, normalize_vectors
from crossling.inference.sentence_encoder import Encoder
from crossling.tasks.benchmark_files import FLORES
from crossling.tasks.own_pairs import RETRIEVAL, OwnPairs
from crossling.tasks.predictions import ExamplePrediction
from crossling.tasks.scores import Score, ScoreRow

QUERIES_PER_BLOCK = 1024
MAX_VECTOR_BYTES = 2 << 30  # of sentence vectors at all layers in memory
# The languages that the papers average over: InfoXLM Tables 2 and 3 (with and without bitext), XLM-E §4.6.
WITH_BITEXT = "ar bg de el es fr hi ru sw th tr ur vi zh"
WITHOUT_BITEXT = "af bn et eu fa fi he hu id it ja jv ka kk ko ml mr nl pt ta te tl"
LISTS = {"tatoeba-14": WITH_BITEXT, "tatoeba-22": WITHOUT_BITEXT, "tatoeba-36": f"{WITH_BITEXT} {WITHOUT_BITEXT}"}
MTEB, PLUG_IN, TATOEBA = "mteb", "plug-in", "tatoeba"


def evaluate_tatoeba(
    encoder: Encoder,
    data: Path,
    languages: Sequence[str] | None = None,
    pooling: str = "auto",
    plug_in: bool = False,
    dimensions: Sequence[int] = (),
) -> Iterator[TaskResult]:
    """Yield the results of each language pair in both directions. With `plug_in`, sentences attend to translations.

    Vectors truncated to each of `dimensions` are scored besides.
    """
    pairs = read_tatoeba(data, languages)
    if plug_in:
        encoder.check_cross_attention()
        pairs = [RetrievalPair(*map(add_translations, pair.sides, pair.sides[::-1])) for pair in pairs]
    return _evaluate_pairs(encoder, pairs, TATOEBA, pooling, plug_in, dimensions)


def evaluate_flores(
    encoder: Encoder,
    data: Path,
    languages: Sequence[str] | None = None,
    pooling: str = "auto",
    dimensions: Sequence[int] = (),
) -> Iterator[TaskResult]:
    """Yield the results of FLORES in both directions: pairs with English, and those that `languages` names."""
    return _evaluate_pairs(
        encoder, read_flores_pairs(data, languages), FLORES, pooling, plug_in=False, dimensions=dimensions
    )


def evaluate_own_pairs(
    encoder: Encoder, own: Sequence[OwnPairs], pooling: str = "auto", dimensions: Sequence[int] = ()
) -> Iterator[TaskResult]:
    """Yield the results of the sentence pairs of a user in both directions, as `evaluate_tatoeba`."""
    pairs = [
        RetrievalPair(
            *(RetrievalSide(language, [row[side] for row in each.rows]) for side, language in enumerate(each.languages))
        )
        for each in own
    ]
    return _evaluate_pairs(encoder, pairs, RETRIEVAL, pooling, plug_in=False, dimensions=dimensions)


def _evaluate_pairs(
    encoder: Encoder,
    pairs: Sequence[RetrievalPair],
    task: str,
    pooling: str,
    plug_in: bool,
    dimensions: Sequence[int],
) -> Iterator[TaskResult]:
    poolings = choose_poolings(encoder, pooling)[: 1 if plug_in else None]
    width = min(encoder.vector_width(each) for each in poolings)
    if not all(1 <= each < width for each in dimensions):
        found = ",".join(map(str, dimensions))
        raise BadInput(f"dimensions={found}: the vectors of {encoder.name} have {width}. Give smaller numbers.")
    groups = list(_group_by_memory(pairs, encoder))
    inputs_by_group = [
        dict.fromkeys(each for pair in group for side in pair.sides for each in side.inputs) for group in groups
    ]
    total = len(poolings) * sum(map(len, inputs_by_group))
    with count_truncations(task), Progress(f"{task}: sentences", total) as progress:
        for group, inputs in zip(groups, inputs_by_group, strict=True):
            sentences = [each if isinstance(each, str) else each[0] for each in inputs]
            translations = [each[1] for each in inputs] if plug_in else None
            rows = {each: row for row, each in enumerate(inputs)}
            for each in poolings:
                vectors_KND = encoder.encode_layers(
                    sentences, each, on_batch=progress.advance, translations=translations
                )
                variants = [
                    _score_group(encoder, group, rows, vectors_KND, each, dimension=dimension, task=task)
                    for dimension in (None, *dimensions)
                ]
                parts = 2 * len(poolings) * len(variants)
                yield from (replace(result, parts=parts) for results in variants for result in results)


def _score_group(
    encoder: Encoder,
    group: Sequence[RetrievalPair],
    rows: dict[RetrievalInput, int],
    vectors_KND: np.ndarray,
    pooling: str,
    *,
    dimension: int | None,
    task: str,
) -> Iterator[TaskResult]:
    """Yield the results of all layers or, with `dimension`, of truncated vectors of the layer that `encode` reads."""
    if dimension is not None:
        layer = 0 if pooling == DECLARED else encoder.universal_layer
        vectors_KND = vectors_KND[[layer], :, :dimension]
    vectors_KND = normalize_vectors(vectors_KND)
    for pair in group:
        first, second = (_DistinctLines.of(side.inputs) for side in pair.sides)
        first_KND, second_KMD = (vectors_KND[:, [rows[each] for each in side.distinct]] for side in (first, second))
        nearest = [
            nearest_in_both_directions(one_ND, other_MD, encoder.model.device)
            for one_ND, other_MD in zip(first_KND, second_KMD, strict=True)
        ]
        forward_KN, backward_KM = (np.stack(by_layer) for by_layer in zip(*nearest, strict=True))
        found_KN = second.first_line[forward_KN[:, first.of_line]]
        yield _score(encoder, pair, 0, found_KN, second, pooling=pooling, dimension=dimension, task=task)
        found_KM = first.first_line[backward_KM[:, second.of_line]]
        yield _score(encoder, pair, 1, found_KM, first, pooling=pooling, dimension=dimension, task=task)


def choose_poolings(encoder: Encoder, pooling: str) -> list[str]:
    """Return the poolings to score: one, or the mean and what the folder of the model declares."""
    if pooling != "auto":
        return [pooling]
    return ["mean"] if encoder.head is None else ["mean", DECLARED]


def xtreme_tatoeba_layer(num_layers: int) -> int:
    """Return the layer of XTREME's script: index 7 of 12 blocks, the 8th, and index 13 of 24, the 14th.

    Models of another depth use the layer at two thirds, as 8 of 12.
    """
    return {12: 8, 24: 14}.get(num_layers, round(num_layers * 2 / 3))


def group_by_paper_list(rows: Sequence[ScoreRow]) -> list[ScoreRow]:
    """Return the Tatoeba rows once for each list of the papers that contains them, with its name as the task.

    The name of an incomplete list shows it: `tatoeba-36 (28 of 36)`.
    """
    grouped = []
    for name, codes in LISTS.items():
        languages = codes.split()
        members = [row for row in rows if row["task"] == "tatoeba" and row["language"] in languages]
        present = len({row["language"] for row in members})
        title = name if present == len(languages) else f"{name} ({present} of {len(languages)})"
        grouped += [{**row, "task": title} for row in members]
    return grouped


def retrieval_accuracy(query_ND: np.ndarray, candidate_ND: np.ndarray, candidates: Sequence[str]) -> float:
    """Return the percentage of queries whose nearest candidate is the sentence of their line. Equal ones count once."""
    lines = _DistinctLines.of(candidates)
    nearest_N, _ = nearest_in_both_directions(
        normalize_vectors(query_ND), normalize_vectors(candidate_ND[lines.first_line])
    )
    return 100 * float(np.mean(nearest_N == lines.of_line))


def nearest_in_both_directions(
    first_ND: np.ndarray, second_MD: np.ndarray, device: torch.device | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of the nearest vector of the other side for each vector, [N] and [M]. The first of equals counts.

    The vectors must have length one. Computes at most QUERIES_PER_BLOCK x M similarities at a time.
    """
    second = torch.from_numpy(second_MD).to(device)
    best_M = torch.full((len(second_MD),), -torch.inf, dtype=second.dtype, device=device)
    backward_M = torch.zeros(len(second_MD), dtype=torch.long, device=device)
    forward = []
    for start in range(0, len(first_ND), QUERIES_PER_BLOCK):
        cosine_BM = torch.from_numpy(first_ND[start : start + QUERIES_PER_BLOCK]).to(device) @ second.T
        forward.append(cosine_BM.argmax(dim=1).cpu().numpy())
        largest_M, row_M = cosine_BM.max(dim=0)
        backward_M = torch.where(largest_M > best_M, row_M + start, backward_M)
        best_M = torch.maximum(largest_M, best_M)
    return np.concatenate(forward), backward_M.cpu().numpy()


@dataclass(frozen=True)
class _DistinctLines:
    """The distinct inputs of one side and the lines they occur in."""

    distinct: list[RetrievalInput]
    of_line: np.ndarray  # line -> position among the distinct inputs
    first_line: np.ndarray  # distinct input -> first line

    @classmethod
    def of(cls, inputs: Sequence[RetrievalInput]) -> _DistinctLines:
        position: dict[RetrievalInput, int] = {}
        of_line = np.array([position.setdefault(each, len(position)) for each in inputs])
        return cls(list(position), of_line, np.unique(of_line, return_index=True)[1])


def _score(
    encoder: Encoder,
    pair: RetrievalPair,
    query_side: int,
    found_KN: np.ndarray,
    candidates: _DistinctLines,
    *,
    pooling: str,
    dimension: int | None,
    task: str,
) -> TaskResult:
    """Score one direction. `found_KN` are lines of the candidates."""
    query, other = pair.sides[query_side], pair.sides[1 - query_side]
    language, direction = pair_name(pair.first.language, pair.second.language), f"{query.language}-{other.language}"
    if "en" in (query.language, other.language):
        direction = "en-xx" if query.language == "en" else "xx-en"
    lines, has_translations, is_declared = len(query.sentences), query.translations is not None, pooling == DECLARED
    protocol = PLUG_IN if has_translations else DECLARED if is_declared else "sweep"
    if is_declared or dimension is not None:
        scored = [encoder.declared_layer if is_declared else encoder.universal_layer]
    else:
        scored = list(range(len(found_KN)))
    protocol += "" if dimension is None else f"-{dimension}"
    score = Score(
        model=encoder.name,
        task=task,
        protocol=protocol,
        metric="accuracy",
        language=language,
        direction=direction,
        pooling=pooling,
        dimension=dimension,
        prompt=encoder.prompt_for(pooling) or None,
        setting=PLUG_IN if has_translations else "training-free",
        seed=encoder.seed,
        split=pair.split,
        examples=lines,
        value=0,
    )
    correct_KN = found_KN == candidates.first_line[candidates.of_line]
    by_protocol = {protocol: (scored, correct_KN)}
    if (task, direction, pooling, dimension) == (TATOEBA, "en-xx", "mean", None) and not has_translations:
        layer = xtreme_tatoeba_layer(encoder.num_layers)
        by_protocol["xtreme"] = ([layer], found_KN == np.arange(lines))
    rows = []
    for protocol, (layers, correct_KN) in by_protocol.items():
        correct_NK = correct_KN[[scored.index(layer) for layer in layers]].T
        statistics_NK2 = np.stack([correct_NK, np.ones_like(correct_NK)], axis=-1)
        rows += rows_by_layer(replace(score, protocol=protocol), statistics_NK2, layers)
    if dimension is None and (is_declared or (encoder.head is None and not has_translations)):
        layer = encoder.declared_layer if is_declared else encoder.universal_layer
        statistics_NK3 = f1_by_label(found_KN[[scored.index(layer)]], np.arange(lines))
        rows += rows_by_layer(replace(score, protocol=MTEB, metric="f1"), statistics_NK3, [layer])
    not_scored = [None] * scored[0]  # layers
    examples = (
        ExamplePrediction(
            str(line + 1),
            not_scored + (found_KN[:, line] + 1).tolist(),
            {
                f"{protocol}/accuracy": not_scored + [[int(correct), 1] for correct in correct_KN[:, line]]
                for protocol, (_, correct_KN) in by_protocol.items()
            },
        )
        for line in range(lines)
    )
    truncated = [] if dimension is None else [str(dimension)]
    variant = ".".join([direction, *[pooling] * (pooling != "mean"), *[PLUG_IN] * has_translations, *truncated])
    return TaskResult(name=pair.name, rows=rows, variant=variant, examples=examples, parts=2)


def f1_by_label(found_KN: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """Return [F1, 1, 1] of each query, the F1 of its label as a class, [N, K, 3].

    Their sums give the mean over the queries, which is scikit-learn's weighted F1. As in MTEB.

    Args:
        found_KN: The line that each query found, at each layer.
        label_N: The line that translates each query.
    """
    size = max(int(found_KN.max()), int(label_N.max())) + 1
    support_M = np.bincount(label_N, minlength=size)
    f1_NK = []
    for found_N in found_KN:
        correct_M = np.bincount(label_N[found_N == label_N], minlength=size)
        f1_NK.append((2 * correct_M / np.maximum(1, support_M + np.bincount(found_N, minlength=size)))[label_N])
    statistics_NK = np.stack(f1_NK, axis=1)
    return np.stack([statistics_NK, np.ones_like(statistics_NK), np.ones_like(statistics_NK)], axis=-1)


def _group_by_memory(pairs: Sequence[RetrievalPair], encoder: Encoder) -> Iterator[list[RetrievalPair]]:
    """Yield consecutive pairs whose vectors fit in memory together.

    Their sentences are batched by length together, and sentences in several pairs are encoded once.
    """
    group: list[RetrievalPair] = []
    inputs: set[RetrievalInput] = set()
    for pair in pairs:
        width = encoder.hidden_size * (1 if pair.first.translations is None else 2)
        max_inputs = MAX_VECTOR_BYTES // (4 * width * (encoder.num_layers + 1))
        new = {each for side in pair.sides for each in side.inputs}
        if group and len(inputs | new) > max_inputs:
            yield group
            group, inputs = [], set()
        group.append(pair)
        inputs |= new
    if group:
        yield group
