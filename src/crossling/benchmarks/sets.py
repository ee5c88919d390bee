"""The data sets, by the names users type: XTREME's, GLUE's, and others in the layouts they are published in."""

from __future__ import annotations

from crossling.benchmarks import grids
from crossling.benchmarks.columns import Columns, read_conllu
from crossling.benchmarks.dataset import DataSet, Layout, Reader
from crossling.benchmarks.squad import read_squad
from crossling.benchmarks.tables import Records, Table
from crossling.errors import BadInput, nearest

TRAIN_AND_DEV = {"train": "train", "dev": "dev"}
TEST = {"test": "test"}
TRAIN = {"train": "train"}
DEV = {"dev": "dev"}
DEV_AND_TEST = {"dev": "dev", "test": "test"}

INFERENCE = ("contradiction", "entailment", "neutral")
YES_NO = ("0", "1")
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


def _bio(*kinds: str) -> tuple[str, ...]:
    return ("O", *(f"{place}-{kind}" for kind in kinds for place in "BI"))


def _paired(folder: str, read: Reader, ending: str, name: str = "{split}-{language}") -> Layout:
    """Translations of what is scored, as we name them."""
    return Layout(f"{folder}/translated/{{into}}/{name}.{ending}", read, splits=DEV_AND_TEST)


# ---- sentences and pairs of them -----------------------------------------------------------------------------

_TRIPLES = Table(texts=(0, 1), label=2, same={"contradictory": "contradiction"}, quoted=True)
_TRANSLATED_TRIPLES = Table(texts=(-3, -2), label=-1, same={"contradictory": "contradiction"}, quoted=True)
_UNLABELLED = Table((0, 1), None, quoted=True)
_BESIDE_SOURCE = Table((2, 3), None, quoted=True)
_GOLD_LABEL = Table(texts=("sentence1", "sentence2"), label="gold_label", quoted=True)
_MNLI = ("xnli", "mnli", "mnli-subset")


def _pairs(name: str, *layouts: Layout, labels: tuple[str, ...] = INFERENCE, train: tuple[str, ...] = ()) -> DataSet:
    return DataSet(name, "classification", layouts, ("accuracy",), grids.CLASSIFY, labels=labels, train=train)


