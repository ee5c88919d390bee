"""Cleaning drops exactly the rows that the rules find, and writes a folder of corpora."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.cleaning.clean import clean
from crossling.cleaning.rules import ALL_RULES, TOO_FEW_PAIRS, Reason, Rules
from crossling.corpora.corpus import Corpora

SENTENCES = [
    "The old harbour was closed to ships because the winter storms had broken its wall.",
    "The old harbour was closed to ships because the winter storms had broken its walls.",
    "Le vieux port était fermé aux navires car les tempêtes de l'hiver avaient brisé son mur.",
    "Nobody in the village knew when the school had last been painted.",
    "Personne au village ne se rappelait quand l'école avait été peinte pour la dernière fois.",
    "Ja.",
    "x",
    "12 000 - 34",
    "\ufeffWith a mark before it, as files have it.",
    "A line with # [markup] <b>and</b> tabs.",
]


def write(folder: Path, files: dict[str, str]) -> Corpora:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return Corpora(folder)


def run_clean(corpora: Corpora, out: Path, rules: Rules = ALL_RULES, **options: Any) -> dict[str, Any]:
    report = clean(corpora, out, rules, **options)
    assert report is not None
    return report


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def lines(file: Path) -> list[str]:
    return gzip.decompress(file.read_bytes()).decode().removesuffix("\n").split("\n")


# ---- output files --------------------------------------------------------------------------------------------


def test_every_kind_of_corpus_keeps_its_format(tmp_path: Path) -> None:
    a, b, c = SENTENCES[0], SENTENCES[3], SENTENCES[9]
    corpora = write(
        tmp_path / "corpora",
        {
            "text/en.txt": f"{a}\n{b}\n\n{a}\n\nx\n{c}\n",
            "text/de.txt": "x\n",
            "pairs/NAME.en-pt_BR.tsv": f"{a}\tum\n{b}\tdois\n{a}\tum\n{c}\ty\nno tab\n",
            "pairs/en-de.en": "one\nx\n",
            "pairs/en-de.de": "eins\nzwei\n",
            "multi/set/en.txt": f"{a}\n{b}\n\n{a}\n",
            "multi/set/fr.txt": "un\n\nseul\nun\n",
            "multi/set/nl.txt": "x\n\n\nx\n",
        },
    )
    report = run_clean(corpora, tmp_path / "out", Rules(length=(2, 1000), duplicates=True))
    out = tmp_path / "out"
    assert sorted(contents(out)) == [
        "cleaning.json",
        "multi/set/en.txt.gz",
        "multi/set/fr.txt.gz",
        "pairs/NAME.en-pt_BR.tsv.gz",
        "pairs/en-de.tsv.gz",
        "text/en.txt.gz",
    ]
    assert lines(out / "text" / "en.txt.gz") == [a, b, "", c]
    assert lines(out / "pairs" / "NAME.en-pt_BR.tsv.gz") == [f"{a}\tum", f"{b}\tdois"]
    assert lines(out / "pairs" / "en-de.tsv.gz") == ["one\teins"]
    assert lines(out / "multi" / "set" / "en.txt.gz") == [a, b, "", a]  # the pivot repeats as often as it is translated
    assert lines(out / "multi" / "set" / "fr.txt.gz") == ["un", "", "seul", ""]
    assert report == json.loads((out / "cleaning.json").read_text(encoding="utf-8"))
    assert report["removed"] == {"text/de": "nothing kept", "multi/set/nl": "nothing kept"}
    rows = {row["corpus"]: (row["read"], row["kept"], row["reasons"]) for row in report["corpora"]}
    assert rows["pairs/NAME.en-pt_BR"] == (5, 2, {Reason.DUPLICATE: 1, Reason.TOO_SHORT: 1, "not two columns": 1})
    assert rows["multi/set/fr"] == (3, 2, {Reason.DUPLICATE: 1})
    assert Corpora(out).languages == ("de", "en", "fr", "pt-BR")


def test_a_multiway_corpus_with_one_language_left_is_removed(tmp_path: Path) -> None:
    files = {"multi/set/en.txt": "one\ntwo\n", "multi/set/de.txt": "x\ny\n", "text/en.txt": "one\n"}
    report = run_clean(write(tmp_path / "corpora", files), tmp_path / "out", Rules(length=(2, 100)))
    assert report["removed"] == {"multi/set/de": "nothing kept", "multi/set/en": "no other language left"}
    assert not (tmp_path / "out" / "multi").exists()
    [row] = [row for row in report["corpora"] if row["corpus"] == "multi/set/en"]
    assert (row["read"], row["kept"], row["reasons"]) == (2, 0, {"no other language left": 2})


def test_pairs_below_the_least_score_are_dropped(tmp_path: Path) -> None:
    files = {"pairs/ccmatrix.en-fr.tsv": "1.3\tone\tun\n0.9\ttwo\tdeux\n1.1\tthree\ttrois\n"}
    corpora = write(tmp_path / "corpora", files)
    report = run_clean(corpora, tmp_path / "out", Rules(min_score=1.1))
    assert lines(tmp_path / "out" / "pairs" / "ccmatrix.en-fr.tsv.gz") == ["one\tun", "three\ttrois"]
    [row] = report["corpora"]
    assert (row["read"], row["kept"], row["reasons"]) == (3, 2, {"low score": 1})
    assert report["rules"]["min_score"] == 1.1
    assert run_clean(corpora, tmp_path / "out", Rules(min_score=1.1)) == report
    assert "min_score" not in Rules(duplicates=True).to_json()
    more = write(tmp_path / "more", files | {"pairs/ccmatrix.en-de.tsv": "0.2\tone\teins\n"})  # all are below
    report = run_clean(more, tmp_path / "fewer", Rules(min_score=1.1))
    assert report["removed"] == {"pairs/ccmatrix.en-de": "nothing kept"}
    assert (tmp_path / "fewer" / "pairs" / "ccmatrix.en-fr.tsv.gz").is_file()


def test_files_without_scores_are_reported(tmp_path: Path) -> None:
    scored = {"pairs/ccmatrix.en-fr.tsv": "1.3\tone\tun\n0.9\ttwo\tdeux\n"}
    plain = {"pairs/opus.en-de.tsv": "one\teins\n", "pairs/moses.en-fr.en": "one\n", "pairs/moses.en-fr.fr": "un\n"}
    corpora = write(tmp_path / "corpora", scored | plain)
    message = r"min_score=1\.1: 3 of 4 files of pairs have no scores and keep all their pairs \(.*opus\.en-de\.tsv"
    with pytest.warns(UserWarning, match=message):
        run_clean(corpora, tmp_path / "out", Rules(min_score=1.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_clean(write(tmp_path / "scored", scored), tmp_path / "other", Rules(min_score=1.1))


def test_bytes_depend_on_the_text_alone(tmp_path: Path) -> None:
    corpora = write(tmp_path / "corpora", {"text/en.txt": "one\ntwo\n"})
    run_clean(corpora, tmp_path / "a")
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(tmp_path / "corpora", tmp_path / "elsewhere" / "corpora")
    run_clean(Corpora(tmp_path / "elsewhere" / "corpora"), tmp_path / "elsewhere" / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "elsewhere" / "b")


def test_lines_with_benchmark_sentences_are_dropped(tmp_path: Path) -> None:
    corpora = write(
        tmp_path / "corpora", {"text/en.txt": f"{SENTENCES[3]}\nIt is so. {SENTENCES[0]}\n{SENTENCES[1]}\n"}
    )
    (tmp_path / "data" / "x").mkdir(parents=True)
    (tmp_path / "data" / "x" / "test.txt").write_text(SENTENCES[0])
    report = run_clean(corpora, tmp_path / "out", Rules(against=tmp_path / "data"))
    assert lines(tmp_path / "out" / "text" / "en.txt.gz") == [SENTENCES[3]]
    assert report["benchmarks"][0]["exact"] == 1
    assert (
        run_clean(Corpora(tmp_path / "out"), tmp_path / "again", Rules(against=tmp_path / "data"))["benchmarks"][0][
            "corpora"
        ]
        == {}
    )


# ---- languages with few pairs -------------------------------------------------------------------------------


def test_bitext_of_small_languages_is_removed_and_their_text_kept(tmp_path: Path) -> None:
    def rows(first: str, second: str, count: int) -> str:
        return "".join(f"{first} {n}\t{second} {n}\n" for n in range(count))

    def column(word: str, count: int) -> str:
        return "".join(f"{word} {n}\n" if n < count else "\n" for n in range(10))

    files = {
        "text/sw.txt": "moja\nmbili\n",
        "pairs/en-fr.tsv": rows("one", "un", 20),
        "pairs/en-sw.tsv": rows("one", "moja", 5),
        "multi/set/en.txt": column("three", 10),
        "multi/set/fr.txt": column("trois", 10),
        "multi/set/sw.txt": column("tatu", 2),
    }
    report = run_clean(write(tmp_path / "corpora", files), tmp_path / "out", Rules(min_pairs=10))
    assert report["languages with too few pairs"] == {
        "sw": 9
    }  # 5, and 2 with each of the other two languages of the multi-way corpus
    assert report["removed"] == {"pairs/en-sw": TOO_FEW_PAIRS, "multi/set/sw": TOO_FEW_PAIRS}
    assert report["pairs"] == {"en": 30, "fr": 30}
    assert [row["reasons"] for row in report["corpora"] if row["corpus"] == "pairs/en-sw"] == [{TOO_FEW_PAIRS: 5}]
    corpora = Corpora(tmp_path / "out")
    assert [text.language for text in corpora.text] == ["sw"]
    assert [pairs.languages for pairs in corpora.pairs] == [("en", "fr")]
    assert [list(multi.sources) for multi in corpora.multi] == [["en", "fr"]]


# ---- properties ---------------------------------------------------------------------------------------------

sentence = st.sampled_from(SENTENCES)
cell = st.sampled_from([*SENTENCES, "", ""])
everything = replace(ALL_RULES, many_to_one=2, ratio=1.5)
some_rules = st.builds(
    Rules,
    length=st.sampled_from([None, (2, 80)]),
    **{name: st.booleans() for name in ("language", "copies", "near_copies", "duplicates", "near_duplicates")},
    many_to_one=st.sampled_from([None, 1, 2]),
    ratio=st.sampled_from([None, 1.5]),
    min_pairs=st.sampled_from([None, 4]),
).filter(bool)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(sentence, min_size=1, max_size=8), min_size=1, max_size=4),
    st.lists(st.tuples(sentence, sentence), min_size=1, max_size=40),
    st.lists(st.tuples(sentence, cell, cell), min_size=1, max_size=30),
    some_rules | st.just(everything),
)
def test_cleaned_corpora_match_the_report_and_are_clean(
    documents: list[list[str]], pairs: list[tuple[str, str]], multi: list[tuple[str, str, str]], rules: Rules
) -> None:
    # Flushing takes most of the time, and is not tested here.
    with tempfile.TemporaryDirectory() as name, patch("crossling.core.files._flush"):
        folder = Path(name)
        files = {
            "text/en.txt": "\n\n".join("\n".join(document) for document in documents) + "\n",
            "text/sw.txt": "Moja kwa moja.\n",  # never empty
            "pairs/en-fr.tsv": "".join(f"{a}\t{b}\n" for a, b in pairs) + "one column\n",
        }
        for position, language in enumerate(("en", "de", "fr")):
            column = [row[position] for row in multi]
            column[0] = column[0] or "Ja."
            files[f"multi/set/{language}.txt"] = "\n".join(column) + "\n"
        report = run_clean(write(folder / "corpora", files), folder / "once", rules)
        for row in report["corpora"]:
            assert row["kept"] + sum(row["reasons"].values()) == row["read"]
        # The output is a folder of corpora with the counted rows.
        once = Corpora(folder / "once")
        kept = {row["corpus"]: row["kept"] for row in report["corpora"]}
        assert {f"text/{text.language}": sum(map(len, text.documents())) for text in once.text}.items() <= kept.items()
        for bitext in once.pairs:
            written = list(bitext.rows())
            assert len(written) == kept["pairs/en-fr"]
            assert set(written) <= {(a.strip().lstrip("\ufeff"), b) for a, b in pairs} | set(pairs)
        for many in once.multi:
            assert many.count_rows() == len(multi)
            for language in many.sources:
                assert sum(map(bool, many.lines(language))) == kept[f"multi/set/{language}"]
        # Cleaning again changes nothing.
        again = run_clean(once, folder / "twice", rules)
        assert not any(row["reasons"] for row in again["corpora"])
        assert not again["removed"]
        first, second = contents(folder / "once"), contents(folder / "twice")
        first.pop("cleaning.json")
        second.pop("cleaning.json")
        assert first == second
