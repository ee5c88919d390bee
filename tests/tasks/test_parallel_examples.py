from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.tasks.examples import ClassificationExample, QAExample, TaggingExample
from crossling.tasks.parallel_examples import languages_with_translations, read_test_translations, read_training_pairs
from crossling.tasks.registry import DATASETS

Put = Callable[[str, str], Path]
XNLI = DATASETS["xnli"]
LABELED = "a\tb\tneutral\nc\td\tentailment\n"
UNLABELED = "A\tB\nC\tD\n"


def squad(*questions: str, answer: str | None = "b") -> str:
    answers = [] if answer is None else [{"text": answer, "answer_start": 2}]
    qas = [{"id": str(row), "question": question, "answers": answers} for row, question in enumerate(questions)]
    return json.dumps({"data": [{"paragraphs": [{"context": "a b c", "qas": qas}]}]})


def test_training_rows_are_paired_with_their_translations(put: Put, tmp_path: Path) -> None:
    put("xnli/train-en.tsv", LABELED)
    put("xnli/translated/sw/train.tsv", "A\tB\tneutral\nC\tD\tcontradiction\n")
    put("xnli/translate-train/en-de-translated.tsv", "a\tb\te\tf\tneutral\nc\td\tg\th\tentailment\n")
    put("xnli/translated/en/train.tsv", LABELED)  # XTREME has the pivot among the translations
    found = read_training_pairs(XNLI, tmp_path, "en")
    assert list(found) == ["de", "sw"]
    first = (ClassificationExample("0", ("a", "b"), "neutral"), ClassificationExample("0", ("A", "B"), "neutral"))
    second = (
        ClassificationExample("1", ("c", "d"), "entailment"),
        ClassificationExample("1", ("C", "D"), "contradiction"),
    )
    assert found["sw"] == [first, second]  # each with its own label


def test_questions_without_an_answer_keep_their_row(put: Put, tmp_path: Path) -> None:
    put("squad/train-v1.1.json", squad("one", "two"))
    put("squad/translate-train/squad.translate.train.en-de.json", squad("eins", "zwei", answer="x"))
    with pytest.warns(UserWarning, match="answers are not at their answer_start"):
        [pairs] = read_training_pairs(DATASETS["squad"], tmp_path, "en").values()
    assert [(one.question, other.question) for one, other in pairs] == [("one", "eins"), ("two", "zwei")]


def test_missing_training_translations_name_the_expected_files(put: Put, tmp_path: Path) -> None:
    put("xnli/train-en.tsv", LABELED)
    with pytest.raises(
        BadInput, match=r"train split of xnli for language 'en' has no translations. Expected files: xnli/translated/"
    ):
        read_training_pairs(XNLI, tmp_path, "en")
    with pytest.raises(BadInput, match="No file format is known for it"):
        read_training_pairs(DATASETS["cola"], tmp_path, "en")


@pytest.mark.parametrize(
    ("file", "text", "name", "split", "language", "into"),
    [
        ("xnli/translated/en/test-sw.tsv", UNLABELED, "xnli", "test", "sw", "en"),
        ("xnli/translated/en/dev-swh.tsv.gz", UNLABELED, "xnli", "dev", "sw", "en"),
        ("xnli/translated/en/test-sw.tsv", LABELED, "xnli", "test", "sw", "en"),  # labels are ignored
        ("xnli/translate-test/test-sw-en-translated.tsv", "a\tb\tA\tB\nc\td\tC\tD\tno\n", "xnli", "test", "sw", "en"),
        ("xnli/translated/fr/test-en.tsv", UNLABELED, "xnli", "test", "en", "fr"),
        ("pawsx/translated/en/dev-ko.tsv", UNLABELED, "pawsx", "dev", "ko", "en"),
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
def test_translations_of_test_splits_are_found(
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
    rows = {"pawsx": "a\tb\t0\nc\td\t1\n", "xnli": LABELED, "udpos": "a\tX\n\nc\tX\n", "panx": "a\tO\n\nc\tO\n"}
    put(own, rows.get(name, squad("a", "c")))
    assert read_test_translations(DATASETS[name], tmp_path, split, language, "en") is None
    put(file, text)
    found = read_test_translations(DATASETS[name], tmp_path, split, language, "en")
    assert found is not None
    assert found[0] == into
    texts = [
        one.texts[0]
        if isinstance(one, ClassificationExample)
        else one.words[0]
        if isinstance(one, TaggingExample)
        else one.question
        for one in found[1]
        if isinstance(one, ClassificationExample | TaggingExample | QAExample)
    ]
    assert [text.upper() for text in texts] in (["A", "C"], ["A", "A"])


def test_other_languages_are_paired_with_the_pivot_and_the_pivot_with_any_other(put: Put, tmp_path: Path) -> None:
    for code in ("de", "en", "fr"):
        put(f"xnli/test-{code}.tsv", LABELED)
    put("xnli/translated/fr/test-de.tsv", UNLABELED)
    put("xnli/translated/en/test-en.tsv", UNLABELED)
    assert read_test_translations(XNLI, tmp_path, "test", "de", "en") is None
    assert read_test_translations(XNLI, tmp_path, "test", "en", "en") is None
    put("xnli/translated/fr/test-en.tsv", UNLABELED)
    put("xnli/translated/de/test-en.tsv", "E\tF\nG\tH\n")
    found = read_test_translations(XNLI, tmp_path, "test", "en", "en")
    assert found == ("de", [ClassificationExample("0", ("E", "F"), None), ClassificationExample("1", ("G", "H"), None)])


@pytest.mark.parametrize("rows", [1, 3])
def test_different_numbers_of_rows_are_refused(put: Put, tmp_path: Path, rows: int) -> None:
    own, other = put("xnli/test-sw.tsv", LABELED), put("xnli/translated/en/test-sw.tsv", "A\tB\n" * rows)
    with pytest.raises(BadInput, match=f"^{other}: {rows} rows, but {own} has 2. Expected row i"):
        read_test_translations(XNLI, tmp_path, "test", "sw", "en")
    put("xnli/train-en.tsv", LABELED)
    put("xnli/translated/sw/train.tsv", "A\tB\tneutral\n")
    with pytest.raises(BadInput, match="Expected row i to translate row i"):
        read_training_pairs(XNLI, tmp_path, "en")


def test_languages_without_translations_are_not_scored(put: Put, tmp_path: Path) -> None:
    put("xnli/train-en.tsv", LABELED)
    for code in ("de", "en", "fr"):
        put(f"xnli/test-{code}.tsv", LABELED)
    with pytest.raises(BadInput, match=r"test split of xnli for language 'de' has no translations. Expected files: "):
        languages_with_translations(XNLI, tmp_path, "en")
    put("xnli/translated/en/test-de.tsv", UNLABELED)
    with pytest.warns(UserWarning, match="xnli: no translations of en, fr; not scored"):
        assert languages_with_translations(XNLI, tmp_path, "en") == ["de"]
    put("xnli/dev-en.tsv", LABELED)
    put("xnli/translated/de/dev-en.tsv", UNLABELED)  # not the split that is scored
    with pytest.warns(UserWarning, match="no translations of en, fr"):
        assert languages_with_translations(XNLI, tmp_path, "en") == ["de"]
