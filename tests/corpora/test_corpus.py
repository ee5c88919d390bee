"""Tests of corpora: lines, rows and documents as written, skipped lines, priorities, and errors."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.corpora import corpus
from crossling.corpora.corpus import MAX_DOCUMENT_LINES, Corpora, ParallelCorpus
from crossling.corpora.text_files import MAX_LINE_BYTES

from .sample_files import COMPRESS, corpora_of, put, readable


def text(root: Path, content: str | bytes, counts: Counter[str] | None = None) -> list[list[str]]:
    put(root, {"text/en.txt": content})
    return list(Corpora(root).text[0].documents(counts))


def rows(root: Path, files: dict[str, str | bytes], counts: Counter[str] | None = None) -> list[tuple[str, str]]:
    put(root, files)
    return list(Corpora(root).pairs[0].rows(counts))


# ---- text ------------------------------------------------------------------------------------------


def test_blank_lines_separate_documents(tmp_path: Path) -> None:
    assert text(tmp_path, "\n\na\nb\n\n \t\n\nc\n") == [["a", "b"], ["c"]]
    assert text(tmp_path, "a\n\nb") == [["a"], ["b"]]


def test_lines_are_cleaned_but_never_split(tmp_path: Path) -> None:
    odd = "\ufeff  one\x00two\ttab\r\nx\x0by\x0cz\x1cq\x85n\u2028l\u2029p\n\u200bkept\u200d\u00ad\ufeff!\n"
    assert text(tmp_path, odd) == [["one two tab", "x y z q n l p", "\u200bkept\u200d\u00ad\ufeff!"]]


def test_malformed_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    assert text(tmp_path, b"a\nb\xff\nc\n\xed\xa0\x80\n\nd\n", counts) == [["a", "c"], ["d"]]
    assert counts == {"malformed utf-8": 2}


def test_an_endless_document_is_split_by_lines(tmp_path: Path) -> None:
    documents = text(tmp_path, "a\n" * (2 * MAX_DOCUMENT_LINES + 1))
    assert [len(document) for document in documents] == [MAX_DOCUMENT_LINES, MAX_DOCUMENT_LINES, 1]


def test_an_endless_document_of_long_lines_is_split_by_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "MAX_DOCUMENT_CHARACTERS", 10)
    assert text(tmp_path, "12345\n12345\n1\n2\n\n3\n") == [["12345", "12345", "1"], ["2"], ["3"]]


def test_very_long_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    fits, longer = "é" * (MAX_LINE_BYTES // 2), "é" * (MAX_LINE_BYTES // 2) + "x"
    assert text(tmp_path, f"short\n{fits}\n{longer}\n\nlast\n{longer}", counts) == [["short", fits], ["last"]]
    assert counts == {"line too long": 2}


# ---- pairs ------------------------------------------------------------------------------------------


def test_rows_of_tsv(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    table = b"a\tb\n one \t two\r\n\tno source\nno target\t \none column\n\na\tb\tc\nbad\xff\tb\n\xe2\x80\xa8x\ty\n"
    assert rows(tmp_path, {"pairs/en-fr.tsv": table}, counts) == [("a", "b"), ("one", "two"), ("x", "y")]
    assert counts == {"empty side": 2, "not two columns": 3, "malformed utf-8": 1}


def test_rows_of_moses_files(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    files: dict[str, str | bytes] = {
        "pairs/n.en-fr.en": "\ufeffone\n\ntwo\x0bhalves\u2028\nthree\nfour\ttab",
        "pairs/n.en-fr.fr.xz": b"un\nvide\ndeux\x85\xc2\x85\n\ntab\n",
    }
    assert rows(tmp_path, files, counts) == [("one", "un"), ("four tab", "tab")]
    assert counts == {"empty side": 2, "malformed utf-8": 1}


def test_sides_have_the_order_of_the_pair(tmp_path: Path) -> None:
    assert rows(tmp_path, {"pairs/n.sw-en.en": "one", "pairs/n.sw-en.sw": "moja"}) == [("moja", "one")]


@pytest.mark.parametrize("longer", ["en", "fr"])
def test_sides_of_unequal_length_are_refused(tmp_path: Path, longer: str) -> None:
    lines = {"en": "a\n" * 3, "fr": "a\n" * 3, longer: "a\n" * 5}
    put(tmp_path, {f"pairs/n.en-fr.{side}": content for side, content in lines.items()})
    counted = r"n\.en-fr\.en has {}, .*n\.en-fr\.fr has {}".format(*(5 if side == longer else 3 for side in lines))
    with pytest.raises(BadInput, match=counted):
        list(Corpora(tmp_path).pairs[0].rows())


def test_a_long_first_line_with_a_byte_order_mark_shifts_no_row(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    files: dict[str, str | bytes] = {
        "pairs/n.en-fr.en": b"\xef\xbb\xbf" + b"a" * (MAX_LINE_BYTES + 9) + b"\ntwo\nthree",
        "pairs/n.en-fr.fr": b"un\ndeux\ntrois",
    }
    assert rows(tmp_path, files, counts) == [("two", "deux"), ("three", "trois")]
    assert counts == {"line too long": 1}


# ---- multiway -------------------------------------------------------------------------------------------


def test_missing_and_malformed_lines_are_empty(tmp_path: Path) -> None:
    put(tmp_path, {"multi/n/en.txt": "a\n\nc\u2028d\n", "multi/n/de.txt.gz": b"\xff\nb\r\nc"})
    [multi] = Corpora(tmp_path).multi
    counts: Counter[str] = Counter()
    assert list(multi.lines("en", counts)) == ["a", "", "c d"]
    assert list(multi.lines("de", counts)) == ["", "b", "c"]
    assert counts == {"malformed utf-8": 1}
    assert multi.count_rows() == 3


def test_files_of_unequal_length_are_refused(tmp_path: Path) -> None:
    put(tmp_path, {"multi/n/en.txt": "a\nb\n", "multi/n/de.txt": "a\nb\n", "multi/n/sw.txt": "a\n"})
    with pytest.raises(BadInput, match=r"de\.txt has 2, .*en\.txt has 2, .*sw\.txt has 1"):
        Corpora(tmp_path).multi[0].count_rows()


def test_lines_that_are_too_long_become_empty(tmp_path: Path) -> None:
    longer = "x" * (MAX_LINE_BYTES + 1)
    put(tmp_path, {"multi/n/en.txt": f"a\n{longer}\nc\n", "multi/n/de.txt.gz": f"{longer}\nb\nc"})
    put(tmp_path, {"pairs/n.en-de.en": f"a\n{longer}\nc\n", "pairs/n.en-de.de.gz": f"{longer}\nb\nc"})
    corpora = Corpora(tmp_path)
    counts: Counter[str] = Counter()
    assert corpora.multi[0].count_rows() == 3
    assert list(corpora.multi[0].lines("en", counts)) == ["a", "", "c"]
    assert list(corpora.multi[0].lines("de", counts)) == ["", "b", "c"]
    assert list(corpora.pairs[0].rows(counts)) == [("c", "c")]
    assert counts == {"line too long": 4}


# ---- lines of a language -----------------------------------------------------------------------------------------


def test_all_lines_of_a_language(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "text/en.txt": "a\n\nb\n",
            "text/fr.txt": "x\n",
            "pairs/fr-en.tsv": "x\tc\n",
            "pairs/n.en-de.tsv": "d\tx\n\tx\n",
            "multi/n/de.txt": "x\nx\nx\n",
            "multi/n/en.txt": "e\n\nf\n",
        },
    )
    corpora = Corpora(tmp_path)
    assert list(corpora.lines("en")) == ["a", "b", "c", "d", "e", "f"]
    assert list(corpora.lines("fr")) == ["x", "x"]
    assert list(corpora.lines("sw")) == []


# ---- priority ------------------------------------------------------------------------------------------


@pytest.fixture
def collections(tmp_path: Path) -> Path:
    """Folder with en-fr in four collections, en-de and fr-sw in two, de-fr in one."""
    files = ("en-fr", "ccmatrix.en-fr", "ccmatrix.fr-sw", "aligned.fr-en", "aligned.en-de", "aligned.sw-fr")
    put(tmp_path, {f"pairs/{file}.tsv": "a\tb" for file in files})
    return put(tmp_path, {f"multi/bible/{language}.txt": "a\n" for language in ("en", "fr", "de")})


def labels_and_exclusions(folder: Path, priority: tuple[str, ...]) -> tuple[list[str], dict[str, list[str]]]:
    corpora = Corpora(folder, priority=priority)
    excluded = {multi.name: sorted("-".join(pair) for pair in multi.excluded_pairs) for multi in corpora.multi}
    return [pairs.label for pairs in corpora.pairs], excluded


def test_without_priority_nothing_is_excluded(collections: Path) -> None:
    labels = ["en-fr", "aligned.en-de", "aligned.fr-en", "aligned.sw-fr", "ccmatrix.en-fr", "ccmatrix.fr-sw"]
    assert labels_and_exclusions(collections, ()) == (labels, {"bible": []})


@pytest.mark.parametrize(
    ("priority", "labels", "excluded"),
    [
        # Other collections follow in alphabetical order: aligned, bible, ccmatrix, unnamed.
        (("ccmatrix",), ["aligned.en-de", "ccmatrix.en-fr", "ccmatrix.fr-sw"], {"bible": ["de-en", "en-fr"]}),
        (("bible",), ["aligned.sw-fr"], {"bible": []}),
        (("bible", "ccmatrix"), ["ccmatrix.fr-sw"], {"bible": []}),
        (("unnamed",), ["en-fr", "aligned.en-de", "aligned.sw-fr"], {"bible": ["de-en", "en-fr"]}),
        (("aligned",), ["aligned.en-de", "aligned.fr-en", "aligned.sw-fr"], {"bible": ["de-en", "en-fr"]}),
        (("unnamed", "bible", "ccmatrix"), ["en-fr", "ccmatrix.fr-sw"], {"bible": ["en-fr"]}),
    ],
)
def test_a_pair_comes_from_the_first_collection_that_has_it(
    collections: Path, priority: tuple[str, ...], labels: list[str], excluded: dict[str, list[str]]
) -> None:
    assert labels_and_exclusions(collections, priority) == (labels, excluded)


def test_a_multiway_corpus_without_remaining_pairs_is_dropped(tmp_path: Path) -> None:
    put(tmp_path, {"pairs/en-fr.tsv": "a\tb", "pairs/n.de-en.tsv": "a\tb"})
    put(tmp_path, {f"multi/n/{language}.txt": "a\n" for language in ("en", "fr")})
    corpora = Corpora(tmp_path, priority=["unnamed"])
    assert ([pairs.label for pairs in corpora.pairs], corpora.multi) == (["en-fr", "n.de-en"], ())
    assert corpora.languages == ("de", "en", "fr")
    assert labels_and_exclusions(tmp_path, ("n",)) == (["n.de-en"], {"n": []})


def test_an_unknown_collection_is_refused_with_a_suggestion(collections: Path) -> None:
    with pytest.raises(BadInput, match=r"priority 'CCMatrix': unknown collection; did you mean 'ccmatrix'"):
        Corpora(collections, priority=("bible", "CCMatrix"))
    with pytest.raises(BadInput, match=r"priority '': unknown collection; valid: aligned, bible, ccmatrix, unnamed"):
        Corpora(collections, priority=("",))


# ---- damaged files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\n\n \n", b"\xff\n\xfe\n"])
@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_without_a_usable_line_is_refused(tmp_path: Path, content: bytes, suffix: str) -> None:
    put(tmp_path, {f"text/en.txt{suffix}": content, f"pairs/en-fr.tsv{suffix}": content})
    put(tmp_path, {f"multi/n/{language}.txt{suffix}": content for language in ("en", "fr")})
    corpora = Corpora(tmp_path)
    for read in (corpora.text[0].documents, corpora.pairs[0].rows, lambda: corpora.multi[0].lines("en")):
        with pytest.raises(BadInput, match=rf"(en|en-fr)\.(txt|tsv){re.escape(suffix)}: no usable line"):
            list(read())


def test_a_removed_file_is_named(tmp_path: Path) -> None:
    corpora = Corpora(put(tmp_path, {"text/en.txt": "a"}))
    (tmp_path / "text/en.txt").unlink()
    with pytest.raises(BadInput, match=r"en\.txt: cannot be opened"):
        list(corpora.text[0].documents())


# ---- properties ------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(readable, min_size=1), min_size=1),
    st.sampled_from(sorted(COMPRESS)),
    st.sampled_from(["\n", "\r\n"]),
)
def test_documents_are_read_as_written(documents: list[list[str]], suffix: str, newline: str) -> None:
    content = (newline * 2).join(newline.join(document) for document in documents)
    with corpora_of({f"text/en.txt{suffix}": content}) as corpora:
        assert list(corpora.text[0].documents()) == documents


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(readable, readable), min_size=1), st.sampled_from(sorted(COMPRESS)))
def test_rows_of_tsv_and_moses_files_are_read_as_written(pairs: list[tuple[str, str]], suffix: str) -> None:
    table = "".join(f"{source}\t{target}\n" for source, target in pairs)
    source, target = ("\n".join(side) for side in zip(*pairs, strict=True))
    files = {"en-fr.tsv": table, "n.en-fr.en": source, "n.en-fr.fr": target}
    with corpora_of({f"pairs/{name}{suffix}": content for name, content in files.items()}) as corpora:
        assert [list(source.rows()) for source in corpora.pairs] == [pairs, pairs]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary().map(lambda raw: raw.replace(b"\n", b" ")), min_size=1), st.sampled_from(sorted(COMPRESS)))
def test_no_bytes_shift_a_row(raw: list[bytes], suffix: str) -> None:
    """Row n stays row n beside lines of any bytes, and every row is either returned or counted."""
    raw = [b"no byte order mark", *raw, b"x" * (MAX_LINE_BYTES + 1), b"the end"]
    numbers = "".join(f"{n}\n" for n in range(len(raw)))
    packed: dict[str, str | bytes] = {"multi/n/en.txt": numbers, f"multi/n/fr.txt{suffix}": b"\n".join(raw)}
    packed |= {"pairs/n.en-fr.en": numbers, f"pairs/n.en-fr.fr{suffix}": b"\n".join(raw)}
    counts: Counter[str] = Counter()
    with corpora_of(packed) as corpora:
        assert corpora.multi[0].count_rows() == len(raw)
        lines = list(corpora.multi[0].lines("fr"))
        rows = list(corpora.pairs[0].rows(counts))
    assert len(lines) == len(raw)
    assert rows == [(str(n), line) for n, line in enumerate(lines) if line]
    assert len(rows) + counts.total() == len(raw)


@settings(deadline=None)
@given(st.binary(), st.sampled_from(sorted(COMPRESS)))
def test_every_row_of_tsv_is_returned_or_counted(raw: bytes, suffix: str) -> None:
    content = b"a\tb\n" + raw.replace(b" ", b"\t")
    counts: Counter[str] = Counter()
    with corpora_of({f"pairs/en-fr.tsv{suffix}": content}) as corpora:
        found = list(corpora.pairs[0].rows(counts))
    assert found[0] == ("a", "b")
    assert len(found) + counts.total() == len(content.removesuffix(b"\n").split(b"\n"))


# ---- real text ------------------------------------------------------------------------------------------

DATA = os.environ.get("CROSSLING_DATA")


@pytest.fixture(scope="module")
def real() -> Corpora:
    return Corpora(Path(DATA or "") / "pretrain")


def table(title: str) -> dict[str, dict[str, str]]:
    """Return the rows of the table below a title of the README, by their first column."""
    readme = (Path(DATA or "") / "pretrain" / "README.md").read_text(encoding="utf-8")
    lines = readme.split(f"# {title}\n", 1)[1].split("\n#", 1)[0].splitlines()
    head, _, *body = [
        [cell.strip("` ") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")
    ]
    return {row[0]: dict(zip(head, row, strict=True)) for row in body}


def collections_of_pairs(real: Corpora) -> dict[str, list[ParallelCorpus]]:
    """Return the parallel corpora by the name of their collection in the README."""
    multiway = {multi.name for multi in real.multi}
    collections: dict[str, list[ParallelCorpus]] = {}
    for pairs in real.pairs:
        collections.setdefault(f"{pairs.name}` pairs" if pairs.name in multiway else pairs.name, []).append(pairs)
    return collections


@pytest.mark.skipif(not DATA, reason="CROSSLING_DATA is not set to a folder of real text")
class TestRealText:
    def test_all_listed_corpora_are_found(self, real: Corpora) -> None:
        assert {text.language for text in real.text} == set(table("Monolingual text"))
        found = {multi.name: f"{len(multi.sources)}: {' '.join(sorted(multi.sources))}" for multi in real.multi}
        for name, corpora in collections_of_pairs(real).items():
            languages = sorted({language for pairs in corpora for language in pairs.languages})
            found[name] = f"{len(languages)}: {' '.join(languages)}"
            if len(corpora) > 1:
                found[name] = f"{len(corpora)} language pairs"
        listed = {name: row["languages"].split(" of ")[0] for name, row in table("Parallel sets").items()}
        assert {name: sorted(text.split()) for name, text in found.items()} == {
            name: sorted(text.split()) for name, text in listed.items()
        }

    def test_lines_and_documents(self, real: Corpora) -> None:
        counts: Counter[str] = Counter()
        found = {}
        for text in real.text:
            lengths = [len(document) for document in text.documents(counts)]
            found[text.language] = (sum(lengths), len(lengths))
        listed = table("Monolingual text")
        assert found == {name: (int(row["lines"]), int(row["documents or blocks"])) for name, row in listed.items()}
        assert not counts

    def test_rows_and_filled_lines(self, real: Corpora) -> None:
        counts: Counter[str] = Counter()
        filled = {
            multi.name: {language: sum(map(bool, multi.lines(language, counts))) for language in multi.languages}
            for multi in real.multi
        }
        lengths = {multi.name: multi.count_rows() for multi in real.multi}
        for name, corpora in collections_of_pairs(real).items():
            lengths[name] = sum(1 for pairs in corpora for _ in pairs.rows(counts))
            filled[name] = dict.fromkeys(corpora[0].languages, lengths[name])
        sets = table("Parallel sets")
        assert lengths == {name: int(row["rows"]) for name, row in sets.items()}
        assert {name: sum(lines.values()) for name, lines in filled.items()} == {
            name: int(row["filled lines"]) for name, row in sets.items()
        }
        assert not counts
        for name, row in table("Filled lines for the 15 XNLI languages").items():
            if not name.startswith("**"):
                listed = {code: number for code, number in row.items() if code != "set"}
                assert len(listed) == 15
                assert {code: str(filled[name].get(code, "–")) for code in listed} == listed


def test_corpora_of_several_folders_are_collected(tmp_path: Path) -> None:
    put(tmp_path / "one", {"pairs/en-fr.tsv": "a\tb\n", "text/en.txt": "a\n"})
    put(tmp_path / "two", {"multi/some/de.txt": "a\n", "multi/some/en.txt": "b\n"})
    one, two = Corpora(tmp_path / "one"), Corpora(tmp_path / "two")
    collected = Corpora.of_translations([*one.pairs, *two.multi])
    assert (collected.text, collected.pairs, collected.multi) == ((), one.pairs, two.multi)
    assert collected.languages == ("de", "en", "fr")
