"""Translation scores are sacreBLEU's, to the last digit, and the tokenised one is multi-bleu's formula."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.errors import BadInput
from crossling.metrics.translation import CHRF, MEASURES, SACREBLEU, TOKENISED, check_installed, signature

metrics = pytest.importorskip("sacrebleu.metrics")
version = pytest.importorskip("sacrebleu").__version__

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
    assert signature(SACREBLEU, "de") == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert signature(CHRF, "de").startswith("nrefs:1|case:mixed|eff:yes|nc:6")
    assert signature(TOKENISED, "de") == f"multi-bleu|nrefs:1|case:lc|eff:no|tok:13a|smooth:none|version:{version}"


# ---- words of the target language ---------------------------------------------------------------------------

CHINESE = (["猫坐在垫子上。", "那只狗跑得很快"], ["猫坐在席子上。", "那只狗跑得快"])


@pytest.mark.parametrize("language", ["zh", "zh-Hant"])
def test_chinese_is_scored_in_sacrebleus_own_words_for_it(language: str) -> None:
    right, said = CHINESE
    theirs = metrics.BLEU(tokenize="zh").corpus_score(said, [right]).score
    assert SACREBLEU.score(right, said, language) == pytest.approx(theirs, abs=1e-9)
    assert SACREBLEU.score(right, said, "en") < theirs - 10
    assert TOKENISED.score(right, said, language) > 10
    for metric in (SACREBLEU, TOKENISED):
        assert "tok:zh|" in signature(metric, language)


@pytest.mark.parametrize(("language", "module"), [("ja", "tokenizer_ja_mecab"), ("ko", "tokenizer_ko_mecab")])
def test_a_tokenizer_that_is_not_installed_is_told_of_before_anything_is_scored(
    language: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"sacrebleu.tokenizers.{module}.MeCab", None)
    check_installed(["de", "zh"])
    with pytest.raises(BadInput, match=rf"translations into {language} .* pip install 'sacrebleu\[{language}\]'"):
        check_installed(["de", language])
    with pytest.raises(BadInput, match="pip install"):
        SACREBLEU.score(["a"], ["a"], language)
