"""Word alignment against gold links, by the alignment error rate.

    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)      A found, S sure, P possible, S in P; over a corpus

Protocol `xlm-align-ot`: both sentences as one input, optimal transport on the states of a layer (see links.py), a word
pair linked if any of its pieces are; XLM-Align's public aligner, with the floor under similarities its training has.
Protocol `mutual-argmax`: the same with plain mutual nearest neighbours by cosine. `itermax`: the same with SimAlign's
second round; SimAlign itself reads each sentence alone.
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

from crossling.benchmarks.lines import read_lines
from crossling.errors import BadInput
from crossling.evaluate.encode import Encoder, Links
from crossling.evaluate.files import choose, gold_files, pair_of
from crossling.evaluate.measured import Measured, numbers
from crossling.evaluate.predictions import Predicted
from crossling.evaluate.scores import Score
from crossling.progress import watched

PROTOCOLS = {"ot": "xlm-align-ot", "argmax": "mutual-argmax", "itermax": "itermax"}
PAIRS_AT_ONCE = 1024
_LINK = re.compile(r"(\d+)([-p])(\d+)", re.ASCII)

LinkSet = set[tuple[int, int]]


@dataclass(frozen=True)
class GoldPair:
    """Two sentences in words, and their links counted from 0; `possible` has the sure ones too."""

    source: list[str]
    target: list[str]
    sure: LinkSet
    possible: LinkSet


@dataclass(frozen=True)
class GoldSet:
    languages: str  # "de-en"
    split: str  # "test", or what follows the pair in the file name: `enhi.trial` is the split "trial"
    pairs: list[GoldPair]
    skipped_links: int  # of the file, past the end of their sentence


def read_gold(data: Path, languages: Sequence[str] | None = None) -> list[GoldSet]:
    """All sets of DATA/word-alignment, or those of the languages, in the order of their names."""
    chosen = choose(gold_files(data), languages, data / "word-alignment")
    plain = {file.with_name(file.name.removesuffix(".gz")) for files in chosen.values() for file in files}
    return [_read_set(file) for file in sorted(plain) if file.suffix == ".src-tgt"]


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Sentence pairs from lines of `source ||| target`."""
    if not any(file.is_file() for file in (path, Path(f"{path}.gz"))):
        raise BadInput(f"{path}: no such file; give a file with lines of `source ||| target`, plain or .gz")
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        source, bar, target = line.partition(" ||| ")
        if not (bar and source.strip() and target.strip()) or "|||" in target:
            raise BadInput(f"{path}: line {number} is not `source ||| target`; mend the line")
        pairs.append((source, target))
    return pairs


def align(encoder: Encoder, file: Path, layer: int | None = None, method: str = "ot") -> Iterator[Links]:
    """Links for each line of a file of `source ||| target`, counted from 0, as they are found."""
    chosen = encoder.layer(layer)
    pairs = read_pairs(file)
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        words = [(source.split(), target.split()) for source, target in pairs[start : start + PAIRS_AT_ONCE]]
        for number, found in enumerate(encoder.align_all(words, [chosen], [method]), start=start + 1):
            if found is None:
                raise BadInput(
                    f"{file}: line {number} is longer than the {encoder.longest} tokens {encoder.name} can read;"
                    " shorten or split it"
                )
            yield found[method][0]


def word_alignment(
    encoder: Encoder, data: Path, languages: Sequence[str] | None = None, methods: Sequence[str] = ("ot",)
) -> Iterator[Measured]:
    """Each set of gold links by each method, every layer."""
    layers = range(encoder.layers + 1)
    sets = read_gold(data, languages)
    times = Counter(gold.languages for gold in sets)
    for gold in watched("word-alignment", sets, lambda gold: gold.languages):
        found = encoder.align_all([(pair.source, pair.target) for pair in gold.pairs], layers, methods)
        measured = [(number, each) for number, each in enumerate(found) if each is not None]
        _warn(encoder, gold, len(gold.pairs) - len(measured))
        if not measured:
            raise BadInput(f"{encoder.name}: every pair of {gold.languages} is too long for it; give another model")
        for method in methods:
            scored = _scored(encoder, gold, method, [(number, each[method]) for number, each in measured])
            yield replace(scored, parts=len(methods) * times[gold.languages])


