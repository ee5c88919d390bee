from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.benchmarks import SETS
from crossling.benchmarks.dataset import Layout
from crossling.benchmarks.tables import Table
from crossling.errors import BadInput

Put = Callable[[str, str], Path]
XNLI, PAWSX = SETS["xnli"], SETS["pawsx"]
LINE = "a\tb\tneutral\n"


def squad(*answers: tuple[str, int]) -> str:
    qas = [
        {"id": str(row), "question": "?", "answers": [{"text": text, "answer_start": start}]}
        for row, (text, start) in enumerate(answers)
    ]
    return json.dumps({"data": [{"paragraphs": [{"context": "a b c", "qas": qas}]}]})


def test_languages_are_canonical_and_files_that_only_look_alike_are_passed_over(put: Put, tmp_path: Path) -> None:
    for code in ("swh", "zh-Hant", "qaa", "en"):
        put(f"xnli/dev-{code}.tsv", LINE)
    put("xnli/dev-en.tsv.gz", LINE)
    put("xnli/dev-everything.tsv", LINE)
    put("xnli/dev-en.bak.tsv", LINE)
    assert XNLI.languages(tmp_path, "dev") == ["en", "qaa", "sw", "zh-Hant"]
    assert XNLI.languages(tmp_path, "test") == []


def test_a_name_that_is_said_twice_is_the_same(put: Put, tmp_path: Path) -> None:
    layout = Layout("x/{language}/{split}.{language}.tsv", Table((0,), None))
    put("x/it/dev.it.tsv", "a")
    put("x/it/dev.de.tsv", "a")
    assert list(layout.find(tmp_path, "dev")) == ["it"]


def test_several_files_of_a_language_follow_each_other_under_new_ids(put: Put, tmp_path: Path) -> None:
    row = "1\t{}\t_\tNOUN" + "\t_" * 6 + "\n"
    put("ud/UD_English-B/en_b-ud-test.conllu", row.format("second"))
    put("ud/UD_English-A/en_a-ud-test.conllu.gz", row.format("first"))
    read = SETS["ud"].read(tmp_path, "test", "en")
    assert [(example.id, example.words) for example in read] == [("0", ("first",)), ("1", ("second",))]


def test_a_missing_language_is_named_with_those_there_are(put: Put, tmp_path: Path) -> None:
    put("xnli/dev-de.tsv", LINE)
    with pytest.raises(BadInput, match=r"xnli has no dev part in 'nl'; valid: de$"):
        XNLI.read(tmp_path, "dev", "nl")
    with pytest.raises(BadInput, match=r"no test part in 'nl'; looked for xnli/test-\{language\}.tsv, kornli"):
        XNLI.read(tmp_path, "test", "nl")


def test_the_dev_part_stands_in_for_a_test_part_that_is_missing_or_unlabelled(put: Put, tmp_path: Path) -> None:
    for code in ("de", "es", "fr"):
        put(f"pawsx/dev-{code}.tsv", "a\tb\t1\n")
    put("pawsx/test-de.tsv", "c\td\t0\n")
    put("pawsx/test-es.unlabelled.tsv", "c\td\n")
    put("pawsx/test-ja.tsv", "c\td\n")
    assert {code: PAWSX.test(tmp_path, code)[0] for code in ("de", "es", "fr")} == {
        "de": "test",
        "es": "dev",
        "fr": "dev",
    }
    assert len(PAWSX.read(tmp_path, "test", "es")) == 1
    with pytest.raises(BadInput, match="the test part of pawsx in 'ja' has no labels"):
        PAWSX.test(tmp_path, "ja")
    with pytest.warns(UserWarning, match="pawsx: no labels in ja; not scored"):
        assert PAWSX.tested(tmp_path) == ["de", "es", "fr"]
    with pytest.raises(BadInput, match="no test part in 'ko'"):
        PAWSX.test(tmp_path, "ko")


