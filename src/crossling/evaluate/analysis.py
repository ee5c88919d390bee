"""Scores of tasks as XTREME takes them: the mean over languages, of questions the mean of F1 and exact match.

Seeds are kept apart until the end, protocols and settings always. A list of languages that is not whole says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from crossling.evaluate.retrieval import LISTS, by_list
from crossling.evaluate.scores import LOWER_IS_BETTER, Row, Spread

QUESTIONS = "f1 & exact_match"  # their mean: what XTREME calls the score of question answering
_XNLI = "en fr es de el bg ru tr ar vi th zh hi sw ur"
_TAGGED = "af ar bg de el en es et eu fa fi fr he hi hu id it ja kk ko mr nl pt ru ta te th tl tr ur vi yo zh"
LANGUAGES: dict[str, list[str]] = {  # of which a task's score is the mean
    "xnli": _XNLI.split(),
    "pawsx": ["en", "de", "es", "fr", "ja", "ko", "zh"],
    "udpos": _TAGGED.split(),
    "panx": f"{_TAGGED} bn jv ka ml ms my sw".split(),
    "xquad": ["en", "ar", "de", "el", "es", "hi", "ru", "th", "tr", "vi", "zh"],
    "mlqa": ["en", "ar", "de", "es", "hi", "vi", "zh"],
    "tydiqa": ["en", "ar", "bn", "fi", "id", "ko", "ru", "sw", "te"],
    "bucc2018": ["de", "fr", "ru", "zh"],
    **{name: codes.split() for name, codes in LISTS.items()},
}
XTREME_7: dict[str, str] = {  # the tasks of XLM-E's Table 1, and what of them counts
    "udpos": "f1",
    "panx": "f1",
    "xquad": QUESTIONS,
    "mlqa": QUESTIONS,
    "tydiqa": QUESTIONS,
    "xnli": "accuracy",
    "pawsx": "accuracy",
}
TITLES = {
    "udpos": "POS",
    "panx": "NER",
    "xnli": "XNLI",
    "pawsx": "PAWS-X",
    "xquad": "XQuAD",
    "mlqa": "MLQA",
    "tydiqa": "TyDiQA",
    "bucc2018": "BUCC",
    "americasnli": "AmericasNLI",
    "xcopa": "XCOPA",
    "tatoeba": "Tatoeba",
    "word-alignment": "Word alignment",
}


@dataclass(frozen=True)
class Measure:
    """What was measured, but for language, layer and seed."""

    task: str
    metric: str
    protocol: str = ""
    setting: str = "training-free"
    split: str = "test"
    trained_on: str | None = None
    selection: str | None = None
    pooling: str | None = None
    direction: str | None = None  # none: both, where there are two

    @property
    def lower_is_better(self) -> bool:
        return self.metric in LOWER_IS_BETTER

    @property
    def title(self) -> str:
        return TITLES.get(self.task, self.task)

    @property
    def told(self) -> str:
        """All of it but the task, for a reader."""
        better = " (lower is better)" if self.lower_is_better else ""
        facts = [self.metric.replace("_", " ") + better, f"protocol {self.protocol}" if self.protocol else ""]
        facts += [self.setting, f"{self.split} set", f"trained on {self.trained_on}" if self.trained_on else ""]
        facts += [f"chosen by {self.selection}" if self.selection else ""]
        facts += [f"{self.pooling} pooling" if self.pooling else "", self.direction or ""]
        return ", ".join(fact for fact in facts if fact)


@dataclass(frozen=True)
class TaskScore:
    """One measure of one model: every language, and the mean over them for each seed."""

    measure: Measure
    layer: int | None
    languages: dict[str, Spread]  # over seeds
    intervals: dict[str, tuple[float, float]]  # 95%, of the languages that have one; the mean over seeds
    seeds: Spread  # the means over languages
    directions: int = 1  # that were averaged

    @property
    def mean(self) -> float:
        return self.seeds.mean

    @property
    def counted(self) -> list[str]:
        """The languages the mean is of: those of the papers' list, or all if it has none of them."""
        return counted(self.measure.task, self.languages)

    @property
    def whole(self) -> bool:
        """Whether the papers' list is there, if there is one."""
        return set(LANGUAGES.get(self.measure.task, [])) <= set(self.languages)

    @property
    def listed(self) -> str:
        """`15 languages`, or how many there are of how many there should be."""
        wanted, found = LANGUAGES.get(self.measure.task, []), self.counted
        if wanted and not self.whole and set(found) <= set(wanted):
            return f"{len(found)} of {len(wanted)}"
        what = "pair" if all("-" in code for code in found) else "language"
        return f"{len(found)} {what}{'s' * (len(found) != 1)}"

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the mean, from the 95% of its languages as if their examples had nothing to do with each other. For
        translations of one test set, which are hard or easy together, this is too narrow."""
        codes = self.counted
        if not all(code in self.intervals for code in codes):
            return None
        bounds = [(self.languages[code].mean, *self.intervals[code]) for code in codes]
        below = math.sqrt(sum((value - low) ** 2 for value, low, _ in bounds)) / len(codes)
        above = math.sqrt(sum((high - value) ** 2 for value, _, high in bounds)) / len(codes)
        return max(0.0, self.mean - below), min(100.0, self.mean + above)


def counted(task: str, languages: Iterable[str]) -> list[str]:
    present = list(languages)
    return [code for code in present if code in LANGUAGES.get(task, [])] or present


def measure_of(row: Row, both_directions: bool = False) -> Measure:
    direction = row.get("direction")
    if both_directions or direction not in ("en-xx", "xx-en"):  # other pairs have directions of their own
        direction = None
    return Measure(
        row["task"],
        row["metric"],
        row.get("protocol", ""),
        row.get("setting", "training-free"),
        row.get("split", "test"),
        row.get("trained_on"),
        row.get("selection"),
        row.get("pooling"),
        direction,
    )


def task_scores(rows: Iterable[Row], both_directions: bool = False) -> list[TaskScore]:
    """Of one model, in the order of the rows; measures with layers at their best. Tatoeba also by the papers' lists.

    Questions get a further score, the mean of F1 and exact match. Answers to questions of another language than the
    text (`de-en`) are no part of a task's mean.
    """
    groups: dict[Measure, dict[int | None, list[Row]]] = defaultdict(lambda: defaultdict(list))
    rows = list(rows)
    listed = ({**row, "task": row["task"].split(" ")[0]} for row in by_list(rows))  # `listed` says what is absent
    for row in (*rows, *listed):
        if row["task"] == "mlqa" and "-" in row["language"]:
            continue
        groups[measure_of(row, both_directions)][row.get("layer")].append(row)
    found = [_best(measure, by_layer) for measure, by_layer in groups.items()]
    return found + _questions(found)


def total(scores: Mapping[str, TaskScore]) -> Spread | None:
    """The mean over the seven tasks of XLM-E's Table 1 by seed, if all are there with whole lists; where tasks have
    other numbers of seeds, of their means."""
    if set(scores) != set(XTREME_7) or not all(score.whole for score in scores.values()):
        return None
    by_task = [score.seeds.values for score in scores.values()]
    if len({len(values) for values in by_task}) > 1:
        return Spread((fmean(fmean(values) for values in by_task),))
    return Spread(tuple(fmean(values) for values in zip(*by_task, strict=True)))


def gap(score: TaskScore) -> Spread | None:
    """The cross-lingual transfer gap: English minus the mean of the others (XLM-E, Table 7). Of questions the papers
    take that of exact match, InfoXLM that of F1."""
    others = [score.languages[code] for code in score.counted if code != "en"]
    english = score.languages.get("en")
    if english is None or not others or {len(each.values) for each in others} != {len(english.values)}:
        return None
    means = [fmean(values) for values in zip(*(each.values for each in others), strict=True)]
    return Spread(tuple(value - mean for value, mean in zip(english.values, means, strict=True)))


def _best(measure: Measure, by_layer: Mapping[int | None, Sequence[Row]]) -> TaskScore:
    scores = {layer: _score(measure, layer, rows) for layer, rows in by_layer.items()}
    sign = 1 if measure.lower_is_better else -1
    return min(scores.values(), key=lambda score: (sign * score.mean, score.layer or 0))


def _score(measure: Measure, layer: int | None, rows: Sequence[Row]) -> TaskScore:
    values: dict[str, dict[int | None, list[float]]] = defaultdict(lambda: defaultdict(list))
    bounds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        values[row["language"]][row.get("seed")].append(row["value"])
        if "low" in row and "high" in row:
            bounds[row["language"]].append((row["low"], row["high"]))
    seeds = sorted({seed for by_seed in values.values() for seed in by_seed}, key=lambda seed: (seed is None, seed))
    languages = {
        code: Spread(tuple(fmean(by_seed[seed]) for seed in seeds if seed in by_seed))
        for code, by_seed in values.items()
    }
    codes = counted(measure.task, values)
    # A seed that was not measured in every language would give a mean of something else.
    whole = [seed for seed in seeds if all(seed in values[code] for code in codes)]
    means = tuple(fmean(fmean(values[code][seed]) for code in codes) for seed in whole)
    if not means:
        means = (fmean(languages[code].mean for code in codes),)
    intervals = {
        code: (fmean(low for low, _ in found), fmean(high for _, high in found)) for code, found in bounds.items()
    }
    directions = max(len({row.get("direction") for row in rows if row["language"] == code}) for code in values)
    return TaskScore(measure, layer, languages, intervals, Spread(means), directions)


def _questions(scores: Sequence[TaskScore]) -> list[TaskScore]:
    exact = {score.measure: score for score in scores if score.measure.metric == "exact_match"}
    found = []
    for score in scores:
        other = exact.get(replace(score.measure, metric="exact_match"))
        if score.measure.metric != "f1" or other is None:
            continue
        languages = {
            code: _halfway(spread, other.languages[code])
            for code, spread in score.languages.items()
            if code in other.languages
        }
        measure = replace(score.measure, metric=QUESTIONS)
        found.append(TaskScore(measure, score.layer, languages, {}, _halfway(score.seeds, other.seeds)))
    return found


def _halfway(first: Spread, second: Spread) -> Spread:
    return Spread(tuple((one + other) / 2 for one, other in zip(first.values, second.values, strict=False)))
