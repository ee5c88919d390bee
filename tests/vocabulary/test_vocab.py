"""What is asked for makes sense or is answered in one sentence; the report tells how each language fares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crossling import cli
from crossling.corpora.corpus import Corpora
from crossling.errors import BadInput
from crossling.vocabulary.report import describe
from crossling.vocabulary.vocab import vocab
from crossling.vocabulary.vocabulary import Vocabulary

from .texts import folder_of, new_language


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    return found


def test_report_tells_pieces_coverage_and_fertility(scripts: Corpora, tmp_path: Path) -> None:
    made = vocab(scripts, 400, tmp_path / "vocab")
    report = read(tmp_path / "vocab")
    assert Vocabulary.load(tmp_path / "vocab") == made
    assert report["size"] == 400
    assert set(report["languages"]) == {"en", "sw"}
    ids = made.encode(["habari ya asubuhi"])[0]
    assert report["languages"]["sw"] == {
        "pieces": len(set(ids)),
        "coverage": 1.0,
        "fertility": round(len(ids) / 3, 3),
        "per_character": round(len(ids) / 15, 3),
    }
    assert 100 < report["languages"]["en"]["pieces"] < 400
    assert report["languages"]["en"]["fertility"] > 1


def test_coverage_falls_with_unknown_characters(vocabulary: Vocabulary) -> None:
    report = describe(vocabulary, {"ka": ["the ქართული", "fox ენა"]})["ka"]
    assert 0 < report["coverage"] < 1


def test_report_of_a_language_that_comes_to_nothing(vocabulary: Vocabulary) -> None:
    row = {"pieces": 0, "coverage": 0.0, "fertility": 0.0, "per_character": 0.0}
    found = json.loads(json.dumps(describe(vocabulary, {"en": ["\u200b"], "sw": []}), allow_nan=False))
    assert found == {"en": row, "sw": row}


def test_reused_extended_and_trimmed(scripts: Corpora, vocabulary: Vocabulary, tmp_path: Path) -> None:
    old = vocabulary.save(tmp_path / "old")
    new = folder_of(tmp_path / "new", {"text/am.txt": new_language(200)})
    assert vocab(scripts, None, tmp_path / "same", source=old) == vocabulary
    extended = vocab(new, 420, tmp_path / "extended", source=old, extend=True)
    assert extended.size == read(tmp_path / "extended")["size"] == 420
    assert read(tmp_path / "extended")["languages"]["am"]["coverage"] == 1.0
    trimmed = vocab(new, None, tmp_path / "trimmed", source=tmp_path / "extended", trim=True)
    assert trimmed.size == read(tmp_path / "trimmed")["size"] < 200
    assert read(tmp_path / "trimmed")["languages"] == read(tmp_path / "extended")["languages"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, "--size is missing: training needs the number of pieces, for instance --size 32000"),
        ({"allocate": "vocap"}, "--size is missing: training needs"),
        ({"size": 300, "allocate": "vocab"}, "--allocate vocab: there is no such way; did you mean 'vocap'?"),
        ({"size": 300, "extend": True}, "--extend changes another vocabulary: say which with --from"),
        ({"trim": True}, "--trim changes another vocabulary: say which with --from"),
        ({"source": "old", "size": 300}, "--size goes with --extend or --trim: --from alone takes a vocabulary as"),
        ({"source": "old", "extend": True}, "--size is missing: --extend needs the number of pieces"),
        ({"source": "old", "size": 500, "extend": True, "trim": True}, "--extend and --trim cannot go together"),
        ({"source": "old", "allocate": "joint"}, "--allocate joint is a way to train, and --from trains nothing"),
        ({"size": 300, "alpha": -1.0}, "--alpha -1.0: expected a number from 0"),
        ({"size": 300, "alpha": 1.5}, "--alpha 1.5: expected a number from 0"),
        ({"size": 300, "alpha": float("nan")}, "--alpha nan: expected a number from 0"),
        ({"size": 300, "beta": -0.1}, "--beta -0.1: expected a number from 0"),
        ({"size": 300, "beta": float("nan")}, "--beta nan: expected a number from 0"),
        ({"size": 300, "characters": 0}, "--characters 0: expected a number from 1 up"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_read(
    choice: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    corpora = folder_of(tmp_path, {"text/en.txt": [""]})  # reading it would be a fault of its own
    with pytest.raises(BadInput) as caught:
        vocab(corpora, choice.pop("size", None), tmp_path / "v", **choice)
    assert str(caught.value).startswith(expected)
    assert not (tmp_path / "v").exists()


def test_a_taken_place_is_said_before_anything_is_read(tmp_path: Path) -> None:
    corpora = folder_of(tmp_path, {"text/en.txt": [""]})
    with pytest.raises(BadInput, match="there is something else here already"):
        vocab(corpora, 300, tmp_path)


# ---- on the command line -------------------------------------------------------------------------------------


def run(*arguments: object) -> str:
    ended = CliRunner().invoke(cli.app, list(map(str, arguments)), catch_exceptions=False, env={"COLUMNS": "120"})
    assert ended.exit_code == 0
    return ended.stdout


def test_vocap_is_shown_with_what_it_measured(corpora_folder: Path, tmp_path: Path) -> None:
    options = ["--size", 400, "--allocate", "vocap", "--beta", 0.5, "--workers", 1, "-o", tmp_path / "vocab"]
    table = run("vocab", corpora_folder, *options)
    assert all(title in table for title in ("language", "pieces per word", "per character", "allocated", "ALP"))
    report = json.loads(run("vocab", corpora_folder, *options, "--json"))
    assert f"{report['languages']['qab']['alp']:.1f}" in table


def test_a_joint_vocabulary_is_shown_without(corpora_folder: Path, tmp_path: Path) -> None:
    table = run("vocab", corpora_folder, "--size", 300, "--characters", 20_000, "-o", tmp_path / "vocab")
    assert "per character" in table
    assert "ALP" not in table


def test_from_extend_and_trim(corpora_folder: Path, vocabulary: Vocabulary, tmp_path: Path) -> None:
    old = vocabulary.save(tmp_path / "old")
    for options, size in (([], 400), (["--extend", "--size", 450], 450), (["--trim"], None)):
        out = tmp_path / f"new {size}"
        report = json.loads(run("vocab", corpora_folder, "--from", old, *options, "-o", out, "--json"))
        assert report["size"] == size or (size is None and report["size"] < 400)


def test_another_vocabulary_is_not_written_over(scripts: Corpora, tmp_path: Path) -> None:
    vocab(scripts, 400, tmp_path / "vocab")
    vocab(scripts, 400, tmp_path / "vocab")  # the same again
    before = (tmp_path / "vocab" / "sentencepiece.model").read_bytes()
    with pytest.raises(BadInput, match="holds a vocabulary that was made otherwise; give another -o folder"):
        vocab(scripts, 390, tmp_path / "vocab")
    assert (tmp_path / "vocab" / "sentencepiece.model").read_bytes() == before


def test_a_passage_that_comes_twice_takes_no_longer(tmp_path: Path) -> None:
    """SentencePiece's time grows with the square of the longest stretch that repeats, over line ends too."""
    lines = "".join(f"line {n * 7919 % 10007} of {n * 104729 % 99991} and so on\n" for n in range(2500))
    (tmp_path / "corpora" / "text").mkdir(parents=True)
    for language, text in {"en": 2 * lines, "fr": lines.replace("line", "ligne")}.items():
        (tmp_path / "corpora" / "text" / f"{language}.txt").write_text(text, encoding="utf-8")
    assert vocab(Corpora(tmp_path / "corpora"), 200, tmp_path / "vocab").size == 200
