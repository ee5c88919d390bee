"""Task scores as XTREME computes them: the mean over languages; for QA, the mean of F1 and exact match.

Seeds are averaged last. Protocols and settings are never mixed. An incomplete list of languages is reported as such.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any

from crossling.evaluate.retrieval import LISTS, group_by_paper_list
from crossling.report.language_families import FAMILIES, family_order
from crossling.tasks.scores import (
    LOWER_IS_BETTER,
    SUPERVISED,
    ZERO_SHOT,
    ScoreRow,
    SeedStatistics,
    describe_setting,
)

QA_MEAN = "f1 & exact_match"  # the mean of both is XTREME's score of question answering
_XNLI = "en fr es de el bg ru tr ar vi th zh hi sw ur"
_TAGGED = "af ar bg de el en es et eu fa fi fr he hi hu id it ja kk ko mr nl pt ru ta te th tl tr ur vi yo zh"
LANGUAGES: dict[str, list[str]] = {  # languages in the mean of a task
    "xnli": _XNLI.split(),
    "pawsx": ["en", "de", "es", "fr", "ja", "ko", "zh"],
    "udpos": _TAGGED.split(),
    "panx": f"{_TAGGED} bn jv ka ml ms my sw".split(),
    "xquad": ["en", "ar", "de", "el", "es", "hi", "ru", "th", "tr", "vi", "zh"],
    "mlqa": ["en", "ar", "de", "es", "hi", "vi", "zh"],
    "tydiqa": ["en", "ar", "bn", "fi", "id", "ko", "ru", "sw", "te"],
    "bucc2018": ["de", "fr", "ru", "zh"],
    **{task: ["en"] for task in ("mnli", "qqp", "qnli", "sst2", "cola", "rte", "mrpc", "stsb")},
    **{name: codes.split() for name, codes in LISTS.items()},
}
XTREME_7: dict[str, str] = {  # tasks of XLM-E's Table 1 and their metrics
    **dict.fromkeys(("udpos", "panx"), "f1"),
    **dict.fromkeys(("xquad", "mlqa", "tydiqa"), QA_MEAN),
    **dict.fromkeys(("xnli", "pawsx"), "accuracy"),
}
XTREME_9 = {**XTREME_7, "bucc2018": "f1", "tatoeba-36": "accuracy"}  # all of XTREME, as in VECO's Table 2
GLUE_8 = {  # tasks and metrics of the GLUE average in XY-LENT's Table 3, on the dev sets
    **dict.fromkeys(("mnli", "qqp", "qnli", "sst2"), "accuracy"),
    "cola": "matthews",
    **dict.fromkeys(("rte", "mrpc"), "accuracy"),
    "stsb": "spearman",
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
    "belebele": "Belebele",
    "sib200": "SIB-200",
    "massive-intents": "MASSIVE intents",
    "massive-slots": "MASSIVE slots",
    "tatoeba": "Tatoeba",
    "flores": "FLORES",
    "word-alignment": "Word alignment",
    "mnli": "MNLI",
    "qqp": "QQP",
    "qnli": "QNLI",
    "sst2": "SST-2",
    "cola": "CoLA",
    "rte": "RTE",
    "mrpc": "MRPC",
    "stsb": "STS-B",
}


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Task, metric and conditions of a score: everything except language, layer and seed."""

    task: str
    metric: str
    protocol: str = ""
    setting: str = "training-free"
    split: str = "test"
    trained_on: str | None = None
    selection: str | None = None
    pooling: str | None = None
    direction: str | None = None  # of retrieval; None if both are averaged

    @property
    def lower_is_better(self) -> bool:
        return self.metric in LOWER_IS_BETTER

    def describe(self, setting: str) -> str:
        """Return all fields except the task as text, with the setting in words."""
        better = " (lower is better)" if self.lower_is_better else ""
        facts: list[str | None] = [metric_title(self.metric) + better]
        facts += [self.protocol and f"protocol {self.protocol}"]
        facts += [setting, f"{self.split} set", self.trained_on and f"trained on {self.trained_on}"]
        facts += [self.selection and f"selected by {self.selection}", self.pooling and f"{self.pooling} pooling"]
        return ", ".join(filter(None, [*facts, self.direction]))


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """Score of one model on one measure: every language, and the mean over languages for each seed."""

    measure: Measure
    layer: int | None
    languages: dict[str, SeedStatistics]  # over seeds
    intervals: dict[str, tuple[float, float]]  # 95% intervals of languages, mean over seeds
    seeds: SeedStatistics  # means over languages
    directions: int = 1  # number of retrieval directions that were averaged
    supervised: frozenset[str] = frozenset()  # languages that the model was fine-tuned on

    @property
    def mean(self) -> float:
        return self.seeds.mean

    @property
    def setting(self) -> str:
        """The setting in words, such as `zero-shot except en`."""
        return describe_setting(self.measure.setting, self.languages, self.supervised)

    @property
    def description(self) -> str:
        """Conditions of the score, with its layer if there are several."""
        return self.measure.describe(self.setting) + (f", layer {self.layer}" if self.layer is not None else "")

    @property
    def language_means(self) -> dict[str, float]:
        """Mean over seeds of every language."""
        return {code: spread.mean for code, spread in self.languages.items()}

    @property
    def mean_languages(self) -> list[str]:
        """The languages in the mean: those of the papers' list, or all if none of them is in it."""
        return languages_in_mean(self.measure.task, self.languages)

    @property
    def is_complete(self) -> bool:
        """True if all languages of the papers' list have a score."""
        return set(LANGUAGES.get(self.measure.task, [])) <= set(self.languages)

    @property
    def coverage(self) -> str:
        """`15 languages`, or `12 of 15` if some of the papers' languages have no score."""
        expected, codes = LANGUAGES.get(self.measure.task, []), self.mean_languages
        if expected and not self.is_complete and set(codes) <= set(expected):
            return f"{len(codes)} of {len(expected)}"
        noun = "pair" if all("-" in code for code in codes) else "language"
        return f"{len(codes)} {noun}{'s' * (len(codes) != 1)}"

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of the mean, from the 95% intervals of its languages as if these were independent.

        It is too narrow for translations of one test set, which are hard or easy together.
        """
        codes = self.mean_languages
        if not all(code in self.intervals for code in codes):
            return None
        bounds = [(self.languages[code].mean, *self.intervals[code]) for code in codes]
        below = math.sqrt(sum((value - low) ** 2 for value, low, _ in bounds)) / len(codes)
        above = math.sqrt(sum((high - value) ** 2 for value, _, high in bounds)) / len(codes)
        return max(0.0, self.mean - below), min(100.0, self.mean + above)


def metric_title(metric: str) -> str:
    """Return a metric as it is written in text: `F1`, `AER`, `exact match`."""
    return metric.replace("_", " ").replace("f1", "F1").replace("aer", "AER")


def languages_in_mean(task: str, languages: Iterable[str]) -> list[str]:
    """Return the languages of the papers' list, or all if none of them is in it."""
    present = list(languages)
    return [code for code in present if code in LANGUAGES.get(task, [])] or present


