"""Rank bitext by how a run learned it (XY-LENT §6.6): damaged corpora are at both ends.

A run with `dro` evaluates the loss of every group (one corpus in one language pair) and samples the hard ones more
often. Groups are ranked by the running mean of their losses, minus that of the baseline if there is one. The best
response raises and lowers sampling probabilities in the same order, but all groups that get the probability 0 look
equally easy.

With the shards, copies and repeated rows of each corpus are counted too. That needs no model. Lines that are not
translations of each other are what the losses find.
"""
# N rows that both sides have, U different ones

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import xxhash

from crossling.core.errors import BadInput
from crossling.core.progress import track
from crossling.data.example_sampler import group_name
from crossling.data.shards import Shards, TokenizedBitext, TokenizedSentences
from crossling.recipes.recipe import Recipe
from crossling.train.resampling import MIN_PAIRS, RESAMPLING_FILE, read_resampling_log
from crossling.vocabulary.open_vocabulary import AnyVocabulary, open_vocabulary

NORMAL_SCALE = 1.4826  # standard deviation / median absolute deviation of a normal distribution
ROWS_PER_CHUNK = 1 << 16  # rows whose token IDs are in memory; all rows have one 64-bit hash for each side
EXAMPLE_LINES = 3


@dataclass(frozen=True)
class RowStatistics:
    """Copies and repeats in the rows of a bitext."""

    copies: float  # proportion of rows whose two sides are the same
    repeats: float  # proportion of rows one side of which is also in another row
    lines: list[tuple[str, str]]  # a few rows, decoded from their tokens


