"""All benchmark data sets by name: XTREME's, GLUE's and others, in the file formats they are published in.

To add a data set, add ONE entry to a list below: `_CLASSIFICATION`, `_GLUE`, `_TAGGING` or `_QA`. It names the files
(`FilePattern` with a reader of `readers.py`) and the labels; metrics, training data and hyperparameters only if they
differ from the default. For sentence pairs with a label in three columns, one file per split and language:

    _classification("name", FilePattern("name/{split}-{language}.tsv", TableReader((0, 1), 2)), labels=("0", "1")),

Everything else finds the data set by its name in `DATASETS`. docs/reference/datasets.md is
generated from the entries.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

from crossling.core.errors import BadInput, suggestion
from crossling.tasks import hyperparameters as hp
from crossling.tasks import massive
from crossling.tasks.dataset import ALL_SPLITS, BenchmarkDataset, FilePattern, Reader, TaskType
from crossling.tasks.label_sets import CHEMPROT, SIB200, UPOS
from crossling.tasks.readers import ColumnReader, JsonLinesReader, TableReader, read_conllu, read_squad
from crossling.tasks.reading_comprehension import BELEBELE_FILES, CHOICES, RACE_FILES, read_belebele

TRAIN, DEV, TEST = ({split: split} for split in ("train", "dev", "test"))
TRAIN_AND_DEV, DEV_AND_TEST = TRAIN | DEV, DEV | TEST

NLI = ("contradiction", "entailment", "neutral")
BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")


def get_dataset(name: str) -> BenchmarkDataset:
    """Return the data set with this name. Raise BadInput if there is none."""
    check_task(name, DATASETS)
    return DATASETS[name]


USUAL_NAMES = {  # of tasks, by one of our data sets for them
    "panx": "ner wikiann tagging",
    "udpos": "pos pos-tagging ud",
    "xnli": "nli inference",
    "massive-intents": "massive massive-intent intents intent-classification",
    "massive-slots": "massive-slot slots slot-filling",
    "sib200": "sib-200 sib topics topic-classification",
    "belebele": "reading reading-comprehension multiple-choice",
    "xquad": "qa squad question-answering",
    "pawsx": "paraphrase paws",
    "tatoeba": "retrieval sentence-retrieval",
    "bucc2018": "bucc mining bitext-mining",
    "word-alignment": "alignment align aer word_alignment",
    "translation": "mt translate nmt",
}


def check_task(task: str, known: Collection[str]) -> None:
    """Raise BadInput if a task is not among the known ones."""
    if task not in known:
        usual = next(
            (ours for ours, names in USUAL_NAMES.items() if task.lower() in names.split() and ours in known), ""
        )
        hint = f"; did you mean {usual!r}?" if usual else suggestion(task, known)
        raise BadInput(f"task={task}: no such task{hint or '; valid: ' + ', '.join(known)}")


def _dataset(
    task_type: TaskType,
    name: str,
    *patterns: FilePattern,
    translations: tuple[FilePattern, ...] = (),
    parallel: bool = False,  # the training split of each language translates that of English
    **options: Any,
) -> BenchmarkDataset:
    """Return a data set. Its translations are those of the training split and those of the dev and test splits."""
    own = tuple(replace(pattern, splits=TRAIN) for pattern in patterns if parallel and "train" in pattern.splits)
    training = tuple(pattern for pattern in translations if "train" in pattern.splits)
    options["test_translations"] = tuple(pattern for pattern in translations if pattern not in training)
    return BenchmarkDataset(
        name=name, task_type=task_type, patterns=patterns, training_translations=training + own, **options
    )


def _translations(folder: str, suffix: str, reader: Reader, test_reader: Reader) -> tuple[FilePattern, FilePattern]:
    """Translations of all splits in our own naming scheme."""
    return (
        FilePattern(f"{folder}/translated/{{language}}/{{split}}.{suffix}", reader, splits=TRAIN),
        FilePattern(f"{folder}/translated/{{into}}/{{split}}-{{language}}.{suffix}", test_reader, splits=DEV_AND_TEST),
    )


# ---- Classification of sentences and sentence pairs ------------------------------------------------------------

_SENTENCES = ("sentence1", "sentence2")
_CONTRADICTORY = {"contradictory": "contradiction"}
_PAIR_AND_LABEL = TableReader((0, 1), label=2, aliases=_CONTRADICTORY, quoted=True)
_TRANSLATED_PAIR = TableReader((-3, -2), label=-1, aliases=_CONTRADICTORY, quoted=True)
_PAIR = TableReader((0, 1), None, quoted=True)
_PAIR_AFTER_SOURCE = TableReader((2, 3), None, quoted=True)
_GOLD_LABEL = TableReader(_SENTENCES, "gold_label", quoted=True)
_SICK = TableReader(
    ("sentence_A", "sentence_B"), "entailment_judgment", id="pair_ID", aliases={label.upper(): label for label in NLI}
)
_SICK_SPLITS = TRAIN | {"dev": "trial", "test": "test_annotated"}
_OCNLI = JsonLinesReader(_SENTENCES, skipped_label="-")
_MNLI_TRANSLATIONS = TableReader(("premise", "hypo"), "label", aliases=_CONTRADICTORY)
_PAWSX = TableReader(_SENTENCES, "label", id="id")
_PAWSX_SPLITS = TRAIN | {"dev": "dev_2k", "test": "test_2k"}
_COPA = JsonLinesReader(
    ("premise", "question"),
    id="idx",
    choices=("choice1", "choice2"),
    replacements={"cause": "What was the cause?", "effect": "What happened as a result?"},
)
_COPA_SPLITS = ALL_SPLITS | {"dev": "val"}
_MNLI = ("xnli", "mnli", "mnli-subset")
_SIB200 = tuple(
    FilePattern(f"{folder}/{{language}}/{{split}}.tsv", TableReader(("text",), "category", id="index_id", quoted=True))
    for folder in ("sib200", "sib200/data", "sib-200/data/annotated")
)
_classification = partial(
    _dataset, "classification", labels=NLI, metrics=("accuracy",), hyperparameters=hp.CLASSIFICATION_DEFAULTS
)
_reading = partial(_classification, labels=CHOICES, hyperparameters=hp.READING_DEFAULTS)


def _pair_translations(folder: str, release: FilePattern) -> tuple[FilePattern, ...]:
    """Translations of sentence pairs in our own naming scheme, in XTREME's, and in that of the release."""
    test = f"{folder}/translate-test/{{split}}-{{language}}-en-translated.tsv"
    return (
        *_translations(folder, "tsv", _PAIR_AND_LABEL, _PAIR),
        FilePattern(f"{folder}/translated/en-{{language}}-translated.tsv", _TRANSLATED_PAIR, splits=TRAIN),
        FilePattern(f"{folder}/translate-train/en-{{language}}-translated.tsv", _TRANSLATED_PAIR, splits=TRAIN),
        release,
        FilePattern(test, _PAIR_AFTER_SOURCE, splits=TEST),
    )


