"""Word alignment: alignment error rate (AER), precision, recall and F-measure against gold links.

    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)      A found, S sure, P possible, S in P; over a corpus
    precision = |A and P| / |A|      recall = |A and S| / |S|      F-measure: their harmonic mean

Gold links past the end of a sentence are missed, as in the public scorers (lilt/alignment-scripts, awesome-align).

Protocol `xlm-align-ot`: optimal transport as in XLM-Align's public aligner, with the similarity floor of its training.
Protocol `mutual-argmax`: mutual nearest neighbors by cosine. Protocol `itermax`: SimAlign's second iteration, while
SimAlign itself encodes each sentence alone. See `crossling.inference.word_links`.
"""
# K layers, N sentence pairs

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crossling.core.errors import BadInput
from crossling.core.progress import track
from crossling.evaluate.significance import TaskResult, rows_by_layer
from crossling.inference.align_file import read_sentence_pairs
from crossling.inference.sentence_encoder import Encoder
from crossling.inference.word_links import WordLinks
from crossling.tasks.benchmark_files import find_word_alignment_files, parse_pair_name, select_pairs
from crossling.tasks.predictions import ExamplePrediction
from crossling.tasks.readers import read_lines
from crossling.tasks.scores import Score

PROTOCOLS = {"ot": "xlm-align-ot", "argmax": "mutual-argmax", "itermax": "itermax"}  # by alignment method
_LINK = re.compile(r"(\d+)([-p])(\d+)", re.ASCII)

LinkSet = set[tuple[int, int]]


@dataclass(frozen=True)
class GoldPair:
    """The words of two sentences and their links, counted from 0. `possible` includes the sure links."""

    source: list[str]
    target: list[str]
    sure: LinkSet
    possible: LinkSet


@dataclass(frozen=True)
class GoldSet:
    """Sentence pairs with gold links."""

    languages: str  # "de-en"
    split: str  # "test", or the text after the pair in the file name
    pairs: list[GoldPair]
    links_past_end: int  # links past the end of their sentence


def read_gold(data: Path, languages: Sequence[str] | None = None) -> list[GoldSet]:
    """Return all sets of DATA/word-alignment in the order of their names, or those of some languages."""
    selected = select_pairs(find_word_alignment_files(data), languages, data / "word-alignment")
    plain = {file.with_name(file.name.removesuffix(".gz")) for files in selected.values() for file in files}
    return [_read_set(file) for file in sorted(plain) if file.suffix == ".src-tgt"]


def evaluate_word_alignment(
    encoder: Encoder, data: Path, languages: Sequence[str] | None = None, methods: Sequence[str] = ("ot",)
) -> Iterator[TaskResult]:
    """Yield the result of each set of gold links and each method, at every layer."""
    layers = range(encoder.num_layers + 1)
    sets = read_gold(data, languages)
    sets_of_pair = Counter(gold.languages for gold in sets)
    for gold in track("word-alignment", sets, lambda gold: gold.languages):
        links = encoder.align_pairs([(pair.source, pair.target) for pair in gold.pairs], layers, methods)
        aligned = [(number, by_method) for number, by_method in enumerate(links) if by_method is not None]
        _warn_about_gold(encoder, gold, len(gold.pairs) - len(aligned))
        if not aligned:
            raise BadInput(f"{encoder.name}: every pair of {gold.languages} is too long. Give another model.")
        for method in methods:
            result = _score(encoder, gold, method, [(number, by_method[method]) for number, by_method in aligned])
            yield replace(result, parts=len(methods) * sets_of_pair[gold.languages])


