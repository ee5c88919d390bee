"""References to datasets: how they are written, and what a local folder read through one gives. No network."""

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

from crossling.corpora.corpus import Corpora, Pairs, Text
from crossling.corpora.hub import Reference
from crossling.errors import BadInput, Interrupted

from .made import allowed, jsonl, parquet, put

datasets = pytest.importorskip("datasets")

TEXT = jsonl(
    [{"id": 0, "text": "moja\n"}, {"id": 1, "text": "mbili\n"}, {"id": 2, "text": "\n"}, {"id": 3, "text": "tatu\n"}]
)
PAIRS = parquet([{"translation": {"en": "one", "fr": "un"}}, {"translation": {"en": "two", "fr": None}}])


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")  # where it leaves locks


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return put(tmp_path / "data sets", {"sw/train.jsonl": TEXT, "sw/test.jsonl": TEXT, "en-fr/train.parquet": PAIRS})


# ---- how they are written ------------------------------------------------------------------------------------------


def test_all_parts_of_a_reference() -> None:
    written = "hf://statmt/cc100@v1.0?config=zh-Hans&split=validation&column=body&language=zho_Hans"
    parsed = Reference.parse(written)
    assert parsed == Reference(written, "statmt/cc100", "v1.0", "zh-Hans", "validation", "body", "zh")
    assert (parsed.name, str(parsed), parsed.size()) == (written, written, 0)
    assert Reference.parse("hf://opus100?pair=eng-pt_br").pair == ("en", "pt-BR")
    assert Reference.parse("hf://opus100") == Reference("hf://opus100", "opus100")
    assert pickle.loads(pickle.dumps(parsed)) == parsed  # it goes to the processes that encode


