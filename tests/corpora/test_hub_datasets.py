"""Tests of dataset references: syntax, local datasets, and failures of the hub. No network."""

from __future__ import annotations

import os
import pickle
import sys
import types
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput, Interrupted
from crossling.corpora.corpus import Corpora, MonolingualCorpus, ParallelCorpus
from crossling.corpora.hub_datasets import DatasetReference
from crossling.corpora.text_files import TextFile

from .sample_files import allowed, jsonl, parquet, put

datasets = pytest.importorskip("datasets")

TEXT = jsonl(
    [{"id": 0, "text": "moja\n"}, {"id": 1, "text": "mbili\n"}, {"id": 2, "text": "\n"}, {"id": 3, "text": "tatu\n"}]
)
PAIRS = parquet([{"translation": {"en": "one", "fr": "un"}}, {"translation": {"en": "two", "fr": None}}])


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")  # folder of its lock files


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return put(tmp_path / "data sets", {"sw/train.jsonl": TEXT, "sw/test.jsonl": TEXT, "en-fr/train.parquet": PAIRS})


# ---- syntax --------------------------------------------------------------------------------------------------------


def test_all_parts_of_a_reference() -> None:
    reference = "hf://statmt/cc100@v1.0?config=zh-Hans&split=validation&column=body&language=zho_Hans"
    parsed = DatasetReference.parse(reference)
    assert parsed == DatasetReference(
        text=reference,
        dataset="statmt/cc100",
        revision="v1.0",
        config="zh-Hans",
        split="validation",
        column="body",
        language="zh",
    )
    assert (parsed.name, str(parsed), parsed.size()) == (reference, reference, 0)
    assert DatasetReference.parse("hf://opus100?pair=eng-pt_br").pair == ("en", "pt-BR")
    assert DatasetReference.parse("hf://opus100") == DatasetReference(text="hf://opus100", dataset="opus100")
    assert pickle.loads(pickle.dumps(parsed)) == parsed  # sent to the processes that tokenize