def measure_from_row(row: ScoreRow, both_directions: bool = False) -> Measure:
    """Return the measure of a row of scores.jsonl; `both_directions` merges the directions of retrieval."""
    if str(row.get("protocol", "")).startswith("mteb"):  # MTEB's results do not state it
        row = {**row, "pooling": None}
    if row.get("setting") == SUPERVISED:  # its languages are in one table with those of the zero-shot setting
        row = {**row, "setting": ZERO_SHOT}
    direction = row.get("direction")
    if both_directions or direction not in ("en-xx", "xx-en"):  # pairs without English are named by their direction
        direction = None
    known = {field.name: row[field.name] for field in fields(Measure) if field.name in row}
    return Measure(**{**known, "direction": direction})


def task_scores(rows: Iterable[ScoreRow], both_directions: bool = False) -> list[TaskScore]:
    """Return the scores of one model, in the order of the rows.

    Measures with layers are reported at their best layer. Tatoeba is also reported by the papers' lists of languages.
    QA tasks get an additional score, the mean of F1 and exact match. MLQA with a question in another language than the
    text (`de-en`) is excluded from the mean. Undefined scores are skipped.
    """
    groups: dict[Measure, dict[int | None, list[ScoreRow]]] = defaultdict(lambda: defaultdict(list))
    rows = [row for row in rows if row["value"] is not None]
    # `coverage` reports the languages that are absent from a list.
    listed = ({**row, "task": row["task"].split(" ")[0]} for row in group_by_paper_list(rows))
    for row in (*rows, *listed):
        if row["task"] != "mlqa" or "-" not in row["language"]:
            groups[measure_from_row(row, both_directions)][row.get("layer")].append(row)
    scores = [_best_layer(measure, by_layer) for measure, by_layer in groups.items()]
    return scores + _qa_means(scores)


