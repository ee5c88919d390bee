"""Tests of discovery: corpora by file name, and refusal of misplaced or duplicate files."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.corpora.corpus import Corpora, MonolingualCorpus, MultiwayCorpus, ParallelCorpus
from crossling.corpora.text_files import TextFile

from .sample_files import put


def test_all_corpora_of_a_folder_are_found(tmp_path: Path) -> None:
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
        MonolingualCorpus("en", (TextFile(tmp_path / "text/en.txt"),)),
        MonolingualCorpus("sw", (TextFile(tmp_path / "text/swh.txt.xz"),)),
        MonolingualCorpus("ur", (TextFile(tmp_path / "text/ur.parquet"),)),
        MonolingualCorpus("zh-Hant", (TextFile(tmp_path / "text/zho_Hant.jsonl.gz"),)),
    )
    sides = (tmp_path / "pairs/news.en-pt_BR.en.gz", tmp_path / "pairs/news.en-pt_BR.pt_BR")
    assert corpora.pairs == (
        ParallelCorpus("", ("en", "fr"), (TextFile(tmp_path / "pairs/en-fr.tsv.zst"),)),
        ParallelCorpus("news", ("en", "pt-BR"), (TextFile(sides[0]), TextFile(sides[1]))),
        ParallelCorpus("opus.v1", ("en", "de"), (TextFile(tmp_path / "pairs/opus.v1.eng-deu.tmx.gz"),)),
    )
    bible = tmp_path / "multi/bible"
    sources = {"ckb": TextFile(bible / "ckb.jsonl.xz"), "en": TextFile(bible / "en.txt")}
    assert corpora.multi == (MultiwayCorpus("bible", sources),)
    assert corpora.multi[0].languages == ("ckb", "en")
    assert corpora.languages == ("ckb", "de", "en", "fr", "pt-BR", "sw", "ur", "zh-Hant")


def test_published_files_keep_their_names(tmp_path: Path) -> None:
    published = [
        *("text/zh-Hans.txt.xz", "text/hi_rom.txt.xz", "text/ns.txt.xz"),  # CC-100
        *("pairs/ccmatrix/en-fr.bitextf.tsv.gz", "pairs/ccaligned/af_ZA-en_XX.tsv.xz"),
        *("pairs/ccaligned/en_XX-fr_XX.tsv.xz", "pairs/WikiMatrix.en-fr.tsv.gz"),
        *("pairs/MultiUN.en-fr.en", "pairs/MultiUN.en-fr.fr", "pairs/MultiUN.en-fr.ids", "pairs/LICENSE"),
        *("pairs/CCMatrix.en-fr.en", "pairs/CCMatrix.en-fr.fr", "pairs/CCMatrix.en-fr.scores"),
        *("pairs/training/europarl-v7.fr-en.en", "pairs/training/europarl-v7.fr-en.fr"),  # WMT14
    ]
    corpora = Corpora(put(tmp_path, dict.fromkeys(published, "1.1\ta\tb")))
    assert [text.language for text in corpora.text] == ["hi-Latn", "nso", "zh"]
    assert [pairs.label for pairs in corpora.pairs] == [
        *("CCMatrix.en-fr", "MultiUN.en-fr", "WikiMatrix.en-fr", "ccaligned.af-en", "ccaligned.en-fr"),
        *("ccmatrix.en-fr", "europarl-v7.fr-en"),
    ]
    assert [row for pairs in corpora.pairs[2:6] for row in pairs.rows()] == [("a", "b")] * 4
    chosen = Corpora(tmp_path, priority=["ccmatrix", "ccaligned"])
    assert [pairs.label for pairs in chosen.pairs] == ["ccaligned.af-en", "ccmatrix.en-fr"]


def test_names_and_labels_of_corpora(tmp_path: Path) -> None:
    put(tmp_path, {"text/swh.txt": "a", "pairs/en-fr.tsv": "a\tb", "pairs/x.en-zh_Hant.tsv": "a\tb"})
    corpora = Corpora(tmp_path)
    assert corpora.text[0].language == "sw"
    assert [(pairs.name, pairs.label) for pairs in corpora.pairs] == [("", "en-fr"), ("x", "x.en-zh-Hant")]


def test_two_codes_of_a_language_are_one_language(tmp_path: Path) -> None:
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
        ({}, r": no text\. Expected text/LL\.\{txt,jsonl,parquet,hf\}"),
        ({"README.md": "x", "text/README": "x"}, ": no text"),
        ({"text/xx.txt": "x"}, r"text/xx\.txt: 'xx' is not a language code.*did you mean 'xh'"),
        ({"text/xx.jsonl": "x"}, r"text/xx\.jsonl: 'xx' is not a language code"),
        ({"text/en.json": "{}"}, r"text/en\.json: unknown format\. Expected .*jsonl"),
        ({"text/en.tsv": "x"}, r"en\.tsv: unknown format"),
        ({"text/en.txt.bz2": "x"}, r"en\.txt\.bz2: unknown format"),
        ({"text/en.parquet.gz": "x"}, r"en\.parquet\.gz: \.parquet files cannot be compressed\. Decompress it"),
        ({"text/more/en.txt": "x"}, "text/more: a folder, expected a file"),
        ({"text/en.txt": "x", "text/en.txt.gz": "x"}, r"en\.txt and .*en\.txt\.gz: the same text twice"),
        ({"text/en.txt": "x", "text/en.jsonl": "x"}, r"en\.jsonl and .*en\.txt: the same text twice"),
        ({"en.txt": "x", "text/en.txt": "x"}, r"en\.txt: not read at this place"),
        ({"data.jsonl.zst": "x", "text/en.txt": "x"}, ": not read at this place"),
        ({"sw.hf": "x", "text/en.txt": "x"}, ": not read at this place"),
        ({"text": "x", "pairs/en-fr.tsv": "a\tb"}, "text: not read at this place"),
        ({"pairs/corpus.tmx.gz": "<tmx/>"}, r"corpus\.tmx\.gz: unknown format"),
        ({"pairs/fr.tsv": "a\tb"}, r"fr\.tsv: unknown format"),
        ({"pairs/name/fr.tsv": "a\tb"}, r"fr\.tsv: unknown format"),
        ({"pairs/name/v1/en-fr.tsv": "a\tb"}, "v1: a folder, expected a file"),
        ({"pairs/name/en-fr.tsv": "a\tb", "pairs/name.en-fr.tsv": "a\tb"}, "both hold en-fr"),
        ({"pairs/en-xx.tsv": "a\tb"}, r"en-xx\.tsv: 'xx' is not a language code"),
        ({"pairs/en-eng.tsv": "a\tb"}, "pairs en with itself"),
        ({"pairs/en-fr.tsv": "a\tb", "pairs/eng-fra.tsv": "a\tb"}, "both hold en-fr"),
        ({"pairs/en-fr.tsv": "a\tb", "pairs/eng-fra.tmx": "<tmx/>"}, "the same corpus twice"),
        ({"pairs/n.en-fr.en": "a"}, r"n\.en-fr\.en: no other side\. Put the fr side beside it"),
        ({"pairs/n.en-fr.de": "a"}, r"expected \.en or \.fr"),
        ({"pairs/n.en-fr.TMX": "a"}, r"ends in \.TMX, expected \.en or \.fr .*or a format"),
        ({"pairs/n.en-fr.txt": "a"}, r"expected \.en or \.fr"),
        ({"pairs/n.en-fr.en": "a", "pairs/n.en-fr.fr": "a", "pairs/n.en-fr.tsv": "a\tb"}, "the same corpus twice"),
        ({"multi/en.txt": "a"}, r"multi/en\.txt: a file, expected a folder"),
        ({"multi/n/en.txt": "a"}, "multi/n: 1 languages, expected two or more"),
        ({"multi/n/en.txt": "a", "multi/n/eng.txt": "a"}, "both are en"),
        ({"multi/n/en.txt": "a", "multi/n/en.jsonl": "a"}, "both are en"),
        ({"multi/n/en.txt": "a", "multi/n/english.txt": "a"}, r"english\.txt: 'english' is not a language code"),
        ({"multi/n/en.txt": "a", "multi/n/de.tsv": "a"}, r"de\.tsv: unknown format"),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, files: dict[str, str | bytes], expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        Corpora(put(tmp_path, files))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere: no such folder"):
        Corpora(tmp_path / "nowhere")
