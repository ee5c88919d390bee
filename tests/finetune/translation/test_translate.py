"""Translation of sentences, streams and files, with resuming, and the command."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import crossling as xl
from crossling.cli.app import app
from crossling.core.errors import BadInput
from crossling.finetune.translation import translate as translate_module
from crossling.finetune.translation.translate import stream, translate
from crossling.finetune.translation.translator import Translator

from ..tiny_tasks import WORDS
from .tiny_parallel import QUICK

LINES = [f"{WORDS[n % 13]} {WORDS[n % 7]}" for n in range(25)]


@pytest.fixture(scope="module")
def translator(mt: Path) -> Translator:
    return Translator.load(mt)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate_module, "WINDOW", 6)
    monkeypatch.setattr(translate_module, "FIRST_WINDOW", 2)


@pytest.mark.usefixtures("small_windows")
def test_sentences_a_file_and_an_output_file_give_the_same_translations(
    mt: Path,
    file: Path,
) -> None:
    translations = xl.translate(mt, LINES, to="de", beam=1)
    assert len(translations) == 25
    assert xl.translate(mt, file, to="de", beam=1) == translations
    out = xl.translate(mt, str(file), to="de", beam=1, out=file.parent / "out" / "out.txt")
    assert out.read_text().splitlines() == translations
    assert [path.name for path in out.parent.iterdir()] == ["out.txt"]


@pytest.mark.usefixtures("small_windows")
def test_a_stream_yields_before_the_end_of_the_text(translator: Translator) -> None:
    lines = []

    def endless() -> Any:
        while True:
            lines.append("dog runs")
            yield "dog runs"

    pairs = stream(translator, endless(), "de", beam=1)
    source, _ = next(pairs)
    assert source == "dog runs"
    assert len(lines) == 2


@pytest.mark.usefixtures("small_windows")
def test_an_interrupted_translation_resumes(
    translator: Translator, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = file.with_name("out.txt")
    translated: list[str] = []
    original = Translator.translate

    def interrupt(self: Translator, lines: Any, to: str, **options: Any) -> list[str]:
        if len(translated) >= 12:
            raise KeyboardInterrupt
        translated.extend(lines)
        return original(self, lines, to, **options)

    monkeypatch.setattr(Translator, "translate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        translate(translator, file, to="de", out=out, beam=1)
    assert not out.exists()
    with (file.with_name(".out.txt.partial") / "done.jsonl").open("a") as journal:
        journal.write('{"key": "half a li')
    del translated[:]
    monkeypatch.setattr(translate_module, "WINDOW", 13)
    translate(translator, file, to="de", out=out, beam=1)
    assert translated == LINES[12:]
    monkeypatch.undo()
    assert out.read_text().splitlines() == translate(translator, LINES, to="de", beam=1)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("change", ["nothing", "to", "beam", "length_penalty", "text", "model"])
def test_another_language_beam_text_or_model_starts_again(
    mt: Path, file: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    out = file.with_name("out.txt")
    translator = Translator.load(mt)
    windows: list[int] = []

    def interrupt(_: Translator, lines: Any, *__: Any, **___: Any) -> list[str]:
        if windows and windows[-1] == 6:
            raise KeyboardInterrupt
        windows.append(len(lines))
        return ["translation"] * len(lines)

    monkeypatch.setattr(Translator, "translate", interrupt)
    options: dict[str, Any] = {"to": "de", "beam": 2, "length_penalty": 1.0}
    with pytest.raises(KeyboardInterrupt):
        translate(translator, file, out=out, **options)
    del windows[:]
    monkeypatch.setattr(translate_module, "WINDOW", 100)
    options |= {name: value for name, value in {"to": "en", "beam": 3, "length_penalty": 0.5}.items() if name == change}
    if change == "text":
        file.write_text(file.read_text().replace(LINES[-1], "another"))
    if change == "model":
        with torch.no_grad():
            next(translator.model.parameters()).add_(0.01)
    translate(translator, file, out=out, **options)
    assert windows == [19 if change == "nothing" else 25]


def test_the_source_file_is_never_overwritten(translator: Translator, file: Path) -> None:
    before = file.read_text()
    link = file.with_name("link.txt")
    link.symlink_to(file)
    for out in (file, link, file.parent / "." / "none" / ".." / file.name):
        (file.parent / "none").mkdir(exist_ok=True)
        with pytest.raises(BadInput, match="this is the file to translate, which would be lost"):
            translate(translator, file, to="de", out=out, beam=1)
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the file is empty"), (b"dog\n\xff\n", "line 2 cannot be read"), (None, "no such file")],
)
def test_unreadable_files_are_refused(translator: Translator, tmp_path: Path, content: Any, message: str) -> None:
    file = tmp_path / "lines.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput, match=message):
        translate(translator, file, to="de", out=tmp_path / "out.txt")
    assert not (tmp_path / "out.txt").exists()


def test_bad_options_are_refused(translator: Translator, tmp_path: Path, file: Path) -> None:
    with pytest.raises(BadInput, match="it translates into de, en"):
        translate(translator, LINES)
    with pytest.raises(BadInput, match="did you mean 'de'"):
        translate(translator, LINES, to="dee")
    with pytest.raises(BadInput, match="beam=0: expected at least 1"):
        translate(translator, LINES, to="de", beam=0)
    with pytest.raises(BadInput, match="this is a folder"):
        translate(translator, file, to="de", out=tmp_path)
    with pytest.raises(BadInput, match="only a file is translated into a file"):
        translate(translator, LINES, to="de", out=tmp_path / "out")
    with pytest.raises(BadInput, match="standard input cannot be resumed"):
        translate(translator, "-", to="de", out=tmp_path / "out")


# ---- command ------------------------------------------------------------------------------------------------


def test_translate_prints_lines_or_objects_and_reads_standard_input(
    mt: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translations = xl.translate(mt, LINES, to="de", beam=2)
    plain = CliRunner().invoke(app, ["translate", str(mt), str(file), "--to", "de", "--beam", "2"])
    assert plain.output.splitlines() == translations
    objects = CliRunner().invoke(app, ["translate", str(mt), str(file), "--to", "de", "--beam", "2", "--json"])
    rows = [json.loads(line) for line in objects.output.splitlines()]
    assert rows == [{"source": a, "translation": b} for a, b in zip(LINES, translations, strict=True)]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in LINES)))
    lines = translate_module.read_source_lines(Path("-"))
    assert [line for _, line in stream(Translator.load(mt), lines, "de", beam=2)] == translations


def test_commands_train_and_score_a_translator(encoder: Path, data: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "mt")
    changes = {**QUICK, "steps": 2, "checkpoint_every": 1, "beam": 1, "dev_rows": 3}
    options = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    command = [
        "finetune",
        str(encoder),
        "--task",
        "translation",
        "--directions",
        "en-de",
        "--data",
        str(data),
        "-o",
        out,
        "--preset",
        "veco-wmt14-en-de",
    ]
    done = CliRunner().invoke(app, [*command, *options], catch_exceptions=False)
    assert done.exit_code == 0
    stored = json.loads((tmp_path / "mt" / "translator.json").read_text())["hyperparameters"]
    assert (stored["warmup"], stored["average"], stored["clip"], stored["steps"]) == (16_000, 10, 0.1, 2)
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
    assert "no translator.json here" in str(done.exception)