def task_average(scores: Mapping[str, TaskScore], tasks: Iterable[str] = XTREME_7) -> SeedStatistics | None:
    """Average tasks by seed: XTREME_7, XTREME_9 or GLUE_8. None if a task or a language is missing.

    If the tasks have different numbers of seeds, their means are averaged.
    """
    if set(scores) != set(tasks) or not all(score.is_complete for score in scores.values()):
        return None
    by_task = [score.seeds.values for score in scores.values()]
    if len({len(values) for values in by_task}) > 1:
        return SeedStatistics((fmean(fmean(values) for values in by_task),))
    return SeedStatistics(tuple(fmean(values) for values in zip(*by_task, strict=True)))


def transfer_gap(score: TaskScore) -> SeedStatistics | None:
    """Cross-lingual transfer gap: English minus the mean of the other languages (XLM-E, Table 7).

    For QA the papers use exact match, except InfoXLM, which uses F1.
    """
    others = [score.languages[code] for code in score.mean_languages if code != "en"]
    english = score.languages.get("en")
    if english is None or not others or {len(each.values) for each in others} != {len(english.values)}:
        return None
    means = [fmean(values) for values in zip(*(each.values for each in others), strict=True)]
    return SeedStatistics(tuple(value - mean for value, mean in zip(english.values, means, strict=True)))


def _best_layer(measure: Measure, by_layer: Mapping[int | None, Sequence[ScoreRow]]) -> TaskScore:
    scores = {layer: _score(measure, layer, rows) for layer, rows in by_layer.items()}
    sign = 1 if measure.lower_is_better else -1
    return min(scores.values(), key=lambda score: (sign * score.mean, score.layer or 0))


def _score(measure: Measure, layer: int | None, rows: Sequence[ScoreRow]) -> TaskScore:
    values: dict[str, dict[int | None, list[float]]] = defaultdict(lambda: defaultdict(list))
    bounds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        values[row["language"]][row.get("seed")].append(row["value"])
        if "low" in row and "high" in row:
            bounds[row["language"]].append((row["low"], row["high"]))
    seeds = sorted({seed for by_seed in values.values() for seed in by_seed}, key=lambda seed: (seed is None, seed))
    languages = {
        code: SeedStatistics(tuple(fmean(by_seed[seed]) for seed in seeds if seed in by_seed))
        for code, by_seed in values.items()
    }
    codes = languages_in_mean(measure.task, values)
    # The mean of a seed without all languages would not be comparable.
    complete = [seed for seed in seeds if all(seed in values[code] for code in codes)]
    means = tuple(fmean(fmean(values[code][seed]) for code in codes) for seed in complete)
    if not means:
        means = (fmean(languages[code].mean for code in codes),)
    intervals = {
        code: (fmean(low for low, _ in found), fmean(high for _, high in found)) for code, found in bounds.items()
    }
    directions = max(len({row.get("direction") for row in rows if row["language"] == code}) for code in values)
    return TaskScore(
        measure=measure,
        layer=layer,
        languages=languages,
        intervals=intervals,
        seeds=SeedStatistics(means),
        directions=directions,
        supervised=frozenset(row["language"] for row in rows if row.get("setting") == SUPERVISED),
    )


