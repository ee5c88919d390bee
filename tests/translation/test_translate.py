"""Files translated: in order, as they come, gone on with after a stop, by the words a user types."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transfer.toys import WORDS
from typer.testing import CliRunner

import crossling as xl
from crossling.cli.app import app
from crossling.errors import BadInput
from crossling.translation import translate as module
from crossling.translation.translate import stream, translate
from crossling.translation.translator import Translator
from translation.conftest import QUICK

LINES = [f"{WORDS[n % 13]} {WORDS[n % 7]}" for n in range(25)]


@pytest.fixture(scope="module")
def known(mt: Path) -> Translator:
    return Translator.load(mt)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", 6)
    monkeypatch.setattr(module, "FIRST", 2)


@pytest.mark.usefixtures("small_windows")
def test_lines_a_file_and_a_file_for_the_answer_say_the_same(
    mt: Path,
    file: Path,
) -> None:
    said = xl.translate(mt, LINES, to="de", beam=1)
    assert len(said) == 25
    assert xl.translate(mt, file, to="de", beam=1) == said
    out = xl.translate(mt, str(file), to="de", beam=1, out=file.parent / "out" / "said.txt")
    assert out.read_text().splitlines() == said
    assert [path.name for path in out.parent.iterdir()] == ["said.txt"]


@pytest.mark.usefixtures("small_windows")
def test_a_stream_answers_before_it_has_seen_the_end(known: Translator) -> None:
    taken = []

    def endless() -> Any:
        while True:
            taken.append("dog runs")
            yield "dog runs"

    answers = stream(known, endless(), "de", 1)
    source, _ = next(answers)
    assert source == "dog runs"
    assert len(taken) == 2


@pytest.mark.usefixtures("small_windows")
def test_what_was_stopped_is_gone_on_with(
    known: Translator,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = file.with_name("said.txt")
    asked: list[str] = []
    whole = Translator.translate

    def counting(self: Translator, lines: Any, *rest: Any) -> list[str]:
        if len(asked) >= 12:
            raise KeyboardInterrupt
        asked.extend(lines)
        return whole(self, lines, *rest)

    monkeypatch.setattr(Translator, "translate", counting)
    with pytest.raises(KeyboardInterrupt):
        translate(known, file, to="de", out=out, beam=1)
    assert not out.exists()
    with (file.with_name(".said.txt.part")).open("a") as part:
        part.write("half a li")
    del asked[:]
    monkeypatch.setattr(module, "WINDOW", 13)
    translate(known, file, to="de", out=out, beam=1)
    assert asked == LINES[12:]
    monkeypatch.undo()
    assert out.read_text().splitlines() == translate(known, LINES, to="de", beam=1)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("change", ["nothing", "to", "beam", "length_penalty", "text", "model"])
def test_another_language_beam_text_or_model_begins_anew(
    mt: Path,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    out = file.with_name("said.txt")
    known = Translator.load(mt)
    told: list[int] = []

    def numbered(_: Translator, lines: Any, *__: Any) -> list[str]:
        if told and told[-1] == 6:
            raise KeyboardInterrupt
        told.append(len(lines))
        return ["said"] * len(lines)

    monkeypatch.setattr(Translator, "translate", numbered)
    asked: dict[str, Any] = {"to": "de", "beam": 2, "length_penalty": 1.0}
    with pytest.raises(KeyboardInterrupt):
        translate(known, file, out=out, **asked)
    del told[:]
    monkeypatch.setattr(module, "WINDOW", 100)
    asked |= {name: value for name, value in {"to": "en", "beam": 3, "length_penalty": 0.5}.items() if name == change}
    if change == "text":
        file.write_text(file.read_text().replace(LINES[-1], "another"))
    if change == "model":
        with torch.no_grad():
            next(known.model.parameters()).add_(0.01)
    translate(known, file, out=out, **asked)
    assert told == [19 if change == "nothing" else 25]


def test_the_file_to_translate_is_never_written_over(known: Translator, file: Path) -> None:
    before = file.read_text()
    link = file.with_name("link.txt")
    link.symlink_to(file)
    for out in (file, link, file.parent / "." / "none" / ".." / file.name):
        (file.parent / "none").mkdir(exist_ok=True)
        with pytest.raises(BadInput, match="this is the file to translate, which would be lost"):
            translate(known, file, to="de", out=out, beam=1)
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("content", "told"), [(b"", "the file is empty"), (b"dog\n\xff\n", "line 2 cannot be read"), (None, "no such file")]
)
def test_files_that_cannot_be_read_are_told_of(known: Translator, tmp_path: Path, content: Any, told: str) -> None:
    file = tmp_path / "lines.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput, match=told):
        translate(known, file, to="de", out=tmp_path / "out.txt")
    assert not (tmp_path / "out.txt").exists()


def test_what_cannot_be_is_refused(known: Translator, tmp_path: Path, file: Path) -> None:
    with pytest.raises(BadInput, match="say which with --to"):
        translate(known, LINES)
    with pytest.raises(BadInput, match="did you mean 'de'"):
        translate(known, LINES, to="dee")
    with pytest.raises(BadInput, match="--beam 0"):
        translate(known, LINES, to="de", beam=0)
    with pytest.raises(BadInput, match="this is a folder"):
        translate(known, file, to="de", out=tmp_path)
    with pytest.raises(BadInput, match="only a file is translated into a file"):
        translate(known, LINES, to="de", out=tmp_path / "out")
    with pytest.raises(BadInput, match="comes from a pipe"):
        translate(known, "-", to="de", out=tmp_path / "out")


# ---- the words a user types ---------------------------------------------------------------------------------


def test_translate_prints_lines_or_objects_and_reads_a_pipe(
    mt: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = xl.translate(mt, LINES, to="de", beam=2)
    plain = CliRunner().invoke(app, ["translate", str(mt), str(file), "--to", "de", "--beam", "2"])
    assert plain.output.splitlines() == said
    objects = CliRunner().invoke(app, ["translate", str(mt), str(file), "--to", "de", "--beam", "2", "--json"])
    rows = [json.loads(line) for line in objects.output.splitlines()]
    assert rows == [{"source": a, "translation": b} for a, b in zip(LINES, said, strict=True)]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in LINES)))
    assert [line for _, line in stream(Translator.load(mt), module.lines_of(Path("-")), "de", 2)] == said


def test_train_and_score_by_hand(encoder: Path, data: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "mt")
    changes = {**QUICK, "steps": 2, "checkpoint_every": 1, "beam": 1, "dev_rows": 3}
    asked = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    command = ["finetune", str(encoder), "--task", "translation", "--pairs", "en-de", "--data", str(data), "-o", out]
    done = CliRunner().invoke(app, [*command, *asked], catch_exceptions=False)
    assert done.exit_code == 0
    assert "sacrebleu: nrefs:1|case:mixed|eff:no|tok:13a" in done.output
    again = CliRunner().invoke(
        app, ["evaluate", out, "--task", "translation", "--data", str(data), "--recompute", "--json"]
    )
    rows = [json.loads(line) for line in again.output.splitlines() if line.startswith("{")]
    assert {row["metric"] for row in rows} == {"sacrebleu", "chrf", "bleu-lowercased-tokenised"}
    report = xl.report([tmp_path / "mt"], tmp_path / "report.html")
    assert "translation" in Path(report).read_text()


def test_a_folder_without_a_translator_is_refused(encoder: Path, file: Path) -> None:
    done = CliRunner().invoke(app, ["translate", str(encoder), str(file)])
    assert isinstance(done.exception, BadInput)
    assert "no translator here" in str(done.exception)
