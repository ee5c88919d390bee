from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.tasks.dataset import FilePattern
from crossling.tasks.readers import TableReader
from crossling.tasks.registry import DATASETS

Put = Callable[[str, str], Path]
XNLI, PAWSX = DATASETS["xnli"], DATASETS["pawsx"]
LINE = "a\tb\tneutral\n"


def squad(*answers: tuple[str, int]) -> str:
    qas = [
        {"id": str(row), "question": "?", "answers": [{"text": text, "answer_start": start}]}
        for row, (text, start) in enumerate(answers)
    ]
    return json.dumps({"data": [{"paragraphs": [{"context": "a b c", "qas": qas}]}]})


def test_languages_are_canonical_and_similar_file_names_are_skipped(put: Put, tmp_path: Path) -> None:
    for code in ("swh", "zh-Hant", "qaa", "en"):
        put(f"xnli/dev-{code}.tsv", LINE)
    put("xnli/dev-en.tsv.gz", LINE)
    put("xnli/dev-everything.tsv", LINE)
    put("xnli/dev-en.bak.tsv", LINE)
    assert XNLI.languages(tmp_path, "dev") == ["en", "qaa", "sw", "zh-Hant"]
    assert XNLI.languages(tmp_path, "test") == []


def test_a_repeated_placeholder_matches_the_same_text(put: Put, tmp_path: Path) -> None:
    pattern = FilePattern("x/{language}/{split}.{language}.tsv", TableReader((0,), None))
    put("x/it/dev.it.tsv", "a")
    put("x/it/dev.de.tsv", "a")
    assert list(pattern.find(tmp_path, "dev")) == ["it"]


def test_several_files_of_a_language_are_concatenated_with_new_ids(put: Put, tmp_path: Path) -> None:
    row = "1\t{}\t_\tNOUN" + "\t_" * 6 + "\n"
    put("ud/UD_English-B/en_b-ud-test.conllu", row.format("second"))
    put("ud/UD_English-A/en_a-ud-test.conllu.gz", row.format("first"))
    read = DATASETS["ud"].read(tmp_path, "test", "en")
    assert [(example.id, example.words) for example in read] == [("0", ("first",)), ("1", ("second",))]


def test_a_missing_language_is_reported_with_the_available_ones(put: Put, tmp_path: Path) -> None:
    put("xnli/dev-de.tsv", LINE)
    with pytest.raises(BadInput, match=r"xnli has no dev split for language 'nl'; valid: de$"):
        XNLI.read(tmp_path, "dev", "nl")
    with pytest.raises(BadInput, match=r"no test split for .* Expected files: xnli/test-\{language\}.tsv, kornli"):
        XNLI.read(tmp_path, "test", "nl")


def test_the_dev_split_replaces_a_missing_or_unlabeled_test_split(put: Put, tmp_path: Path) -> None:
    for code in ("de", "es", "fr"):
        put(f"pawsx/dev-{code}.tsv", "a\tb\t1\n")
    put("pawsx/test-de.tsv", "c\td\t0\n")
    put("pawsx/test-es.unlabelled.tsv", "c\td\n")
    put("pawsx/test-ja.tsv", "c\td\n")
    assert {code: PAWSX.read_test(tmp_path, code)[0] for code in ("de", "es", "fr")} == {
        "de": "test",
        "es": "dev",
        "fr": "dev",
    }
    assert len(PAWSX.read(tmp_path, "test", "es")) == 1
    with pytest.raises(BadInput, match="the test split of pawsx for language 'ja' has no labels"):
        PAWSX.read_test(tmp_path, "ja")
    with pytest.warns(UserWarning, match="pawsx: no labels in ja; not scored"):
        assert PAWSX.scorable_languages(tmp_path) == ["de", "es", "fr"]
    with pytest.raises(BadInput, match="no test split for language 'ko'"):
        PAWSX.read_test(tmp_path, "ko")


def test_the_training_split_is_scored_only_in_languages_that_are_not_trained_on(put: Put, tmp_path: Path) -> None:
    put("tydiqa-goldp/train/tydiqa.goldp.en.train.json", squad(("a", 0)))
    put("tydiqa-goldp/train/tydiqa.goldp.sw.train.json", squad(("a", 0)))
    assert DATASETS["tydiqa"].scorable_languages(tmp_path) == ["sw"]
    assert DATASETS["tydiqa"].read_test(tmp_path, "sw")[0] == "train"
    with pytest.raises(BadInput, match="tydiqa has no test split for language 'en'"):
        DATASETS["tydiqa"].read_test(tmp_path, "en")


