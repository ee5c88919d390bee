from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.tasks.translation_metrics import (
    CHRF,
    SACREBLEU,
    TOKENIZED_BLEU,
    TRANSLATION_METRICS,
    check_sacrebleu,
    metric_signature,
)

metrics = pytest.importorskip("sacrebleu.metrics")
version = pytest.importorskip("sacrebleu").__version__

WORDS = ["the", "The", "cat", "cats", "sat", "on", "mat", ".", ",", "don't", "3.5", "naïve", "x-y", "北", "&amp;"]
TEXT = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
TEXTS = st.lists(st.tuples(TEXT, TEXT.filter(bool)), min_size=1, max_size=6)


@given(TEXTS)
def test_values_equal_those_of_sacrebleu(rows: list[tuple[str, str]]) -> None:
    hypotheses, references = [row[0] for row in rows], [row[1] for row in rows]
    for ours, theirs in ((SACREBLEU, metrics.BLEU()), (CHRF, metrics.CHRF())):
        assert ours.score(references, hypotheses) == pytest.approx(
            theirs.corpus_score(hypotheses, [references]).score, abs=1e-9
        )


@given(TEXTS)
def test_tokenized_bleu_equals_multi_bleu_of_lowercased_tokens(rows: list[tuple[str, str]]) -> None:
    hypotheses, references = [row[0] for row in rows], [row[1] for row in rows]
    assert TOKENIZED_BLEU.score(references, hypotheses) == pytest.approx(
        slow_multi_bleu(references, hypotheses), abs=1e-9
    )


def slow_multi_bleu(references: list[str], hypotheses: list[str]) -> float:
    """Compute multi-bleu.perl on the tokens of sacreBLEU's tokenizer 13a."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize = Tokenizer13a()
    correct, total, length, reference = [0] * 5, [0] * 5, 0, 0
    for one, other in zip(hypotheses, references, strict=True):
        ours, theirs = tokenize(one.lower()).split(), tokenize(other.lower()).split()
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


def test_only_sacrebleu_is_case_sensitive() -> None:
    references, hypotheses = ["The cat sat on the mat ."], ["the cat sat on the mat ."]
    assert TOKENIZED_BLEU.score(references, hypotheses) == pytest.approx(100)
    assert SACREBLEU.score(references, hypotheses) < 90


def test_statistics_of_sentences_add_up() -> None:
    references, hypotheses = ["the cat sat on the mat", "a dog"], ["the cat sat on a mat", "dog"]
    for metric in TRANSLATION_METRICS:
        whole = metric.statistics(references, hypotheses, "en").sum(axis=0)
        parts = [metric.statistics([a], [b], "en")[0] for a, b in zip(references, hypotheses, strict=True)]
        np.testing.assert_array_equal(whole, np.sum(parts, axis=0))


def test_signatures_name_the_settings() -> None:
    assert metric_signature(SACREBLEU, "de") == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert metric_signature(CHRF, "de").startswith("nrefs:1|case:mixed|eff:yes|nc:6")
    assert (
        metric_signature(TOKENIZED_BLEU, "de")
        == f"multi-bleu|nrefs:1|case:lc|eff:no|tok:13a|smooth:none|version:{version}"
    )


# ---- Tokenizers of the target language ---------------------------------------------------------------------------

CHINESE = (["猫坐在垫子上。", "那只狗跑得很快"], ["猫坐在席子上。", "那只狗跑得快"])


@pytest.mark.parametrize("language", ["zh", "zh-Hant"])
def test_chinese_uses_the_tokenizer_of_sacrebleu(language: str) -> None:
    references, hypotheses = CHINESE
    theirs = metrics.BLEU(tokenize="zh").corpus_score(hypotheses, [references]).score
    assert SACREBLEU.score(references, hypotheses, language) == pytest.approx(theirs, abs=1e-9)
    assert SACREBLEU.score(references, hypotheses, "en") < theirs - 10
    assert TOKENIZED_BLEU.score(references, hypotheses, language) > 10
    for metric in (SACREBLEU, TOKENIZED_BLEU):
        assert "tok:zh|" in metric_signature(metric, language)


@pytest.mark.parametrize(("language", "module"), [("ja", "tokenizer_ja_mecab"), ("ko", "tokenizer_ko_mecab")])
def test_missing_tokenizers_are_reported(language: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"sacrebleu.tokenizers.{module}.MeCab", None)
    check_sacrebleu(["de", "zh"])
    with pytest.raises(BadInput, match=rf"translation scores for {language} .* pip install 'sacrebleu\[{language}\]'"):
        check_sacrebleu(["de", language])
    with pytest.raises(BadInput, match="pip install"):
        SACREBLEU.score(["a"], ["a"], language)
