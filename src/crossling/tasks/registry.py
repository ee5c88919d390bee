"""All benchmark data sets by name: XTREME's, GLUE's and others, in the file formats they are published in.

To add a data set, add ONE entry to a list below: `_NLI`, `_PARAPHRASE`, `_OTHER_CLASSIFICATION`, `_GLUE`, `_TAGGING` or
`_QA`. It names the files (`FilePattern` with a reader of `readers.py`) and the labels; metrics, training data and
hyperparameters only if they differ from the default. Everything else finds the data set by its name in `DATASETS`. A
test compares the names with docs/benchmarks.md.
"""

from __future__ import annotations

from typing import Any

from crossling.core.errors import BadInput, suggestion
from crossling.tasks import hyperparameters as hp
from crossling.tasks.dataset import ALL_SPLITS, BenchmarkDataset, FilePattern, Reader
from crossling.tasks.readers import ColumnReader, JsonLinesReader, TableReader, read_conllu, read_squad

TRAIN_AND_DEV = {"train": "train", "dev": "dev"}
TRAIN, DEV, TEST = ({split: split} for split in ("train", "dev", "test"))
DEV_AND_TEST = {"dev": "dev", "test": "test"}

NLI = ("contradiction", "entailment", "neutral")
BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
    "SYM", "VERB", "X",
)  # fmt: skip
CHEMPROT = (
    "ACTIVATOR", "AGONIST", "AGONIST-ACTIVATOR", "AGONIST-INHIBITOR", "ANTAGONIST", "DOWNREGULATOR",
    "INDIRECT-DOWNREGULATOR", "INDIRECT-UPREGULATOR", "INHIBITOR", "PRODUCT-OF", "SUBSTRATE", "SUBSTRATE_PRODUCT-OF",
    "UPREGULATOR",
)  # fmt: skip


def get_dataset(name: str) -> BenchmarkDataset:
    """Return the data set with this name. Raise BadInput if there is none."""
    if name not in DATASETS:
        raise BadInput(f"{name!r}: no such data set{suggestion(name, DATASETS)}")
    return DATASETS[name]


def _test_translations(folder: str, reader: Reader, suffix: str, name: str = "{split}-{language}") -> FilePattern:
    """Translations of the dev and test splits in our own naming scheme."""
    return FilePattern(f"{folder}/translated/{{into}}/{name}.{suffix}", reader, splits=DEV_AND_TEST)


# ---- Classification of sentences and sentence pairs ------------------------------------------------------------

_PAIR_AND_LABEL = TableReader(texts=(0, 1), label=2, aliases={"contradictory": "contradiction"}, quoted=True)
_TRANSLATED_PAIR_AND_LABEL = TableReader(
    texts=(-3, -2), label=-1, aliases={"contradictory": "contradiction"}, quoted=True
)
_PAIR = TableReader((0, 1), None, quoted=True)
_PAIR_AFTER_SOURCE = TableReader((2, 3), None, quoted=True)
_GOLD_LABEL = TableReader(texts=("sentence1", "sentence2"), label="gold_label", quoted=True)
_UPPERCASE_NLI = {label.upper(): label for label in NLI}
_MNLI = ("xnli", "mnli", "mnli-subset")


def _classification(
    name: str, *patterns: FilePattern, labels: tuple[str, ...] = NLI, **options: Any
) -> BenchmarkDataset:
    defaults: dict[str, Any] = {"metrics": ("accuracy",), "hyperparameters": hp.CLASSIFICATION_DEFAULTS}
    return BenchmarkDataset(
        name=name, task_type="classification", patterns=patterns, labels=labels, **defaults | options
    )