_CLASSIFICATION = [
    _classification(
        "xnli",
        FilePattern("xnli/{split}-{language}.tsv", _PAIR_AND_LABEL),
        FilePattern("kornli/xnli.{split}.{language}.tsv", _GOLD_LABEL, splits=DEV_AND_TEST),
        translations=_pair_translations(
            "xnli",
            FilePattern("xnli/XNLI-MT-1.0/multinli/multinli.{split}.{language}.tsv", _MNLI_TRANSLATIONS, splits=TRAIN),
        ),
        training_sets=_MNLI,
        grids=hp.XNLI,
    ),
    _classification(
        "americasnli",
        FilePattern("americasnli/{split}/{language}.tsv", TableReader(("premise", "hypothesis"), "label", id="id")),
        training_sets=_MNLI,
    ),
    _classification(
        "mnli-subset",
        FilePattern("mnli-subset/{split}-{language}.tsv", _PAIR_AND_LABEL, splits=TRAIN | {"dev": "validation"}),
    ),
    _classification("cad-nli", FilePattern("cad-nli/{split}.tsv", _GOLD_LABEL)),
    _classification("sick", FilePattern("sick/SICK_{split}.txt", _SICK, splits=_SICK_SPLITS)),
    _classification(
        "ocnli",
        FilePattern("ocnli/{split}.json", _OCNLI, splits=ALL_SPLITS | {"train": "train.10k"}, language="zh"),
        training_sets=("ocnli", *_MNLI),
    ),
    _classification(
        "pawsx",
        FilePattern("pawsx/{split}-{language}.tsv", _PAIR_AND_LABEL),
        FilePattern("pawsx/{split}-{language}.unlabelled.tsv", _PAIR, splits=TEST),
        FilePattern("pawsx/x-final/{language}/{split}.tsv", _PAWSX, splits=_PAWSX_SPLITS),
        labels=BINARY,
        translations=_pair_translations(
            "pawsx", FilePattern("pawsx/x-final/{language}/translated_{split}.tsv", _PAWSX, splits=TRAIN)
        ),
        training_sets=("pawsx", "mrpc"),
        grids=hp.PAWSX,
    ),
    _classification(
        "korsts",
        FilePattern("korsts/sts-{split}.tsv", TableReader(_SENTENCES, "score", numeric=True), language="ko"),
        labels=(),
        metrics=("spearman", "pearson"),
        training_sets=("korsts", "stsb"),
    ),
    _classification(
        "xcopa",
        FilePattern("xcopa/{language}/{split}.{language}.jsonl", _COPA, splits=_COPA_SPLITS),
        FilePattern("xcopa/{split}.{language}.jsonl", _COPA, splits=_COPA_SPLITS),
        labels=BINARY,
        translations=_translations("xcopa", "jsonl", _COPA, _COPA),
    ),
    _classification("sib200", *_SIB200, labels=SIB200, parallel=True, hyperparameters=hp.SIB200_DEFAULTS),
    _reading(
        "belebele",
        *BELEBELE_FILES,
        translations=_translations("belebele", "jsonl", read_belebele, read_belebele),
        training_sets=("belebele", "race"),
        dev_sets=("race",),
    ),
    _reading("race", *RACE_FILES),
    _classification("massive-intents", *massive.INTENT_FILES, labels=massive.INTENTS, parallel=True),
    _classification("chemprot", FilePattern("chemprot/{split}.txt", JsonLinesReader(("text",))), labels=CHEMPROT),
]


