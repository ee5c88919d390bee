"""Scores of translations: sacreBLEU, chrF, and the case-insensitive tokenised BLEU of older papers (VECO's).

Each adds up statistics of sentences, as every metric here does; the words are those of sacreBLEU's own tokenizer for
the target language, and the values of the sums are those that sacreBLEU gives for the whole text.
"""
# N sentences, S statistics, G orders of n-grams

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from crossling.errors import BadInput
from crossling.metrics.metric import Metric

ORDERS = 4  # of words
CHARACTERS = 6  # orders of characters
BETA = 2  # how much more recall counts


def matches(gold: Sequence[str], predicted: Sequence[str], language: str, lowercase: bool = False) -> np.ndarray:
    """[right, said] n-grams of 1 to 4 words, then the words that were said, and those of the reference."""
    bleu = _bleu(language, lowercase=lowercase, effective_order=True)
    rows = []
    for right, said in zip(gold, predicted, strict=True):
        found = bleu.sentence_score(said, [right])
        rows.append((*found.counts, *found.totals, found.sys_len, found.ref_len))
    return np.array(rows, dtype=float).reshape(-1, 2 * ORDERS + 2)


def bleu(sums_S: np.ndarray, smooth: bool) -> np.ndarray:
    """The geometric mean of the precisions, less what is too short. With `smooth`, as sacreBLEU does by default, the
    first order without a match counts as half a match, the next as a quarter; without, one such makes it 0."""
    sums_S = np.asarray(sums_S, dtype=float)
    right_G, said_G = sums_S[..., :ORDERS], sums_S[..., ORDERS : 2 * ORDERS]
    said, wanted = sums_S[..., -2], sums_S[..., -1]
    if smooth:
        missed_G = (right_G == 0) & (said_G > 0)
        right_G = np.where(missed_G, 0.5 ** missed_G.cumsum(axis=-1), right_G)
    defined = (said_G > 0).all(axis=-1) & (sums_S[..., :ORDERS] > 0).any(axis=-1) & (right_G > 0).all(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.exp(np.log(right_G / said_G).mean(axis=-1))
        brevity = np.exp(np.minimum(0.0, 1 - wanted / said))
        return np.where(defined, 100 * precision * brevity, 0.0)


def characters(gold: Sequence[str], predicted: Sequence[str], language: str) -> np.ndarray:  # noqa: ARG001
    """[said, of the reference, right] n-grams of 1 to 6 characters, white space left out. What is too long for the
    reference to have any of was not said, as sacreBLEU counts."""
    rows = []
    for right, said in zip(gold, predicted, strict=True):
        ours, theirs = ("".join(text.split()) for text in (said, right))
        row: list[int] = []
        for order in range(1, CHARACTERS + 1):
            one, other = _ngrams(ours, order), _ngrams(theirs, order)
            row += [one.total() if other else 0, other.total(), (one & other).total()]
        rows.append(row)
    return np.array(rows, dtype=float).reshape(-1, 3 * CHARACTERS)


def chrf(sums_S: np.ndarray) -> np.ndarray:
    """F of the mean precision and recall over the orders that both sides have."""
    sums_G3 = np.asarray(sums_S, dtype=float).reshape(*np.shape(sums_S)[:-1], CHARACTERS, 3)
    said_G, wanted_G, right_G = np.moveaxis(sums_G3, -1, 0)
    there_G = (said_G > 0) & (wanted_G > 0)
    orders = np.maximum(1, there_G.sum(axis=-1))
    precision, recall = (
        np.divide(right_G, whole_G, out=np.zeros_like(right_G), where=there_G).sum(axis=-1) / orders
        for whole_G in (said_G, wanted_G)
    )
    whole = BETA**2 * precision + recall
    return 100 * np.divide((1 + BETA**2) * precision * recall, whole, out=np.zeros_like(whole), where=whole > 0)


def _ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[start : start + order] for start in range(len(text) - order + 1))


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise BadInput("translations are scored with the package sacrebleu: pip install crossling[eval]") from None
    return metrics


def _bleu(language: str, **ways: Any) -> Any:
    """With the tokenizer that sacreBLEU has for a target language: 13a, but of Chinese, Japanese and Korean its own."""
    code = language.split("-")[0]  # zh-Hant is zh
    try:
        return _sacrebleu().BLEU(trg_lang=code, **ways)
    except RuntimeError:  # as sacreBLEU says that a tokenizer is not installed
        raise BadInput(
            f"translations into {language} are scored in words of sacreBLEU's tokenizer for them, which needs a package"
            f" more: pip install 'sacrebleu[{code}]'"
        ) from None


def check_installed(languages: Iterable[str] = ()) -> None:
    """Before anything long is begun that will be scored, in these target languages."""
    _sacrebleu()
    for language in languages:
        _bleu(language)


SACREBLEU = Metric("sacrebleu", "sacrebleu", matches, partial(bleu, smooth=True))
CHRF = Metric("chrf", "sacrebleu", characters, chrf)
TOKENISED = Metric(
    "bleu-lowercased-tokenised", "multi-bleu", partial(matches, lowercase=True), partial(bleu, smooth=False)
)
MEASURES = (SACREBLEU, CHRF, TOKENISED)  # models are chosen by the first


def signature(metric: Metric, language: str) -> str:
    """What a number must be quoted with: sacreBLEU's own words, and for the tokenised one what it is computed of."""
    if metric is CHRF:
        scorer = _sacrebleu().CHRF()
    else:
        scorer = _bleu(language, lowercase=metric is TOKENISED, smooth_method="none" if metric is TOKENISED else "exp")
    scorer.corpus_score(["a"], [["a"]])  # it knows the number of references only then
    told = str(scorer.get_signature())
    return f"multi-bleu|{told}" if metric is TOKENISED else told
