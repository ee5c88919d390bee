"""What a run would draw: how often each language and pair, and how many times over, under each rule of sampling.

Lengths are estimated from the counts of the manifest alone, so that nothing has to be read; on real corpora they were
within a few percent of what is drawn.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from crossling.data.batches import Task
from crossling.data.blocks import FULL
from crossling.data.rates import check_focus, pair_counts, unordered
from crossling.data.shards import Bitext, Shards
from crossling.errors import BadInput
from crossling.recipe import Recipe
from crossling.recipe.cost import Load
from crossling.sampling import RULES, OutOfReach, Pair, Sampling
from crossling.sampling.sampling import NOTHING

Key = TypeVar("Key", str, Pair)


@dataclass(frozen=True)
class Drawn(Generic[Key]):
    """The languages of text, or the language pairs with both directions together."""

    counts: dict[Key, int]  # tokens, or pairs
    rates: dict[Key, float]
    epochs: dict[Key, float]  # how many times over all that is there is seen in the whole run
    loads: dict[str, Load]  # of the objectives that read them
    note: str = ""

    @property
    def never(self) -> float:
        """The share of what is there that is not drawn."""
        return sum(rate < NOTHING for rate in self.rates.values()) / len(self.rates)

    @property
    def effective(self) -> float:
        """How many, all drawn alike, would be as varied: the exponential of the entropy."""
        return math.exp(-sum(rate * math.log(rate) for rate in self.rates.values() if rate > 0))

    @property
    def most_repeated(self) -> Key:
        return max(self.epochs, key=lambda key: self.epochs[key])

    def dump(self) -> dict[str, Any]:
        return {
            "never": self.never,
            "effective": self.effective,
            "most_repeated": spelled(self.most_repeated),
            "most_epochs": self.epochs[self.most_repeated],
            **({"note": self.note} if self.note else {}),
            "rates": {spelled(key): rate for key, rate in self.rates.items()},
            "epochs": {spelled(key): epochs for key, epochs in self.epochs.items()},
        }


def spelled(key: str | Pair) -> str:
    return key if isinstance(key, str) else "-".join(key)


def text(recipe: Recipe, shards: Shards) -> Drawn[str] | None:
    """Nothing if the recipe reads no text."""
    tasks = {name: task for name, task in recipe.objectives.items() if task.stream == "text"}
    if not tasks:
        return None
    entries = {language: entry for language, entry in shards.manifest["text"].items() if entry["tokens"]}
    if not entries:
        raise BadInput(f"{shards.path}: the recipe needs text and these shards have none")
    check_focus(shards, recipe.sampling)
    counts = {language: entry["tokens"] for language, entry in entries.items()}
    rates = recipe.sampling.of_text(counts)
    loads = {}
    seen = dict.fromkeys(rates, 0.0)
    for name, task in tasks.items():
        loads[name], blocks = _text_load(task, shards, rates)
        for language, rate in rates.items():
            seen[language] += recipe.turns("text") * loads[name].examples * rate / blocks
    return Drawn(counts, rates, {language: seen[language] / n for language, n in counts.items()}, loads)


def pairs(recipe: Recipe, shards: Shards) -> Drawn[Pair] | None:
    """Nothing if the recipe reads no pairs. OutOfReach where its rule cannot be had."""
    tasks = {name: task for name, task in recipe.objectives.items() if task.stream == "pairs"}
    if not tasks:
        return None
    counts = {pair: n for pair, n in pair_counts(shards, recipe.sampling.pivot).items() if n}
    if not counts:
        raise BadInput(f"{shards.path}: the recipe needs {recipe.sampling.wanted_pairs} and these shards have none")
    check_focus(shards, recipe.sampling)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        rates = recipe.sampling.of_pairs(counts)
    loads = {name: _pair_load(task, shards, rates, counts) for name, task in tasks.items()}
    draws = recipe.turns("pairs") * sum(load.examples for load in loads.values())
    epochs = {pair: draws * rates[pair] / n for pair, n in counts.items()}
    return Drawn(counts, rates, epochs, loads, "; ".join(str(note.message) for note in notes))


def pairs_by_rule(recipe: Recipe, shards: Shards) -> dict[str, Drawn[Pair] | str]:
    """What each rule would do; where one cannot be had, why, and after it what it would do relaxed."""
    found: dict[str, Drawn[Pair] | str] = {}
    for rule in RULES:
        for relax in (False, True):
            sampling: Sampling = replace(recipe.sampling, pair_rule=rule, relax=relax)
            name = f"{rule} relaxed" if relax else rule
            try:
                drawn = pairs(recipe.but(sampling=sampling), shards)
            except OutOfReach as reason:
                found[name] = str(reason)
                continue
            if drawn is not None:
                found[name] = drawn
            break
    return found


def loads(recipe: Recipe, shards: Shards, of_text: Drawn[str] | None, of_pairs: Drawn[Pair] | None) -> dict[str, Load]:
    """What the objectives of a recipe read where text and pairs are drawn as for another one."""
    found = {}
    for name, task in recipe.objectives.items():
        if task.stream == "text":
            assert of_text is not None
            found[name], _ = _text_load(task, shards, of_text.rates)
        else:
            assert of_pairs is not None
            found[name] = _pair_load(task, shards, of_pairs.rates, of_pairs.counts)
    return found


def _text_load(task: Task, shards: Shards, rates: Mapping[str, float]) -> tuple[Load, float]:
    """Also how many blocks a token that is drawn is of: rates of text are of tokens, and blocks are drawn."""
    lengths = {language: _block(shards.manifest["text"][language], task.length) for language in rates}
    blocks = {language: rate / (lengths[language] - 1) for language, rate in rates.items()}  # without <s>
    total = sum(blocks.values())
    return _load(task, {language: n / total for language, n in blocks.items()}, lengths), total


def _pair_load(task: Task, shards: Shards, rates: Mapping[Pair, float], counts: Mapping[Pair, int]) -> Load:
    lengths = dict.fromkeys(counts, 0.0)
    for bitext in shards.bitexts:
        if bitext.pairs and (pair := unordered(bitext.languages)) in counts:
            lengths[pair] += _joined(shards, bitext, task.length) * bitext.pairs / counts[pair]
    return _load(task, rates, lengths)


def _load(task: Task, rates: Mapping[Key, float], lengths: Mapping[Key, float]) -> Load:
    expected = sum(rate * lengths[key] for key, rate in rates.items())
    return Load(task.examples(expected), expected)


def _block(entry: Mapping[str, int], length: int) -> float:
    """Tokens of a block of text, <s> included. The last sentence may end anywhere in the room, and closes the block if
    that leaves little of it empty; the last block of a document is half full."""
    room = length - 1
    sentence, document = (entry["tokens"] / entry[part] for part in ("sentences", "documents"))
    empty = min(sentence, (1 - FULL) * room) ** 2 / (2 * sentence)
    blocks = max(1.0, document / (room - empty) + 0.5 * (document > room))
    return 1 + document / blocks


def _joined(shards: Shards, bitext: Bitext, length: int) -> float:
    """Tokens of a pair, <s> included."""
    if bitext.corpus in shards.manifest["pairs"]:
        entry = shards.manifest["pairs"][bitext.corpus]
        means = [tokens / entry["pairs"] for tokens in entry["tokens"]]
    else:
        entries = shards.manifest["multi"][bitext.corpus]["languages"]
        means = [entries[language]["tokens"] / entries[language]["filled"] for language in bitext.languages]
    return 1 + sum(_cut(mean, (length - 1) // 2) for mean in means)


def _cut(mean: float, most: int) -> float:
    """The mean length of sentences once they are cut: lengths spread about like a gamma distribution of shape 2."""
    return mean - math.exp(-2 * most / mean) * (mean + most)