# ---- GLUE --------------------------------------------------------------------------------------------------------


_glue = partial(_classification, labels=BINARY, metrics=("glue-accuracy",))
_INDEXED = TableReader(_SENTENCES, "label", id="index")
_STSB = TableReader(_SENTENCES, "score", id="index", numeric=True)
_QQP = TableReader(("question1", "question2"), "is_duplicate", id="id", skip_short_rows=True)
_QNLI = TableReader(("question", "sentence"), "label", id="index")
_MNLI_TABLE = TableReader(_SENTENCES, "gold_label", id="index", skipped_label="-")
_mnli = partial(_glue, labels=NLI, training_sets=("mnli", "mnli-subset"))
_MATCHED = TRAIN | {"dev": "dev_matched", "test": "test_matched"}
_MISMATCHED = {"dev": "dev_mismatched", "test": "test_mismatched"}
_GLUE = [
    _glue(
        "cola",
        FilePattern("glue/CoLA/{split}.tsv", TableReader((3,), 1), splits=TRAIN_AND_DEV),
        FilePattern(
            "glue/CoLA/{split}.tsv", TableReader(("sentence",), None, id="index")
        ),  # the test file has a header
        metrics=("matthews", "glue-accuracy"),
    ),
    _glue("sst2", FilePattern("glue/SST-2/{split}.tsv", TableReader(("sentence",), "label"))),
    _glue(
        "mrpc",
        FilePattern("glue/MRPC/{split}.tsv", TableReader(("#1 String", "#2 String"), "Quality")),
        metrics=("glue-accuracy", "glue-f1"),
    ),
    _glue("qqp", FilePattern("glue/QQP/{split}.tsv", _QQP), metrics=("glue-accuracy", "glue-f1")),
    _glue("stsb", FilePattern("glue/STS-B/{split}.tsv", _STSB), labels=(), metrics=("spearman", "pearson")),
    # RTE is another task with the same labels.
    _glue("qnli", FilePattern("glue/QNLI/{split}.tsv", _QNLI), labels=ENTAILMENT, training_sets=("qnli", "rte")),
    _glue("rte", FilePattern("glue/RTE/{split}.tsv", _INDEXED), labels=ENTAILMENT),
    _glue("wnli", FilePattern("glue/WNLI/{split}.tsv", _INDEXED)),
    _mnli("mnli", FilePattern("glue/MNLI/{split}.tsv", _MNLI_TABLE, splits=_MATCHED)),
    _mnli("mnli-mismatched", FilePattern("glue/MNLI/{split}.tsv", _MNLI_TABLE, splits=_MISMATCHED)),
]


