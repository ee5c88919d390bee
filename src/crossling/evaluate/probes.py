"""Probes: retrieval accuracy and losses by language during training, to see gains and forgetting early.

The trainer calls a probe before the first step, at regular intervals and at the end.
"""
# N sentences, D width

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
from rich.table import Table

from crossling.data.batches import Batches, StepWork
from crossling.data.shards import Shards
from crossling.evaluate.retrieval import retrieval_accuracy
from crossling.evaluate.retrieval_pairs import RetrievalPair, RetrievalSide, read_tatoeba
from crossling.inference.hidden_states import evaluation_mode
from crossling.inference.load import make_encoder
from crossling.objectives import Network
from crossling.recipes.recipe import Recipe
from crossling.sampling import Sampling
from crossling.vocabulary.open_vocabulary import AnyVocabulary

SENTENCES = 200  # per language
TOKENS = 4096  # per language and objective
SEED = 2**32  # larger than any seed of a recipe, so that the examples and masks differ from those of training

Probe = Callable[[Network], dict[str, float]]


@dataclass(frozen=True)
class NamedProbe:
    """A probe whose metrics are known before it is called."""

    function: Probe
    metrics: tuple[str, ...]

    def __call__(self, net: Network) -> dict[str, float]:
        """Return the metrics of a network."""
        return self.function(net)


def make_retrieval_probe(
    data: Path,
    vocabulary: AnyVocabulary,
    sentences: int = SENTENCES,
    languages: Sequence[str] | None = None,
    best_layer: bool = False,
) -> NamedProbe:
    """Return a probe of the retrieval accuracy, averaged over both directions.

    Metrics: `retrieval/sw` for a pair with English, `retrieval/qaa-qac` for others, and `retrieval`, their mean.

    Args:
        data: Folder that contains tatoeba/v1.
        vocabulary: Vocabulary of the network.
        sentences: Largest number of sentences per pair.
        languages: Languages of Tatoeba. All if None.
        best_layer: Use the layer with the highest mean, not the universal layer.
    """
    pairs = [
        RetrievalPair(*(RetrievalSide(side.language, side.sentences[:sentences]) for side in pair.sides))
        for pair in read_tatoeba(data, languages)
    ]
    distinct = dict.fromkeys(sentence for pair in pairs for side in pair.sides for sentence in side.sentences)
    row_of = {sentence: row for row, sentence in enumerate(distinct)}

    def accuracies_of(vectors_ND: np.ndarray) -> dict[str, float]:
        accuracies = {}
        for pair in pairs:
            first, second = pair.sides
            first_ND, second_ND = (
                vectors_ND[[row_of[sentence] for sentence in side.sentences]] for side in (first, second)
            )
            directions = (first_ND, second_ND, second.sentences), (second_ND, first_ND, first.sentences)
            accuracies[_retrieval_metric(pair)] = fmean(retrieval_accuracy(*direction) for direction in directions)
        return accuracies

    def probe(net: Network) -> dict[str, float]:
        encoder = make_encoder(net, vocabulary, "the model in training")
        layers = encoder.encode_layers(list(distinct)) if best_layer else [encoder.encode(list(distinct))]
        best = max(map(accuracies_of, layers), key=lambda accuracies: fmean(accuracies.values()))
        return {"retrieval": fmean(best.values()), **best}

    return NamedProbe(probe, ("retrieval", *map(_retrieval_metric, pairs)))


def _retrieval_metric(pair: RetrievalPair) -> str:
    return "retrieval/" + "-".join(side.language for side in pair.sides if side.language != "en")