def _qa_means(scores: Sequence[TaskScore]) -> list[TaskScore]:
    exact = {score.measure: score for score in scores if score.measure.metric == "exact_match"}
    means = []
    for score in scores:
        other = exact.get(replace(score.measure, metric="exact_match"))
        if score.measure.metric != "f1" or other is None:
            continue
        languages = {
            code: _average(spread, other.languages[code])
            for code, spread in score.languages.items()
            if code in other.languages
        }
        measure = replace(score.measure, metric=QA_MEAN)
        means.append(
            TaskScore(
                measure=measure,
                layer=score.layer,
                languages=languages,
                intervals={},
                seeds=_average(score.seeds, other.seeds),
                supervised=score.supervised,
            )
        )
    return means


def _average(first: SeedStatistics, second: SeedStatistics) -> SeedStatistics:
    return SeedStatistics(tuple((one + other) / 2 for one, other in zip(first.values, second.values, strict=False)))


TRAINING_DATA_GROUPS = ("text and bitext", "text only", "unseen")


@dataclass(frozen=True)
class LanguageGroup:
    """A group of languages and the mean of their scores."""

    name: str
    languages: list[str]
    value: float


def group_by_family(values: Mapping[str, float]) -> list[LanguageGroup]:
    """Return the mean of each family that has a language in `values` (XY-LENT, Figure 3)."""
    return _groups({family: [code for code in codes if code in values] for family, codes in FAMILIES.items()}, values)


def group_by_training_data(
    values: Mapping[str, float], data: Mapping[str, Any], pivot: str = "en"
) -> list[LanguageGroup]:
    """Group languages by the pre-training data of a run: text and bitext, only text, or none.

    Args:
        values: Score by language, or by pair of languages.
        data: Data of the run: `text` (tokens by language) and `pairs` ([language, language, number]).
        pivot: Language to exclude.

    A pair (`qaa-qab`) has bitext if the run was trained on bitext between the two. A single language has bitext if it
    is paired with any other language.
    """
    text = {code for code, tokens in data.get("text", {}).items() if tokens}
    pairs = {frozenset((first, second)) for first, second, number in data.get("pairs", []) if number}
    paired = {code for pair in pairs for code in pair}
    groups: dict[str, list[str]] = {name: [] for name in TRAINING_DATA_GROUPS}
    for code in values:
        if code == pivot:
            continue
        parts = code.split("-")
        with_bitext = frozenset(parts) in pairs if len(parts) > 1 else code in paired
        has_data = all(part in text or part in paired for part in parts)
        groups[TRAINING_DATA_GROUPS[0 if with_bitext else 1 if has_data else 2]].append(code)
    return _groups(groups, values)


@dataclass(frozen=True)
class LanguageChange:
    """Score of one language before and after continued training."""

    language: str
    before: float
    after: float

    @property
    def drop(self) -> float | None:
        """Relative loss in percent (XY-LENT, Table 6); None if the score was 0."""
        return 100 * (self.before - self.after) / self.before if self.before else None


def compare_languages(before: Mapping[str, float], after: Mapping[str, float]) -> list[LanguageChange]:
    """Compare the languages that both have. The first item is their mean."""
    common = [code for code in before if code in after]
    if not common:
        return []
    changes = [LanguageChange(code, before[code], after[code]) for code in family_order(common)]
    before_mean, after_mean = fmean(each.before for each in changes), fmean(each.after for each in changes)
    return [LanguageChange("mean", before_mean, after_mean), *changes]


def _groups(names: Mapping[str, list[str]], values: Mapping[str, float]) -> list[LanguageGroup]:
    return [LanguageGroup(name, codes, fmean(values[code] for code in codes)) for name, codes in names.items() if codes]