# ---- Tagging: POS and NER ----------------------------------------------------------------------------------------

_WORD_AND_TAG = ColumnReader()
_CONLL2002 = ColumnReader(width=3, separator=" ")
_CONLL2002_SPLITS = TRAIN | {"dev": "testa", "test": "testb"}
_CONLL2002_CODES = {"esp": "es", "ned": "nl"}
_tagging = partial(_dataset, "tagging", metrics=("chunk-f1", "token-accuracy"), hyperparameters=hp.TAGGING_DEFAULTS)
_ner = partial(_tagging, metrics=("chunk-f1", "strict-chunk-f1", "token-accuracy"))  # tags are IOB2


def _bio(*entity_types: str) -> tuple[str, ...]:
    return ("O", *(f"{prefix}-{entity_type}" for entity_type in entity_types for prefix in "BI"))


_TAGGING = [
    _tagging(
        "udpos",
        FilePattern("udpos/{split}-{language}.tsv", _WORD_AND_TAG),
        labels=UPOS,
        translations=_translations("udpos", "tsv", _WORD_AND_TAG, _WORD_AND_TAG),
        training_sets=("udpos", "ud"),
        grids=hp.POS,
    ),
    _tagging(
        "ud",
        FilePattern("ud/UD_*/{language}_*-ud-{split}.conllu", read_conllu),
        labels=UPOS,
        training_sets=("ud", "udpos"),
        grids=hp.POS,
    ),
    _ner(
        "panx",
        FilePattern("panx/{split}-{language}.tsv", _WORD_AND_TAG),
        FilePattern("panx/panx_dataset/{language}/{split}", ColumnReader(language_prefix=True)),
        labels=_bio("LOC", "ORG", "PER"),
        translations=_translations("panx", "tsv", _WORD_AND_TAG, _WORD_AND_TAG),
        grids=hp.NER,
    ),
    _tagging(
        "massive-slots",
        *massive.SLOT_FILES,
        labels=massive.SLOTS,
        metrics=("slot-f1", "slot-exact-match"),
        parallel=True,
    ),
    # NER data sets without English training data use PAN-X.
    _ner(
        "wikineural",
        FilePattern("wikineural/{language}/{split}.conllu", ColumnReader(word=1, width=3)),
        labels=_bio("LOC", "MISC", "ORG", "PER"),
        training_sets=("wikineural", "panx"),
    ),
    _ner(
        "masakhaner",
        FilePattern("masakhaner/{language}/{split}.txt", ColumnReader(separator=" ")),
        labels=_bio("DATE", "LOC", "ORG", "PER"),
        training_sets=("masakhaner", "panx"),
    ),
    _ner(
        "conll2002",
        FilePattern("conll2002/{language}.{split}", _CONLL2002, splits=_CONLL2002_SPLITS, codes=_CONLL2002_CODES),
        labels=_bio("LOC", "MISC", "ORG", "PER"),
        training_sets=("conll2002", "panx"),
    ),
]


