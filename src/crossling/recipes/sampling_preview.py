"""Preview of sampling: probability and epochs of each language and pair, under each sampling rule.

Lengths are estimated from the counts in the manifest, without reading the shards. On real corpora they were within a
few percent of the sampled lengths.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from crossling.core.errors import BadInput
from crossling.data.batches import DataObjective
from crossling.data.example_groups import MIN_FILL, make_groups
from crossling.data.example_sampler import (
    check_languages,
    pair_counts,
    skipped_languages,
    text_counts,
    unordered_pair,
)
from crossling.data.shards import Shards, TokenizedBitext
from crossling.recipes.network import ObjectiveLoad
from crossling.recipes.recipe import Recipe
from crossling.sampling import RULES, InfeasibleMarginals, Pair
from crossling.sampling.sampling_settings import NEGLIGIBLE

Key = TypeVar("Key", str, Pair)


@dataclass(frozen=True)
class SamplingPreview(Generic[Key]):
    """Sampling of the languages of text, or of language pairs with both directions together."""

    counts: dict[Key, int]  # tokens of text, or sentence pairs
    probabilities: dict[Key, float]
    epochs: dict[Key, float]  # passes over the data of a key in the whole run
    note: str = ""  # warnings of the sampling rule
    skipped: tuple[str, ...] = ()  # languages with too few pairs

    @property
    def never_sampled(self) -> float:
        """Fraction of the keys that are never sampled."""
        return sum(p < NEGLIGIBLE for p in self.probabilities.values()) / len(self.probabilities)

    @property
    def effective_number(self) -> float:
        """Number of equally frequent keys with the same entropy."""
        return math.exp(-sum(p * math.log(p) for p in self.probabilities.values() if p > 0))

    @property
    def most_repeated(self) -> Key:
        """Key with the most epochs."""
        return max(self.epochs, key=lambda key: self.epochs[key])

    def dump(self) -> dict[str, Any]:
        """Return the preview as a JSON object."""
        return {
            "never": self.never_sampled,
            "effective": self.effective_number,
            "most_repeated": format_key(self.most_repeated),
            "most_epochs": self.epochs[self.most_repeated],
            **({"note": self.note} if self.note else {}),
            "rates": {format_key(key): p for key, p in self.probabilities.items()},
            "epochs": {format_key(key): epochs for key, epochs in self.epochs.items()},
        }


def format_key(key: str | Pair) -> str:
    """Return a language, or a pair as `de-en`."""
    return key if isinstance(key, str) else "-".join(key)


def preview_text(recipe: Recipe, shards: Shards) -> SamplingPreview[str] | None:
    """Return the sampling of text, or None if the recipe reads no text. Probabilities are means over phases."""
    return _join_phases(recipe, [_preview_text_phase(phase, shards) for phase in recipe.split()])


def _preview_text_phase(recipe: Recipe, shards: Shards) -> SamplingPreview[str] | None:
    objectives = [each for each in recipe.objectives.values() if each.stream == "text"]
    if not objectives:
        return None
    check_languages(shards, recipe.sampling)
    counts = {language: n for language, n in text_counts(shards, recipe.sampling).items() if n}
    if not counts:
        needed = recipe.sampling.text_description
        raise BadInput(f"{shards.path}: no {needed} in these shards, which the recipe needs. Tokenize some first.")
    probabilities = recipe.sampling.text_probabilities(counts)
    tokens = dict.fromkeys(probabilities, 0.0)
    for objective in objectives:
        load, blocks = _text_load(objective, recipe, shards, probabilities)
        for language, p in probabilities.items():
            tokens[language] += recipe.stream_steps("text") * load.examples * p / blocks
    epochs = {language: tokens[language] / n for language, n in counts.items()}
    return SamplingPreview(counts, probabilities, epochs)


def preview_pairs(recipe: Recipe, shards: Shards) -> SamplingPreview[Pair] | None:
    """Return the sampling of pairs, or None if the recipe reads no pairs. Probabilities are means over phases.

    Raises:
        InfeasibleMarginals: If the rule allows no probabilities of these pairs.
    """
    return _join_phases(recipe, [_preview_pair_phase(phase, shards) for phase in recipe.split()])


def _preview_pair_phase(recipe: Recipe, shards: Shards) -> SamplingPreview[Pair] | None:
    objectives = [each for each in recipe.objectives.values() if each.stream == "pairs"]
    if not objectives:
        return None
    check_languages(shards, recipe.sampling)
    counts = {pair: n for pair, n in pair_counts(shards, recipe.sampling).items() if n}
    if not counts:
        needed = recipe.sampling.pair_description
        raise BadInput(f"{shards.path}: no {needed} in these shards, which the recipe needs. Tokenize some first.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        probabilities = recipe.sampling.pair_probabilities(counts)
    loads = [_pair_load(objective, shards, probabilities, counts) for objective in objectives]
    samples = recipe.stream_steps("pairs") * sum(load.examples for load in loads)
    epochs = {pair: samples * probabilities[pair] / n for pair, n in counts.items()}
    note = " ".join(str(each.message) for each in caught)
    skipped = tuple(sorted(skipped_languages(shards, recipe.sampling)))
    return SamplingPreview(counts, probabilities, epochs, note=note, skipped=skipped)


def _join_phases(recipe: Recipe, phases: Sequence[SamplingPreview[Key] | None]) -> SamplingPreview[Key] | None:
    """Return the preview of a run from those of its phases."""
    previews: list[SamplingPreview[Key]] = [each for each in phases if each is not None]
    if len(previews) < 2:
        return previews[0] if previews else None
    counts: dict[Key, int] = {}
    for preview in previews:
        counts |= preview.counts
    probabilities, epochs = dict.fromkeys(counts, 0.0), dict.fromkeys(counts, 0.0)
    for phase, own in zip(recipe.split(), previews, strict=True):
        for key in own.counts:
            probabilities[key] += phase.steps / recipe.steps * own.probabilities[key]
            epochs[key] += own.epochs[key]
    skipped = set(previews[0].skipped).intersection(*(own.skipped for own in previews[1:]))
    return SamplingPreview(counts, probabilities, epochs, note=previews[0].note, skipped=tuple(sorted(skipped)))


def preview_rules(recipe: Recipe, shards: Shards) -> dict[str, SamplingPreview[Pair] | str]:
    """Return the sampling of pairs under each rule. An infeasible rule has its error, and a relaxed form after it."""
    previews: dict[str, SamplingPreview[Pair] | str] = {}
    for rule in RULES:
        for relax in (False, True):
            sampling = replace(recipe.sampling, pair_rule=rule, relax=relax)
            name = f"{rule} relaxed" if relax else rule
            try:
                preview = preview_pairs(recipe.replace(sampling=sampling), shards)
            except InfeasibleMarginals as error:
                previews[name] = str(error)
                continue
            if preview is not None:
                previews[name] = preview
            break
    return previews


def preview_loads(
    recipe: Recipe, shards: Shards, text: SamplingPreview[str] | None, pairs: SamplingPreview[Pair] | None
) -> dict[str, ObjectiveLoad]:
    """Return the load of each objective, with sampling probabilities computed for another recipe."""
    loads = {}
    for name, objective in recipe.objectives.items():
        if objective.stream == "text":
            assert text is not None
            loads[name], _ = _text_load(objective, recipe, shards, text.probabilities)
        elif objective.stream == "sentences":
            loads[name] = _sentence_load(objective, recipe, shards)
        else:
            assert pairs is not None
            loads[name] = _pair_load(objective, shards, pairs.probabilities, pairs.counts)
    return loads


def _text_load(
    objective: DataObjective, recipe: Recipe, shards: Shards, probabilities: Mapping[str, float]
) -> tuple[ObjectiveLoad, float]:
    """Return the load, and the blocks per token: probabilities are of tokens, and blocks are sampled."""
    entries, mean_length = shards.manifest["text"], _full_length if recipe.sampling.full_blocks else _block_length
    lengths = {language: mean_length(entries[language], objective.length) for language in probabilities}
    blocks = {language: p / (lengths[language] - 1) for language, p in probabilities.items()}  # without <s>
    total = sum(blocks.values())
    return _mean_load(objective, {language: n / total for language, n in blocks.items()}, lengths), total


def _pair_load(
    objective: DataObjective, shards: Shards, probabilities: Mapping[Pair, float], counts: Mapping[Pair, int]
) -> ObjectiveLoad:
    lengths = dict.fromkeys(counts, 0.0)
    for bitext in shards.bitexts:
        if bitext.pairs and (pair := unordered_pair(bitext.languages)) in counts:
            lengths[pair] += _pair_length(shards, bitext, objective.length) * bitext.pairs / counts[pair]
    return _mean_load(objective, probabilities, lengths)


def _sentence_load(objective: DataObjective, recipe: Recipe, shards: Shards) -> ObjectiveLoad:
    groups = make_groups(shards, objective.stream, objective.length, recipe.sampling)
    lengths = {group.name: group.mean_length for group in groups}
    return _mean_load(objective, {group.name: group.probability for group in groups}, lengths)


def _mean_load(
    objective: DataObjective, probabilities: Mapping[Key, float], lengths: Mapping[Key, float]
) -> ObjectiveLoad:
    length = sum(p * lengths[key] for key, p in probabilities.items())
    return ObjectiveLoad(objective.examples_per_step(length), length)


def _block_length(entry: Mapping[str, int], length: int) -> float:
    """Return the mean tokens of a block of text, <s> included.

    The last sentence may end anywhere in the block, and closes it if little of it stays empty. The last block of a
    document is half full.
    """
    capacity = length - 1
    sentence, document = (entry["tokens"] / entry[part] for part in ("sentences", "documents"))
    empty = min(sentence, (1 - MIN_FILL) * capacity) ** 2 / (2 * sentence)
    blocks = max(1.0, document / (capacity - empty) + 0.5 * (document > capacity))
    return 1 + document / blocks


def _full_length(entry: Mapping[str, int], length: int) -> float:
    """Return the mean tokens of a full block, <s> included. Only the last one is shorter."""
    return 1 + entry["tokens"] / math.ceil(entry["tokens"] / (length - 1))


def _pair_length(shards: Shards, bitext: TokenizedBitext, length: int) -> float:
    """Return the mean tokens of a joined pair, <s> included."""
    if bitext.corpus in shards.manifest["pairs"]:
        entry = shards.manifest["pairs"][bitext.corpus]
        means = [tokens / entry["pairs"] for tokens in entry["tokens"]]
    else:
        entries = shards.manifest["multi"][bitext.corpus]["languages"]
        means = [entries[language]["tokens"] / entries[language]["filled"] for language in bitext.languages]
    return 1 + sum(_truncated_mean(mean, (length - 1) // 2) for mean in means)


def _truncated_mean(mean: float, limit: int) -> float:
    """Return the mean length of truncated sentences. Lengths are roughly gamma distributed with shape 2."""
    return mean - math.exp(-2 * limit / mean) * (mean + limit)