def _scored(encoder: Encoder, gold: GoldSet, method: str, found: list[tuple[int, list[Links]]]) -> Measured:
    """Of the numbers of the pairs that could be measured and their links by layer."""
    counts_NK2 = np.array(
        [
            [counts(set(links), gold.pairs[number].sure, gold.pairs[number].possible) for links in by_layer]
            for number, by_layer in found
        ]
    )
    rows = [
        Score(
            model=encoder.name,
            task="word-alignment",
            protocol=PROTOCOLS[method],
            metric="aer",
            language=gold.languages,
            layer=layer,
            seed=encoder.seed,
            split=gold.split,
            examples=len(found),
            value=value,
            low=low,
            high=high,
        ).row()
        for layer, (value, low, high) in enumerate(numbers("aer", counts_NK2))
    ]
    examples = (
        Predicted(
            str(number + 1),
            [" ".join(f"{i}-{j}" for i, j in links) for links in by_layer],
            {f"{PROTOCOLS[method]}/aer": counts_K2.tolist()},
        )
        for (number, by_layer), counts_K2 in zip(found, counts_NK2, strict=True)
    )
    return Measured(gold.languages, rows, "word-alignment", gold.split, gold.languages, method, examples)


def counts(found: LinkSet, sure: LinkSet, possible: LinkSet) -> tuple[int, int]:
    """|A and S| + |A and P|, and |A| + |S|, of one sentence pair."""
    return len(found & sure) + len(found & (possible | sure)), len(found) + len(sure)


def _warn(encoder: Encoder, gold: GoldSet, too_long: int) -> None:
    name = f"word alignment {gold.languages} ({gold.split})"
    if gold.skipped_links:
        warnings.warn(f"{name}: {gold.skipped_links} gold links point past their sentence; skipped", stacklevel=3)
    if too_long:
        warnings.warn(
            f"{name}: {too_long} of {len(gold.pairs)} pairs are longer than the {encoder.longest} tokens "
            f"{encoder.name} can read; skipped",
            stacklevel=3,
        )


def _read_set(text: Path) -> GoldSet:
    pair, _, split = text.stem.partition(".")
    gold = text.with_suffix(".gold")
    sentences, links = read_pairs(text), read_lines(gold)
    if len(sentences) != len(links):
        raise BadInput(
            f"{gold}: {len(links)} lines but {len(sentences)} in {text.name}, expected the links of each pair on "
            "its line; fetch the files again"
        )
    pairs, skipped = [], 0
    for number, ((source, target), line) in enumerate(zip(sentences, links, strict=True), start=1):
        gold_pair, past_end = _read_links(source.split(), target.split(), line, f"{gold}: line {number}")
        pairs.append(gold_pair)
        skipped += past_end
    if not any(pair.sure for pair in pairs):
        raise BadInput(f"{gold}: no sure links, without which there is no error rate; fetch the file again")
    return GoldSet(pair_of(pair), split or "test", pairs, skipped)


def _read_links(source: list[str], target: list[str], line: str, place: str) -> tuple[GoldPair, int]:
    sure: LinkSet = set()
    possible: LinkSet = set()
    past_end = 0
    for item in line.split():
        match = _LINK.fullmatch(item)
        if not match or int(match[1]) < 1 or int(match[3]) < 1:
            raise BadInput(f"{place}: {item!r} is no link, expected i-j (sure) or ipj (possible) counted from 1")
        link = (int(match[1]) - 1, int(match[3]) - 1)
        if link[0] >= len(source) or link[1] >= len(target):
            past_end += 1
            continue
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GoldPair(source, target, sure, possible), past_end