# ---- Question answering ------------------------------------------------------------------------------------------

_SQUAD = ("squad", "squad-subset")
_qa = partial(
    _dataset,
    "qa",
    metrics=("squad-f1", "squad-exact-match", "characters-f1"),
    hyperparameters=hp.QA_DEFAULTS,
    training_sets=_SQUAD,
    dev_sets=("squad", "mlqa"),
)
_squad_files = partial(FilePattern, read=read_squad)

_QA = [
    _qa(
        "xquad",
        _squad_files("xquad/xquad.{language}.json", splits=TEST),
        _squad_files("xquad/{split}-{language}.json"),
        training_sets=("xquad", *_SQUAD),
        translations=(
            *_translations("xquad", "json", read_squad, read_squad),
            _squad_files("xquad/translate-test/xquad.translate.{split}.{language}-en.json", splits=TEST),
        ),
        grids=hp.XQUAD,
    ),
    _qa(
        "mlqa",
        _squad_files("mlqa/{split}/{split}-context-{language}-question-{question}.json"),
        _squad_files("mlqa/MLQA_V1/{split}/{split}-context-{language}-question-{question}.json"),
        translations=(
            _squad_files(
                "mlqa/translated/{into}/{split}-context-{language}-question-{question}.json", splits=DEV_AND_TEST
            ),
            _squad_files("mlqa/translate-test/mlqa.translate.{split}.{language}-en.json", splits=TEST),
        ),
        metrics=("mlqa-f1", "mlqa-exact-match", "characters-f1"),
        grids=hp.MLQA,
    ),
    _qa(
        "tydiqa",
        _squad_files("tydiqa-goldp/{split}/tydiqa.goldp.{language}.{split}.json"),
        _squad_files("tydiqa/tydiqa-goldp-v1.1-{split}/tydiqa.goldp.{language}.{split}.json"),
        training_sets=("tydiqa",),
        translations=(
            _squad_files("tydiqa/translate-train/tydiqa.translate.{split}.en-{language}.json", splits=TRAIN),
            _squad_files("tydiqa/translated/{into}/{split}-{language}.json", splits=DEV_AND_TEST),
        ),
        grids=hp.TYDIQA,
    ),
    _qa(
        "squad",
        _squad_files("squad/{split}-v1.1.json", splits=TRAIN_AND_DEV),
        translations=(
            _squad_files("squad/translate-train/squad.translate.{split}.en-{language}.json", splits=TRAIN),
            _squad_files("squad/translated/{into}/{split}-{language}.json", splits=DEV_AND_TEST),
            _squad_files("squad/translate-dev/squad.translate.{split}.en-{into}.json", splits=DEV),
        ),
    ),
    _qa("squad-subset", _squad_files("squad-subset/{split}-v1.1.subset.json", splits=TRAIN)),
    _qa(
        "squad2",
        _squad_files("squad2/{split}-v2.0.json", splits=TRAIN_AND_DEV),
        _squad_files("squad/{split}-v2.0.json", splits=TRAIN_AND_DEV),
        metrics=("squad2-f1", "squad2-exact-match"),
        training_sets=("squad2",),
        dev_sets=(),
    ),
    _qa(
        "squad-it",
        _squad_files("squad-it/SQuAD_it-{split}.json", splits=TRAIN | TEST, language="it"),
        training_sets=("squad-it", *_SQUAD),
    ),
    _qa(
        "cmrc2018",
        _squad_files("cmrc2018/cmrc2018_{split}.json", splits=TRAIN_AND_DEV, language="zh"),
        metrics=("cmrc-f1", "cmrc-exact-match", "characters-f1"),
        training_sets=("cmrc2018", *_SQUAD),
    ),
]

DATASETS: dict[str, BenchmarkDataset] = {
    dataset.name: dataset for dataset in [*_CLASSIFICATION, *_GLUE, *_TAGGING, *_QA]
}
