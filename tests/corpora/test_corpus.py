"""What is read is what was written, line for line, however odd; what cannot be read says so."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.corpora.corpus import LONGEST_DOCUMENT, Corpora, MultiWay, Pairs, Text
from crossling.errors import BadInput

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def put(root: Path, files: dict[str, str | bytes]) -> Path:
    """Writes files, each packed as its name says."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content.encode() if isinstance(content, str) else content
        path.write_bytes(PACK.get(path.suffix, bytes)(raw))
    return root


def text(root: Path, content: str | bytes, counts: Counter[str] | None = None) -> list[list[str]]:
    put(root, {"text/en.txt": content})
    return list(Corpora(root).text[0].documents(counts))


def rows(root: Path, files: dict[str, str | bytes], counts: Counter[str] | None = None) -> list[tuple[str, str]]:
    put(root, files)
    return list(Corpora(root).pairs[0].rows(counts))


@contextmanager
def corpora_of(files: dict[str, str | bytes]) -> Iterator[Corpora]:
    """For property tests: a folder of its own for every example."""
    with tempfile.TemporaryDirectory() as folder:
        yield Corpora(put(Path(folder), files))


# ---- finding ------------------------------------------------------------------------------------------


def test_a_folder_is_discovered(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "text/swh.txt.xz": "habari",
            "text/en.txt": "hello",
            "text/zho_Hant.txt.gz": "你好",
            "pairs/en-fr.tsv.zst": "a\tb",
            "pairs/opus.v1.eng-deu.tsv": "a\tb",
            "pairs/news.en-pt_BR.en.gz": "a",
            "pairs/news.en-pt_BR.pt_BR": "b",
            "multi/bible/en.txt": "a",
            "multi/bible/ckb.txt.xz": "b",
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
        Text("en", (tmp_path / "text/en.txt",)),
        Text("sw", (tmp_path / "text/swh.txt.xz",)),
        Text("zh-Hant", (tmp_path / "text/zho_Hant.txt.gz",)),
    )
    assert corpora.pairs == (
        Pairs("", ("en", "fr"), (tmp_path / "pairs/en-fr.tsv.zst",)),
        Pairs(
            "news",
            ("en", "pt-BR"),
            (tmp_path / "pairs/news.en-pt_BR.en.gz", tmp_path / "pairs/news.en-pt_BR.pt_BR"),
        ),
        Pairs("opus.v1", ("en", "de"), (tmp_path / "pairs/opus.v1.eng-deu.tsv",)),
    )
    bible = tmp_path / "multi/bible"
    assert corpora.multi == (MultiWay("bible", {"ckb": bible / "ckb.txt.xz", "en": bible / "en.txt"}),)
    assert corpora.languages == ("ckb", "de", "en", "fr", "pt-BR", "sw", "zh-Hant")


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
        ({}, r"holds no text: text/LL\.txt"),
        ({"README.md": "x", "text/README": "x"}, "holds no text"),
        ({"text/xx.txt": "x"}, r"text/xx\.txt: 'xx' is no language code.*did you mean 'xh'"),
        ({"text/en.jsonl": "{}"}, r"text/en\.jsonl is in no format known.*read so far"),
        ({"text/en.parquet": "x"}, "read so far"),
        ({"text/en.txt.bz2": "x"}, r"en\.txt\.bz2 is in no format known"),
        ({"text/more/en.txt": "x"}, "text/more is a folder where a file was expected"),
        ({"text/en.txt": "x", "text/en.txt.gz": "x"}, r"en\.txt and .*en\.txt\.gz are the same text twice"),
        ({"en.txt": "x", "text/en.txt": "x"}, r"en\.txt is in no place that is read"),
        ({"data.jsonl.zst": "x", "text/en.txt": "x"}, "in no place that is read"),
        ({"text": "x", "pairs/en-fr.tsv": "a\tb"}, "text is in no place that is read"),
        ({"pairs/en-fr.tmx": "<tmx/>"}, r"en-fr\.tmx is in no format known.*read so far"),
        ({"pairs/corpus.tmx.gz": "<tmx/>"}, r"corpus\.tmx\.gz is in no format known"),
        ({"pairs/en-fr.jsonl": "{}"}, "read so far"),
        ({"pairs/fr.tsv": "a\tb"}, r"fr\.tsv is in no format known"),
        ({"pairs/en-xx.tsv": "a\tb"}, r"en-xx\.tsv: 'xx' is no language code"),
        ({"pairs/en-eng.tsv": "a\tb"}, "pairs en with itself"),
        ({"pairs/en-fr.tsv": "a\tb", "pairs/eng-fra.tsv": "a\tb"}, "both hold en-fr"),
        ({"pairs/n.en-fr.en": "a"}, r"n\.en-fr\.en has no other side: put the fr side beside it"),
        ({"pairs/n.en-fr.de": "a"}, r"should end in \.en or \.fr"),
        ({"pairs/n.en-fr.en": "a", "pairs/n.en-fr.fr": "a", "pairs/n.en-fr.tsv": "a\tb"}, "one corpus twice"),
        ({"multi/en.txt": "a"}, r"multi/en\.txt is a file where a folder was expected"),
        ({"multi/n/en.txt": "a"}, "multi/n holds 1 languages"),
        ({"multi/n/en.txt": "a", "multi/n/eng.txt": "a"}, "are both en"),
        ({"multi/n/en.txt": "a", "multi/n/english.txt": "a"}, r"english\.txt: 'english' is no language code"),
        ({"multi/n/en.txt": "a", "multi/n/de.jsonl": "a"}, "read so far"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, files: dict[str, str | bytes], expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        Corpora(put(tmp_path, files))


@pytest.mark.parametrize("path", ["hf://wikipedia", Path("hf://wikipedia")])
def test_references_to_a_hub_are_not_read_yet(path: Path | str) -> None:
    with pytest.raises(BadInput, match=r"hf:.*read so far"):
        Corpora(path)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere is no folder"):
        Corpora(tmp_path / "nowhere")


# ---- text ------------------------------------------------------------------------------------------


def test_blank_lines_part_documents(tmp_path: Path) -> None:
    assert text(tmp_path, "\n\na\nb\n\n \t\n\nc\n") == [["a", "b"], ["c"]]
    assert text(tmp_path, "a\n\nb") == [["a"], ["b"]]


def test_lines_are_cleaned_but_never_split(tmp_path: Path) -> None:
    odd = "\ufeff  one\x00two\ttab\r\nx\x0by\x0cz\x1cq\x85n\u2028l\u2029p\n\u200bkept\u200d\u00ad\ufeff!\n"
    assert text(tmp_path, odd) == [["one two tab", "x y z q n l p", "\u200bkept\u200d\u00ad\ufeff!"]]


def test_malformed_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    assert text(tmp_path, b"a\nb\xff\nc\n\xed\xa0\x80\n\nd\n", counts) == [["a", "c"], ["d"]]
    assert counts == {"malformed utf-8": 2}


def test_an_endless_document_comes_in_pieces(tmp_path: Path) -> None:
    documents = text(tmp_path, "a\n" * (2 * LONGEST_DOCUMENT + 1))
    assert [len(document) for document in documents] == [LONGEST_DOCUMENT, LONGEST_DOCUMENT, 1]


def test_very_long_lines_are_read(tmp_path: Path) -> None:
    line = "möre " * 400_000 + "end"
    put(tmp_path, {"text/en.txt.zst": f"short\n{line}\nlast"})
    assert list(Corpora(tmp_path).text[0].documents()) == [["short", line, "last"]]


@pytest.mark.parametrize("suffix", PACK)
def test_memory_does_not_grow_with_the_file(tmp_path: Path, suffix: str) -> None:
    def peak(lines: int) -> int:
        content = "".join(f"{n * 7919 % 1_000_003} is number {n}\n\n" for n in range(lines))
        [source] = Corpora(put(tmp_path, {f"text/en.txt{suffix}": content})).text
        tracemalloc.start()
        assert sum(1 for _ in source.documents()) == lines
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    assert peak(80_000) < peak(20_000) + 500_000  # bytes; the files differ by 1.6 MB


# ---- pairs ------------------------------------------------------------------------------------------


def test_rows_of_a_table(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    table = b"a\tb\n one \t two\r\n\tno source\nno target\t \none column\n\na\tb\tc\nbad\xff\tb\n\xe2\x80\xa8x\ty\n"
    assert rows(tmp_path, {"pairs/en-fr.tsv": table}, counts) == [("a", "b"), ("one", "two"), ("x", "y")]
    assert counts == {"empty side": 2, "not two columns": 3, "malformed utf-8": 1}


def test_rows_of_two_sides(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    files: dict[str, str | bytes] = {
        "pairs/n.en-fr.en": "\ufeffone\n\ntwo\x0bhalves\u2028\nthree\nfour\ttab",
        "pairs/n.en-fr.fr.xz": b"un\nvide\ndeux\x85\xc2\x85\n\ntab\n",
    }
    assert rows(tmp_path, files, counts) == [("one", "un"), ("four tab", "tab")]
    assert counts == {"empty side": 2, "malformed utf-8": 1}


def test_sides_come_in_the_order_of_the_pair(tmp_path: Path) -> None:
    assert rows(tmp_path, {"pairs/n.sw-en.en": "one", "pairs/n.sw-en.sw": "moja"}) == [("moja", "one")]


@pytest.mark.parametrize("longer", ["en", "fr"])
def test_sides_of_unequal_length_are_refused(tmp_path: Path, longer: str) -> None:
    lines = {"en": "a\n" * 3, "fr": "a\n" * 3, longer: "a\n" * 5}
    put(tmp_path, {f"pairs/n.en-fr.{side}": content for side, content in lines.items()})
    counted = r"n\.en-fr\.en has {}, .*n\.en-fr\.fr has {}".format(*(5 if side == longer else 3 for side in lines))
    with pytest.raises(BadInput, match=counted):
        list(Corpora(tmp_path).pairs[0].rows())


# ---- multi-way ------------------------------------------------------------------------------------------


def test_missing_and_malformed_lines_are_empty(tmp_path: Path) -> None:
    put(tmp_path, {"multi/n/en.txt": "a\n\nc\u2028d\n", "multi/n/de.txt.gz": b"\xff\nb\r\nc"})
    [multi] = Corpora(tmp_path).multi
    counts: Counter[str] = Counter()
    assert list(multi.lines("en", counts)) == ["a", "", "c d"]
    assert list(multi.lines("de", counts)) == ["", "b", "c"]
    assert counts == {"malformed utf-8": 1}
    assert multi.check() == 3


def test_files_of_unequal_length_are_refused(tmp_path: Path) -> None:
    put(tmp_path, {"multi/n/en.txt": "a\nb\n", "multi/n/de.txt": "a\nb\n", "multi/n/sw.txt": "a\n"})
    with pytest.raises(BadInput, match=r"de\.txt has 2, .*en\.txt has 2, .*sw\.txt has 1"):
        Corpora(tmp_path).multi[0].check()


# ---- damaged files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\n\n \n", b"\xff\n\xfe\n"])
@pytest.mark.parametrize("suffix", PACK)
def test_a_file_without_a_usable_line_is_refused(tmp_path: Path, content: bytes, suffix: str) -> None:
    put(tmp_path, {f"text/en.txt{suffix}": content, f"pairs/en-fr.tsv{suffix}": content})
    put(tmp_path, {f"multi/n/{language}.txt{suffix}": content for language in ("en", "fr")})
    corpora = Corpora(tmp_path)
    for read in (corpora.text[0].documents, corpora.pairs[0].rows, lambda: corpora.multi[0].lines("en")):
        with pytest.raises(BadInput, match=rf"(en|en-fr)\.(txt|tsv){re.escape(suffix)}: not one usable line"):
            list(read())


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("harm", ["cut", "garbage", "overwritten"])
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str, harm: str) -> None:
    file = put(tmp_path, {f"text/en.txt{suffix}": "\n".join(map(str, range(20_000)))}) / f"text/en.txt{suffix}"
    packed = file.read_bytes()
    half = len(packed) // 2
    harmed = {"cut": packed[:half], "garbage": b"plain text\n", "overwritten": packed[:half] + b"\xaa" * half}
    file.write_bytes(harmed[harm])
    with pytest.raises(BadInput, match=rf"en\.txt{re.escape(suffix)} is cut short or damaged"):
        list(Corpora(tmp_path).text[0].documents())


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_packed_files_may_be_joined_end_to_end(tmp_path: Path, suffix: str) -> None:
    file = put(tmp_path, {f"text/en.txt{suffix}": "a\n"}) / f"text/en.txt{suffix}"
    file.write_bytes(file.read_bytes() * 3)
    assert list(Corpora(tmp_path).text[0].documents()) == [["a", "a", "a"]]


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    corpora = Corpora(put(tmp_path, {"text/en.txt": "a"}))
    (tmp_path / "text/en.txt").unlink()
    with pytest.raises(BadInput, match=r"en\.txt cannot be opened"):
        list(corpora.text[0].documents())


def test_without_zstandard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpora = Corpora(put(tmp_path, {"text/en.txt.zst": "a"}))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(BadInput, match=r"en\.txt\.zst needs .* pip install crossling\[data\]"):
        list(corpora.text[0].documents())


# ---- properties ------------------------------------------------------------------------------------------

CONTROL = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
readable = any_text.map(lambda text: text.translate(CONTROL).strip()).filter(lambda text: text and text[0] != "\ufeff")


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(readable, min_size=1), min_size=1), st.sampled_from(sorted(PACK)), st.sampled_from(["\n", "\r\n"])
)
def test_documents_come_back(documents: list[list[str]], suffix: str, newline: str) -> None:
    content = (newline * 2).join(newline.join(document) for document in documents)
    with corpora_of({f"text/en.txt{suffix}": content}) as corpora:
        assert list(corpora.text[0].documents()) == documents


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(readable, readable), min_size=1), st.sampled_from(sorted(PACK)))
def test_rows_come_back_from_a_table_and_from_two_sides(pairs: list[tuple[str, str]], suffix: str) -> None:
    table = "".join(f"{source}\t{target}\n" for source, target in pairs)
    source, target = ("\n".join(side) for side in zip(*pairs, strict=True))
    files = {"en-fr.tsv": table, "n.en-fr.en": source, "n.en-fr.fr": target}
    with corpora_of({f"pairs/{name}{suffix}": content for name, content in files.items()}) as corpora:
        assert [list(source.rows()) for source in corpora.pairs] == [pairs, pairs]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary().map(lambda raw: raw.replace(b"\n", b" ")), min_size=1), st.sampled_from(sorted(PACK)))
