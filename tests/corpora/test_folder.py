"""What a folder holds is found by the names of its files; what is in a wrong place or twice is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.corpora.corpus import Corpora, MultiWay, Pairs, Text
from crossling.corpora.files import File
from crossling.errors import BadInput

from .made import put


def test_a_folder_is_discovered(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "text/swh.txt.xz": "habari",
            "text/en.txt": "hello",
            "text/zho_Hant.jsonl.gz": "你好",
            "text/ur.parquet": "x",
            "pairs/en-fr.tsv.zst": "a\tb",
            "pairs/opus.v1.eng-deu.tmx.gz": "<tmx/>",
            "pairs/news.en-pt_BR.en.gz": "a",
            "pairs/news.en-pt_BR.pt_BR": "b",
            "multi/bible/en.txt": "a",
            "multi/bible/ckb.jsonl.xz": "b",
            "multi/bible/verses.ids.xz": "1",
            "multi/bible/README.md": "x",
            "text/.hidden": "x",
            "pairs/LICENSE": "x",
            "README": "x",
            "truth/world.json": "{}",
        },
    )
    corpora = Corpora(str(tmp_path))
    assert corpora.path == tmp_path
    assert corpora.text == (
        Text("en", (File(tmp_path / "text/en.txt"),)),
        Text("sw", (File(tmp_path / "text/swh.txt.xz"),)),
        Text("ur", (File(tmp_path / "text/ur.parquet"),)),
        Text("zh-Hant", (File(tmp_path / "text/zho_Hant.jsonl.gz"),)),
    )
    sides = (tmp_path / "pairs/news.en-pt_BR.en.gz", tmp_path / "pairs/news.en-pt_BR.pt_BR")
    assert corpora.pairs == (
        Pairs("", ("en", "fr"), (File(tmp_path / "pairs/en-fr.tsv.zst"),)),
        Pairs("news", ("en", "pt-BR"), (File(sides[0]), File(sides[1]))),
        Pairs("opus.v1", ("en", "de"), (File(tmp_path / "pairs/opus.v1.eng-deu.tmx.gz"),)),
    )
    assert corpora.pairs[1].files == sides
    bible = tmp_path / "multi/bible"
    sources = {"ckb": File(bible / "ckb.jsonl.xz"), "en": File(bible / "en.txt")}
    assert corpora.multi == (MultiWay("bible", sources),)
    assert corpora.multi[0].files == {"ckb": bible / "ckb.jsonl.xz", "en": bible / "en.txt"}
    assert corpora.multi[0].languages == ("ckb", "en")
    assert corpora.languages == ("ckb", "de", "en", "fr", "pt-BR", "sw", "ur", "zh-Hant")


def test_names_by_which_corpora_are_told_apart(tmp_path: Path) -> None:
    put(tmp_path, {"text/swh.txt": "a", "pairs/en-fr.tsv": "a\tb", "pairs/x.en-zh_Hant.tsv": "a\tb"})
    corpora = Corpora(tmp_path)
    assert corpora.text[0].name == "sw"
    assert [(pairs.name, pairs.label) for pairs in corpora.pairs] == [("", "en-fr"), ("x", "x.en-zh-Hant")]


def test_two_names_of_a_language_are_one_language(tmp_path: Path) -> None:
    put(tmp_path, {"text/sw.txt": "moja", "text/swh.txt.gz": "mbili"})
    [text] = Corpora(tmp_path).text
    assert list(text.documents()) == [["moja"], ["mbili"]]


@pytest.mark.parametrize(
    ("file", "languages"),
    [
        ("en-zh-Hant.tsv", ("en", "zh-Hant")),
        ("zh-Hant-en.tsv", ("zh-Hant", "en")),
        ("pt-BR-en.tsv", ("pt-BR", "en")),
        ("OpenSubtitles.en-pt_br.tsv", ("en", "pt-BR")),
        ("qaa-qab.tsv", ("qaa", "qab")),
        ("EN-FR.tsv", ("en", "fr")),
    ],
)
def test_the_languages_of_a_pair(tmp_path: Path, file: str, languages: tuple[str, str]) -> None:
    assert Corpora(put(tmp_path, {f"pairs/{file}": "a\tb"})).pairs[0].languages == languages


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, r"holds no text: text/LL\.\{txt,jsonl,parquet,hf\}"),
        ({"README.md": "x", "text/README": "x"}, "holds no text"),
        ({"text/xx.txt": "x"}, r"text/xx\.txt: 'xx' is no language code.*did you mean 'xh'"),
        ({"text/xx.jsonl": "x"}, r"text/xx\.jsonl: 'xx' is no language code"),
        ({"text/en.json": "{}"}, r"text/en\.json is in no format known.*jsonl"),
        ({"text/en.tsv": "x"}, r"en\.tsv is in no format known"),
        ({"text/en.txt.bz2": "x"}, r"en\.txt\.bz2 is in no format known"),
        ({"text/en.parquet.gz": "x"}, r"en\.parquet\.gz is packed, but en\.parquet is read only as it is: unpack it"),
        ({"text/more/en.txt": "x"}, "text/more is a folder where a file was expected"),
        ({"text/en.txt": "x", "text/en.txt.gz": "x"}, r"en\.txt and .*en\.txt\.gz are the same text twice"),
        ({"text/en.txt": "x", "text/en.jsonl": "x"}, r"en\.jsonl and .*en\.txt are the same text twice"),
        ({"en.txt": "x", "text/en.txt": "x"}, r"en\.txt is in no place that is read"),
        ({"data.jsonl.zst": "x", "text/en.txt": "x"}, "in no place that is read"),
        ({"sw.hf": "x", "text/en.txt": "x"}, "in no place that is read"),
        ({"text": "x", "pairs/en-fr.tsv": "a\tb"}, "text is in no place that is read"),
        ({"pairs/corpus.tmx.gz": "<tmx/>"}, r"corpus\.tmx\.gz is in no format known"),
        ({"pairs/fr.tsv": "a\tb"}, r"fr\.tsv is in no format known"),
        ({"pairs/en-xx.tsv": "a\tb"}, r"en-xx\.tsv: 'xx' is no language code"),
        ({"pairs/en-eng.tsv": "a\tb"}, "pairs en with itself"),
        ({"pairs/en-fr.tsv": "a\tb", "pairs/eng-fra.tsv": "a\tb"}, "both hold en-fr"),
        ({"pairs/en-fr.tsv": "a\tb", "pairs/eng-fra.tmx": "<tmx/>"}, "one corpus twice"),
        ({"pairs/n.en-fr.en": "a"}, r"n\.en-fr\.en has no other side: put the fr side beside it"),
        ({"pairs/n.en-fr.de": "a"}, r"should end in \.en or \.fr"),
        ({"pairs/n.en-fr.TMX": "a"}, r"should end in \.en or \.fr.*or in a format"),
        ({"pairs/n.en-fr.txt": "a"}, r"should end in \.en or \.fr"),
        ({"pairs/n.en-fr.en": "a", "pairs/n.en-fr.fr": "a", "pairs/n.en-fr.tsv": "a\tb"}, "one corpus twice"),
        ({"multi/en.txt": "a"}, r"multi/en\.txt is a file where a folder was expected"),
        ({"multi/n/en.txt": "a"}, "multi/n holds 1 languages"),
        ({"multi/n/en.txt": "a", "multi/n/eng.txt": "a"}, "are both en"),
        ({"multi/n/en.txt": "a", "multi/n/en.jsonl": "a"}, "are both en"),
        ({"multi/n/en.txt": "a", "multi/n/english.txt": "a"}, r"english\.txt: 'english' is no language code"),
        ({"multi/n/en.txt": "a", "multi/n/de.tsv": "a"}, r"de\.tsv is in no format known"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, files: dict[str, str | bytes], expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        Corpora(put(tmp_path, files))


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere is no folder"):
        Corpora(tmp_path / "nowhere")
