"""Translation scores are sacreBLEU's, to the last digit, and the tokenised one is multi-bleu's formula."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.metrics.translation import CHRF, MEASURES, SACREBLEU, TOKENISED, signature

metrics = pytest.importorskip("sacrebleu.metrics")

WORDS = ["the", "The", "cat", "cats", "sat", "on", "mat", ".", ",", "don't", "3.5", "naïve", "x-y", "北", "&amp;"]
TEXT = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
TEXTS = st.lists(st.tuples(TEXT, TEXT.filter(bool)), min_size=1, max_size=6)


@given(TEXTS)
def test_the_values_are_those_of_sacrebleu(rows: list[tuple[str, str]]) -> None:
    said, right = [row[0] for row in rows], [row[1] for row in rows]
    for ours, theirs in ((SACREBLEU, metrics.BLEU()), (CHRF, metrics.CHRF())):
        assert ours.score(right, said) == pytest.approx(theirs.corpus_score(said, [right]).score, abs=1e-9)


@given(TEXTS)
def test_the_tokenised_one_is_multi_bleu_of_lowercased_tokens(rows: list[tuple[str, str]]) -> None:
    said, right = [row[0] for row in rows], [row[1] for row in rows]
    assert TOKENISED.score(right, said) == pytest.approx(slow_multi_bleu(right, said), abs=1e-9)


def slow_multi_bleu(right: list[str], said: list[str]) -> float:
    """multi-bleu.perl, line by line, of what sacreBLEU's 13a makes of lower-case text."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenise = Tokenizer13a()
    correct, total, length, reference = [0] * 5, [0] * 5, 0, 0
    for one, other in zip(said, right, strict=True):
        ours, theirs = tokenise(one.lower()).split(), tokenise(other.lower()).split()
        length, reference = length + len(ours), reference + len(theirs)
        for n in range(1, 5):
            mine = Counter(tuple(ours[i : i + n]) for i in range(len(ours) - n + 1))
            its = Counter(tuple(theirs[i : i + n]) for i in range(len(theirs) - n + 1))
            total[n] += sum(mine.values())
            correct[n] += sum((mine & its).values())
    if not all(correct[1:]):
        return 0.0
    brevity = math.exp(1 - reference / length) if length < reference else 1.0
    return 100 * brevity * math.exp(sum(math.log(correct[n] / total[n]) for n in range(1, 5)) / 4)


def test_case_counts_for_sacrebleu_alone() -> None:
    right, said = ["The cat sat on the mat ."], ["the cat sat on the mat ."]
    assert TOKENISED.score(right, said) == pytest.approx(100)
    assert SACREBLEU.score(right, said) < 90


def test_statistics_of_sentences_add_up() -> None:
    right, said = ["the cat sat on the mat", "a dog"], ["the cat sat on a mat", "dog"]
    for metric in MEASURES:
        whole = metric.each(right, said, "en").sum(axis=0)
        parts = [metric.each([a], [b], "en")[0] for a, b in zip(right, said, strict=True)]
        np.testing.assert_array_equal(whole, np.sum(parts, axis=0))


def test_signatures_say_what_was_computed() -> None:
    assert "case:mixed" in signature(SACREBLEU)
    assert "tok:13a" in signature(SACREBLEU)
    assert signature(CHRF).startswith("nrefs:1|case:mixed|eff:yes|nc:6")
    assert signature(TOKENISED).startswith("multi-bleu|")
    assert "case:lc" in signature(TOKENISED)
    assert "smooth:none" in signature(TOKENISED)
