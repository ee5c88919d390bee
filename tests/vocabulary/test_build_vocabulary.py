"""Tests of `vocab`: options, report per language, and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crossling import cli
from crossling.core.errors import BadInput
from crossling.core.jobs import Share
from crossling.corpora.corpus import Corpora
from crossling.corpora.source_parts import SourcePart
from crossling.vocabulary import build_vocabulary, unigram
from crossling.vocabulary.build_vocabulary import describe_languages, vocab
from crossling.vocabulary.text_sample import SampleSettings
from crossling.vocabulary.vocabulary import VOCABULARY_FORMAT, Vocabulary

from .texts import folder_of, new_language


def read_report(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    return report


def test_report_has_subwords_coverage_and_fertility(scripts: Corpora, tmp_path: Path) -> None:
    made = vocab(scripts, tmp_path / "vocab", size=400)
    report = read_report(tmp_path / "vocab")
    assert Vocabulary.load(tmp_path / "vocab") == made
    assert report["size"] == 400
    assert report["format"] == VOCABULARY_FORMAT
    assert report["settings"]["size"] == 400
    assert set(report["languages"]) == {"en", "sw"}
    ids = made.encode(["habari ya asubuhi"])[0]
    assert report["languages"]["sw"] == {
        "subwords": len(set(ids)),
        "coverage": 1.0,
        "fertility": round(len(ids) / 3, 3),
        "per_character": round(len(ids) / 15, 3),
    }
    assert 100 < report["languages"]["en"]["subwords"] < 400
    assert report["languages"]["en"]["fertility"] > 1


def test_coverage_falls_with_unknown_characters(vocabulary: Vocabulary) -> None:
    report = describe_languages(vocabulary, {"ka": ["the ქართული", "fox ენა"]})["ka"]
    assert 0 < report["coverage"] < 1


def test_report_of_a_language_without_tokens(vocabulary: Vocabulary) -> None:
    row = {"subwords": 0, "coverage": 0.0, "fertility": 0.0, "per_character": 0.0}
    found = json.loads(json.dumps(describe_languages(vocabulary, {"en": ["\u200b"], "sw": []}), allow_nan=False))
    assert found == {"en": row, "sw": row}


def test_reused_extended_and_trimmed(scripts: Corpora, vocabulary: Vocabulary, tmp_path: Path) -> None:
    old = vocabulary.save(tmp_path / "old")
    new = folder_of(tmp_path / "new", {"text/am.txt": new_language(200)})
    assert vocab(scripts, tmp_path / "same", from_=old) == vocabulary
    extended = vocab(new, tmp_path / "extended", size=420, from_=old, extend=True)
    assert extended.size == read_report(tmp_path / "extended")["size"] == 420
    assert read_report(tmp_path / "extended")["languages"]["am"]["coverage"] == 1.0
    trimmed = vocab(new, tmp_path / "trimmed", from_=tmp_path / "extended", trim=True)
    assert trimmed.size == read_report(tmp_path / "trimmed")["size"] < 200
    assert read_report(tmp_path / "trimmed")["languages"] == read_report(tmp_path / "extended")["languages"]


@pytest.mark.parametrize("options", [{}, {"trim": True}])
def test_machines_make_the_same_vocabulary(
    options: dict[str, Any], scripts: Corpora, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    start = {"from_": vocabulary.save(tmp_path / "old")} if options else {"size": 390}
    whole = vocab(scripts, tmp_path / "a" / "whole", workers=1, **start | options)
    out = tmp_path / "b" / "vocab"
    assert vocab(scripts, out, workers=1, share=Share(2, 2), **start | options) is None
    assert not out.exists()
    assert vocab(scripts, out, workers=1, share=Share(1, 2), **start | options) == whole
    assert read_report(out) == read_report(tmp_path / "a" / "whole")
    assert {path.name for path in out.parent.iterdir()} == {"vocab"}


def test_an_interrupted_training_reads_no_text_again(
    scripts: Corpora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "from_sample", interrupt)
        with pytest.raises(KeyboardInterrupt):
            vocab(scripts, tmp_path / "vocab", size=390, workers=1)
    monkeypatch.setattr(SourcePart, "documents", interrupt)
    assert vocab(scripts, tmp_path / "vocab", size=390, workers=1).size == 390
    assert [path.name for path in tmp_path.iterdir()] == ["vocab"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "size: missing. Training needs the number of vocabulary entries. Set for instance size=32000."),
        ({"allocate": "vocap"}, "size: missing. Training needs"),
        ({"size": 300, "allocate": "vocab"}, "allocate=vocab: unknown allocation; did you mean 'vocap'?"),
        ({"size": 300, "extend": True}, "extend: no vocabulary to start from. Name it as `from` (in Python `from_`)."),
        ({"trim": True}, "trim: no vocabulary to start from. Name it as `from` (in Python `from_`)."),
        ({"from_": "old", "size": 300}, "size=300: old is kept unchanged. Omit size, or set extend or trim."),
        ({"from_": "old", "extend": True}, "size: missing. Set the new number of entries to extend a vocabulary."),
        ({"from_": "old", "size": 500, "extend": True, "trim": True}, "extend and trim: they exclude each other."),
        ({"from_": "old", "allocate": "joint"}, "allocate=joint: only for training, and old is not trained."),
        ({"size": 300, "alpha": -1.0}, "alpha=-1.0: expected a number from 0"),
        ({"size": 300, "alpha": 1.5}, "alpha=1.5: expected a number from 0"),
        ({"size": 300, "alpha": float("nan")}, "alpha=nan: expected a number from 0"),
        ({"size": 300, "beta": -0.1}, "beta=-0.1: expected a number of at least 0"),
        ({"size": 300, "beta": float("nan")}, "beta=nan: expected a number of at least 0"),
        ({"size": 300, "characters": 0}, "characters=0: expected a number of at least 1"),
    ],
)
def test_contradictory_options_are_refused_before_any_text_is_read(
    options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    corpora = folder_of(tmp_path, {"text/en.txt": [""]})  # reading it would raise another error
    with pytest.raises(BadInput) as caught:
        vocab(corpora, tmp_path / "v", **options)
    assert str(caught.value).startswith(expected)
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize(
    ("options", "characters"),
    [
        ({"size": 500_000}, 625_000_000),
        ({"size": 250_002}, 312_502_500),
        ({"size": 32_000}, 40_000_000),
        ({"size": 1_000}, 40_000_000),
        ({"size": 500_000, "characters": 1_000_000}, 1_000_000),
    ],
)
def test_sample_of_vocap_grows_with_the_size(
    options: dict[str, Any], characters: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SampledError(Exception):
        """Ends the run."""

    def sample_corpora(_: Corpora, __: Path, settings: SampleSettings, **___: object) -> None:
        raise SampledError(settings.characters)

    monkeypatch.setattr(build_vocabulary, "sample_corpora", sample_corpora)
    corpora = folder_of(tmp_path, {"text/en.txt": ["the quick brown fox"]})
    with pytest.raises(SampledError, match=f"^{characters}$"):
        vocab(corpora, tmp_path / "v", allocate="vocap", **options)


def test_the_corpora_may_be_a_path(tmp_path: Path) -> None:
    folder_of(tmp_path / "corpora", {"text/en.txt": ["the quick brown fox"] * 30})
    vocab(str(tmp_path / "corpora"), str(tmp_path / "vocab"), size=21, workers=1)
    assert Vocabulary.load(str(tmp_path / "vocab")).size == 21


@pytest.mark.parametrize("report", ['{"size": 400, "made": {}}', '{"format": 3}', '{"format": "2"}', "[]", "no JSON"])
def test_a_vocabulary_of_another_format_names_the_command_that_makes_it(
    report: str, vocabulary: Vocabulary, scripts: Corpora, tmp_path: Path
) -> None:
    folder = vocabulary.save(tmp_path / "vocab")
    (folder / "vocab.json").write_text(report, encoding="utf-8")
    with pytest.raises(BadInput, match=r"vocab\.json: .*\. Make the vocabulary again with `crossling vocab`\."):
        Vocabulary.load(folder)
    with pytest.raises(BadInput, match="made with other settings"):
        vocab(scripts, folder, size=400)


def test_a_folder_with_other_files_is_refused_before_any_text_is_read(tmp_path: Path) -> None:
    corpora = folder_of(tmp_path, {"text/en.txt": [""]})
    with pytest.raises(BadInput, match="text is no output of crossling vocab"):
        vocab(corpora, tmp_path, size=300)


# ---- command line --------------------------------------------------------------------------------------------


def run(*arguments: object) -> str:
    result = CliRunner().invoke(cli.app, list(map(str, arguments)), catch_exceptions=False, env={"COLUMNS": "120"})
    assert result.exit_code == 0
    return result.stdout


def test_the_table_of_vocap_has_allocation_and_alp(corpora_folder: Path, tmp_path: Path) -> None:
    options = ["--size", 400, "--allocate", "vocap", "--beta", 0.5, "--workers", 1, "-o", tmp_path / "vocab"]
    table = run("vocab", corpora_folder, *options)
    assert all(title in table for title in ("language", "tokens per word", "per character", "allocated", "ALP"))
    report = json.loads(run("vocab", corpora_folder, *options, "--json"))
    assert f"{report['languages']['qab']['alp']:.1f}" in table


def test_the_table_of_a_joint_vocabulary_has_no_alp(corpora_folder: Path, tmp_path: Path) -> None:
    table = run("vocab", corpora_folder, "--size", 300, "--characters", 20_000, "-o", tmp_path / "vocab")
    assert "per character" in table
    assert "ALP" not in table


def test_a_share_is_reported(corpora_folder: Path, tmp_path: Path) -> None:
    printed = run("vocab", corpora_folder, "--size", 300, "--share", "1/2", "-o", tmp_path / "vocab")
    assert printed.endswith("part 1/2 is done. The last part, or a run without --share, trains the vocabulary.\n")


def test_from_extend_and_trim(corpora_folder: Path, vocabulary: Vocabulary, tmp_path: Path) -> None:
    old = vocabulary.save(tmp_path / "old")
    for options, size in (([], 400), (["--extend", "--size", 450], 450), (["--trim"], None)):
        out = tmp_path / f"new {size}"
        report = json.loads(run("vocab", corpora_folder, "--from", old, *options, "-o", out, "--json"))
        assert report["size"] == size or (size is None and report["size"] < 400)


def test_a_vocabulary_with_other_settings_is_not_overwritten(scripts: Corpora, tmp_path: Path) -> None:
    vocab(scripts, tmp_path / "vocab", size=400)
    vocab(scripts, tmp_path / "vocab", size=400)  # the same again
    before = (tmp_path / "vocab" / "sentencepiece.model").read_bytes()
    with pytest.raises(BadInput, match=r"made with other settings\. Give another output folder"):
        vocab(scripts, tmp_path / "vocab", size=390)
    assert (tmp_path / "vocab" / "sentencepiece.model").read_bytes() == before


def test_repeated_passages_do_not_slow_down_training(tmp_path: Path) -> None:
    """The time of SentencePiece grows with the square of the longest repeated substring, across line ends."""
    lines = "".join(f"line {n * 7919 % 10007} of {n * 104729 % 99991} and so on\n" for n in range(2500))
    (tmp_path / "corpora" / "text").mkdir(parents=True)
    for language, text in {"en": 2 * lines, "fr": lines.replace("line", "ligne")}.items():
        (tmp_path / "corpora" / "text" / f"{language}.txt").write_text(text, encoding="utf-8")
    assert vocab(Corpora(tmp_path / "corpora"), tmp_path / "vocab", size=200).size == 200


def test_new_entries_go_to_the_languages_in_focus(scripts: Corpora, tmp_path: Path) -> None:
    base = vocab(scripts, tmp_path / "base", size=400)
    others = [line.upper() for line in new_language(200)]
    corpora = folder_of(tmp_path / "corpora", {"text/is.txt": new_language(200), "text/de.txt": others})
    options = {"from_": tmp_path / "base", "extend": True, "size": base.size + 60}
    in_focus = vocab(corpora, tmp_path / "focus", focus=["is"], **options)
    of_all = vocab(corpora, tmp_path / "all", **options)
    assert isinstance(in_focus, Vocabulary)
    assert isinstance(of_all, Vocabulary)
    capitals = [
        sum(subword.isupper() for subword in [*vocabulary.scores][base.size - 5 :]) for vocabulary in (in_focus, of_all)
    ]
    assert capitals[0] == 0 < capitals[1]
    with pytest.raises(BadInput, match=r"focus=fr: .* has no text of it"):
        vocab(corpora, tmp_path / "other", focus=["fr"], **options)
    with pytest.raises(BadInput, match="focus=is: only to extend"):
        vocab(corpora, tmp_path / "other", size=400, focus=["is"])


def test_extending_trains_once(scripts: Corpora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SentencePiece takes nearly as long for a small vocabulary as for a large one."""
    base = vocab(scripts, tmp_path / "base", size=400)
    corpora = folder_of(tmp_path / "corpora", {"text/is.txt": new_language(200)})
    calls: list[int] = []
    train = unigram.train
    monkeypatch.setattr(unigram, "train", lambda *a, **k: calls.append(a[1]) or train(*a, **k))
    vocab(corpora, tmp_path / "more", from_=tmp_path / "base", extend=True, size=base.size + 60)
    assert len(calls) == 1