def test_local_folders() -> None:
    assert Reference.parse("hf:///data/a%20b").dataset == "/data/a b"
    assert Reference.parse("hf://./a").dataset == str(Path("a").absolute())
    assert Reference.parse("hf://../a", Path("/corpora/text/sw.hf")).dataset == "/corpora/text/../a"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:", "no reference to a dataset: write hf://DATASET"),
        ("hf://", "no reference"),
        ("hf://?language=sw", "no reference"),
        ("http://x", "no reference"),
        ("hf://a?lang=sw", "there is no option 'lang'; did you mean 'language'"),
        ("hf://a?language=xx", "'xx' is no language code.*did you mean 'xh'"),
        ("hf://a?pair=en", "'en' is no pair of languages"),
        ("hf://a?pair=en-eng", "pairs en with itself"),
        ("hf://a?split=", "split is given without a value"),
        ("hf://a?split=a&split=b", "split is given twice"),
        ("hf://a?language=sw&pair=en-sw", "give language or pair, not both"),
        ("hf://a?nonsense", "bad query field"),
    ],
)
def test_what_is_no_reference_is_refused(text: str, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        Reference.parse(text)
    with pytest.raises(BadInput, match=rf"^sw\.hf: .*{expected}"):
        Reference.parse(text, Path("sw.hf"))


@given(st.text() | st.text().map(lambda text: f"hf://{text}") | st.text().map(lambda text: f"hf://a?{text}"))
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    with allowed(BadInput):
        Reference.parse(text)


# ---- in place of a folder ------------------------------------------------------------------------------------------


def test_a_reference_to_text_in_place_of_a_folder(dataset: Path) -> None:
    written = f"hf://{dataset}/sw?language=swh"
    corpora = Corpora(written)
    assert (corpora.path, corpora.languages, corpora.pairs, corpora.multi) == (written, ("sw",), (), ())
    [text] = corpora.text
    assert text == Text("sw", (Reference.parse(written),))
    assert text.files == ()
    assert list(text.documents()) == [["moja", "mbili"], ["tatu"]]
    assert list(corpora.lines("sw")) == ["moja", "mbili", "tatu"]


def test_a_reference_to_translations_in_place_of_a_folder(dataset: Path) -> None:
    [pairs] = Corpora(f"hf://{dataset}/en-fr?pair=fr-en").pairs
    counts: Counter[str] = Counter()
    assert (pairs.name, pairs.languages, pairs.label) == ("", ("fr", "en"), "fr-en")
    assert list(pairs.rows(counts)) == [("un", "one")]
    assert counts == {"missing side": 1}


def test_a_reference_must_say_what_it_holds() -> None:
    with pytest.raises(BadInput, match=r"hf://owner/data does not say what it holds: add language=LL"):
        Corpora("hf://owner/data")
    with pytest.raises(BadInput, match=r"hf://owner/data does not say"):
        Corpora(Path("hf://owner/data"))  # a Path has one slash less


# ---- in a file ------------------------------------------------------------------------------------------


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
    assert text.files == (root / "text/swh.txt",)
    assert pairs == Pairs("name", ("en", "fr"), pairs.sources)
    assert list(pairs.rows()) == [("one", "un")]


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("text/sw.hf", "", r"sw\.hf should hold one line, a reference"),
        ("text/sw.hf", "hf://a\nhf://b\n", r"sw\.hf should hold one line"),
        ("text/sw.hf", b"\xff\n", r"sw\.hf should hold one line"),
        ("text/sw.hf", "statmt/cc100", r"sw\.hf: 'statmt/cc100' is no reference"),
        ("text/sw.hf", "hf://a?language=en", r"sw\.hf \(hf://a\?language=en\) says en, and its file name sw"),
        ("pairs/en-fr.hf", "hf://a?pair=en-de", r"en-fr\.hf .* says en-de, and its file name en-fr"),
        ("pairs/en-fr.hf", "hf://a?language=en", r"says en, and its file name en-fr"),
        ("text/sw.hf.gz", "hf://a", r"sw\.hf\.gz is packed, but sw\.hf is read only as it is: unpack it"),
        ("multi/n/en.hf", "hf://a", r"en\.hf is in no format known"),
    ],
)
def test_files_that_hold_no_reference(tmp_path: Path, file: str, content: str | bytes, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        Corpora(put(tmp_path, {file: content}))


# ---- what is read ------------------------------------------------------------------------------------------


def test_another_column(tmp_path: Path) -> None:
    put(tmp_path, {"a/train.jsonl": jsonl([{"body": "a", "both": {"en": "b", "fr": "c"}, "sw": "d", "en": "e"}])})
    where = f"hf://{tmp_path}/a"
    assert list(Corpora(f"{where}?language=en&column=body").text[0].documents()) == [["a"]]
    assert list(Corpora(f"{where}?pair=en-fr&column=both").pairs[0].rows()) == [("b", "c")]
    assert list(Corpora(f"{where}?pair=sw-en").pairs[0].rows()) == [("d", "e")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("sw?language=sw&column=body", r"has no column 'body': the columns there are 'id', 'text'"),
        ("sw?pair=sw-en", r"has no column 'translation', or 'sw' and 'en': the columns there are 'id', 'text'"),
        ("sw?language=sw&split=dev", r"cannot be read \(.*dev.*train.*\): check name"),
        ("sw?language=sw&config=other", r"cannot be read \(.*other.*default.*\): check name"),
        ("none?language=sw", r"there is no folder .*/none"),
        ("empty?language=sw", "cannot be read"),
        ("image?language=sw", "holds no rows of text: arrow, csv, json, parquet, text files are read"),
        ("broken?language=sw", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_sentence(dataset: Path, options: str, expected: str) -> None:
    (dataset / "empty").mkdir()
    put(dataset, {"image/train/0.png": b"\x89PNG", "broken/train.parquet": b"PAR1 nothing PAR1"})
    corpora = Corpora(f"hf://{dataset}/{options}")
    with pytest.raises(BadInput, match=expected) as told:
        list(corpora.lines(corpora.languages[0]))
    assert str(told.value).startswith(f"hf://{dataset}/")
    assert "\n" not in str(told.value)


def test_code_in_a_dataset_is_not_run(dataset: Path) -> None:
    code = f"import pathlib\npathlib.Path({str(dataset / 'ran')!r}).touch()\n"
    put(dataset, {"sw/sw.py": code, "only/only.py": code})
    for name in ("sw", "only"):
        with pytest.raises(BadInput, match=r"cannot be read \(.*script"):
            list(Corpora(f"hf://{dataset}/{name}?language=sw").lines("sw"))
    assert not (dataset / "ran").exists()


def test_a_source_is_known_by_its_reference_and_its_data(dataset: Path) -> None:
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


# ---- the Hub ------------------------------------------------------------------------------------------


def hub(monkeypatch: pytest.MonkeyPatch, builder: object) -> list[tuple[object, ...]]:
    """Puts a builder in the place of the Hub; gives what it was asked for."""
    asked: list[tuple[object, ...]] = []

    def load(*args: object, **options: object) -> object:
        asked.append((*args, options))
        if isinstance(builder, Exception):
            raise builder
        return builder

    monkeypatch.setattr(datasets, "load_dataset_builder", load)
    return asked


def test_the_hub_is_asked_for_a_revision_and_never_to_run_code(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "hf://datasets/owner/data@0123abc/train.parquet"
    builder = type("Parquet", (), {"__module__": "datasets.packaged_modules.parquet.parquet"})()
    builder.config = types.SimpleNamespace(data_files={"train": [address]})
    asked = hub(monkeypatch, builder)
    [source] = Corpora("hf://owner/data@main?language=sw&config=sw").text[0].sources
    first = source.digest()
    assert asked == [("owner/data", "sw", {"revision": "main"})]
    assert source.size() == 0
    builder.config.data_files = {"train": [address.replace("0123abc", "4567def")]}
    assert source.digest() != first


@pytest.mark.parametrize(
    "error", [ConnectionError("Couldn't reach 'a'\n on the Hub"), KeyError("x"), RuntimeError(), OSError(5, "no")]
)
def test_the_hub_may_fail_as_it_likes(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    hub(monkeypatch, error)
    [text] = Corpora("hf://owner/data?language=sw").text
    for read in (lambda: list(text.documents()), text.sources[0].digest):
        with pytest.raises(BadInput, match=r"^hf://owner/data\?language=sw cannot be read \(.+\): check name, config"):
            read()


def test_to_be_interrupted_is_no_failure_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, Interrupted("stopped"))
    with pytest.raises(Interrupted):
        list(Corpora("hf://owner/data?language=sw").lines("sw"))


def test_without_datasets_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        BadInput, match=r"hf://a\?language=sw needs the package datasets: pip install crossling\[data\]"
    ):
        list(Corpora("hf://a?language=sw").lines("sw"))