_INFERENCE = [
    DataSet(
        name="xnli",
        family="classification",
        labels=INFERENCE,
        layouts=(
            Layout("xnli/{split}-{language}.tsv", _TRIPLES),
            Layout("kornli/xnli.{split}.{language}.tsv", _GOLD_LABEL, splits={"dev": "dev", "test": "test"}),
        ),
        translations=(
            Layout("xnli/translated/{language}/{split}.tsv", _TRIPLES, splits=TRAIN),
            Layout("xnli/translated/en-{language}-translated.tsv", _TRANSLATED_TRIPLES, splits=TRAIN),
            Layout("xnli/translate-train/en-{language}-translated.tsv", _TRANSLATED_TRIPLES, splits=TRAIN),
            Layout(
                "xnli/XNLI-MT-1.0/multinli/multinli.{split}.{language}.tsv",
                Table(("premise", "hypo"), "label", same={"contradictory": "contradiction"}),
                splits=TRAIN,
            ),
        ),
        paired=(
            _paired("xnli", _UNLABELLED, "tsv"),
            Layout("xnli/translate-test/{split}-{language}-en-translated.tsv", _BESIDE_SOURCE, splits=TEST),
        ),
        metrics=("accuracy",),
        train=_MNLI,
        hyper=grids.CLASSIFY,
        grids=grids.XNLI,
    ),
    _pairs(
        "americasnli",
        Layout("americasnli/{split}/{language}.tsv", Table(("premise", "hypothesis"), "label", id="id")),
        train=_MNLI,
    ),
    _pairs(
        "mnli-subset",
        Layout("mnli-subset/{split}-{language}.tsv", _TRIPLES, splits={"train": "train", "dev": "validation"}),
    ),
    _pairs("cad-nli", Layout("cad-nli/{split}.tsv", _GOLD_LABEL)),
    _pairs(
        "sick",
        Layout(
            "sick/SICK_{split}.txt",
            Table(
                ("sentence_A", "sentence_B"),
                "entailment_judgment",
                id="pair_ID",
                same={label.upper(): label for label in INFERENCE},
            ),
            splits={"train": "train", "dev": "trial", "test": "test_annotated"},
        ),
    ),
    _pairs(
        "ocnli",
        Layout(
            "ocnli/{split}.json",
            Records(("sentence1", "sentence2"), unwanted="-"),
            splits={"train": "train.10k", "dev": "dev", "test": "test"},
            language="zh",
        ),
        train=("ocnli", *_MNLI),
    ),
]
_PAWSX_RELEASE = Table(("sentence1", "sentence2"), "label", id="id")
_PARAPHRASE = [
    DataSet(
        name="pawsx",
        family="classification",
        labels=YES_NO,
        layouts=(
            Layout("pawsx/{split}-{language}.tsv", _TRIPLES),
            Layout("pawsx/{split}-{language}.unlabelled.tsv", _UNLABELLED, splits=TEST),
            Layout(
                "pawsx/x-final/{language}/{split}.tsv",
                _PAWSX_RELEASE,
                splits={"train": "train", "dev": "dev_2k", "test": "test_2k"},
            ),
        ),
        translations=(
            Layout("pawsx/translated/{language}/{split}.tsv", _TRIPLES, splits=TRAIN),
            Layout("pawsx/translated/en-{language}-translated.tsv", _TRANSLATED_TRIPLES, splits=TRAIN),
            Layout("pawsx/translate-train/en-{language}-translated.tsv", _TRANSLATED_TRIPLES, splits=TRAIN),
            Layout("pawsx/x-final/{language}/translated_{split}.tsv", _PAWSX_RELEASE, splits=TRAIN),
        ),
        paired=(
            _paired("pawsx", _UNLABELLED, "tsv"),
            Layout("pawsx/translate-test/{split}-{language}-en-translated.tsv", _BESIDE_SOURCE, splits=TEST),
        ),
        metrics=("accuracy",),
        train=("pawsx", "mrpc"),
        hyper=grids.CLASSIFY,
        grids=grids.PAWSX,
    ),
    DataSet(
        name="korsts",
        family="classification",
        layouts=(
            Layout("korsts/sts-{split}.tsv", Table(("sentence1", "sentence2"), "score", number=True), language="ko"),
        ),
        metrics=("spearman", "pearson"),
        train=("korsts", "stsb"),
        hyper=grids.CLASSIFY,
    ),
]
_CHOICE = Records(
    ("premise", "question"),
    id="idx",
    choices=("choice1", "choice2"),
    words={"cause": "What was the cause?", "effect": "What happened as a result?"},
)
_XCOPA_SPLITS = {"train": "train", "dev": "val", "test": "test"}
_OTHERS = [
    DataSet(
        name="xcopa",
        family="classification",
        labels=YES_NO,
        layouts=(
            Layout("xcopa/{language}/{split}.{language}.jsonl", _CHOICE, splits=_XCOPA_SPLITS),
            Layout("xcopa/{split}.{language}.jsonl", _CHOICE, splits=_XCOPA_SPLITS),
        ),
        translations=(Layout("xcopa/translated/{language}/{split}.jsonl", _CHOICE, splits=TRAIN),),
        paired=(_paired("xcopa", _CHOICE, "jsonl"),),
        metrics=("accuracy",),
        hyper=grids.CLASSIFY,
    ),
    DataSet(
        name="chemprot",
        family="classification",
        labels=CHEMPROT,
        layouts=(Layout("chemprot/{split}.txt", Records(("text",))),),
        metrics=("accuracy",),
        hyper=grids.CLASSIFY,
    ),
]


# ---- GLUE ----------------------------------------------------------------------------------------------------


def _glue(
    name: str,
    folder: str,
    read: Table,
    labels: tuple[str, ...],
    metrics: tuple[str, ...] = ("glue-accuracy",),
    more: tuple[Layout, ...] = (),
    train: tuple[str, ...] = (),
) -> DataSet:
    layouts = (*more, Layout(f"glue/{folder}/{{split}}.tsv", read))
    return DataSet(name, "classification", layouts, metrics, grids.CLASSIFY, labels=labels, train=train)


