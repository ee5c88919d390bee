"""Examples with their translations: where they lie, that rows agree, and what is said where they do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.benchmarks import SETS
from crossling.benchmarks.examples import Classified, Question, Tagged
from crossling.benchmarks.pairs import scored_in_pairs, training_pairs, translations
from crossling.errors import BadInput

Put = Callable[[str, str], Path]
XNLI = SETS["xnli"]
LABELLED = "a\tb\tneutral\nc\td\tentailment\n"
BARE = "A\tB\nC\tD\n"


def squad(*questions: str, answer: str | None = "b") -> str:
    answers = [] if answer is None else [{"text": answer, "answer_start": 2}]
    qas = [{"id": str(row), "question": question, "answers": answers} for row, question in enumerate(questions)]
    return json.dumps({"data": [{"paragraphs": [{"context": "a b c", "qas": qas}]}]})


def test_each_training_row_of_the_pivot_stands_beside_its_translation(put: Put, tmp_path: Path) -> None:
    put("xnli/train-en.tsv", LABELLED)
    put("xnli/translated/sw/train.tsv", "A\tB\tneutral\nC\tD\tcontradiction\n")
    put("xnli/translate-train/en-de-translated.tsv", "a\tb\te\tf\tneutral\nc\td\tg\th\tentailment\n")
    put("xnli/translated/en/train.tsv", LABELLED)  # XTREME has the pivot among the translations
    found = training_pairs(XNLI, tmp_path, "en")
    assert list(found) == ["de", "sw"]
    first = (Classified("0", ("a", "b"), "neutral"), Classified("0", ("A", "B"), "neutral"))
    second = (Classified("1", ("c", "d"), "entailment"), Classified("1", ("C", "D"), "contradiction"))
    assert found["sw"] == [first, second]  # each with its own label


def test_a_question_nobody_can_learn_from_keeps_its_row(put: Put, tmp_path: Path) -> None:
    put("squad/train-v1.1.json", squad("one", "two"))
    put("squad/translate-train/squad.translate.train.en-de.json", squad("eins", "zwei", answer="x"))
    with pytest.warns(UserWarning, match="answers do not stand where they should"):
        [pairs] = training_pairs(SETS["squad"], tmp_path, "en").values()
    assert [(one.question, other.question) for one, other in pairs] == [("one", "eins"), ("two", "zwei")]


def test_without_translated_training_data_the_names_are_told(put: Put, tmp_path: Path) -> None:
    put("xnli/train-en.tsv", LABELLED)
    with pytest.raises(BadInput, match=r"train part of xnli in 'en' has no translations .*looked for xnli/translated/"):
        training_pairs(XNLI, tmp_path, "en")
    with pytest.raises(BadInput, match="no layout of them is known"):
        training_pairs(SETS["cola"], tmp_path, "en")


@pytest.mark.parametrize(
    ("file", "text", "name", "split", "language", "into"),
    [
        ("xnli/translated/en/test-sw.tsv", BARE, "xnli", "test", "sw", "en"),
        ("xnli/translated/en/dev-swh.tsv.gz", BARE, "xnli", "dev", "sw", "en"),
        ("xnli/translated/en/test-sw.tsv", LABELLED, "xnli", "test", "sw", "en"),  # labels are not looked at
        ("xnli/translate-test/test-sw-en-translated.tsv", "a\tb\tA\tB\nc\td\tC\tD\tno\n", "xnli", "test", "sw", "en"),
        ("xnli/translated/fr/test-en.tsv", BARE, "xnli", "test", "en", "fr"),
        ("pawsx/translated/en/dev-ko.tsv", BARE, "pawsx", "dev", "ko", "en"),
        ("pawsx/translate-test/test-ko-en-translated.tsv", "a\tb\tA\tB\n" * 2, "pawsx", "test", "ko", "en"),
        ("udpos/translated/en/test-af.tsv", "A\nB\n\nC\n", "udpos", "test", "af", "en"),
        ("panx/translated/en/test-af.tsv", "A\tO\n\nC\tO\n", "panx", "test", "af", "en"),
        ("xquad/translated/en/dev-de.json", squad("A", "C", answer=None), "xquad", "dev", "de", "en"),
        ("xquad/translate-test/xquad.translate.test.de-en.json", squad("A", "C"), "xquad", "test", "de", "en"),
        ("mlqa/translate-test/mlqa.translate.test.de-en.json", squad("A", "C"), "mlqa", "test", "de", "en"),
        (
            "mlqa/translated/en/test-context-de-question-es.json",
            squad("A", "C"),
            "mlqa",
            "test",
            "de-es",
            "en",
        ),
        ("squad/translate-dev/squad.translate.dev.en-de.json", squad("A", "C"), "squad", "dev", "en", "de"),
        ("tydiqa/translated/en/dev-sw.json", squad("A", "C"), "tydiqa", "dev", "sw", "en"),
    ],
)
def test_translations_of_what_is_scored(
    put: Put, tmp_path: Path, file: str, text: str, name: str, split: str, language: str, into: str
) -> None:
    own = {
        "xnli": f"xnli/{split}-{language}.tsv",
        "pawsx": f"pawsx/{split}-{language}.tsv",
        "udpos": f"udpos/{split}-{language}.tsv",
        "panx": f"panx/{split}-{language}.tsv",
        "xquad": "xquad/xquad.de.json" if split == "test" else "xquad/dev-de.json",
        "mlqa": "mlqa/test/test-context-{}-question-{}.json".format(*(language.split("-") * 2)[:2]),
        "squad": "squad/dev-v1.1.json",
        "tydiqa": "tydiqa-goldp/dev/tydiqa.goldp.sw.dev.json",
    }[name]
    rows = {"pawsx": "a\tb\t0\nc\td\t1\n", "xnli": LABELLED, "udpos": "a\tX\n\nc\tX\n", "panx": "a\tO\n\nc\tO\n"}
    put(own, rows.get(name, squad("a", "c")))
    assert translations(SETS[name], tmp_path, split, language, "en") is None
    put(file, text)
    found = translations(SETS[name], tmp_path, split, language, "en")
    assert found is not None
    assert found[0] == into
    said = [
        one.texts[0] if isinstance(one, Classified) else one.words[0] if isinstance(one, Tagged) else one.question
        for one in found[1]
        if isinstance(one, Classified | Tagged | Question)
    ]
    assert [text.upper() for text in said] in (["A", "C"], ["A", "A"])


def test_another_language_is_read_in_the_pivot_and_the_pivot_in_any_other(put: Put, tmp_path: Path) -> None:
    for code in ("de", "en", "fr"):
        put(f"xnli/test-{code}.tsv", LABELLED)
    put("xnli/translated/fr/test-de.tsv", BARE)
    put("xnli/translated/en/test-en.tsv", BARE)
    assert translations(XNLI, tmp_path, "test", "de", "en") is None
    assert translations(XNLI, tmp_path, "test", "en", "en") is None
    put("xnli/translated/fr/test-en.tsv", BARE)
    put("xnli/translated/de/test-en.tsv", "E\tF\nG\tH\n")
    found = translations(XNLI, tmp_path, "test", "en", "en")
    assert found == ("de", [Classified("0", ("E", "F"), None), Classified("1", ("G", "H"), None)])


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_do_not_agree_are_told_with_both_files(put: Put, tmp_path: Path, rows: int) -> None:
    own, other = put("xnli/test-sw.tsv", LABELLED), put("xnli/translated/en/test-sw.tsv", "A\tB\n" * rows)
    longer, shorter, row = (own, other, 2) if rows == 1 else (other, own, 3)
    with pytest.raises(BadInput, match=f"^{other}: {rows} rows, but {own} has 2") as caught:
        translations(XNLI, tmp_path, "test", "sw", "en")
    assert f"row {row} of {longer} has no partner in {shorter}" in str(caught.value)
    put("xnli/train-en.tsv", LABELLED)
    put("xnli/translated/sw/train.tsv", "A\tB\tneutral\n")
    with pytest.raises(BadInput, match="expected row i to translate row i"):
        training_pairs(XNLI, tmp_path, "en")


def test_languages_without_translations_are_not_scored(put: Put, tmp_path: Path) -> None:
    put("xnli/train-en.tsv", LABELLED)
    for code in ("de", "en", "fr"):
        put(f"xnli/test-{code}.tsv", LABELLED)
    with pytest.raises(BadInput, match=r"test part of xnli in 'de' has no translations to be read with; looked for "):
        scored_in_pairs(XNLI, tmp_path, "en")
    put("xnli/translated/en/test-de.tsv", BARE)
    with pytest.warns(UserWarning, match="xnli: no translations in en, fr; not scored"):
        assert scored_in_pairs(XNLI, tmp_path, "en") == ["de"]
    put("xnli/dev-en.tsv", LABELLED)
    put("xnli/translated/de/dev-en.tsv", BARE)  # of another part than the one that is scored
    with pytest.warns(UserWarning, match="no translations in en, fr"):
        assert scored_in_pairs(XNLI, tmp_path, "en") == ["de"]