_NLI = [
    _classification(
        "xnli",
        FilePattern("xnli/{split}-{language}.tsv", _PAIR_AND_LABEL),
        FilePattern("kornli/xnli.{split}.{language}.tsv", _GOLD_LABEL, splits=DEV_AND_TEST),
        training_translations=(
            FilePattern("xnli/translated/{language}/{split}.tsv", _PAIR_AND_LABEL, splits=TRAIN),
            FilePattern("xnli/translated/en-{language}-translated.tsv", _TRANSLATED_PAIR_AND_LABEL, splits=TRAIN),
            FilePattern("xnli/translate-train/en-{language}-translated.tsv", _TRANSLATED_PAIR_AND_LABEL, splits=TRAIN),
            FilePattern(
                "xnli/XNLI-MT-1.0/multinli/multinli.{split}.{language}.tsv",
                TableReader(("premise", "hypo"), "label", aliases={"contradictory": "contradiction"}),
                splits=TRAIN,
            ),
        ),
        test_translations=(
            _test_translations("xnli", _PAIR, "tsv"),
            FilePattern("xnli/translate-test/{split}-{language}-en-translated.tsv", _PAIR_AFTER_SOURCE, splits=TEST),
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
        FilePattern(
            "mnli-subset/{split}-{language}.tsv", _PAIR_AND_LABEL, splits={"train": "train", "dev": "validation"}
        ),
    ),
    _classification("cad-nli", FilePattern("cad-nli/{split}.tsv", _GOLD_LABEL)),
    _classification(
        "sick",
        FilePattern(
            "sick/SICK_{split}.txt",
            TableReader(("sentence_A", "sentence_B"), "entailment_judgment", id="pair_ID", aliases=_UPPERCASE_NLI),
            splits={"train": "train", "dev": "trial", "test": "test_annotated"},
        ),
    ),
    _classification(
        "ocnli",
        FilePattern(
            "ocnli/{split}.json",
            JsonLinesReader(("sentence1", "sentence2"), skipped_label="-"),
            splits={"train": "train.10k", "dev": "dev", "test": "test"},
            language="zh",
        ),
        training_sets=("ocnli", *_MNLI),
    ),
]
_PAWSX_RELEASE = TableReader(("sentence1", "sentence2"), "label", id="id")
_PARAPHRASE = [
    _classification(
        "pawsx",
        FilePattern("pawsx/{split}-{language}.tsv", _PAIR_AND_LABEL),
        FilePattern("pawsx/{split}-{language}.unlabelled.tsv", _PAIR, splits=TEST),
        FilePattern(
            "pawsx/x-final/{language}/{split}.tsv",
            _PAWSX_RELEASE,
            splits={"train": "train", "dev": "dev_2k", "test": "test_2k"},
        ),
        labels=BINARY,
        training_translations=(
            FilePattern("pawsx/translated/{language}/{split}.tsv", _PAIR_AND_LABEL, splits=TRAIN),
            FilePattern("pawsx/translated/en-{language}-translated.tsv", _TRANSLATED_PAIR_AND_LABEL, splits=TRAIN),
            FilePattern("pawsx/translate-train/en-{language}-translated.tsv", _TRANSLATED_PAIR_AND_LABEL, splits=TRAIN),
            FilePattern("pawsx/x-final/{language}/translated_{split}.tsv", _PAWSX_RELEASE, splits=TRAIN),
        ),
        test_translations=(
            _test_translations("pawsx", _PAIR, "tsv"),
            FilePattern("pawsx/translate-test/{split}-{language}-en-translated.tsv", _PAIR_AFTER_SOURCE, splits=TEST),
        ),
        training_sets=("pawsx", "mrpc"),
        grids=hp.PAWSX,
    ),
    _classification(
        "korsts",
        FilePattern(
            "korsts/sts-{split}.tsv", TableReader(("sentence1", "sentence2"), "score", numeric=True), language="ko"
        ),
        labels=(),
        metrics=("spearman", "pearson"),
        training_sets=("korsts", "stsb"),
    ),
]
_COPA = JsonLinesReader(
    ("premise", "question"),
    id="idx",
    choices=("choice1", "choice2"),
    replacements={"cause": "What was the cause?", "effect": "What happened as a result?"},
)
_COPA_SPLITS = {"train": "train", "dev": "val", "test": "test"}
_OTHER_CLASSIFICATION = [
    _classification(
        "xcopa",
        FilePattern("xcopa/{language}/{split}.{language}.jsonl", _COPA, splits=_COPA_SPLITS),
        FilePattern("xcopa/{split}.{language}.jsonl", _COPA, splits=_COPA_SPLITS),
        labels=BINARY,
        training_translations=(FilePattern("xcopa/translated/{language}/{split}.jsonl", _COPA, splits=TRAIN),),
        test_translations=(_test_translations("xcopa", _COPA, "jsonl"),),
    ),
    _classification("chemprot", FilePattern("chemprot/{split}.txt", JsonLinesReader(("text",))), labels=CHEMPROT),
]


# ---- GLUE --------------------------------------------------------------------------------------------------------


def _glue(
    name: str, file: str, reader: TableReader, *more: FilePattern, labels: tuple[str, ...] = BINARY, **options: Any
) -> BenchmarkDataset:
    splits = options.pop("splits", ALL_SPLITS)
    patterns = (*more, FilePattern(f"glue/{file}/{{split}}.tsv", reader, splits=splits))
    return _classification(name, *patterns, labels=labels, **{"metrics": ("glue-accuracy",)} | options)


_SENTENCES = ("sentence1", "sentence2")
_MNLI_TABLE = TableReader(_SENTENCES, "gold_label", id="index", skipped_label="-")
_GLUE = [
    _glue(
        "cola",
        "CoLA",
        TableReader(("sentence",), None, id="index"),  # the test file; the others have no header
        FilePattern("glue/CoLA/{split}.tsv", TableReader((3,), 1), splits=TRAIN_AND_DEV),
        metrics=("matthews", "glue-accuracy"),
    ),
    _glue("sst2", "SST-2", TableReader(("sentence",), "label")),
    _glue("mrpc", "MRPC", TableReader(("#1 String", "#2 String"), "Quality"), metrics=("glue-accuracy", "glue-f1")),
    _glue(
        "qqp",
        "QQP",
        TableReader(("question1", "question2"), "is_duplicate", id="id", skip_short_rows=True),
        metrics=("glue-accuracy", "glue-f1"),
    ),
    _glue(
        "stsb",
        "STS-B",
        TableReader(_SENTENCES, "score", id="index", numeric=True),
        labels=(),
        metrics=("spearman", "pearson"),
    ),
    _glue(
        "qnli",
        "QNLI",
        TableReader(("question", "sentence"), "label", id="index"),
        labels=ENTAILMENT,
        training_sets=("qnli", "rte"),  # RTE is another task with the same labels
    ),
    _glue("rte", "RTE", TableReader(_SENTENCES, "label", id="index"), labels=ENTAILMENT),
    _glue("wnli", "WNLI", TableReader(_SENTENCES, "label", id="index")),
    _glue(
        "mnli",
        "MNLI",
        _MNLI_TABLE,
        labels=NLI,
        splits={"train": "train", "dev": "dev_matched", "test": "test_matched"},
        training_sets=("mnli", "mnli-subset"),
    ),
    _glue(
        "mnli-mismatched",
        "MNLI",
        _MNLI_TABLE,
        labels=NLI,
        splits={"dev": "dev_mismatched", "test": "test_mismatched"},
        training_sets=("mnli", "mnli-subset"),
    ),
]


# ---- Tagging: POS and NER ----------------------------------------------------------------------------------------

_WORD_AND_TAG = ColumnReader()


def _tagging(name: str, *patterns: FilePattern, labels: tuple[str, ...], **options: Any) -> BenchmarkDataset:
    defaults: dict[str, Any] = {
        "metrics": ("chunk-f1", "token-accuracy"),
        "hyperparameters": hp.TAGGING_DEFAULTS,
    }
    return BenchmarkDataset(name=name, task_type="tagging", patterns=patterns, labels=labels, **defaults | options)


def _bio(*entity_types: str) -> tuple[str, ...]:
    return ("O", *(f"{prefix}-{entity_type}" for entity_type in entity_types for prefix in "BI"))


_TAGGING = [
    _tagging(
        "udpos",
        FilePattern("udpos/{split}-{language}.tsv", _WORD_AND_TAG),
        labels=UPOS,
        training_translations=(FilePattern("udpos/translated/{language}/{split}.tsv", _WORD_AND_TAG, splits=TRAIN),),
        test_translations=(_test_translations("udpos", _WORD_AND_TAG, "tsv"),),
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
    _tagging(
        "panx",
        FilePattern("panx/{split}-{language}.tsv", _WORD_AND_TAG),
        FilePattern("panx/panx_dataset/{language}/{split}", ColumnReader(language_prefix=True)),
        labels=_bio("LOC", "ORG", "PER"),
        training_translations=(FilePattern("panx/translated/{language}/{split}.tsv", _WORD_AND_TAG, splits=TRAIN),),
        test_translations=(_test_translations("panx", _WORD_AND_TAG, "tsv"),),
        grids=hp.NER,
    ),
    # NER data sets without English training data use PAN-X.
    _tagging(
        "wikineural",
        FilePattern("wikineural/{language}/{split}.conllu", ColumnReader(word=1, width=3)),
        labels=_bio("LOC", "MISC", "ORG", "PER"),
        training_sets=("wikineural", "panx"),
    ),
    _tagging(
        "masakhaner",
        FilePattern("masakhaner/{language}/{split}.txt", ColumnReader(separator=" ")),
        labels=_bio("DATE", "LOC", "ORG", "PER"),
        training_sets=("masakhaner", "panx"),
    ),
    _tagging(
        "conll2002",
        FilePattern(
            "conll2002/{language}.{split}",
            ColumnReader(width=3, separator=" "),
            splits={"train": "train", "dev": "testa", "test": "testb"},
            codes={"esp": "es", "ned": "nl"},
        ),
        labels=_bio("LOC", "MISC", "ORG", "PER"),
        training_sets=("conll2002", "panx"),
    ),
]


# ---- Question answering ------------------------------------------------------------------------------------------

_SQUAD = ("squad", "squad-subset")


def _qa(name: str, *patterns: FilePattern, **options: Any) -> BenchmarkDataset:
    defaults: dict[str, Any] = {
        "metrics": ("squad-f1", "squad-exact-match", "characters-f1"),
        "hyperparameters": hp.QA_DEFAULTS,
        "training_sets": _SQUAD,
        "dev_sets": ("squad", "mlqa"),
    }
    return BenchmarkDataset(name=name, task_type="qa", patterns=patterns, **defaults | options)


def _squad_files(pattern: str, **options: Any) -> FilePattern:
    return FilePattern(pattern, read_squad, **options)


_QA = [
    _qa(
        "xquad",
        _squad_files("xquad/xquad.{language}.json", splits=TEST),
        _squad_files("xquad/{split}-{language}.json"),
        training_sets=("xquad", *_SQUAD),
        training_translations=(_squad_files("xquad/translated/{language}/{split}.json", splits=TRAIN),),
        test_translations=(
            _test_translations("xquad", read_squad, "json"),
            _squad_files("xquad/translate-test/xquad.translate.{split}.{language}-en.json", splits=TEST),
        ),
        grids=hp.XQUAD,
    ),
    _qa(
        "mlqa",
        _squad_files("mlqa/{split}/{split}-context-{language}-question-{question}.json"),
        _squad_files("mlqa/MLQA_V1/{split}/{split}-context-{language}-question-{question}.json"),
        test_translations=(
            _test_translations("mlqa", read_squad, "json", "{split}-context-{language}-question-{question}"),
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
        training_translations=(
            _squad_files("tydiqa/translate-train/tydiqa.translate.{split}.en-{language}.json", splits=TRAIN),
        ),
        test_translations=(_test_translations("tydiqa", read_squad, "json"),),
        grids=hp.TYDIQA,
    ),
    _qa(
        "squad",
        _squad_files("squad/{split}-v1.1.json", splits=TRAIN_AND_DEV),
        training_translations=(
            _squad_files("squad/translate-train/squad.translate.{split}.en-{language}.json", splits=TRAIN),
        ),
        test_translations=(
            _test_translations("squad", read_squad, "json"),
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
        _squad_files("squad-it/SQuAD_it-{split}.json", splits={"train": "train", "test": "test"}, language="it"),
        training_sets=("squad-it", *_SQUAD),
    ),
    _qa(
        "cmrc2018",
        _squad_files("cmrc2018/cmrc2018_{split}.json", splits=TRAIN_AND_DEV, language="zh"),
        training_sets=("cmrc2018", *_SQUAD),
    ),
]

DATASETS: dict[str, BenchmarkDataset] = {
    data_set.name: data_set for data_set in [*_NLI, *_PARAPHRASE, *_OTHER_CLASSIFICATION, *_GLUE, *_TAGGING, *_QA]
}