def test_training_uses_the_best_available_dataset(put: Put, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        XNLI.read_training(tmp_path)
    for expected in ("xnli/train-{language}.tsv", "glue/MNLI/train.tsv", "mnli-subset/train-{language}.tsv"):
        assert expected in str(error.value)
    put("mnli-subset/train-en.tsv", LINE)
    assert XNLI.read_training(tmp_path)[0] == "mnli-subset"
    put("xnli/train-en.tsv", LINE * 3)
    name, examples = XNLI.read_training(tmp_path)
    assert (name, len(examples)) == ("xnli", 3)
    assert DATASETS["americasnli"].read_training(tmp_path)[0] == "xnli"


def test_english_comes_before_other_languages_of_any_dataset(put: Put, tmp_path: Path) -> None:
    put("masakhaner/swa/train.txt", "Roma B-LOC\n")
    assert DATASETS["masakhaner"].training_source(tmp_path) == ("masakhaner", "sw")
    put("panx/train-en.tsv", "Rome\tB-LOC\n")
    assert DATASETS["masakhaner"].training_source(tmp_path) == ("panx", "en")
    assert DATASETS["masakhaner"].training_source(tmp_path, "sw") == ("masakhaner", "sw")
    with pytest.raises(BadInput, match="masakhaner has no train split for language 'yo'"):
        DATASETS["masakhaner"].read_training(tmp_path, "yo")


def test_the_first_labeled_dev_split_selects_models(put: Put, tmp_path: Path) -> None:
    put("tydiqa-goldp/dev/tydiqa.goldp.en.dev.json", squad(("", 0)))
    put("mlqa/dev/dev-context-en-question-en.json", squad(("a", 0), ("b", 2)))
    name, examples = DATASETS["tydiqa"].read_dev(tmp_path)
    assert (name, len(examples)) == ("mlqa", 2)
    put("tydiqa-goldp/dev/tydiqa.goldp.en.dev.json", squad(("a", 0)))
    assert DATASETS["tydiqa"].read_dev(tmp_path)[0] == "tydiqa"
    with pytest.raises(BadInput, match="xnli has no dev split"):
        XNLI.read_dev(tmp_path)


@pytest.mark.filterwarnings("ignore:.*not at their answer_start")
def test_questions_without_an_answer_in_the_context_are_not_trained_on(put: Put, tmp_path: Path) -> None:
    put("squad/train-v1.1.json", squad(("a", 0), ("nowhere", 0), ("c", 0)))
    with pytest.warns(UserWarning, match="1 questions without an answer in their context; not trained on"):
        _, examples = DATASETS["xquad"].read_training(tmp_path)
    assert [example.answers[0].start for example in examples] == [0, 4]


def test_columns_without_tabs_are_reported(put: Put, tmp_path: Path) -> None:
    put("panx/train-en.tsv", "en:Anna B-PER\nen:sings O\n")
    put("panx/test-de.tsv", "de:Anna B-PER\nde:singt O\n")
    with pytest.raises(BadInput, match=r"train split of panx for language 'en' has no labels.*separated by a tab"):
        DATASETS["panx"].read_training(tmp_path)
    with pytest.raises(BadInput, match=r"test split of panx for language 'de' has no labels.*separated by a tab"):
        DATASETS["panx"].read_test(tmp_path, "de")
    with pytest.warns(UserWarning, match=r"panx: no labels in de; not scored \(columns must be separated by a tab\)"):
        assert DATASETS["panx"].scorable_languages(tmp_path) == []


def test_translations_come_from_the_first_training_set_that_has_any(put: Put, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no translated training data\. Expected files: .*XNLI-MT-1.0"):
        XNLI.read_translated_training(tmp_path)
    put("xnli/translate-train/en-de-translated.tsv", "x\ty\ta\tb\tneutral\n")
    put("xnli/translated/sw/train.tsv", LINE)
    name, translated = XNLI.read_translated_training(tmp_path)
    assert (name, list(translated)) == ("xnli", ["de", "sw"])
    assert translated["de"] == translated["sw"]


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        XNLI.read_training(tmp_path / "nothing")
