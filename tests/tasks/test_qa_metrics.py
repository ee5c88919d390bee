from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.tasks.label_metrics import character_words, cmrc_words, mlqa_words, squad_words, word_f1
from crossling.tasks.metrics import METRICS


def score(name: str, gold: tuple[str, ...], predicted: str, language: str = "en") -> float:
    return METRICS[name].score([gold], [predicted], language)


# (scorer, language, answer, expected words), with the quirks of the public scripts.
WORDS = [
    (squad_words, "en", "The  Cat's a-frame, an O.K. theatre!", ["cats", "aframe", "ok", "theatre"]),
    (squad_words, "de", "Der A Hund", ["der", "hund"]),  # English articles in every language
    (squad_words, "es", "«¿Qué?»", ["«¿qué»"]),  # ASCII punctuation alone
    (squad_words, "zh", "北京市，中国", ["北京市，中国"]),
    (mlqa_words, "en", "The «Cat»", ["cat"]),
    (mlqa_words, "es", "¿Una casa de la abuela?", ["casa", "de", "abuela"]),
    (mlqa_words, "de", "Der Hund des Nachbarn", ["hund", "nachbarn"]),
    (mlqa_words, "de-en", "Der Hund", ["hund"]),  # the language of the context
    (mlqa_words, "en-de", "Der Hund", ["der", "hund"]),
    (mlqa_words, "vi", "những con mèo", ["con", "mèo"]),
    (mlqa_words, "hi", "एक बिल्ली।", ["एक", "बिल्ली"]),
    (mlqa_words, "ar", "الكتاب الجديد", ["كتاب", "جديد"]),
    (mlqa_words, "ar", "خالد", ["خ", "د"]),  # the article is dropped inside a word, too
    (mlqa_words, "zh", "北京 2008年 Olympics", ["北", "京", "2008", "年", "olympics"]),
    (mlqa_words, "zh", "龦", ["龦"]),  # U+9FA6 lies past the script's range: with others it makes one word
    (mlqa_words, "zh", "龦龦", ["龦龦"]),
    (cmrc_words, "zh", "《哈利·波特》 Harry-Potter", ["哈", "利", "波", "特", "harrypotter"]),
    (cmrc_words, "zh", "……龦…夜", ["……龦…", "夜"]),  # the ellipsis stays; U+9FA6 lies past the script's range
    (
        cmrc_words,
        "zh",
        "1,000 people, don't go (3.5%).",
        ["1,000", "people", ",", "do", "n't", "go", "(", "3.5", "%", ")", "."],
    ),
    (cmrc_words, "zh", "Peter's dogs' U.S. home...", ["peter", "'s", "dogs", "'", "u.s.", "home", "..."]),
    (character_words, "zh", "北京市，中国", ["北", "京", "市", "中", "国"]),
    (character_words, "ja", "東京タワー 1958", ["東", "京", "タ", "ワ", "ー", "1958"]),
    (character_words, "th", "กทม", ["ก", "ท", "ม"]),
    (character_words, "ar", "خالد", ["خالد"]),
    (character_words, "en", "The Cat", ["cat"]),
]


@pytest.mark.parametrize(("words", "language", "text", "expected"), WORDS)
def test_answers_are_split_as_in_public_scripts(words: object, language: str, text: str, expected: list[str]) -> None:
    assert words(text, language) == expected  # type: ignore[operator]


def test_the_best_correct_answer_counts() -> None:
    gold = ("the red car", "a red old car")
    assert score("squad-f1", gold, "old car") == pytest.approx(100 * 2 * 2 / (3 + 2))
    assert score("squad-exact-match", gold, "Red car.") == 100
    assert score("squad-exact-match", gold, "car") == 0


def test_chinese_f1_is_0_in_xtreme_but_not_by_character() -> None:
    gold, predicted = ("北京市",), "北京"
    assert score("squad-f1", gold, predicted, "zh") == 0
    assert score("characters-f1", gold, predicted, "zh") == pytest.approx(80)
    assert score("mlqa-f1", gold, predicted, "zh") == pytest.approx(80)


def test_answers_without_words_match_exactly_but_have_no_f1() -> None:
    assert score("squad-exact-match", ("the",), "!") == 100
    assert score("squad-f1", ("the",), "!") == 0
    assert score("squad-exact-match", ("",), "") == 100