def test_training_data_serves_as_a_test_in_languages_that_are_not_trained_on_only(put: Put, tmp_path: Path) -> None:
    put("tydiqa-goldp/train/tydiqa.goldp.en.train.json", squad(("a", 0)))
    put("tydiqa-goldp/train/tydiqa.goldp.sw.train.json", squad(("a", 0)))
    assert SETS["tydiqa"].tested(tmp_path) == ["sw"]
    assert SETS["tydiqa"].test(tmp_path, "sw")[0] == "train"
    with pytest.raises(BadInput, match="tydiqa has no test part in 'en'"):
        SETS["tydiqa"].test(tmp_path, "en")


def test_training_takes_the_best_set_there_is_and_says_which(put: Put, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        XNLI.training(tmp_path)
    for looked_for in ("xnli/train-{language}.tsv", "glue/MNLI/train.tsv", "mnli-subset/train-{language}.tsv"):
        assert looked_for in str(error.value)
    put("mnli-subset/train-en.tsv", LINE)
    assert XNLI.training(tmp_path)[0] == "mnli-subset"
    put("xnli/train-en.tsv", LINE * 3)
    name, examples = XNLI.training(tmp_path)
    assert (name, len(examples)) == ("xnli", 3)
    assert SETS["americasnli"].training(tmp_path)[0] == "xnli"


def test_english_comes_before_every_other_language_of_every_set(put: Put, tmp_path: Path) -> None:
    put("masakhaner/swa/train.txt", "Roma B-LOC\n")
    assert SETS["masakhaner"].source(tmp_path) == ("masakhaner", "sw")
    put("panx/train-en.tsv", "Rome\tB-LOC\n")
    assert SETS["masakhaner"].source(tmp_path) == ("panx", "en")
    assert SETS["masakhaner"].source(tmp_path, "sw") == ("masakhaner", "sw")
    with pytest.raises(BadInput, match="no train part for masakhaner in 'yo'"):
        SETS["masakhaner"].training(tmp_path, "yo")


def test_models_are_chosen_by_the_first_dev_part_with_labels(put: Put, tmp_path: Path) -> None:
    put("tydiqa-goldp/dev/tydiqa.goldp.en.dev.json", squad(("", 0)))
    put("mlqa/dev/dev-context-en-question-en.json", squad(("a", 0), ("b", 2)))
    name, examples = SETS["tydiqa"].development(tmp_path)
    assert (name, len(examples)) == ("mlqa", 2)
    put("tydiqa-goldp/dev/tydiqa.goldp.en.dev.json", squad(("a", 0)))
    assert SETS["tydiqa"].development(tmp_path)[0] == "tydiqa"
    with pytest.raises(BadInput, match="no dev part for xnli"):
        XNLI.development(tmp_path)


@pytest.mark.filterwarnings("ignore:.*do not stand where they should")
def test_questions_nobody_could_learn_from_are_not_trained_on(put: Put, tmp_path: Path) -> None:
    put("squad/train-v1.1.json", squad(("a", 0), ("nowhere", 0), ("c", 0)))
    with pytest.warns(UserWarning, match="1 questions without an answer in their text; not trained on"):
        _, examples = SETS["xquad"].training(tmp_path)
    assert [example.answers[0].start for example in examples] == [0, 4]


def test_translations_are_of_the_first_training_set_that_has_any(put: Put, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no translated training data here; looked for .*XNLI-MT-1.0"):
        XNLI.translated(tmp_path)
    put("xnli/translate-train/en-de-translated.tsv", "x\ty\ta\tb\tneutral\n")
    put("xnli/translated/sw/train.tsv", LINE)
    name, translated = XNLI.translated(tmp_path)
    assert (name, list(translated)) == ("xnli", ["de", "sw"])
    assert translated["de"] == translated["sw"]


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no folder"):
        XNLI.training(tmp_path / "nothing")
