"""Every data set in the file formats of its publishers, and in the real folder if there is one."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.tasks.examples import ClassificationExample, QAExample, TaggingExample
from crossling.tasks.metrics import METRICS
from crossling.tasks.registry import DATASETS, get_dataset

Put = Callable[[str, str], Path]
NLI = "a\tb\tneutral\nc\td\tentailment\n"
PARAPHRASE = "a\tb\t0\nc\td\t1\n"
NER = "Rome\tB-LOC\nfell\tO\n\nYes\tO\n"
POS = "Rome\tPROPN\n.\tPUNCT\n"
SQUAD = json.dumps(
    {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": "Rome fell.",
                        "qas": [{"id": "q", "question": "What?", "answers": [{"text": "Rome", "answer_start": 0}]}],
                    }
                ]
            }
        ]
    }
)
UNANSWERED = SQUAD.replace('"answers": [{"text": "Rome", "answer_start": 0}]', '"answers": [], "is_impossible": true')
MNLI = (
    "index\tpromptID\tpairID\tgenre\ts1p\ts2p\ts1q\ts2q\tsentence1\tsentence2\tlabel1\tgold_label\n"
    "0\t1\t1\tx\t_\t_\t_\t_\ta\tb\tneutral\tneutral\n1\t1\t1\tx\t_\t_\t_\t_\ta\tb\tneutral\t-\n"
)
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\ta?\tb?\t0\n1\t1\t2\ta?\n"
QNLI = "index\tquestion\tsentence\tlabel\n0\ta?\tb\tnot_entailment\n"
CHOICE = '{"premise": "p", "choice1": "a", "choice2": "b", "question": "cause", "label": 0, "idx": 3}\n'

TOPICS = 'index_id\tcategory\ttext\n7\tscience/technology\t"It is ""hot""."\n9\tsports\tThey won.\n'
INTENT = (
    '{"id": "3", "locale": "sw-KE", "partition": "dev", "intent": "play_game", "utt": "cheza", "annot_utt": "cheza"}\n'
)
QUESTION = (
    '{"flores_passage": "a", "question": "b?", "mc_answer1": "c", "mc_answer2": "d", "mc_answer3": "e",'
    ' "mc_answer4": "f", "correct_answer_num": "4"}\n'
)
RACE = '{"article": "a", "questions": ["b?"], "options": [["c", "d", "e", "f"]], "answers": ["C"], "id": "high1.txt"}'

# (file, its text, data set, split, language, number of examples)
OFFICIAL = [
    ("xnli/train-en.tsv", NLI, "xnli", "train", "en", 2),
    ("xnli/dev-ur.tsv.gz", NLI, "xnli", "dev", "ur", 2),
    ("xnli/test-el.tsv", NLI, "xnli", "test", "el", 2),
    ("xnli/test-qaa.tsv", NLI, "xnli", "test", "qaa", 2),
    ("kornli/xnli.dev.ko.tsv", "sentence1\tsentence2\tgold_label\n" + NLI, "xnli", "dev", "ko", 2),
    ("americasnli/dev/aym.tsv", "id\tpremise\thypothesis\tlabel\n7\ta\tb\tneutral\n", "americasnli", "dev", "ay", 1),
    ("ocnli/dev.json", '{"sentence1": "a", "sentence2": "b", "label": "-"}\n', "ocnli", "dev", "zh", 0),
    ("pawsx/train-en.tsv", PARAPHRASE, "pawsx", "train", "en", 2),
    ("pawsx/x-final/ja/test_2k.tsv", "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n", "pawsx", "test", "ja", 1),
    ("pawsx/test-es.unlabelled.tsv", "a\tb\n", "pawsx", "test", "es", 1),
    ("glue/MNLI/train.tsv", MNLI, "mnli", "train", "en", 1),
    ("glue/MNLI/dev_matched.tsv", MNLI, "mnli", "dev", "en", 1),
    ("glue/MNLI/dev_mismatched.tsv.gz", MNLI, "mnli-mismatched", "dev", "en", 1),
    ("glue/MNLI/test_matched.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n", "mnli", "test", "en", 1),
    ("glue/QQP/train.tsv", QQP, "qqp", "train", "en", 1),
    ("glue/QQP/test.tsv", "id\tquestion1\tquestion2\n0\ta?\tb?\n", "qqp", "test", "en", 1),
    ("glue/QNLI/train.tsv", QNLI, "qnli", "train", "en", 1),
    ("glue/CoLA/test.tsv", "index\tsentence\n0\tHe go.\n", "cola", "test", "en", 1),
    ("xcopa/train.en.jsonl", CHOICE, "xcopa", "train", "en", 1),
    ("xcopa/et/val.et.jsonl", CHOICE, "xcopa", "dev", "et", 1),
    ("sib200/eng_Latn/train.tsv", TOPICS, "sib200", "train", "en", 2),
    ("sib200/data/arb_Latn/dev.tsv.gz", TOPICS, "sib200", "dev", "ar-Latn", 2),
    ("sib-200/data/annotated/zho_Hant/test.tsv", TOPICS, "sib200", "test", "zh-Hant", 2),
    ("belebele/data/swh_Latn.jsonl", QUESTION, "belebele", "test", "sw", 1),
    ("RACE/train/high/1.txt", RACE, "race", "train", "en", 1),
    ("massive/1.0/data/sw-KE.jsonl", INTENT, "massive-intents", "dev", "sw", 1),
    ("massive/data/sw-KE.jsonl.gz", INTENT, "massive-slots", "dev", "sw", 1),
    ("udpos/train-en.tsv", POS, "udpos", "train", "en", 1),
    ("udpos/test-fi.tsv", "Rome\n.\n", "udpos", "test", "fi", 1),
    ("panx/train-en.tsv", NER, "panx", "train", "en", 2),
    ("panx/test-th.tsv.gz", NER, "panx", "test", "th", 2),
    ("panx/panx_dataset/sw/dev", "sw:Rome\tB-LOC\n", "panx", "dev", "sw", 1),
    ("squad/train-v1.1.json", SQUAD, "squad", "train", "en", 1),
    ("squad/dev-v1.1.json.gz", SQUAD, "squad", "dev", "en", 1),
    ("squad2/train-v2.0.json", UNANSWERED, "squad2", "train", "en", 1),
    ("squad/dev-v2.0.json", SQUAD, "squad2", "dev", "en", 1),
    ("xquad/xquad.th.json", SQUAD, "xquad", "test", "th", 1),
    ("mlqa/MLQA_V1/test/test-context-vi-question-vi.json", SQUAD, "mlqa", "test", "vi", 1),
    ("mlqa/MLQA_V1/test/test-context-vi-question-hi.json", SQUAD, "mlqa", "test", "vi-hi", 1),
    ("tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.en.train.json", SQUAD, "tydiqa", "train", "en", 1),
    ("tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.te.dev.json", SQUAD, "tydiqa", "dev", "te", 1),
    ("squad-it/SQuAD_it-train.json", SQUAD, "squad-it", "train", "it", 1),
    ("cmrc2018/cmrc2018_train.json", SQUAD, "cmrc2018", "train", "zh", 1),
]
EXAMPLE_TYPES = {"classification": ClassificationExample, "tagging": TaggingExample, "qa": QAExample}


@pytest.mark.filterwarnings("ignore:.*rows with missing columns")
@pytest.mark.parametrize(("file", "text", "name", "split", "language", "examples"), OFFICIAL, ids=lambda v: str(v)[:40])
def test_official_files_are_found_and_read(
    put: Put, tmp_path: Path, file: str, text: str, name: str, split: str, language: str, examples: int
) -> None:
    put(file, text)
    dataset = get_dataset(name)
    assert dataset.languages(tmp_path, split) == [language]
    read = dataset.read(tmp_path, split, language)
    assert len(read) == examples
    assert all(isinstance(example, EXAMPLE_TYPES[dataset.task_type]) for example in read)


@pytest.mark.parametrize(
    ("file", "text", "name", "language"),
    [
        ("xnli/translate-train/en-sw-translated.tsv", "a\tb\tneno\tsentensi\tcontradictory\n", "xnli", "sw"),
        ("xnli/translated/en-sw-translated.tsv", "neno\tsentensi\tneutral\n", "xnli", "sw"),
        (
            "xnli/XNLI-MT-1.0/multinli/multinli.train.ur.tsv",
            "premise\thypo\tlabel\na\tb\tcontradictory\n",
            "xnli",
            "ur",
        ),
        ("pawsx/x-final/de/translated_train.tsv", "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n", "pawsx", "de"),
        ("pawsx/translate-train/en-ja-translated.tsv", "a\tb\tc\td\t1\n", "pawsx", "ja"),
        ("squad/translate-train/squad.translate.train.en-th.json", SQUAD, "xquad", "th"),
        ("squad/translate-train/squad.translate.train.en-vi.json.gz", SQUAD, "mlqa", "vi"),
        ("tydiqa/translate-train/tydiqa.translate.train.en-te.json", SQUAD, "tydiqa", "te"),
        ("belebele/translated/swh_Latn/train.jsonl", QUESTION, "belebele", "sw"),
        ("massive/1.1/data/sw-KE.jsonl", INTENT.replace("dev", "train"), "massive-slots", "sw"),
    ],
)
def test_training_translations_are_found(
    put: Put, tmp_path: Path, file: str, text: str, name: str, language: str
) -> None:
    put(file, text)
    _, translated = get_dataset(name).read_translated_training(tmp_path)
    assert [(code, len(examples)) for code, examples in translated.items()] == [(language, 1)]


def test_training_splits_that_translate_each_other_serve_translate_train(put: Put, tmp_path: Path) -> None:
    for code in ("eng_Latn", "swh_Latn", "tha_Thai"):
        put(f"sib200/{code}/train.tsv", TOPICS)
    name, translated = get_dataset("sib200").read_translated_training(tmp_path)
    assert (name, [*translated]) == ("sib200", ["en", "sw", "th"])
    assert translated["th"][0].texts == ('It is "hot".',)


def test_every_entry_is_consistent() -> None:
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert all(METRICS[metric] for metric in dataset.metrics)
        labels = [METRICS[metric].label for metric in dataset.metrics]
        assert len(set(labels)) == len(labels), f"{name}: two metrics have the same label"
        assert all(other in DATASETS for other in (*dataset.training_sets, *dataset.dev_sets))
        assert bool(dataset.labels) != (dataset.task_type == "qa" or dataset.is_regression)


def test_the_documentation_lists_every_metric_and_the_check_of_every_dataset() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "datasets.md").read_text(encoding="utf-8")
    table = text.partition("| data set | files | examples | check |")[2].splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table]
    assert [row[0].strip("`") for row in cells] == [*DATASETS]
    assert all(row[2] and row[3] for row in cells)
    metrics = text.partition("## Metrics")[2].partition("## Default settings")[0]
    assert all(f"`{name}`" in metrics for name in METRICS)


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(BadInput, match="task=xnly: no such task; did you mean 'xnli'"):
        get_dataset("xnly")


# ---- The real folder, with the counts of its README ---------------------------------------------------------------


def counts(text: str) -> dict[str, int]:
    """Parse `de 1 en fr 2`: a number applies to all codes before it."""
    by_language: dict[str, int] = {}
    pending: list[str] = []
    for word in text.split():
        if word.isdigit():
            by_language |= dict.fromkeys(pending, int(word))
            pending = []
        else:
            pending.append(word)
    return by_language


XNLI = "ar bg de en es fr hi ru sw th vi zh ko"
PANX = "af az bn hi kk ml mr ms sw te tl ur 1000 gu jv my pa qu yo 100 " + (
    "ar bg de en es et fa fi fr he hu id it ja ka ko lt nl pl pt ro ru tr uk zh 10000"
)
REAL = [
    ("xnli", "dev", f"{XNLI} 2490"),
    ("xnli", "test", f"{XNLI} 5010"),
    ("mnli-subset", "train", "en 10000"),
    ("mnli-subset", "dev", "en 10000"),
    ("cad-nli", "train", "en 8330"),
    ("cad-nli", "dev", "en 1000"),
    ("cad-nli", "test", "en 2000"),
    ("sick", "train", "en 4500"),
    ("sick", "dev", "en 500"),
    ("sick", "test", "en 4927"),
    ("ocnli", "train", f"zh {10000 - 15}"),  # without rows that annotators disagree on
    ("ocnli", "dev", f"zh {3000 - 50}"),
    ("americasnli", "dev", "ay bzd gn hch quy tar 743 cni 658 oto 222"),
    ("americasnli", "test", "ay bzd gn hch quy tar cni 750 oto 748"),
    ("pawsx", "dev", "de en es fr ko zh 2000"),
    ("pawsx", "test", "de en es fr ko zh 2000"),
    ("korsts", "train", "ko 5749"),
    ("korsts", "dev", "ko 1500"),
    ("korsts", "test", "ko 1379"),
    ("xquad", "test", "ar de en es hi ro ru tr vi zh 1190"),
    ("mlqa", "dev", "en 1148 ar ar-en en-ar 517 de de-en en-de 512 es es-en en-es 500 hi hi-en en-hi 507"
     " zh zh-en en-zh 504"),
    ("mlqa", "test", "de-es es-de 1776 de-zh zh-de 1621 es-zh zh-es 1947"),
    ("tydiqa", "train", "en 3696 ko 1625 sw 2755"),
    ("tydiqa", "dev", "ar 921 bn 113 en 440 id 565 ko 276 ru 812 sw 499"),
    ("squad-subset", "train", "en 7228"),
    ("squad-it", "test", "it 7609"),
    ("cmrc2018", "dev", "zh 3219"),
    ("udpos", "train", "en 21787"),
    ("udpos", "dev", "en 3974"),
    ("udpos", "test", "af 425 ar 1680 bg 1116 el 456 en 5440 es 3147 et 4127 eu 1799 fa 2055 fr 5013 hi 2684 hu 449"
     " id 1931 it 3518 ja 2365 kk 1047 ko 4276 mr 47 nl 1471 pt 2680 ru 8973 ta 654 te 146 th 1000 tl 222 ur 535"
     " vi 800 yo 318 zh 3455"),
    ("ud", "train", "en 12544"),
    ("ud", "dev", "en 2001"),
    ("ud", "test", f"af 425 zh 500 nl 596 en {2077 + 1000} fr 416 de 977 id 557 ja 543 kk 1047 ko 989 mr 47 fa 600"
     " pt 1200 ru 601 es 427 tl 128 te 146 vi 800 yo 317 ar hi th 1000 eu 1799 bg 1116 el 456 hu 449 it 482 ta 120"
     " et 3207 ur 535"),
    ("panx", "train", "en 20000"),
    ("panx", "dev", PANX),
    ("panx", "test", "en de fr nl pt 10000"),
    ("wikineural", "test", "de 12372 en 11597 es 9618 fr 12678 ru 11580"),
    ("masakhaner", "train", "sw 2109 yo 2171"),
    ("masakhaner", "dev", "sw 300 yo 305"),
    ("masakhaner", "test", "ha 552 ig 638 rw 605 lg 407 luo 186 pcm 600 sw 604 yo 645"),
    ("conll2002", "dev", "es 1915 nl 2895"),
    ("conll2002", "test", "es 1517 nl 5195"),
    ("cola", "train", "en 8551"),
    ("cola", "dev", "en 1043"),
    ("cola", "test", "en 1063"),
    ("sst2", "train", "en 67349"),
    ("sst2", "dev", "en 872"),
    ("sst2", "test", "en 1821"),
    ("stsb", "train", "en 5749"),
    ("stsb", "dev", "en 1500"),
    ("stsb", "test", "en 1379"),
    ("rte", "train", "en 2490"),
    ("rte", "dev", "en 277"),
    ("rte", "test", "en 3000"),
    ("mrpc", "train", "en 3667"),
    ("mrpc", "dev", "en 408"),
    ("mrpc", "test", "en 1725"),
    ("qnli", "dev", "en 5463"),
    ("qnli", "test", "en 5463"),
    ("wnli", "train", "en 635"),
    ("wnli", "dev", "en 71"),
    ("wnli", "test", "en 146"),
    ("chemprot", "train", "en 4169"),
    ("chemprot", "dev", "en 2427"),
    ("chemprot", "test", "en 3469"),
    ("xcopa", "dev", "ht id it qu sw ta th tr vi zh 100"),
    ("xcopa", "test", "ht id it qu sw ta th tr vi zh 500"),
]  # fmt: skip
UNLABELED = {"cola", "sst2", "stsb", "rte", "mrpc", "qnli", "wnli", "mlqa"}  # test splits without labels


@pytest.mark.filterwarnings("ignore:.*not at their answer_start")
@pytest.mark.parametrize(("name", "split", "expected"), REAL, ids=[f"{name}-{split}" for name, split, _ in REAL])
def test_the_real_files_have_the_expected_counts(real_data: Path, name: str, split: str, expected: str) -> None:
    dataset = DATASETS[name]
    assert dataset.languages(real_data, split) == sorted(counts(expected))
    for language, size in counts(expected).items():
        examples = dataset.read(real_data, split, language)
        assert len(examples) == size, language
        assert len({example.id for example in examples}) == size, language
        if name in UNLABELED and split == "test":
            with pytest.raises(BadInput, match=r"has no labels\. Add a labeled file"):
                dataset.gold_labels(examples, split, language)


def test_every_real_file_is_read(real_data: Path) -> None:
    """Except those of retrieval, mining, word alignment and translation, which have no labeled examples."""
    others = {"tatoeba", "bucc2018", "word-alignment", "multi30k", "iwslt15-en-vi"}
    files = {file for file in real_data.rglob("*.*") if file.is_file() and file.stem.lower() != "readme"}
    files = {file for file in files if file.relative_to(real_data).parts[0] not in others}
    read = {
        file
        for dataset in DATASETS.values()
        for pattern in dataset.patterns
        for split in pattern.splits
        for matches in pattern.find(real_data, split).values()
        for file in matches
    }
    assert {file.with_name(file.name.removesuffix(".gz")) for file in files} == read


def test_unlabeled_real_files_are_not_scored(real_data: Path) -> None:
    with pytest.warns(UserWarning, match="tydiqa: no labels in ar, bn, en, id, ru; not scored"):
        assert DATASETS["tydiqa"].scorable_languages(real_data) == ["ko", "sw"]
    assert DATASETS["tydiqa"].read_test(real_data, "sw")[0] == "train"
    assert DATASETS["pawsx"].read_test(real_data, "en")[0] == "dev"
    assert DATASETS["pawsx"].read_test(real_data, "de")[0] == "test"
    with pytest.raises(BadInput, match="the test split of mlqa for language 'de-es' has no labels"):
        DATASETS["mlqa"].read_test(real_data, "de-es")


@pytest.mark.filterwarnings("ignore:.*(not at their answer_start|no labels in)")
@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("panx", "ud", "xnli", "wikineural")])
def test_gold_labels_score_100(real_data: Path, name: str) -> None:
    dataset = DATASETS[name]
    for language in dataset.scorable_languages(real_data)[:3]:
        split, examples = dataset.read_test(real_data, language)
        gold = dataset.gold_labels(examples, split, language)
        predicted = [answers[0] for answers in gold] if dataset.task_type == "qa" else gold
        for metric in dataset.metrics:
            assert METRICS[metric].score(gold, predicted, language) == pytest.approx(100, abs=0.5), (language, metric)


def test_misplaced_real_answers_are_counted(real_data: Path) -> None:
    with pytest.warns(UserWarning, match="7 were found nearby, 193 are not in the context"):
        DATASETS["cmrc2018"].read(real_data, "dev", "zh")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DATASETS["xquad"].read(real_data, "test", "zh")
