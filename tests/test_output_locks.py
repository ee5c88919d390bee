"""Every command that writes an output refuses one that another process writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

import crossling as xl
from crossling.core.locks import OutputInUse, output_lock
from crossling.core.resumable import fingerprint
from crossling.recipes.recipe import Recipe
from tests.finetune.tiny_tasks import model_folder, write_udpos

Act = Callable[[Path], object]


@contextmanager
def locked_elsewhere(out: Path, part: str = "") -> Iterator[None]:
    """Hold the lock of an output in another thread, which counts as another process."""
    is_locked, may_end = Event(), Event()

    def hold() -> None:
        with output_lock(out, part):
            is_locked.set()
            may_end.wait()

    thread = Thread(target=hold)
    thread.start()
    is_locked.wait()
    try:
        yield
    finally:
        may_end.set()
        thread.join()


@pytest.fixture
def act(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    corpora_folder: Path,
    vocabulary_folder: Path,
    shards: xl.Shards,
    full_recipe: Recipe,
) -> Act:
    """The command of this name, as a function of its output."""

    def finetune(out: Path) -> object:
        languages = {"train": ["en"], "dev": ["en"], "test": ["en"]}
        write_udpos(tmp_path / "data", {"train": 8, "dev": 4, "test": 4}, languages)
        return xl.finetune(model_folder(tmp_path / "model"), "udpos", tmp_path / "data", out, steps=1)

    def embed(out: Path) -> object:
        (tmp_path / "lines").write_text("a b\n")
        return xl.encode_file(model_folder(tmp_path / "model"), tmp_path / "lines", out.with_suffix(".npy"))

    acts: dict[str, Act] = {
        "synth": lambda out: xl.synth(out, 2, 50, lemmas=300),
        "vocab": lambda out: xl.vocab(corpora_folder, out, size=400),
        "tokenize": lambda out: xl.tokenize(corpora_folder, vocabulary_folder, out),
        "tokenize --share 1/2": lambda out: xl.tokenize(corpora_folder, vocabulary_folder, out, share=xl.Share(1, 2)),
        "clean": lambda out: xl.clean(corpora_folder, out, xl.Rules(duplicates=True)),
        "check": lambda out: xl.check(corpora_folder, out=out),
        "pretrain": lambda out: xl.pretrain(full_recipe, shards, out),
        "finetune": finetune,
        "embed": embed,
        "demo": xl.demo,
    }
    chosen: str = request.param
    return acts[chosen]


COMMANDS = ["synth", "vocab", "tokenize", "clean", "check", "pretrain", "finetune", "demo"]


@pytest.mark.parametrize("act", COMMANDS, indirect=True)
def test_an_output_that_another_process_writes_is_refused(act: Act, tmp_path: Path) -> None:
    with (
        locked_elsewhere(tmp_path / "out"),
        pytest.raises(OutputInUse, match=r"out: another process writes here \(pid"),
    ):
        act(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("act", ["embed"], indirect=True)
def test_a_file_that_another_process_writes_is_refused(act: Act, tmp_path: Path) -> None:
    with locked_elsewhere(tmp_path / "out.npy"), pytest.raises(OutputInUse, match=r"out\.npy: another process"):
        act(tmp_path / "out")


@pytest.mark.parametrize("act", ["tokenize --share 1/2"], indirect=True)
def test_machines_write_different_parts_at_the_same_time(act: Act, tmp_path: Path) -> None:
    with locked_elsewhere(tmp_path / "out", "1-2"), pytest.raises(OutputInUse):
        act(tmp_path / "out")
    with locked_elsewhere(tmp_path / "out", "2-2"):
        act(tmp_path / "out")


def test_other_models_and_tasks_are_evaluated_into_one_folder_at_the_same_time(
    tmp_path: Path, encoder: xl.Encoder
) -> None:
    for language in ("qaa", "qab"):
        file = tmp_path / f"tatoeba/v1/tatoeba.qaa-qab.{language}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a b\nc\n")
    out = tmp_path / "out"
    name = fingerprint(encoder.name)[:16]
    with locked_elsewhere(out, f"tatoeba-{name}"), pytest.raises(OutputInUse):
        xl.evaluate(encoder, "tatoeba", tmp_path, out)
    with locked_elsewhere(out, f"word-alignment-{name}"), locked_elsewhere(out, f"tatoeba-{fingerprint('other')[:16]}"):
        assert xl.evaluate(encoder, "tatoeba", tmp_path, out)