def _score(
    encoder: Encoder, gold: GoldSet, method: str, links_by_pair: list[tuple[int, list[WordLinks]]]
) -> TaskResult:
    """Score the links of each pair at each layer. The numbers are positions in `gold.pairs`."""
    counts_NK4 = np.array(
        [
            [link_counts(set(links), gold.pairs[number].sure, gold.pairs[number].possible) for links in by_layer]
            for number, by_layer in links_by_pair
        ]
    )
    statistics = metric_statistics(counts_NK4)
    score = Score(
        model=encoder.name,
        task="word-alignment",
        protocol=PROTOCOLS[method],
        metric="aer",
        language=gold.languages,
        seed=encoder.seed,
        split=gold.split,
        examples=len(links_by_pair),
        value=0,
    )
    layers = range(encoder.num_layers + 1)
    rows = [
        row
        for metric, statistics_NKS in statistics.items()
        for row in rows_by_layer(replace(score, metric=metric), statistics_NKS, layers)
    ]
    examples = (
        ExamplePrediction(
            str(number + 1),
            [" ".join(f"{i}-{j}" for i, j in links) for links in by_layer],
            {f"{PROTOCOLS[method]}/aer": aer_K2.tolist()},
        )
        for (number, by_layer), aer_K2 in zip(links_by_pair, statistics["aer"], strict=True)
    )
    return TaskResult(name=gold.languages, rows=rows, variant=method, examples=examples)


def link_counts(found: LinkSet, sure: LinkSet, possible: LinkSet) -> tuple[int, int, int, int]:
    """Return |A and S|, |A and P|, |A| and |S| of one sentence pair."""
    return len(found & sure), len(found & (possible | sure)), len(found), len(sure)


def metric_statistics(counts_NK4: np.ndarray) -> dict[str, np.ndarray]:
    """Return the statistics of each metric, in the order of `METRIC_VALUES`, from the counts of each pair and layer."""
    in_sure_NK, in_possible_NK, found_NK, sure_NK = np.moveaxis(counts_NK4, -1, 0)
    return {
        "aer": np.stack([in_sure_NK + in_possible_NK, found_NK + sure_NK], axis=-1),
        "precision": np.stack([in_possible_NK, found_NK, sure_NK], axis=-1),
        "recall": np.stack([in_sure_NK, found_NK, sure_NK], axis=-1),
        "f_measure": counts_NK4,
    }


def _warn_about_gold(encoder: Encoder, gold: GoldSet, too_long: int) -> None:
    name = f"word-alignment {gold.languages} ({gold.split})"
    if gold.links_past_end:
        warnings.warn(f"{name}: {gold.links_past_end} gold links point past their sentence; all missed", stacklevel=3)
    if too_long:
        warnings.warn(
            f"{name}: {too_long} of {len(gold.pairs)} pairs are longer than the {encoder.max_length} tokens that "
            f"{encoder.name} can read; skipped",
            stacklevel=3,
        )


def _read_set(file: Path) -> GoldSet:
    pair_name, _, split = file.stem.partition(".")
    gold_file = file.with_suffix(".gold")
    sentences, lines = read_sentence_pairs(file), read_lines(gold_file)
    if len(sentences) != len(lines):
        raise BadInput(
            f"{gold_file}: {len(lines)} lines, but {file.name} has {len(sentences)}. Expected the links of each "
            "pair on its line. Download the files again."
        )
    pairs, links_past_end = [], 0
    for number, ((source, target), line) in enumerate(zip(sentences, lines, strict=True), start=1):
        pair, past_end = _parse_links(source.split(), target.split(), line, f"{gold_file}: line {number}")
        pairs.append(pair)
        links_past_end += past_end
    if not any(pair.sure for pair in pairs):
        raise BadInput(f"{gold_file}: no sure links, so AER is undefined. Download the file again.")
    return GoldSet(parse_pair_name(pair_name), split or "test", pairs, links_past_end)


def _parse_links(source: list[str], target: list[str], line: str, where: str) -> tuple[GoldPair, int]:
    """Return the links of one line, and the number of links past the end of a sentence."""
    sure: LinkSet = set()
    possible: LinkSet = set()
    past_end = 0
    for item in line.split():
        match = _LINK.fullmatch(item)
        if not match or int(match[1]) < 1 or int(match[3]) < 1:
            raise BadInput(f"{where}: {item!r} is not a link. Expected i-j (sure) or ipj (possible), counted from 1.")
        link = (int(match[1]) - 1, int(match[3]) - 1)
        if link[0] >= len(source) or link[1] >= len(target):
            past_end += 1
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GoldPair(source, target, sure, possible), past_end