def make_loss_probe(shards: Shards, recipe: Recipe) -> NamedProbe:
    """Return a probe of the mean of each loss term on monolingual text, by language: `loss/sw/mlm`.

    The examples and masks are the same at every call, for every seed and sampling. On shards that the run also trains
    on, the losses show gains and forgetting, not generalization.
    """
    tasks = {
        name: objective.stateless_copy(TOKENS)
        for name, objective in recipe.objectives.items()
        if objective.stream == "text"
    }
    languages = [language for language, entry in shards.manifest["text"].items() if entry["tokens"]]

    @cache  # sampled at the first call, since this takes long
    def step_work(language: str) -> StepWork:
        own = _select_language(shards, language)
        return Batches(own, tasks, Sampling(), seed=SEED, micro_tokens=recipe.micro_tokens)[0]

    def probe(net: Network) -> dict[str, float]:
        device = next(net.parameters()).device
        losses: dict[str, float] = {}
        with evaluation_mode(net):
            for language in languages:
                work = step_work(language)
                for name, batch in work.micro_batches:
                    sums = tasks[name].loss(net, {part: values.to(device) for part, values in batch.items()})
                    for term in tasks[name].loss_weights:
                        key = f"loss/{language}/{term}"
                        losses[key] = losses.get(key, 0.0) + float(sums[term]) / max(1, work.counts[term])
        return losses

    terms = [term for task in tasks.values() for term in task.loss_weights]
    return NamedProbe(probe, tuple(f"loss/{language}/{term}" for language in languages for term in terms))


def combine_probes(probes: Sequence[Probe]) -> Probe:
    """Return one probe with the metrics of all."""

    def probe(net: Network) -> dict[str, float]:
        return {name: value for each in probes for name, value in each(net).items()}

    named = [each for each in probes if isinstance(each, NamedProbe)]
    return NamedProbe(probe, tuple(name for each in named for name in each.metrics)) if named == [*probes] else probe


@dataclass(frozen=True, kw_only=True)
class ProbeChange:
    """Change of one probe metric over a run."""

    kind: str  # "retrieval" or "loss"
    language: str  # or a pair, or "mean"
    term: str  # loss term; empty for retrieval
    before: float
    after: float

    @property
    def is_worse(self) -> bool:
        """True if the loss rose or the accuracy fell."""
        return self.after > self.before if self.kind == "loss" else self.after < self.before


def read_probe_changes(metrics: Path) -> list[ProbeChange]:
    """Compare the first and the last row of a metrics.jsonl that have probe metrics. Empty if there is one only."""
    rows = [
        {key.removeprefix("probe/"): value for key, value in json.loads(line).items() if key.startswith("probe/")}
        for line in Path(metrics).read_text(encoding="utf-8").splitlines()
    ]
    probed = [row for row in rows if row]
    if len(probed) < 2:
        return []
    first, last = probed[0], probed[-1]
    changes = []
    for key in (key for key in first if None not in (first[key], last.get(key))):  # None: the loss was not finite
        kind, language, term = (*key.split("/"), "", "")[:3]
        changes.append(
            ProbeChange(kind=kind, language=language or "mean", term=term, before=first[key], after=last[key])
        )
    return changes


def make_probe_tables(metrics: Path) -> Iterator[Table]:
    """Yield tables of the metrics before and after, one row per language, with losses of quality in red."""
    changes = read_probe_changes(metrics)
    for kind in dict.fromkeys(change.kind for change in changes):
        of_kind = {(change.language, change.term): change for change in changes if change.kind == kind}
        terms = list(dict.fromkeys(term for _, term in of_kind))
        table = Table("language", title=f"{kind}{'' if kind == 'loss' else ', %'}: before → after")
        for term in terms:
            table.add_column(term, justify="right")
        for language in dict.fromkeys(language for language, _ in of_kind):
            table.add_row(language, *(_cell(of_kind.get((language, term))) for term in terms))
        yield table


def _cell(change: ProbeChange | None) -> str:
    if change is None:
        return ""
    digits = 3 if change.kind == "loss" else 1
    text = f"{change.before:.{digits}f} → {change.after:.{digits}f} ({change.after - change.before:+.{digits}f})"
    return f"[red]{text}[/]" if change.is_worse else text


def _select_language(shards: Shards, language: str) -> Shards:
    """Return shards with the text of one language only."""
    text = {language: shards.manifest["text"][language]}
    return replace(shards, manifest={**shards.manifest, "text": text, "pairs": {}, "multi": {}})
