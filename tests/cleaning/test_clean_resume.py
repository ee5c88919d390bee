"""Interrupted, shared and repeated cleaning gives the same bytes, and foreign files are kept."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossling.cleaning import apply_rules
from crossling.cleaning import clean as module
from crossling.cleaning.clean import clean
from crossling.cleaning.rules import ALL_RULES, Reason, Rules
from crossling.cleaning.survey import COMPLETION_LOCK, CorpusSurvey
from crossling.core.errors import BadInput
from crossling.core.jobs import Share
from crossling.core.locks import lock_file
from crossling.corpora.corpus import Corpora
from crossling.synthetic import BitextNoise, synth


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


# ---- workers, shares, interruptions -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    noise = BitextNoise(copies=0.1, near_duplicates=0.1, many_to_one=0.1)
    out = tmp_path_factory.mktemp("noisy") / "synth"
    return synth(out, languages=3, sentences=400, noise=noise, test_sentences=12, alignment_sentences=6) / "corpora"


@pytest.fixture(scope="module")
def expected(noisy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("expected") / "out"
    report = run_clean(Corpora(noisy), out)
    assert sum(row["reasons"].get(Reason.COPY, 0) for row in report["corpora"]) > 10
    return contents(out)


def test_two_workers_write_the_same_bytes(noisy: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    run_clean(Corpora(noisy), tmp_path / "out", workers=2)
    assert contents(tmp_path / "out") == expected


@pytest.mark.parametrize("seed", range(3))
def test_shares_in_any_order_with_one_interrupted(
    seed: int, noisy: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = random.Random(seed).sample([1, 2, 3], 3)
    out = tmp_path / "out"

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("crossling.core.resumable.write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            clean(Corpora(noisy), out, ALL_RULES, share=Share(order[0], 3))
    assert [clean(Corpora(noisy), out, ALL_RULES, share=Share(number, 3)) for number in order[1:]] == [None, None]
    assert not any((out / kind).exists() for kind in ("text", "pairs", "multi"))
    report = clean(Corpora(noisy), out, ALL_RULES, share=Share(order[0], 3))
    assert report == json.loads(expected["cleaning.json"])
    found = contents(out)
    assert {name: found[name] for name in expected} == expected
    assert all(name.startswith(".partial/") for name in found.keys() - expected.keys())
    # The command without a share has nothing left to do.
    assert clean(Corpora(noisy), out, ALL_RULES) == report


@pytest.mark.parametrize("step", ["_select_parts", "_write_slice", "link_or_copy", "_create_report"])
def test_resume_of_an_interrupted_cleaning_gives_the_same_bytes(
    step: str, noisy: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(module, step)
    calls = iter(range(100))

    def interrupted(*arguments: object) -> object:
        if next(calls) == (0 if step in ("_select_parts", "_create_report") else 2):
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(module, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            clean(Corpora(noisy), tmp_path / "out", ALL_RULES)
    assert not (tmp_path / "out" / "cleaning.json").exists()
    run_clean(Corpora(noisy), tmp_path / "out")
    assert contents(tmp_path / "out") == expected


# ---- slices -------------------------------------------------------------------------------------------------


def text(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {name: gzip.decompress(content) for name, content in contents.items() if name.endswith(".gz")}


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossling.corpora.source_parts.SLICE_BYTES", 4000)
    monkeypatch.setattr("crossling.cleaning.sorted_keys.RUN_ROWS", 64)
    monkeypatch.setattr("crossling.cleaning.sorted_keys.KEYS_PER_RANGE", 150)
    monkeypatch.setattr("crossling.cleaning.scan.ROWS_PER_CHUNK", 20)


@pytest.mark.usefixtures("small_slices")
def test_slices_give_the_same_text_and_report(noisy: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    report = run_clean(Corpora(noisy), tmp_path / "out")
    found = contents(tmp_path / "out")
    assert text(found) == text(expected)
    assert report | {"files": {}} == json.loads(expected["cleaning.json"]) | {"files": {}}
    # Each slice is one member of a gzip file.
    assert found["text/qaa.txt.gz"].count(b"\x1f\x8b\x08") > 3


@pytest.mark.usefixtures("small_slices")
def test_shares_of_slices_and_searches_resume(noisy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_clean(Corpora(noisy), tmp_path / "whole")
    out, calls = tmp_path / "out", iter(range(10_000))
    original = apply_rules._save_found

    def killed(*arguments: Any) -> None:
        if next(calls) == 40:
            raise KeyboardInterrupt
        original(*arguments)

    assert clean(Corpora(noisy), out, ALL_RULES, share=Share(2, 2)) is None
    with monkeypatch.context() as patched:
        patched.setattr(apply_rules, "_save_found", killed)
        with pytest.raises(KeyboardInterrupt):
            clean(Corpora(noisy), out, ALL_RULES, share=Share(1, 2))
    assert len([*out.rglob("*.found/*/*.npy")]) == 40
    assert clean(Corpora(noisy), out, ALL_RULES, share=Share(1, 2)) is not None
    assert not [*out.rglob("*.found")]
    assert {name: file for name, file in contents(out).items() if name[0] != "."} == contents(tmp_path / "whole")


@pytest.mark.usefixtures("small_slices")
def test_documents_end_where_they_did_between_slices(tmp_path: Path) -> None:
    documents = [[f"{n} sentences of document {m}" for n in range(m % 7)] for m in range(400)]
    lines = "\n\n".join("\n".join(document) for document in documents)
    corpora = write(tmp_path / "corpora", {"text/en.txt": lines + "\n", "text/de.txt": "one\ntwo\n" * 3000})
    run_clean(corpora, tmp_path / "out", Rules(length=(3, 1000)))
    found = text(contents(tmp_path / "out"))
    assert found["text/en.txt.gz"].decode() == "\n\n".join("\n".join(d) for d in documents if d) + "\n"
    assert found["text/de.txt.gz"] == b"one\ntwo\n" * 3000


@pytest.mark.usefixtures("small_slices")
def test_a_large_file_without_a_line_is_refused(tmp_path: Path) -> None:
    corpora = write(tmp_path / "corpora", {"text/en.txt": "one\n", "pairs/en-de.tsv": "no tab in this line\n" * 500})
    with pytest.raises(BadInput, match=r"en-de\.tsv: no usable line \(not two columns: 500\)"):
        clean(corpora, tmp_path / "out", Rules(duplicates=True))


# ---- changed files ------------------------------------------------------------------------------------------


def test_a_file_that_changes_during_cleaning_is_named(
    noisy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = tmp_path / "corpora"
    shutil.copytree(noisy, corpora)
    original = module._select_parts

    def changed(*arguments: Any) -> None:
        original(*arguments)
        (corpora / "text" / "qaa.txt").write_text("quite another text\n")

    monkeypatch.setattr(module, "_select_parts", changed)
    with pytest.raises(BadInput, match="text/qaa changed during the cleaning"):
        clean(Corpora(corpora), tmp_path / "out", ALL_RULES)


SENTENCES = [
    "The council will meet again on the first Tuesday of next month.",
    "Heavy rain has damaged several bridges in the northern valleys.",
]


@pytest.mark.parametrize("shares", [[None], [Share(1, 2), Share(2, 2)]])
def test_benchmarks_that_grow_apply_to_every_slice(
    shares: list[Share | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = write(
        tmp_path / "corpora",
        {f"text/{language}.txt": f"kept in {language}\n" + "\n".join(SENTENCES) for language in ("de", "en")},
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.txt").write_text(SENTENCES[0])
    rules, out = Rules(against=tmp_path / "data"), tmp_path / "out"

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if shares == [None]:  # a finished cleaning without shares leaves no scans
            patched.setattr(module, "_publish", killed)
            with pytest.raises(KeyboardInterrupt):
                clean(corpora, out, rules)
        else:
            assert [clean(corpora, out, rules, share=share) is None for share in shares] == [True, False]
    (tmp_path / "data" / "test.txt").write_text("\n".join(SENTENCES))
    *firsts, report = (clean(corpora, out, rules, share=share) for share in shares)
    assert firsts == [None] * len(firsts)
    assert report is not None
    assert {row["corpus"]: row["kept"] for row in report["corpora"]} == {"text/de": 1, "text/en": 1}
    assert lines(out / "text" / "en.txt.gz") == ["kept in en"]


# ---- several machines at the end ----------------------------------------------------------------------------


def test_one_machine_completes_the_shares(noisy: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert clean(Corpora(noisy), out, ALL_RULES, share=Share(1, 2)) is None
    with lock_file(out / COMPLETION_LOCK):
        assert clean(Corpora(noisy), out, ALL_RULES, share=Share(2, 2)) is None
        assert not [*out.rglob("reasons")]
    assert clean(Corpora(noisy), out, ALL_RULES, share=Share(2, 2)) == json.loads(expected["cleaning.json"])
    assert not (out / COMPLETION_LOCK).exists()


# ---- output folder ------------------------------------------------------------------------------------------


def test_other_rules_replace_an_earlier_cleaning_of_the_same_corpora(
    noisy: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run_clean(Corpora(noisy), out, Rules(min_pairs=10_000))
    assert sorted(file.name for file in out.iterdir()) == ["cleaning.json", "text"]
    run_clean(Corpora(noisy), out)
    assert contents(out) == expected
    run_clean(Corpora(noisy), out, Rules(min_pairs=10_000))
    assert sorted(file.name for file in out.iterdir()) == ["cleaning.json", "text"]


def test_a_finished_cleaning_is_not_repeated(noisy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run_clean(Corpora(noisy), tmp_path / "out")
    (tmp_path / "out" / "text" / "qab.txt.gz").unlink()
    assert run_clean(Corpora(noisy), tmp_path / "out") == report  # a missing file is written again
    monkeypatch.setattr(CorpusSurvey, "scan", None)
    assert run_clean(Corpora(noisy), tmp_path / "out") == report


def test_foreign_files_are_never_overwritten(noisy: Path, tmp_path: Path) -> None:
    corpora = Corpora(noisy)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep me")
    with pytest.raises(BadInput, match=r"notes: not empty, and mine\.txt is no output of crossling clean"):
        clean(corpora, tmp_path / "notes", ALL_RULES)
    with pytest.raises(BadInput, match="expected a folder, found a file"):
        clean(corpora, tmp_path / "notes" / "mine.txt", ALL_RULES)
    with pytest.raises(BadInput, match="not empty"):
        clean(corpora, noisy, ALL_RULES)
    out = tmp_path / "out"
    run_clean(corpora, out)
    before = contents(out)
    with pytest.raises(BadInput, match="out: has cleaned text of other corpora"):
        clean(Corpora(out), out, ALL_RULES)
    (out / "text" / "mine.txt").write_text("keep me")
    with pytest.raises(BadInput, match=r"text/mine\.txt: not written by crossling clean"):
        clean(corpora, out, Rules(copies=True))
    (out / "text" / "mine.txt").unlink()
    (out / "cleaning.json").write_text("{}")
    with pytest.raises(BadInput, match="not a report of crossling clean"):
        clean(corpora, out, ALL_RULES)
    (out / "cleaning.json").write_text(json.dumps(json.loads(before["cleaning.json"]) | {"format": "3"}))
    with pytest.raises(BadInput, match=r"format version '3', expected 2\. Run crossling clean with a new"):
        clean(corpora, out, ALL_RULES)
    assert contents(out) | {"cleaning.json": before["cleaning.json"]} == before


def test_no_rule_or_no_remaining_row_is_refused(noisy: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"rules: none is chosen.* many_to_one, .*against: "):
        clean(Corpora(noisy), tmp_path / "out", Rules())
    with pytest.raises(BadInput, match="the rules drop every row"):
        clean(Corpora(noisy), tmp_path / "out", Rules(length=(5000, 6000)))
    assert not (tmp_path / "out" / "cleaning.json").exists()


def test_clean_command(
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
    assert {reason for row in report["corpora"] for reason in row["reasons"]} == {Reason.COPY}
    assert "copy" in run(noisy, "-o", tmp_path / "a", "--copies", "--length", "2:500")[1]
    assert (
        json.loads(run(noisy, "-o", tmp_path / "b", "--all", "--ratio", "9", "--json")[1])["rules"]
        == replace(ALL_RULES, ratio=9.0).to_json()
    )
    assert "2/2 is done" in run(noisy, "-o", tmp_path / "c", "--all", "--share", "2/2")[1]
    for wrong in ([], ["--length", "5"], ["--ratio", "0.5"], ["--all", "--against", tmp_path / "absent"]):
        status, out, error = run(noisy, "-o", tmp_path / "d", *wrong)
        assert (status, out) == (2, "")
        assert error.startswith("crossling: ")
        assert error.count("\n") == 1
    assert not (tmp_path / "d" / "cleaning.json").exists()
