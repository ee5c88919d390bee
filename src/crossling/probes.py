"""What is measured while a model trains, by language: what it gains, and what it forgets while it happens.

Each probe is handed to the trainer, which asks it before the first step, every so often, and at the end.
"""
# N sentences, D width

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from rich.table import Table

from crossling.data.batches import Batches, Work
from crossling.data.shards import Shards
from crossling.evaluate.encode import measuring
from crossling.evaluate.retrieval import Bitext, Side, accuracy, read_tatoeba
from crossling.load import encoder_of
from crossling.objectives import Network
from crossling.recipe import Recipe
from crossling.sampling import Sampling
from crossling.train.trainer import Probe
from crossling.vocabulary.vocabulary import Vocabulary

SENTENCES = 200  # of a language
TOKENS = 4096  # of a language, for each objective
SEED = 2**32  # one that no recipe has: never the examples and masks of a step


def retrieval(data: Path, vocabulary: Vocabulary, sentences: int = SENTENCES) -> Probe:
    """Percent of translations found at the universal layer among at most so many, the mean of both directions:
    `retrieval/sw` with English, `retrieval/qaa-qac` without, and `retrieval`, their mean."""
    bitexts = [
        Bitext(*(Side(side.language, side.sentences[:sentences]) for side in (bitext.first, bitext.second)))
        for bitext in read_tatoeba(data)
    ]
    sides = [side for bitext in bitexts for side in (bitext.first, bitext.second)]
    distinct = dict.fromkeys(sentence for side in sides for sentence in side.sentences)
    row_of = {sentence: row for row, sentence in enumerate(distinct)}

    def probe(net: Network) -> dict[str, float]:
        vectors_ND = encoder_of(net, vocabulary, "the model in training").embed(list(distinct))
        found = {}
        for bitext in bitexts:
            first, second = bitext.first, bitext.second
            first_ND, second_ND = (vectors_ND[[row_of[each] for each in side.sentences]] for side in (first, second))
            name = "-".join(side.language for side in (first, second) if side.language != "en")
            ways = (first_ND, second_ND, second.sentences), (second_ND, first_ND, first.sentences)
            found[f"retrieval/{name}"] = fmean(accuracy(*way) for way in ways)
        return {"retrieval": fmean(found.values()), **found}

    return probe


def losses(shards: Shards, recipe: Recipe) -> Probe:
    """The mean of each loss term on text, by language: `loss/sw/mlm`.

    The same examples with the same masks every time, whatever the seed and the sampling. On shards that the run also
    trains on, the figures tell what is gained and forgotten, not how well new text is read.
    """
    tasks = {
        name: objective.small(TOKENS) for name, objective in recipe.objectives.items() if objective.stream == "text"
    }
    languages = [language for language, entry in shards.manifest["text"].items() if entry["tokens"]]
    works: dict[str, Work] = {}  # drawn when first asked for: blocks of a long text take their time

    def probe(net: Network) -> dict[str, float]:
        device = next(net.parameters()).device
        found: dict[str, float] = {}
        with measuring(net):
            for language in languages:
                if language not in works:
                    works[language] = Batches(_only(shards, language), tasks, Sampling(), SEED, recipe.micro_tokens)[0]
                work = works[language]
                for name, batch in work.micro:
                    sums = tasks[name].loss(net, {part: values.to(device) for part, values in batch.items()})
                    for term in tasks[name].weights:
                        key = f"loss/{language}/{term}"
                        found[key] = found.get(key, 0.0) + float(sums[term]) / max(1, work.counts[term])
        return found

    return probe


def together(probes: Sequence[Probe]) -> Probe:
    """All of them in one."""
    return lambda net: {name: value for probe in probes for name, value in probe(net).items()}


@dataclass(frozen=True)
class Change:
    """What a run did to one measure of one language."""

    kind: str  # "retrieval" or "loss"
    language: str  # or a pair, or "mean"
    term: str  # of a loss
    before: float
    after: float

    @property
    def worse(self) -> bool:
        return self.after > self.before if self.kind == "loss" else self.after < self.before


def changes(metrics: Path) -> list[Change]:
    """The first row of a run's metrics with probes against the last; nothing if there are no two."""
    rows = [
        {key.removeprefix("probe/"): value for key, value in json.loads(line).items() if key.startswith("probe/")}
        for line in Path(metrics).read_text(encoding="utf-8").splitlines()
    ]
    probed = [row for row in rows if row]
    if len(probed) < 2:
        return []
    first, last = probed[0], probed[-1]
    found = []
    for key in (key for key in first if key in last):
        kind, language, term = (*key.split("/"), "", "")[:3]
        found.append(Change(kind, language or "mean", term, first[key], last[key]))
    return found


def tables(metrics: Path) -> Iterator[Table]:
    """Before and after, a line for each language; what became worse is red."""
    found = changes(metrics)
    for kind in dict.fromkeys(change.kind for change in found):
        of_kind = {(change.language, change.term): change for change in found if change.kind == kind}
        terms = list(dict.fromkeys(term for _, term in of_kind))
        table = Table("language", title=f"{kind}{'' if kind == 'loss' else ', %'}: before → after")
        for term in terms:
            table.add_column(term, justify="right")
        for language in dict.fromkeys(language for language, _ in of_kind):
            table.add_row(language, *(_cell(of_kind.get((language, term))) for term in terms))
        yield table


def _cell(change: Change | None) -> str:
    if change is None:
        return ""
    digits = 3 if change.kind == "loss" else 1
    text = f"{change.before:.{digits}f} → {change.after:.{digits}f} ({change.after - change.before:+.{digits}f})"
    return f"[red]{text}[/]" if change.worse else text


def _only(shards: Shards, language: str) -> Shards:
    """The text of one language, as if there were nothing else."""
    text = {language: shards.manifest["text"][language]}
    return replace(shards, manifest={**shards.manifest, "text": text, "pairs": {}, "multi": {}})