def test_paths_of_local_folders() -> None:
    assert DatasetReference.parse("hf:///data/a%20b").dataset == "/data/a b"
    assert DatasetReference.parse("hf://./a").dataset == str(Path("a").absolute())
    assert DatasetReference.parse("hf://../a", Path("/corpora/text/sw.hf")).dataset == "/corpora/text/../a"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:", "is not a dataset reference. Write hf://DATASET"),
        ("hf://", "is not a dataset reference"),
        ("hf://?language=sw", "is not a dataset reference"),
        ("http://x", "is not a dataset reference"),
        ("hf://a?lang=sw", "unknown option 'lang'; did you mean 'language'"),
        ("hf://a?language=xx", "'xx' is not a language code.*did you mean 'xh'"),
        ("hf://a?pair=en", "'en' is not a language pair"),
        ("hf://a?pair=en-eng", "pairs en with itself"),
        ("hf://a?split=", "option 'split' has no value"),
        ("hf://a?split=a&split=b", "option 'split' is given twice"),
        ("hf://a?language=sw&pair=en-sw", "language and pair exclude each other"),
        ("hf://a?nonsense", "bad query field"),
    ],
)
def test_invalid_references_are_refused(text: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        DatasetReference.parse(text)
    with pytest.raises(BadInput, match=rf"^sw\.hf: .*{expected}"):
        DatasetReference.parse(text, Path("sw.hf"))


@given(st.text() | st.text().map(lambda text: f"hf://{text}") | st.text().map(lambda text: f"hf://a?{text}"))
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    with allowed(BadInput):
        DatasetReference.parse(text)


# ---- instead of a folder -------------------------------------------------------------------------------------------


def test_a_reference_to_text_instead_of_a_folder(dataset: Path) -> None:
    reference = f"hf://{dataset}/sw?language=swh"
    corpora = Corpora(reference)
    assert (corpora.path, corpora.languages, corpora.pairs, corpora.multi) == (reference, ("sw",), (), ())
    [text] = corpora.text
    assert text == MonolingualCorpus("sw", (DatasetReference.parse(reference),))
    assert list(text.documents()) == [["moja", "mbili"], ["tatu"]]
    assert list(corpora.lines("sw")) == ["moja", "mbili", "tatu"]


def test_a_reference_to_translations_instead_of_a_folder(dataset: Path) -> None:
    [pairs] = Corpora(f"hf://{dataset}/en-fr?pair=fr-en").pairs
    counts: Counter[str] = Counter()
    assert (pairs.name, pairs.languages, pairs.label) == ("", ("fr", "en"), "fr-en")
    assert list(pairs.rows(counts)) == [("un", "one")]
    assert counts == {"missing side": 1}


def test_a_reference_without_languages_is_refused() -> None:
    with pytest.raises(BadInput, match=r"hf://owner/data: no language\. Add language=LL"):
        Corpora("hf://owner/data")
    with pytest.raises(BadInput, match=r"hf://owner/data: no language"):
        Corpora(Path("hf://owner/data"))  # a Path merges two slashes into one


# ---- .hf files -----------------------------------------------------------------------------------------


def test_references_in_files(dataset: Path) -> None:
    root = dataset.parent
    put(
        root,
        {
            "text/sw.hf": "\ufeffhf://../data sets/sw?split=test\r\n\n",
            "text/swh.txt": "nne",
            "pairs/name.en-fr.hf": f"hf://{dataset}/en-fr?pair=fr-en",
        },
    )
    corpora = Corpora(root)
    [text], [pairs] = corpora.text, corpora.pairs
    assert list(text.documents()) == [["moja", "mbili"], ["tatu"], ["nne"]]
    assert [source.name for source in text.sources] == ["sw.hf", "swh.txt"]
    assert text.sources[1] == TextFile(root / "text/swh.txt")
    assert pairs == ParallelCorpus("name", ("en", "fr"), pairs.sources)
    assert list(pairs.rows()) == [("one", "un")]


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("text/sw.hf", "", r"sw\.hf: expected one line with a dataset reference"),
        ("text/sw.hf", "hf://a\nhf://b\n", r"sw\.hf: expected one line"),
        ("text/sw.hf", b"\xff\n", r"sw\.hf: expected one line"),
        ("text/sw.hf", "statmt/cc100", r"sw\.hf: 'statmt/cc100' is not a dataset reference"),
        (
            "text/sw.hf",
            "hf://a?language=en",
            r"sw\.hf \(hf://a\?language=en\): languages en, but its file name has sw",
        ),
        ("pairs/en-fr.hf", "hf://a?pair=en-de", r"en-fr\.hf .*: languages en-de, but its file name has en-fr"),
        ("pairs/en-fr.hf", "hf://a?language=en", r": languages en, but its file name has en-fr"),
        ("text/sw.hf.gz", "hf://a", r"sw\.hf\.gz: \.hf files cannot be compressed\. Decompress it"),
        ("multi/n/en.hf", "hf://a", r"en\.hf: unknown format"),
    ],
)
def test_invalid_reference_files_are_refused(tmp_path: Path, file: str, content: str | bytes, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        Corpora(put(tmp_path, {file: content}))


# ---- reading -----------------------------------------------------------------------------------------------


def test_columns_can_be_named(tmp_path: Path) -> None:
    put(tmp_path, {"a/train.jsonl": jsonl([{"body": "a", "both": {"en": "b", "fr": "c"}, "sw": "d", "en": "e"}])})
    where = f"hf://{tmp_path}/a"
    assert list(Corpora(f"{where}?language=en&column=body").text[0].documents()) == [["a"]]
    assert list(Corpora(f"{where}?pair=en-fr&column=both").pairs[0].rows()) == [("b", "c")]
    assert list(Corpora(f"{where}?pair=sw-en").pairs[0].rows()) == [("d", "e")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("sw?language=sw&column=body", r"no column 'body'. The columns are 'id', 'text'"),
        ("sw?pair=sw-en", r"no column 'translation', or 'sw' and 'en'. The columns are 'id', 'text'"),
        ("sw?language=sw&split=dev", r"cannot be read \(.*dev.*train.*\)\. Check name"),
        ("sw?language=sw&config=other", r"cannot be read \(.*other.*default.*\)\. Check name"),
        ("none?language=sw", r"no such folder .*/none"),
        ("empty?language=sw", "cannot be read"),
        ("image?language=sw", "no rows of text. Expected files of the types arrow, csv, json, parquet, text"),
        ("broken?language=sw", "cannot be read"),
    ],
)
def test_unreadable_datasets_are_refused_in_one_line(dataset: Path, options: str, expected: str) -> None:
    (dataset / "empty").mkdir()
    put(dataset, {"image/train/0.png": b"\x89PNG", "broken/train.parquet": b"PAR1 nothing PAR1"})
    corpora = Corpora(f"hf://{dataset}/{options}")
    with pytest.raises(BadInput, match=expected) as caught:
        list(corpora.lines(corpora.languages[0]))
    assert str(caught.value).startswith(f"hf://{dataset}/")
    assert "\n" not in str(caught.value)


