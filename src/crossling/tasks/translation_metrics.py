"""Translation metrics: sacreBLEU, chrF, and the case-insensitive tokenized BLEU of older papers such as VECO.

Statistics of sentences add up, as for every metric here. Words are those of sacreBLEU's tokenizer for the target
language. The values of the sums equal those of sacreBLEU for the whole text.
"""
# N sentences, S statistics, G orders of n-grams

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from crossling.core.errors import BadInput
from crossling.tasks.metrics import Metric

WORD_ORDERS = 4  # largest n-gram of words
CHARACTER_ORDERS = 6  # largest n-gram of characters
BETA = 2  # weight of recall


def bleu_statistics(
    gold: Sequence[str], predicted: Sequence[str], language: str, lowercase: bool = False
) -> np.ndarray:
    """Return [matches, predicted] of n-grams of 1 to 4 words, then the words of the prediction and of the reference."""
    bleu = _bleu(language, lowercase=lowercase, effective_order=True)
    rows = []
    for reference, hypothesis in zip(gold, predicted, strict=True):
        score = bleu.sentence_score(hypothesis, [reference])
        rows.append((*score.counts, *score.totals, score.sys_len, score.ref_len))
    return np.array(rows, dtype=float).reshape(-1, 2 * WORD_ORDERS + 2)


def bleu_value(sums_S: np.ndarray, smooth: bool) -> np.ndarray:
    """Return BLEU: the geometric mean of the n-gram precisions, times the brevity penalty.

    With `smooth`, sacreBLEU's default, the first order without a match counts as half a match, the next as a quarter.
    Without it, an order without a match makes BLEU 0.
    """
    sums_S = np.asarray(sums_S, dtype=float)
    matches_G, predicted_G = sums_S[..., :WORD_ORDERS], sums_S[..., WORD_ORDERS : 2 * WORD_ORDERS]
    predicted, reference = sums_S[..., -2], sums_S[..., -1]
    if smooth:
        missed_G = (matches_G == 0) & (predicted_G > 0)
        matches_G = np.where(missed_G, 0.5 ** missed_G.cumsum(axis=-1), matches_G)
    has_match = (sums_S[..., :WORD_ORDERS] > 0).any(axis=-1)
    is_defined = (predicted_G > 0).all(axis=-1) & has_match & (matches_G > 0).all(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.exp(np.log(matches_G / predicted_G).mean(axis=-1))
        brevity = np.exp(np.minimum(0.0, 1 - reference / predicted))
        return np.where(is_defined, 100 * precision * brevity, 0.0)


def chrf_statistics(gold: Sequence[str], predicted: Sequence[str], language: str) -> np.ndarray:  # noqa: ARG001
    """Return [predicted, reference, matches] of n-grams of 1 to 6 characters without whitespace.

    As in sacreBLEU, predicted n-grams count only if the reference has n-grams of this order.
    """
    rows = []
    for reference, hypothesis in zip(gold, predicted, strict=True):
        ours, theirs = ("".join(text.split()) for text in (hypothesis, reference))
        row: list[int] = []
        for order in range(1, CHARACTER_ORDERS + 1):
            one, other = _ngrams(ours, order), _ngrams(theirs, order)
            row += [one.total() if other else 0, other.total(), (one & other).total()]
        rows.append(row)
    return np.array(rows, dtype=float).reshape(-1, 3 * CHARACTER_ORDERS)


def chrf_value(sums_S: np.ndarray) -> np.ndarray:
    """Return chrF: the F score of the mean precision and recall over the orders that both sides have."""
    sums_G3 = np.asarray(sums_S, dtype=float).reshape(*np.shape(sums_S)[:-1], CHARACTER_ORDERS, 3)
    predicted_G, reference_G, matches_G = np.moveaxis(sums_G3, -1, 0)
    present_G = (predicted_G > 0) & (reference_G > 0)
    orders = np.maximum(1, present_G.sum(axis=-1))
    precision, recall = (
        np.divide(matches_G, total_G, out=np.zeros_like(matches_G), where=present_G).sum(axis=-1) / orders
        for total_G in (predicted_G, reference_G)
    )
    whole = BETA**2 * precision + recall
    product = (1 + BETA**2) * precision * recall
    return np.asarray(100 * np.divide(product, whole, out=np.zeros_like(whole), where=whole > 0))


def _ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[start : start + order] for start in range(len(text) - order + 1))


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise BadInput("translation scores need the package sacrebleu. Run pip install crossling[eval].") from None
    return metrics


def _bleu(language: str, **options: Any) -> Any:
    """Return the scorer with the tokenizer of the target language: 13a, or special ones for zh, ja and ko."""
    code = language.split("-")[0]  # zh-Hant is zh
    try:
        return _sacrebleu().BLEU(trg_lang=code, **options)
    except RuntimeError:  # sacreBLEU: the tokenizer is not installed
        raise BadInput(
            f"translation scores for {language} need sacreBLEU's tokenizer for it. Run pip install 'sacrebleu[{code}]'."
        ) from None


def check_sacrebleu(languages: Iterable[str] = ()) -> None:
    """Raise BadInput if sacreBLEU or its tokenizer for one of the target languages is not installed."""
    _sacrebleu()
    for language in languages:
        _bleu(language)


SACREBLEU = Metric("sacrebleu", "sacrebleu", bleu_statistics, partial(bleu_value, smooth=True))
CHRF = Metric("chrf", "sacrebleu", chrf_statistics, chrf_value)
TOKENIZED_BLEU = Metric(
    "bleu-lowercased-tokenised",
    "multi-bleu",
    partial(bleu_statistics, lowercase=True),
    partial(bleu_value, smooth=False),
)
TRANSLATION_METRICS = (SACREBLEU, CHRF, TOKENIZED_BLEU)  # the first selects models


def metric_signature(metric: Metric, language: str) -> str:
    """Return the signature to report with a score, as defined by sacreBLEU."""
    options = {"lowercase": True, "smooth_method": "none"} if metric is TOKENIZED_BLEU else {}
    scorer = _sacrebleu().CHRF() if metric is CHRF else _bleu(language, **options)
    scorer.corpus_score(["a"], [["a"]])  # the signature includes the number of references
    return f"{'multi-bleu|' if metric is TOKENIZED_BLEU else ''}{scorer.get_signature()}"