_SENTENCES = ("sentence1", "sentence2")
_MNLI_TABLE = Table(_SENTENCES, "gold_label", id="index", unwanted="-")
_GLUE = [
    _glue(
        "cola",
        "CoLA",
        Table(("sentence",), None, id="index"),  # the test file; the others have no header
        YES_NO,
        ("matthews", "glue-accuracy"),
        more=(Layout("glue/CoLA/{split}.tsv", Table((3,), 1), splits=TRAIN_AND_DEV),),
    ),
    _glue("sst2", "SST-2", Table(("sentence",), "label"), YES_NO),
    _glue("mrpc", "MRPC", Table(("#1 String", "#2 String"), "Quality"), YES_NO, ("glue-accuracy", "glue-f1")),
    _glue(
        "qqp",
        "QQP",
        Table(("question1", "question2"), "is_duplicate", id="id", torn=True),
        YES_NO,
        ("glue-accuracy", "glue-f1"),
    ),
    _glue("stsb", "STS-B", Table(_SENTENCES, "score", id="index", number=True), (), ("spearman", "pearson")),
    _glue(
        "qnli",
        "QNLI",
        Table(("question", "sentence"), "label", id="index"),
        ENTAILMENT,
        train=("qnli", "rte"),  # RTE is another task, with the same labels
    ),
    _glue("rte", "RTE", Table(_SENTENCES, "label", id="index"), ENTAILMENT),
    _glue("wnli", "WNLI", Table(_SENTENCES, "label", id="index"), YES_NO),
    DataSet(
        name="mnli",
        family="classification",
        labels=INFERENCE,
        layouts=(
            Layout(
                "glue/MNLI/{split}.tsv",
                _MNLI_TABLE,
                splits={"train": "train", "dev": "dev_matched", "test": "test_matched"},
            ),
        ),
        metrics=("glue-accuracy",),
        train=("mnli", "mnli-subset"),
        hyper=grids.CLASSIFY,
    ),
    DataSet(
        name="mnli-mismatched",
        family="classification",
        labels=INFERENCE,
        layouts=(
            Layout("glue/MNLI/{split}.tsv", _MNLI_TABLE, splits={"dev": "dev_mismatched", "test": "test_mismatched"}),
        ),
        metrics=("glue-accuracy",),
        train=("mnli", "mnli-subset"),
        hyper=grids.CLASSIFY,
    ),
]


# ---- words ---------------------------------------------------------------------------------------------------

_PAIRS = Columns()  # token<TAB>tag


def _entities(name: str, layout: Layout, *kinds: str) -> DataSet:
    """Named entities of a set that has no training data in English: PAN-X serves."""
    return DataSet(
        name, "tagging", (layout,), ("chunk-f1", "token-accuracy"), grids.TAG, labels=_bio(*kinds), train=(name, "panx")
    )


_TAGGING = [
    DataSet(
        name="udpos",
        family="tagging",
        labels=UPOS,
        layouts=(Layout("udpos/{split}-{language}.tsv", _PAIRS),),
        translations=(Layout("udpos/translated/{language}/{split}.tsv", _PAIRS, splits=TRAIN),),
        paired=(_paired("udpos", _PAIRS, "tsv"),),
        metrics=("chunk-f1", "token-accuracy"),
        train=("udpos", "ud"),
        hyper=grids.TAG,
        grids=grids.POS,
    ),
    DataSet(
        name="ud",
        family="tagging",
        labels=UPOS,
        layouts=(Layout("ud/UD_*/{language}_*-ud-{split}.conllu", read_conllu),),
        metrics=("chunk-f1", "token-accuracy"),
        train=("ud", "udpos"),
        hyper=grids.TAG,
        grids=grids.POS,
    ),
    DataSet(
        name="panx",
        family="tagging",
        labels=_bio("LOC", "ORG", "PER"),
        layouts=(
            Layout("panx/{split}-{language}.tsv", _PAIRS),
            Layout("panx/panx_dataset/{language}/{split}", Columns(prefix=True)),
        ),
        translations=(Layout("panx/translated/{language}/{split}.tsv", _PAIRS, splits=TRAIN),),
        paired=(_paired("panx", _PAIRS, "tsv"),),
        metrics=("chunk-f1", "token-accuracy"),
        hyper=grids.TAG,
        grids=grids.NER,
    ),
    _entities(
        "wikineural",
        Layout("wikineural/{language}/{split}.conllu", Columns(word=1, width=3)),
        *("LOC", "MISC", "ORG", "PER"),
    ),
    _entities(
        "masakhaner",
        Layout("masakhaner/{language}/{split}.txt", Columns(separator=" ")),
        *("DATE", "LOC", "ORG", "PER"),
    ),
    _entities(
        "conll2002",
        Layout(
            "conll2002/{language}.{split}",
            Columns(width=3, separator=" "),
            splits={"train": "train", "dev": "testa", "test": "testb"},
            codes={"esp": "es", "ned": "nl"},
        ),
        *("LOC", "MISC", "ORG", "PER"),
    ),
]