@dataclass(frozen=True)
class RankedCorpus:
    """One corpus in one language pair, with its rank in a run.

    Args:
        name: Corpus and language pair.
        pairs: Number of sentence pairs.
        loss: Running mean of the loss at the end of the run, minus that of the baseline.
        deviation: Robust standard deviations from the median of all groups. Hard ones are above 0, easy ones below.
        ratios: Sampling probability relative to the initial one, after each resampling.
        statistics: Copies, repeats and examples, if the shards were given.
    """

    name: str
    pairs: int
    loss: float
    deviation: float
    ratios: list[float]
    statistics: RowStatistics | None = None

    def dump(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        Returns:
            Values by field name.

        Example:
            >>> xl.audit("run")[0].dump()["loss"]
            4.13
        """
        return asdict(self)


def audit(run: str | os.PathLike[str], shards: Shards | str | os.PathLike[str] | None = None) -> list[RankedCorpus]:
    """Rank the corpora of a run by their losses.

    Args:
        run: Folder of a run that was trained with `dro`.
        shards: Shards of the run, or their folder, to count copies and repeated rows too.

    Returns:
        All evaluated corpora, the hardest first.

    Raises:
        BadInput: If the run has no losses of its corpora, or if the shards are not those of the run.

    Example:
        >>> for corpus in xl.audit("run", xl.Shards.open("shards"))[:5]:
        ...     print(corpus.name, corpus.deviation)
    """
    run = Path(run)
    shards = Shards.open(shards) if isinstance(shards, str | os.PathLike) else shards
    rows = read_resampling_log(run)
    if not rows:
        raise BadInput(_missing_log_message(run))
    if len(rows) < 2:
        raise BadInput(f"{run}: no corpus has been evaluated yet. Resume the run until its first resampling.")
    losses = _subtract_baseline(rows[-1]["means"], rows[0].get("baseline"))
    if not losses:
        raise BadInput(f"{run}: no corpus has a loss. Only corpora of at least {MIN_PAIRS} pairs are evaluated.")
    skipped = [name for name in rows[0]["pairs"] if name not in losses]
    if skipped:
        warnings.warn(
            f"not evaluated, with fewer than {MIN_PAIRS} pairs or without a baseline: {', '.join(skipped)}",
            stacklevel=2,
        )
    bitexts = {group_name(bitext): bitext for bitext in shards.bitexts} if shards else {}
    if shards and not losses.keys() <= bitexts.keys():
        raise BadInput(f"{shards.path}: the run was trained on other corpora. Give the shards of the run.")
    statistics: dict[str, RowStatistics] = {}
    if shards:
        vocabulary = open_vocabulary(shards.vocabulary_path)
        statistics = {name: row_statistics(bitexts[name], vocabulary) for name in track("audit", [*losses])}
    center, deviation = _robust_deviation([*losses.values()])
    initial = rows[0]["probabilities"]
    ranked = [
        RankedCorpus(
            name=name,
            pairs=rows[0]["pairs"][name],
            loss=loss,
            deviation=(loss - center) / deviation,
            ratios=[row["probabilities"][name] / initial[name] for row in rows[1:]],
            statistics=statistics.get(name),
        )
        for name, loss in losses.items()
    ]
    return sorted(ranked, key=lambda corpus: (-corpus.loss, corpus.name))


def _subtract_baseline(means: Mapping[str, float], baseline: Mapping[str, float] | None) -> dict[str, float]:
    """Return the losses of the groups that have one."""
    if baseline is not None:
        means = {name: loss - baseline[name] for name, loss in means.items() if name in baseline}
    return {name: loss for name, loss in means.items() if math.isfinite(loss)}


def _robust_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return median and scaled median absolute deviation, on which a few damaged corpora have little influence."""
    center = median(values)
    return center, NORMAL_SCALE * median(abs(value - center) for value in values) or 1.0


def _missing_log_message(run: Path) -> str:
    if not (run / "recipe.json").is_file():
        return f"{run}: no run found (no recipe.json). Give a folder that crossling pretrain wrote."
    recipe = Recipe.load(run / "recipe.json")
    has_pairs = any(task.stream == "pairs" for task in recipe.objectives.values())
    return (
        f"{run}: this run did not evaluate its corpora (no {RESAMPLING_FILE}). Train one that does: crossling pretrain"
        f" {recipe.name} --shards SHARDS -o RUN {'' if has_pairs else '--set tlm=on '}--set dro=on"
    )


def row_statistics(bitext: TokenizedBitext, vocabulary: AnyVocabulary) -> RowStatistics:
    """Count copies and repeats in all rows, since repeated rows may be far from each other."""
    source_N, target_N = _hash_rows(bitext)
    lines = []
    for index in range(0, bitext.pairs, -(-bitext.pairs // EXAMPLE_LINES)):
        row = bitext.row(index)
        source, target = (vocabulary.decode(side[row][:-1].tolist()) for side in bitext.sides)  # without </s>
        lines.append((source, target))
    is_copy, is_repeated = source_N == target_N, _find_repeated(source_N) | _find_repeated(target_N)
    return RowStatistics(float(is_copy.mean()), float(is_repeated.mean()), lines)


def _hash_rows(bitext: TokenizedBitext) -> np.ndarray:
    """Hash each side of the rows that both sides have, [2, N]."""
    hashes = []
    for start in range(0, len(bitext.sides[0]), ROWS_PER_CHUNK):
        end = min(start + ROWS_PER_CHUNK, len(bitext.sides[0]))
        is_pair = bitext.presence(start, end)
        hashes.append(np.stack([_hash_side(side, start, end)[is_pair] for side in bitext.sides]))
    return np.concatenate(hashes, 1)


def _hash_side(side: TokenizedSentences, start: int, end: int) -> np.ndarray:
    offsets = side.offsets[start : end + 1].tolist()
    ids = side.tokens[offsets[0] : offsets[-1]].data
    bounds = pairwise([offset - offsets[0] for offset in offsets])
    return np.fromiter((xxhash.xxh3_64_intdigest(ids[a:b]) for a, b in bounds), np.uint64, end - start)


def _find_repeated(hash_N: np.ndarray) -> np.ndarray:
    _, index_N, count_U = np.unique(hash_N, return_inverse=True, return_counts=True)
    return count_U[index_N] > 1