def test_no_bytes_ever_shift_a_row(raw: list[bytes], suffix: str) -> None:
    """Row n stays row n beside lines of any bytes, and every row is either given or counted."""
    raw = [*raw, b"the end"]
    numbers = "".join(f"{n}\n" for n in range(len(raw)))
    packed: dict[str, str | bytes] = {"multi/n/en.txt": numbers, f"multi/n/fr.txt{suffix}": b"\n".join(raw)}
    packed |= {"pairs/n.en-fr.en": numbers, f"pairs/n.en-fr.fr{suffix}": b"\n".join(raw)}
    counts: Counter[str] = Counter()
    with corpora_of(packed) as corpora:
        assert corpora.multi[0].check() == len(raw)
        lines = list(corpora.multi[0].lines("fr"))
        rows = list(corpora.pairs[0].rows(counts))
    assert len(lines) == len(raw)
    assert rows == [(str(n), line) for n, line in enumerate(lines) if line]
    assert len(rows) + counts.total() == len(raw)


# ---- real text ------------------------------------------------------------------------------------------

DATA = os.environ.get("CROSSLING_DATA")


@pytest.fixture(scope="module")
def real() -> Corpora:
    return Corpora(Path(DATA or "") / "pretrain")


def table(title: str) -> dict[str, dict[str, str]]:
    """Rows of the table below a title of the folder's README, by their first column."""
    readme = (Path(DATA or "") / "pretrain" / "README.md").read_text(encoding="utf-8")
    lines = readme.split(f"# {title}\n", 1)[1].split("\n#", 1)[0].splitlines()
    head, _, *body = [
        [cell.strip("` ") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")
    ]
    return {row[0]: dict(zip(head, row, strict=True)) for row in body}


@pytest.mark.skipif(not DATA, reason="CROSSLING_DATA names no folder of real text")
class TestRealText:
    def test_everything_listed_is_found(self, real: Corpora) -> None:
        assert {text.language for text in real.text} == set(table("Monolingual text"))
        sets = {name: row["languages"].split(": ")[1].split() for name, row in table("Parallel sets").items()}
        found = {multi.name: sorted(multi.files) for multi in real.multi}
        found |= {pairs.name: sorted(pairs.languages) for pairs in real.pairs}
        assert found == {name: sorted(languages) for name, languages in sets.items()}

    @pytest.mark.parametrize("language", ["en", "th", "el", "sw", "ckb", "my"])
    def test_lines_and_documents(self, real: Corpora, language: str) -> None:
        counts: Counter[str] = Counter()
        documents = list(next(text for text in real.text if text.language == language).documents(counts))
        row = table("Monolingual text")[language]
        assert (len(documents), sum(map(len, documents))) == (int(row["documents or blocks"]), int(row["lines"]))
        assert not counts

    @pytest.mark.parametrize("name", ["udhr", "ntrex-128", "tico-19", "storybooks"])
    def test_rows_and_filled_lines(self, real: Corpora, name: str) -> None:
        multi = next(multi for multi in real.multi if multi.name == name)
        filled = {language: sum(map(bool, multi.lines(language))) for language in multi.files}
        row = table("Parallel sets")[name]
        assert (multi.check(), sum(filled.values())) == (int(row["rows"]), int(row["filled lines"]))
        listed = table("Filled lines for the 15 XNLI languages")[name]
        assert all(filled[code] == int(number) for code, number in listed.items() if number.isdigit())

    def test_the_moses_pair(self, real: Corpora) -> None:
        counts: Counter[str] = Counter()
        [pairs] = real.pairs
        assert sum(1 for _ in pairs.rows(counts)) == 12_000
        assert not counts
