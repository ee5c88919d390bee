"""Cleaning drops what was asked for and nothing else, gives a folder of corpora, and can be repeated and shared."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.babel import Noise, babel
from crossling.corpora.corpus import Corpora
from crossling.errors import BadInput
from crossling.quality import clean as module
from crossling.quality.clean import clean, too_few
from crossling.quality.rules import ALL, COPY, DUPLICATE, TOO_FEW_PAIRS, TOO_SHORT, Rules
from crossling.tasks import Share

SENTENCES = [
    "The old harbour was closed to ships because the winter storms had broken its wall.",
    "The old harbour was closed to ships because the winter storms had broken its walls.",
    "Le vieux port était fermé aux navires car les tempêtes de l'hiver avaient brisé son mur.",
    "Nobody in the village remembered when the school had last been painted.",
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


def cleaned(corpora: Corpora, out: Path, rules: Rules = ALL, **options: Any) -> dict[str, Any]:
    report = clean(corpora, out, rules, **options)
    assert report is not None
    return report


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def lines(file: Path) -> list[str]:
    return gzip.decompress(file.read_bytes()).decode().removesuffix("\n").split("\n")


# ---- what is written ----------------------------------------------------------------------------------------


def test_every_kind_of_corpus_comes_back_in_its_form(tmp_path: Path) -> None:
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
    report = cleaned(corpora, tmp_path / "out", Rules(length=(2, 1000), duplicates=True))
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
    assert report["gone"] == {"text/de": "nothing kept", "multi/set/nl": "nothing kept"}
    rows = {row["corpus"]: (row["read"], row["kept"], row["reasons"]) for row in report["corpora"]}
    assert rows["pairs/NAME.en-pt_BR"] == (5, 2, {DUPLICATE: 1, TOO_SHORT: 1, "not two columns": 1})
    assert rows["multi/set/fr"] == (3, 2, {DUPLICATE: 1})
    assert Corpora(out).languages == ("de", "en", "fr", "pt-BR")


def test_a_set_with_one_language_left_goes(tmp_path: Path) -> None:
    files = {"multi/set/en.txt": "one\ntwo\n", "multi/set/de.txt": "x\ny\n", "text/en.txt": "one\n"}
    report = cleaned(write(tmp_path / "corpora", files), tmp_path / "out", Rules(length=(2, 100)))
    assert report["gone"] == {"multi/set/de": "nothing kept", "multi/set/en": "no other language left"}
    assert not (tmp_path / "out" / "multi").exists()
    [row] = [row for row in report["corpora"] if row["corpus"] == "multi/set/en"]
    assert (row["read"], row["kept"], row["reasons"]) == (2, 0, {"no other language left": 2})


def test_bytes_depend_on_the_text_alone(tmp_path: Path) -> None:
    corpora = write(tmp_path / "corpora", {"text/en.txt": "one\ntwo\n"})
    cleaned(corpora, tmp_path / "a")
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(tmp_path / "corpora", tmp_path / "elsewhere" / "corpora")
    cleaned(Corpora(tmp_path / "elsewhere" / "corpora"), tmp_path / "elsewhere" / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "elsewhere" / "b")


def test_lines_with_benchmark_sentences_are_dropped(tmp_path: Path) -> None:
    corpora = write(
        tmp_path / "corpora", {"text/en.txt": f"{SENTENCES[3]}\nIt is so. {SENTENCES[0]}\n{SENTENCES[1]}\n"}
    )
    (tmp_path / "data" / "x").mkdir(parents=True)
    (tmp_path / "data" / "x" / "test.txt").write_text(SENTENCES[0])
    report = cleaned(corpora, tmp_path / "out", Rules(against=tmp_path / "data"))
    assert lines(tmp_path / "out" / "text" / "en.txt.gz") == [SENTENCES[3]]
    assert report["benchmarks"][0]["exact"] == 1
    assert (
        cleaned(Corpora(tmp_path / "out"), tmp_path / "again", Rules(against=tmp_path / "data"))["benchmarks"][0][
            "corpora"
        ]
        == {}
    )


# ---- languages with few pairs -------------------------------------------------------------------------------


def test_each_language_that_goes_takes_pairs_along() -> None:
    pairs = {("a", "b"): 10, ("b", "c"): 6, ("c", "d"): 3, ("a", "e"): 20}
    assert too_few(pairs, 5) == {"d": 3}
    assert too_few(pairs, 8) == {"d": 3, "c": 6}
    assert too_few(pairs, 11) == {"d": 3, "c": 9, "b": 10}
    assert too_few(pairs, 1) == {}


@given(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from("def")), st.integers(0, 20), max_size=9),
    st.integers(1, 30),
)
def test_every_language_left_has_enough(pairs: dict[tuple[str, str], int], fewest: int) -> None:
    gone = too_few(pairs, fewest)
    left = {both: count for both, count in pairs.items() if not gone.keys() & set(both)}
    for language in {one for both in left for one in both}:
        assert sum(count for both, count in left.items() if language in both) >= fewest
    assert not too_few(left, fewest)


def test_bitext_of_small_languages_goes_and_their_text_stays(tmp_path: Path) -> None:
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
    report = cleaned(write(tmp_path / "corpora", files), tmp_path / "out", Rules(min_pairs=10))
    assert report["languages with too few pairs"] == {"sw": 9}  # 5 and, in the set, 2 with each of the other two
    assert report["gone"] == {"pairs/en-sw": TOO_FEW_PAIRS, "multi/set/sw": TOO_FEW_PAIRS}
    assert report["pairs"] == {"en": 30, "fr": 30}
    assert [row["reasons"] for row in report["corpora"] if row["corpus"] == "pairs/en-sw"] == [{TOO_FEW_PAIRS: 5}]
    corpora = Corpora(tmp_path / "out")
    assert [text.language for text in corpora.text] == ["sw"]
    assert [pairs.languages for pairs in corpora.pairs] == [("en", "fr")]
    assert [list(multi.files) for multi in corpora.multi] == [["en", "fr"]]


# ---- properties ---------------------------------------------------------------------------------------------

sentence = st.sampled_from(SENTENCES)
cell = st.sampled_from([*SENTENCES, "", ""])
everything = replace(ALL, many_to_one=2, ratio=1.5)
rules_chosen = st.builds(
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
    rules_chosen | st.just(everything),
)
def test_cleaning(
    documents: list[list[str]], pairs: list[tuple[str, str]], multi: list[tuple[str, str, str]], rules: Rules
) -> None:
    # Waiting for the disk is most of the time, and not what is tested here.
    with tempfile.TemporaryDirectory() as name, patch("crossling.disk._flush"):
        folder = Path(name)
        files = {
            "text/en.txt": "\n\n".join("\n".join(document) for document in documents) + "\n",
            "text/sw.txt": "Moja kwa moja.\n",  # something is always left
            "pairs/en-fr.tsv": "".join(f"{a}\t{b}\n" for a, b in pairs) + "one column\n",
        }
        for place, language in enumerate(("en", "de", "fr")):
            column = [row[place] for row in multi]
            column[0] = column[0] or "Ja."
            files[f"multi/set/{language}.txt"] = "\n".join(column) + "\n"
        report = cleaned(write(folder / "corpora", files), folder / "once", rules)
        for row in report["corpora"]:
            assert row["kept"] + sum(row["reasons"].values()) == row["read"]
        # What is written is what is counted, and is a folder of corpora.
        once = Corpora(folder / "once")
        kept = {row["corpus"]: row["kept"] for row in report["corpora"]}
        assert {f"text/{text.language}": sum(map(len, text.documents())) for text in once.text}.items() <= kept.items()
        for bitext in once.pairs:
            written = list(bitext.rows())
            assert len(written) == kept["pairs/en-fr"]
            assert set(written) <= {(a.strip().lstrip("\ufeff"), b) for a, b in pairs} | set(pairs)
        for many in once.multi:
            assert many.check() == len(multi)
            for language in many.files:
                assert sum(map(bool, many.lines(language))) == kept[f"multi/set/{language}"]
        # Twice is once.
        again = cleaned(once, folder / "twice", rules)
        assert not any(row["reasons"] for row in again["corpora"])
        assert not again["gone"]
        first, second = contents(folder / "once"), contents(folder / "twice")
        first.pop("cleaning.json")
        second.pop("cleaning.json")
        assert first == second


# ---- workers, shares, interruptions -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    noise = Noise(copies=0.1, near_duplicates=0.1, many_to_one=0.1)
    out = tmp_path_factory.mktemp("noisy") / "babel"
    return babel(out, languages=3, sentences=400, noise=noise, test_sentences=12, alignment_sentences=6) / "corpora"


@pytest.fixture(scope="module")
def expected(noisy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("expected") / "out"
    report = cleaned(Corpora(noisy), out)
    assert sum(row["reasons"].get(COPY, 0) for row in report["corpora"]) > 10
    return contents(out)


def test_workers_change_nothing(noisy: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    cleaned(Corpora(noisy), tmp_path / "out", workers=2)
    assert contents(tmp_path / "out") == expected


@pytest.mark.parametrize("seed", range(3))
def test_shares_in_any_order_with_one_killed(
    seed: int, noisy: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = random.Random(seed).sample([1, 2, 3], 3)
    out = tmp_path / "out"

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("crossling.quality.look.write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            clean(Corpora(noisy), out, ALL, share=Share(order[0], 3))
    assert [clean(Corpora(noisy), out, ALL, share=Share(number, 3)) for number in order[1:]] == [None, None]
    assert not any((out / kind).exists() for kind in ("text", "pairs", "multi"))
    report = clean(Corpora(noisy), out, ALL, share=Share(order[0], 3))
    assert report == json.loads(expected["cleaning.json"])
    found = contents(out)
    assert {name: found[name] for name in expected} == expected
    assert all(name.startswith(".parts/") for name in found.keys() - expected.keys())
    # The command without a share finds it done.
    assert clean(Corpora(noisy), out, ALL) == report


@pytest.mark.parametrize("step", ["_settle", "_write", "_link", "_report"])
def test_an_interrupted_cleaning_goes_on(
    step: str, noisy: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(module, step)
    calls = iter(range(100))

    def interrupted(*arguments: object) -> object:
        if next(calls) == (0 if step in ("_settle", "_report") else 2):
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(module, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            clean(Corpora(noisy), tmp_path / "out", ALL)
    assert not (tmp_path / "out" / "cleaning.json").exists()
    cleaned(Corpora(noisy), tmp_path / "out")
    assert contents(tmp_path / "out") == expected


def test_a_file_that_changes_meanwhile_is_named(noisy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpora = tmp_path / "corpora"
    shutil.copytree(noisy, corpora)
    original = module._settle

    def changed(*arguments: Any) -> None:
        original(*arguments)
        (corpora / "text" / "qaa.txt").write_text("quite another text\n")

    monkeypatch.setattr(module, "_settle", changed)
    with pytest.raises(BadInput, match=r"text/qaa of .* has changed while it was cleaned"):
        clean(Corpora(corpora), tmp_path / "out", ALL)


# ---- the folder ---------------------------------------------------------------------------------------------


def test_other_rules_replace_an_earlier_cleaning_of_the_same_corpora(
    noisy: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    cleaned(Corpora(noisy), out, Rules(min_pairs=10_000))
    assert sorted(file.name for file in out.iterdir()) == ["cleaning.json", "text"]
    cleaned(Corpora(noisy), out)
    assert contents(out) == expected
    cleaned(Corpora(noisy), out, Rules(min_pairs=10_000))
    assert sorted(file.name for file in out.iterdir()) == ["cleaning.json", "text"]


def test_a_finished_cleaning_is_left_as_it_is(noisy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = cleaned(Corpora(noisy), tmp_path / "out")
    (tmp_path / "out" / "text" / "qab.txt.gz").unlink()
    assert cleaned(Corpora(noisy), tmp_path / "out") == report  # what was lost is made again
    monkeypatch.setattr(module, "finish", None)
    assert cleaned(Corpora(noisy), tmp_path / "out") == report


def test_nothing_else_is_written_over(noisy: Path, tmp_path: Path) -> None:
    corpora = Corpora(noisy)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep me")
    with pytest.raises(BadInput, match="notes is not empty and holds no cleaned corpora"):
        clean(corpora, tmp_path / "notes", ALL)
    with pytest.raises(BadInput, match="this is a file"):
        clean(corpora, tmp_path / "notes" / "mine.txt", ALL)
    with pytest.raises(BadInput, match="not empty"):
        clean(corpora, noisy, ALL)
    out = tmp_path / "out"
    cleaned(corpora, out)
    before = contents(out)
    with pytest.raises(BadInput, match="out holds other corpora, cleaned"):
        clean(Corpora(out), out, ALL)
    (out / "text" / "mine.txt").write_text("keep me")
    with pytest.raises(BadInput, match=r"text/mine\.txt was not written by crossling clean"):
        clean(corpora, out, Rules(copies=True))
    (out / "text" / "mine.txt").unlink()
    (out / "cleaning.json").write_text("{}")
    with pytest.raises(BadInput, match="is no report of crossling clean"):
        clean(corpora, out, ALL)
    assert contents(out) | {"cleaning.json": before["cleaning.json"]} == before


def test_no_rule_and_no_rest(noisy: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no rule is chosen.*--many-to-one.*--all"):
        clean(Corpora(noisy), tmp_path / "out", Rules())
    with pytest.raises(BadInput, match="the rules leave nothing at all"):
        clean(Corpora(noisy), tmp_path / "out", Rules(length=(5000, 6000)))
    assert not (tmp_path / "out" / "cleaning.json").exists()


def test_the_command(
    noisy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from crossling import cli

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["crossling", "clean", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), *capsys.readouterr()

    status, out, _ = run(noisy, "-o", tmp_path / "a", "--copies", "--length", "2:500", "--json")
    report = json.loads(out)
    assert status == 0
    assert report["rules"] == Rules(copies=True, length=(2, 500)).to_json()
    assert {reason for row in report["corpora"] for reason in row["reasons"]} == {COPY}
    assert "copy" in run(noisy, "-o", tmp_path / "a", "--copies", "--length", "2:500")[1]
    assert (
        json.loads(run(noisy, "-o", tmp_path / "b", "--all", "--ratio", "9", "--json")[1])["rules"]
        == replace(ALL, ratio=9.0).to_json()
    )
    assert "share 2/2 is done" in run(noisy, "-o", tmp_path / "c", "--all", "--task", "2/2")[1]
    for wrong in ([], ["--length", "5"], ["--ratio", "0.5"], ["--all", "--against", tmp_path / "absent"]):
        status, out, said = run(noisy, "-o", tmp_path / "d", *wrong)
        assert (status, out) == (2, "")
        assert said.startswith("crossling: ")
        assert said.count("\n") == 1
    assert not (tmp_path / "d" / "cleaning.json").exists()
