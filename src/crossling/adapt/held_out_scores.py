"""Scores on held-out text before and after: retrieval by language pair, fertility, and forgetting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rich.table import Table

from crossling.corpora.languages import parse_pair
from crossling.evaluate.retrieval import evaluate_own_pairs
from crossling.evaluate.significance import pair_name
from crossling.inference.cpu_precision import in_float32
from crossling.inference.pooling import DECLARED
from crossling.inference.sentence_encoder import Encoder
from crossling.tasks.own_pairs import OwnPairs
from crossling.tasks.scores import ScoreRow
from crossling.vocabulary.build_vocabulary import describe_languages
from crossling.vocabulary.open_vocabulary import AnyVocabulary

NEW, KEPT = "new", "kept"
RETRIEVAL, LOSS, FERTILITY, COVERAGE = "retrieval, %", "MLM loss", "tokens per word", "known tokens, %"
DIGITS = {RETRIEVAL: 1, LOSS: 3, FERTILITY: 2, COVERAGE: 1}
HIGHER_IS_BETTER = {RETRIEVAL, COVERAGE}
MOST_LOST = 5  # kept languages in the table of the command

PairRows = Mapping[str, Sequence[tuple[str, str]]]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One measure on held-out text before and after.

    Attributes:
        language: Language, or language pair.
        role: `new` for the languages to learn, `kept` for the others.
        measure: What was measured.
        before: Value of the original model. The MLM loss is that of step 0, with the extended vocabulary.
        after: Value of the adapted model.
        examples: Number of pairs or lines.
    """

    language: str
    role: str
    measure: str
    before: float
    after: float
    examples: int

    @property
    def is_worse(self) -> bool:
        """True if the adapted model is worse."""
        return self.loss > 0

    @property
    def loss(self) -> float:
        """Difference by which the adapted model is worse. Negative if it is better."""
        return (self.before - self.after) if self.measure in HIGHER_IS_BETTER else self.after - self.before

    def to_json(self) -> dict[str, Any]:
        """Return the JSON values."""
        return asdict(self)


def retrieval_rows(encoder: Encoder, pairs: PairRows, name: str) -> list[ScoreRow]:
    """Return the score rows of retrieval in both directions, for all pairs, under a name of the model."""
    own = [OwnPairs(parse_pair(pair), list(rows), {}) for pair, rows in pairs.items() if rows]
    pooling, _ = encoder.resolve_pooling("auto")
    encoder = in_float32(encoder)
    results = evaluate_own_pairs(encoder, own, pooling)
    return [{**row, "model": name} for result in results for row in result.rows]


def accuracy_by_pair(encoder: Encoder, rows: Iterable[ScoreRow], pairs: Iterable[str]) -> dict[str, float]:
    """Return the accuracy of each pair, mean of both directions, of the vectors that `encode` returns."""
    pooling, layer = encoder.resolve_pooling("auto")
    by_name = {pair_name(*parse_pair(pair)): pair for pair in pairs}
    found: dict[str, list[float]] = {}
    for row in rows:
        is_own = row["metric"] == "accuracy" and (row["protocol"] == DECLARED) == (pooling == DECLARED)
        if is_own and (pooling == DECLARED or row.get("layer") == layer):
            found.setdefault(row["language"], []).append(row["value"])
    return {by_name[name]: fmean(values) for name, values in found.items()}


def retrieval_changes(
    before: Mapping[str, float], after: Mapping[str, float], counts: Mapping[str, int], roles: Mapping[str, str]
) -> list[Change]:
    """Return the change of retrieval for each pair."""
    return [
        Change(
            language=pair_name(*parse_pair(pair)),
            role=roles[pair],
            measure=RETRIEVAL,
            before=before[pair],
            after=after[pair],
            examples=number,
        )
        for pair, number in counts.items()
        if pair in before and pair in after
    ]


def vocabulary_changes(old: AnyVocabulary, new: AnyVocabulary, sentences: Mapping[str, list[str]]) -> list[Change]:
    """Return the change of fertility and of known tokens for each new language."""
    before, after = (describe_languages(each, sentences) for each in (old, new))
    return [
        Change(
            language=language,
            role=NEW,
            measure=measure,
            before=factor * before[language][key],
            after=factor * after[language][key],
            examples=len(sentences[language]),
        )
        for language in sentences
        for measure, key, factor in ((FERTILITY, "fertility", 1), (COVERAGE, "coverage", 100))
    ]


def change_table(changes: Sequence[Change]) -> Table:
    """Return the table that the command prints: the new languages, and the mean of the kept ones with the worst."""
    measures = [each for each in DIGITS if any(change.measure == each for change in changes)]
    table = Table("language", "", *measures, title="held-out text, before → after")
    for role in (NEW, KEPT):
        of_role = [change for change in changes if change.role == role]
        languages = dict.fromkeys(change.language for change in of_role)
        listed = list(languages) if role == NEW else _most_lost(of_role)
        if role == KEPT and of_role:
            means = (_cell(mean_change(of_role, measure)) for measure in measures)
            table.add_row(f"mean of {len(languages)}", role, *means, style="bold")
        for language in listed:
            own = {change.measure: change for change in of_role if change.language == language}
            table.add_row(language, role, *(_cell(own.get(measure)) for measure in measures))
    return table


def _most_lost(changes: Sequence[Change]) -> list[str]:
    """Return the languages that lost most, by the first measure that they have."""
    measure = next((each for each in DIGITS if any(change.measure == each for change in changes)), "")
    own = [change for change in changes if change.measure == measure]
    return [change.language for change in sorted(own, key=lambda change: -change.loss)[:MOST_LOST]]


def mean_change(changes: Sequence[Change], measure: str, role: str = KEPT) -> Change | None:
    """Return the mean of a measure over the languages of a role."""
    own = [change for change in changes if change.measure == measure and change.role == role]
    if not own:
        return None
    before, after = fmean(change.before for change in own), fmean(change.after for change in own)
    examples = sum(change.examples for change in own)
    return Change(language="mean", role=role, measure=measure, before=before, after=after, examples=examples)


def describe_forgetting(changes: Sequence[Change]) -> str:
    """Return the change of the languages to keep, in a sentence."""
    mean = mean_change(changes, RETRIEVAL) or mean_change(changes, LOSS)
    if mean is None:
        return "Forgetting was not measured: no languages to keep."
    own = [change for change in changes if change.role == KEPT and change.measure == mean.measure]
    worst = max(own, key=lambda change: change.loss)
    digits = DIGITS[mean.measure]
    return (
        f"{mean.measure} of {len(own)} kept languages: {mean.before:.{digits}f} before,"
        f" {mean.after:.{digits}f} after; most lost by {worst.language},"
        f" {worst.before:.{digits}f} before, {worst.after:.{digits}f} after."
    )


def _cell(change: Change | None) -> str:
    if change is None:
        return ""
    digits = DIGITS[change.measure]
    text = f"{change.before:.{digits}f} → {change.after:.{digits}f}"
    return f"[red]{text}[/]" if change.is_worse else text
