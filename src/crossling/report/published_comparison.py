"""Published scores of the same measure as a score of a run: same task, metric, protocol and setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from crossling.evaluate.word_alignment import PROTOCOLS
from crossling.report.analysis import Measure, TaskScore
from crossling.report.published import PublishedRow, published_rows

PUBLISHED_MODELS = {  # of the papers. Of MTEB's results, all are shown
    *((model, "Base") for model in ("XLM-R", "InfoXLM", "XLM-E", "XY-LENT")),
    *((model, "Large") for model in ("VECO", "VECO (plug-out)", "VECO (plug-in)")),
}
REPEATED_TABLE = ("XY-LENT", "6")  # the same model as in Table 11, before continued training
PUBLISHED_SETTINGS = {  # setting of a run -> settings of published tables
    "training-free": ("training-free", "zero-shot"),  # VECO calls retrieval zero-shot as well
    "zero-shot": ("zero-shot", "english"),  # GLUE, SQuAD 2.0, ChemProt: fine-tuned on English too
    "translate-train": ("translate-train",),
}
MTEB_PROTOCOLS = ("mteb", "mteb-v2")


@dataclass(frozen=True)
class PublishedMean:
    """Mean of a published model over the languages of a score."""

    row: PublishedRow
    value: float


def published_scores(measure: Measure) -> list[tuple[PublishedRow, dict[str, float]]]:
    """Return the published scores of the same measure by language, without repeated rows."""
    if not _is_comparable(measure):
        return []
    scores: list[tuple[PublishedRow, dict[str, float]]] = []
    for row in published_rows():
        languages = row.languages(measure.task, measure.metric, measure.direction)
        is_known = any(languages == other and row.name == one.name for one, other in scores)
        if languages and not is_known and _is_shown(row, measure):
            scores.append((row, languages))
    return scores


def published_means(score: TaskScore) -> list[PublishedMean]:
    """Return the mean of each published model that has a score in all languages of the mean of `score`."""
    codes = score.mean_languages
    found = ((row, match_codes(codes, languages)) for row, languages in published_scores(score.measure))
    return [PublishedMean(row, fmean(own.values())) for row, own in found if len(own) == len(codes)]


def match_codes(codes: Sequence[str], languages: Mapping[str, float]) -> dict[str, float]:
    """Return the scores of the languages that runs have. `de-en` and `en-de` are the same pair."""
    either_order = {**{"-".join(reversed(code.split("-"))): value for code, value in languages.items()}, **languages}
    return {code: either_order[code] for code in codes if code in either_order}


def _is_comparable(measure: Measure) -> bool:
    is_english = measure.protocol in ("glue", "squad-2.0")
    # VECO reports tagging accuracy, the other papers XTREME's F1.
    own = ("xtreme", "sweep", "tokens", PROTOCOLS["ot"], *MTEB_PROTOCOLS)
    split = "dev" if is_english or measure.task == "tydiqa" else "test"
    return (is_english or measure.protocol in own) and measure.pooling in ("mean", None) and measure.split == split


def _is_shown(row: PublishedRow, measure: Measure) -> bool:
    if measure.protocol in MTEB_PROTOCOLS or row.evaluation:
        return row.evaluation == measure.protocol
    same_setting = (
        row.setting in PUBLISHED_SETTINGS.get(measure.setting, ()) and (row.paper, row.table) != REPEATED_TABLE
    )
    return (row.model, row.size) in PUBLISHED_MODELS and same_setting and "[CLS]" not in row.protocol