# ---- questions -----------------------------------------------------------------------------------------------

_SQUAD = ("squad", "squad-subset")
_XTREME_ANSWERS = ("squad-f1", "squad-exact-match", "characters-f1")


def _answering(name: str, *layouts: Layout, **more: object) -> DataSet:
    given = {"metrics": _XTREME_ANSWERS, "hyper": grids.ANSWER, "train": _SQUAD, "select": ("squad", "mlqa")} | more
    return DataSet(name=name, family="answering", layouts=layouts, **given)  # type: ignore[arg-type]


_ANSWERING = [
    _answering(
        "xquad",
        Layout("xquad/xquad.{language}.json", read_squad, splits=TEST),
        Layout("xquad/{split}-{language}.json", read_squad),
        train=("xquad", *_SQUAD),
        translations=(Layout("xquad/translated/{language}/{split}.json", read_squad, splits=TRAIN),),
        paired=(
            _paired("xquad", read_squad, "json"),
            Layout("xquad/translate-test/xquad.translate.{split}.{language}-en.json", read_squad, splits=TEST),
        ),
        grids=grids.XQUAD,
    ),
    _answering(
        "mlqa",
        Layout("mlqa/{split}/{split}-context-{language}-question-{question}.json", read_squad),
        Layout("mlqa/MLQA_V1/{split}/{split}-context-{language}-question-{question}.json", read_squad),
        paired=(
            _paired("mlqa", read_squad, "json", "{split}-context-{language}-question-{question}"),
            Layout("mlqa/translate-test/mlqa.translate.{split}.{language}-en.json", read_squad, splits=TEST),
        ),
        metrics=("mlqa-f1", "mlqa-exact-match", "characters-f1"),
        grids=grids.MLQA,
    ),
    _answering(
        "tydiqa",
        Layout("tydiqa-goldp/{split}/tydiqa.goldp.{language}.{split}.json", read_squad),
        Layout("tydiqa/tydiqa-goldp-v1.1-{split}/tydiqa.goldp.{language}.{split}.json", read_squad),
        train=("tydiqa",),
        translations=(
            Layout("tydiqa/translate-train/tydiqa.translate.{split}.en-{language}.json", read_squad, splits=TRAIN),
        ),
        paired=(_paired("tydiqa", read_squad, "json"),),
        grids=grids.TYDIQA,
    ),
    _answering(
        "squad",
        Layout("squad/{split}-v1.1.json", read_squad, splits=TRAIN_AND_DEV),
        translations=(
            Layout("squad/translate-train/squad.translate.{split}.en-{language}.json", read_squad, splits=TRAIN),
        ),
        paired=(
            _paired("squad", read_squad, "json"),
            Layout("squad/translate-dev/squad.translate.{split}.en-{into}.json", read_squad, splits=DEV),
        ),
    ),
    _answering("squad-subset", Layout("squad-subset/{split}-v1.1.subset.json", read_squad, splits=TRAIN)),
    _answering(
        "squad2",
        Layout("squad2/{split}-v2.0.json", read_squad, splits=TRAIN_AND_DEV),
        Layout("squad/{split}-v2.0.json", read_squad, splits=TRAIN_AND_DEV),
        metrics=("squad2-f1", "squad2-exact-match"),
        train=("squad2",),
        select=(),
    ),
    _answering(
        "squad-it",
        Layout("squad-it/SQuAD_it-{split}.json", read_squad, splits={"train": "train", "test": "test"}, language="it"),
        train=("squad-it", *_SQUAD),
    ),
    _answering(
        "cmrc2018",
        Layout("cmrc2018/cmrc2018_{split}.json", read_squad, splits={"train": "train", "dev": "dev"}, language="zh"),
        train=("cmrc2018", *_SQUAD),
    ),
]

SETS: dict[str, DataSet] = {
    data_set.name: data_set for data_set in [*_INFERENCE, *_PARAPHRASE, *_OTHERS, *_GLUE, *_TAGGING, *_ANSWERING]
}


def find(name: str) -> DataSet:
    """The data set of that name."""
    if name not in SETS:
        raise BadInput(f"{name!r} is no data set{nearest(name, SETS)}")
    return SETS[name]