@pytest.mark.parametrize(
    ("gold", "predicted", "f1", "exact"),
    [
        ((), "", 100, 100),  # impossible, and predicted as such
        ((), "something", 0, 0),
        ((), "the", 100, 100),  # an article alone is empty
        (("Rome",), "", 0, 0),
        (("Rome", "the"), "", 0, 0),  # an answer without words does not count
        (("the",), "", 100, 100),  # if none is left, the empty answer is correct
        (("Rome fell", "Rome"), "rome", 100, 100),
        (("Rome fell",), "Rome", 200 / 3, 0),
    ],
)
def test_squad_2_scores_impossible_questions(gold: tuple[str, ...], predicted: str, f1: float, exact: float) -> None:
    assert score("squad2-f1", gold, predicted) == pytest.approx(f1)
    assert score("squad2-exact-match", gold, predicted) == exact


def slow_cmrc_f1(answers: tuple[str, ...], predicted: str) -> float:
    """Try every run of the characters of each answer. The answers have no words between Chinese characters."""
    best = 0.0
    for answer in answers:
        ours, theirs = (text.translate(str.maketrans("", "", "，。“”《》-")) for text in (answer, predicted))
        runs = [ours[i:j] for i in range(len(ours)) for j in range(i + 1, len(ours) + 1)]
        size = max((len(run) for run in runs if run in theirs), default=0)
        if size:
            precision, recall = size / len(theirs), size / len(ours)
            best = max(best, 2 * precision * recall / (precision + recall))
    return 100 * best


@given(
    answers=st.lists(st.text("夜间市，“-", max_size=7), min_size=1, max_size=3).map(tuple),
    predicted=st.text("夜间市，“-", max_size=7),
)
def test_cmrc_f1_equals_a_loop_over_all_runs(answers: tuple[str, ...], predicted: str) -> None:
    assert score("cmrc-f1", answers, predicted, "zh") == pytest.approx(slow_cmrc_f1(answers, predicted))
    texts = {answer.translate(str.maketrans("", "", "，“-")) for answer in answers}
    exact = predicted.translate(str.maketrans("", "", "，“-")) in texts
    assert score("cmrc-exact-match", answers, predicted, "zh") == 100 * exact


def test_cmrc_ignores_punctuation_and_counts_only_words_in_a_row() -> None:
    assert score("cmrc-f1", ("夜间",), "夜间“", "zh") == score("cmrc-exact-match", ("夜间",), "夜间“", "zh") == 100
    assert score("cmrc-f1", ("夜间",), "间夜", "zh") == pytest.approx(50)
    assert score("characters-f1", ("夜间",), "间夜", "zh") == 100
    assert score("cmrc-f1", ("。",), "。", "zh") == 0  # nothing is left to agree on
    assert score("cmrc-exact-match", ("。",), "，", "zh") == 100
    assert METRICS["cmrc-f1"].label == "cmrc2018/f1"


@given(words=st.lists(st.sampled_from("abcd"), max_size=6), others=st.lists(st.sampled_from("abcd"), max_size=6))
def test_word_f1_is_the_harmonic_mean_of_precision_and_recall(words: list[str], others: list[str]) -> None:
    same = sum(min(words.count(word), others.count(word)) for word in "abcd")
    precision, recall = (same / len(side) if side else 0 for side in (others, words))
    expected = 2 * precision * recall / (precision + recall) if same else 0
    assert word_f1(words, others) == pytest.approx(expected) == word_f1(others, words)


@given(st.text(), st.sampled_from(["en", "es", "de", "ar", "zh", "th", "vi", "hi"]))
def test_an_answer_matches_itself(text: str, language: str) -> None:
    for name in ("squad-exact-match", "mlqa-exact-match", "squad2-exact-match"):
        assert score(name, (text,), text, language) == 100
    if mlqa_words(text, language):
        assert score("mlqa-f1", (text,), text, language) == pytest.approx(100)


# The articles that MLQA's public scorer removes, by language. Hindi and Chinese have none.
ARTICLES = {
    "en": "a an the",
    "es": "un una unos unas el la los las",
    "vi": "của là cái chiếc những",
    "de": "ein eine einen einem eines einer der die das den dem des",
    "ar": "ال",
    "hi": "",
    "zh": "",
}


@pytest.mark.parametrize("language", ARTICLES)
def test_mlqa_removes_only_the_articles_of_the_language(language: str) -> None:
    listed = {article for own in ARTICLES.values() for article in own.split()}
    removed = {article for article in listed if mlqa_words(f"x {article} y", language) == ["x", "y"]}
    assert removed == set(ARTICLES[language].split())
    assert mlqa_words("xa uns elx einemx dero cáix thes", language) == [
        "xa",
        "uns",
        "elx",
        "einemx",
        "dero",
        "cáix",
        "thes",
    ]