def test_code_in_a_dataset_is_not_run(dataset: Path) -> None:
    code = f"import pathlib\npathlib.Path({str(dataset / 'ran')!r}).touch()\n"
    put(dataset, {"sw/sw.py": code, "only/only.py": code})
    for name in ("sw", "only"):
        with pytest.raises(BadInput, match=r"cannot be read \(.*script"):
            list(Corpora(f"hf://{dataset}/{name}?language=sw").lines("sw"))
    assert not (dataset / "ran").exists()


def test_the_digest_depends_on_reference_and_data(dataset: Path) -> None:
    [source] = Corpora(f"hf://{dataset}/sw?language=sw").text[0].sources
    [other] = Corpora(f"hf://{dataset}/sw?language=sw&split=test").text[0].sources
    first = source.digest()
    assert len(first) == 32
    assert source.size() == len(TEXT)
    assert other.digest() != first
    os.utime(dataset / "sw/train.jsonl", (0, 0))
    assert source.digest() == first
    put(dataset, {"sw/train.jsonl": TEXT.replace(b"moja", b"tano")})
    assert source.digest() != first


# ---- hub ----------------------------------------------------------------------------------------------


def replace_hub(monkeypatch: pytest.MonkeyPatch, builder: object) -> list[tuple[object, ...]]:
    """Replace the hub by a builder and return the list of its requests."""
    requests: list[tuple[object, ...]] = []

    def load(*args: object, **options: object) -> object:
        requests.append((*args, options))
        if isinstance(builder, Exception):
            raise builder
        return builder

    monkeypatch.setattr(datasets, "load_dataset_builder", load)
    return requests


def test_the_hub_gets_the_revision_and_no_permission_to_run_code(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "hf://datasets/owner/data@0123abc/train.parquet"
    builder = type("Parquet", (), {"__module__": "datasets.packaged_modules.parquet.parquet"})()
    builder.config = types.SimpleNamespace(data_files={"train": [address]})
    requests = replace_hub(monkeypatch, builder)
    [source] = Corpora("hf://owner/data@main?language=sw&config=sw").text[0].sources
    first = source.digest()
    assert requests == [("owner/data", "sw", {"revision": "main"})]
    assert source.size() == 0
    builder.config.data_files = {"train": [address.replace("0123abc", "4567def")]}
    assert source.digest() != first


@pytest.mark.parametrize(
    "error", [ConnectionError("Couldn't reach 'a'\n on the Hub"), KeyError("x"), RuntimeError(), OSError(5, "no")]
)
def test_any_error_of_the_hub_becomes_bad_input(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    replace_hub(monkeypatch, error)
    [text] = Corpora("hf://owner/data?language=sw").text
    for read in (lambda: list(text.documents()), text.sources[0].digest):
        with pytest.raises(
            BadInput, match=r"^hf://owner/data\?language=sw: cannot be read \(.+\)\. Check name, config"
        ):
            read()


def test_an_interrupt_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_hub(monkeypatch, Interrupted("stopped"))
    with pytest.raises(Interrupted):
        list(Corpora("hf://owner/data?language=sw").lines("sw"))


def test_without_datasets_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadInput, match=r"hf://a\?language=sw: needs the package datasets\. .* crossling\[data\]"):
        list(Corpora("hf://a?language=sw").lines("sw"))
