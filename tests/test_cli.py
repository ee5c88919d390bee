"""The verbs as a person types them: what they print, how they end, and the one sentence when they cannot go on."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from crossling import cli
from crossling.data.batches import Batches, Work
from crossling.data.shards import Shards

VERBS = [
    "demo",
    "babel",
    "check",
    "clean",
    "vocab",
    "encode",
    "inspect",
    "pretrain",
    "audit",
    "finetune",
    "evaluate",
    "align",
    "embed",
    "mine",
    "translate",
    "report",
    "export",
    "lab",
    "bench",
]
SMALL = [
    *("--size", "tiny", "--set", "steps=2", "--set", "model.layers=1", "--set", "model.width=16"),
    *("--set", "model.feed_forward=32", "--set", "model.generator_layers=1", "--set", "mrtd.tokens=128"),
    *("--set", "trtd.tokens=128", "--set", "mrtd.length=32", "--set", "trtd.length=32"),
]


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str


Run = Callable[..., Ended]


def weights_file(run: Path) -> Path:
    [file] = (run / "checkpoints" / "0000002").glob("*.safetensors")
    return file


@pytest.fixture
def crossling(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`crossling ...` in this process: its exit status and what it printed."""

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return run


def sentence(ended: Ended, status: int) -> str:
    """The one line that a failed command leaves, and nothing else but notes of what it did before."""
    assert ended.status == status, ended
    assert ended.out == ""
    [line] = [line for line in ended.err.splitlines(keepends=True) if not line.startswith("crossling: note: ")]
    assert line.startswith("crossling: ")
    assert line.endswith("\n")
    return line


# ---- the whole path -----------------------------------------------------------------------------------------


def test_from_nothing_to_a_report(crossling: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = crossling("babel", "-o", "babel", "--languages", "2", "--sentences", "80", "--lemmas", "300")
    assert made.status == 0
    assert made.out.endswith("Text and bitext are in babel/corpora, benchmarks in babel/data\n")
    # A short benchmark is enough here.
    for file in (tmp_path / "babel" / "data" / "tatoeba" / "v1").iterdir():
        file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:20]), encoding="utf-8")

    report = json.loads(crossling("vocab", "babel/corpora", "--size", "300", "-o", "vocab", "--json").out)
    assert report["size"] == 300
    assert sorted(report["languages"]) == ["qaa", "qab"]
    assert "300 pieces" in crossling("vocab", "babel/corpora", "--size", "300", "-o", "vocab").out

    encoded = crossling("encode", "babel/corpora", "--vocab", "vocab", "-o", "shards")
    assert encoded.out.startswith("shards: text in 2 languages (")
    manifest = json.loads(crossling("encode", "babel/corpora", "--vocab", "vocab", "-o", "shards", "--json").out)
    assert manifest == Shards.open("shards").manifest

    trained = crossling("pretrain", "xlm_e", "--shards", "shards", "-o", "run", *SMALL)
    assert (trained.status, trained.out) == (0, "run\n")
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 2
    repeated = crossling("pretrain", "run/recipe.json", "--shards", "shards", "-o", "again")
    assert repeated.status == 0
    same = [weights_file(tmp_path / run) for run in ("run", "again")]
    assert same[0].read_bytes() == same[1].read_bytes()

    task = ["--task", "tatoeba,word-alignment", "--data", "babel/data"]
    scored = crossling("evaluate", "run", *task, "-o", "run", "--json")
    rows = [json.loads(line) for line in scored.out.splitlines()]
    assert {row["task"] for row in rows} == {"tatoeba", "word-alignment"}
    assert {row["layer"] for row in rows} == {0, 1}
    assert all(row["model"] == "run" and 0 <= row["value"] <= 100 for row in rows)
    assert [json.loads(line) for line in (tmp_path / "run" / "scores.jsonl").read_text().splitlines()] == rows
    assert "tatoeba: accuracy (sweep)" in " ".join(crossling("evaluate", "run", *task).out.split())

    gold = tmp_path / "babel" / "data" / "word-alignment" / "qaa-qab" / "qaa-qab.src-tgt"
    Path("pairs.txt").write_text("".join(gold.read_text(encoding="utf-8").splitlines(keepends=True)[:3]), "utf-8")
    links = crossling("align", "pairs.txt", "--model", "run").out.splitlines()
    assert len(links) == 3
    assert all(len(link.split("-")) == 2 for line in links for link in line.split())

    assert crossling("report", "run", "-o", "report.html").out == "report.html\n"
    page = Path("report.html").read_text(encoding="utf-8")
    assert "MRTD: replaced tokens" in page  # the curves of the run
    assert "Retrieval accuracy" in page  # and its scores


def test_pretrain_shows_retrieval_before_and_after(
    crossling: Run, shards: Shards, babel_folder: Path, tmp_path: Path
) -> None:
    command = ["pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL]
    command += ["--probe", babel_folder / "data"]
    ended = crossling(*command, "--probe-every", "1")
    assert ended.status == 0, ended
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "probe/retrieval/qaa-qac" in row] == [0, 1, 2]
    first, last = rows[0]["probe/retrieval/qaa-qac"], rows[-1]["probe/retrieval/qaa-qac"]
    assert ended.out.endswith(f"\n{tmp_path / 'run'}\n")
    [line] = [line for line in ended.out.splitlines() if " qaa-qac " in line]
    assert f"{first:.1f} → {last:.1f} ({last - first:+.1f})" in line
    assert crossling(*command).out == ended.out  # a run that is finished still shows it


def test_a_tenth_of_the_steps_lies_between_two_probes(
    crossling: Run, shards: Shards, babel_folder: Path, tmp_path: Path
) -> None:
    ended = crossling(
        *("pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL),
        *("--set", "steps=21", "--probe", babel_folder / "data"),
    )
    assert ended.status == 0, ended
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "probe/retrieval" in row] == [*range(0, 21, 2), 21]


def test_pretrain_measures_losses_on_other_shards(crossling: Run, shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "held" / "text").mkdir(parents=True)
    (tmp_path / "held" / "text" / "qaa.txt").write_text("ngimuro cha lutnir\n" * 50, encoding="utf-8")
    held = tmp_path / "held-shards"
    crossling("encode", tmp_path / "held", "--vocab", shards.vocabulary_path, "-o", held)
    command = ["pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL]
    ended = crossling(*command, "--validate", held, "--probe-every", "1")
    assert ended.status == 0, ended
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    measured = [row for row in rows if "probe/loss/qaa/mlm" in row]
    assert [row["step"] for row in measured] == [0, 1, 2]
    assert not any("probe/loss/qac" in name for name in measured[0])
    manifest = json.loads((held / "manifest.json").read_text())
    manifest["vocabulary"]["fingerprint"] = "another"
    (held / "manifest.json").write_text(json.dumps(manifest))
    assert "have another vocabulary than" in sentence(crossling(*command, "--validate", held), 2)


def test_probes_that_cannot_be_had_leave_no_run(crossling: Run, shards: Shards, tmp_path: Path) -> None:
    command = ["pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL]
    assert "give --probe DATA or --validate SHARDS too" in sentence(crossling(*command, "--probe-every", "5"), 2)
    assert "no such folder; put the files" in sentence(crossling(*command, "--probe", tmp_path), 2)
    assert not (tmp_path / "run").exists()


def test_an_interrupted_run_goes_on_by_the_same_command(crossling: Run, shards: Shards, tmp_path: Path) -> None:
    command = ["pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL]
    original = Batches.__getitem__

    def interrupted(self: Batches, step: int) -> Work:
        signal.raise_signal(signal.SIGINT)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "__getitem__", interrupted)
        assert "stopped at step 1 of 2, saved in" in sentence(crossling(*command), 130)
    assert crossling(*command).status == 0
    assert "(different: steps)" in sentence(crossling(*command, "--set", "steps=3"), 2)


# ---- help ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(verb: str, crossling: Run) -> None:
    ended = crossling(verb, "--help")
    assert ended.status == 0
    assert f"Example: crossling {verb} " in ended.out


def test_these_are_the_verbs() -> None:
    assert [command.callback.__name__ for command in cli.app.registered_commands if command.callback] == VERBS


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["pretrian"], "Did you mean 'pretrain'?"),
        (["pretrain", "xlm_e", "--shrads", "x"], "--shards"),
        (["babel", "--sentence", "5"], "--sentences"),
    ],
)
def test_a_mistyped_verb_or_option_is_answered_with_the_nearest(
    arguments: list[str], suggestion: str, crossling: Run
) -> None:
    ended = crossling(*arguments)
    assert ended.status == 2
    assert "No such" in ended.err
    assert suggestion in ended.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [(["pretrain"], "recipe"), (["encode", "x", "-o", "y"], "--vocab"), (["evaluate", "x", "--task", "y"], "--data")],
)
def test_what_is_missing_is_named(arguments: list[str], missing: str, crossling: Run) -> None:
    ended = crossling(*arguments)
    assert ended.status == 2
    assert missing in ended.err.splitlines()[-1]


def test_as_a_module_without_waiting_for_torch() -> None:
    program = (
        "import runpy, sys; sys.argv = ['crossling', '--help']\n"
        "try: runpy.run_module('crossling', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'numpy', 'transformers'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pretrain" in done.stdout


def test_a_process_ends_with_the_status() -> None:
    command = [sys.executable, "-m", "crossling", "vocab", "absent", "--size", "9", "-o", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert sentence(Ended(done.returncode, done.stdout, done.stderr), 2).startswith("crossling: absent is no folder")


# ---- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        (["xlm-e"], "xlm-e: there is no such recipe; did you mean 'xlm_e'?"),
        (["xlm_e", "--size", "bse"], "--size bse: there is no such size; did you mean 'base'?"),
        (["xlm_e", "--set", "stepps=5"], "--set stepps: there is no 'stepps'; did you mean 'steps'?"),
        (["xlm_e", "--set", "steps"], "--set steps: expected key=value"),
        (["xlm_e", "--set", "steps=ten"], "--set steps=ten: expected a whole number"),
        (["xlm_e", "--set", "seed=-1"], "recipe xlm_e: seed must be at least 0, found -1"),
        (["absent.json"], "absent.json: not a readable recipe.json"),
    ],
)
def test_a_wrong_recipe(differences: list[str], expected: str, crossling: Run, shards: Shards, tmp_path: Path) -> None:
    ended = crossling("pretrain", *differences, "--shards", shards.path, "-o", tmp_path / "run")
    assert sentence(ended, 2).startswith(f"crossling: {expected}")
    assert not (tmp_path / "run").exists()


def test_missing_shards(crossling: Run, tmp_path: Path) -> None:
    ended = crossling("pretrain", "xlm_e", "--shards", tmp_path / "absent", "-o", tmp_path / "run")
    assert "absent: no shards here (expected manifest.json); make them with crossling encode" in sentence(ended, 2)


def test_a_folder_that_is_no_run_is_not_trained_into(crossling: Run, shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep me")
    ended = crossling("pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path, *SMALL)
    assert "not empty and holds no run" in sentence(ended, 2)
    ended = crossling("pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "notes.txt", *SMALL)
    assert "notes.txt: this is a file" in sentence(ended, 2)
    assert (tmp_path / "notes.txt").read_text() == "keep me"


def missing_folder(_: Path) -> str:
    return "corpora is no folder"


def unknown_language(corpora: Path) -> str:
    write(corpora / "text" / "xx1.txt", "a b c\n")
    return "xx1.txt: "


def empty_text(corpora: Path) -> str:
    write(corpora / "text" / "sw.txt", "\n\n")
    return "sw.txt: not one usable line found"


def mismatched_sides(corpora: Path) -> str:
    write(corpora / "pairs" / "opus.en-fr.en", "one\ntwo\nthree\n")
    write(corpora / "pairs" / "opus.en-fr.fr", "un\ndeux\n")
    return "translations need the same number of lines"


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


@pytest.mark.parametrize("damage", [missing_folder, unknown_language, empty_text, mismatched_sides])
@pytest.mark.parametrize("verb", ["vocab", "encode"])
def test_wrong_corpora(
    verb: str, damage: Callable[[Path], str], crossling: Run, vocabulary_folder: Path, tmp_path: Path
) -> None:
    expected = damage(tmp_path / "corpora")
    options = ["--size", "300"] if verb == "vocab" else ["--vocab", vocabulary_folder]
    ended = crossling(verb, tmp_path / "corpora", *options, "-o", tmp_path / "out")
    assert expected in sentence(ended, 2)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_vocabulary_of_an_impossible_size(crossling: Run, corpora_folder: Path, tmp_path: Path) -> None:
    for size in ("5", "1000000", "-5", "0"):
        ended = crossling("vocab", corpora_folder, "--size", size, "-o", tmp_path / "vocab")
        assert ended.status == 2
        assert f"a vocabulary of {size} pieces cannot be trained" in ended.err.splitlines()[-1]  # after those of bars


@pytest.mark.parametrize("content", [None, b"", b"no model"])
def test_a_wrong_vocabulary(content: bytes | None, crossling: Run, corpora_folder: Path, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "sentencepiece.model").write_bytes(content)
    ended = crossling("encode", corpora_folder, "--vocab", tmp_path, "-o", tmp_path / "shards")
    assert "make one with crossling vocab" in sentence(ended, 2)


@pytest.fixture(scope="module")
def run_folder(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from crossling.recipe import pretrain
    from crossling.recipes import named

    out = tmp_path_factory.mktemp("cli") / "run"
    differences = [value for key, value in zip(SMALL[::2], SMALL[1::2], strict=True) if key == "--set"]
    pretrain(named("xlm_e", "tiny").set(differences), shards, out)
    return out


@pytest.mark.parametrize(
    ("task", "data", "expected"),
    [
        ("tatoba", "data", "task 'tatoba' is unknown; did you mean 'tatoeba'?"),
        ("tatoeba", "absent", "absent: no such folder"),
        ("tatoeba", ".", "tatoeba/v1: no such folder"),
        ("word-alignment", ".", "word-alignment: no such folder"),
    ],
)
def test_a_wrong_task_or_wrong_data(
    task: str, data: str, expected: str, crossling: Run, run_folder: Path, babel_folder: Path
) -> None:
    ended = crossling("evaluate", run_folder, "--task", task, "--data", babel_folder / data)
    assert expected in sentence(ended, 2)


def test_a_wrong_model(crossling: Run, babel_folder: Path, run_folder: Path, tmp_path: Path) -> None:
    options = ["--task", "tatoeba", "--data", babel_folder / "data"]
    assert "absent: no such folder" in sentence(crossling("evaluate", tmp_path / "absent", *options), 2)
    shutil.copytree(run_folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert "no checkpoint yet" in sentence(crossling("evaluate", tmp_path / "run", *options), 2)
    (tmp_path / "run" / "recipe.json").write_text("{")
    shutil.copytree(run_folder / "checkpoints", tmp_path / "run" / "checkpoints")
    assert "not a readable recipe.json" in sentence(crossling("evaluate", tmp_path / "run", *options), 2)
    shutil.copy(run_folder / "recipe.json", tmp_path / "run" / "recipe.json")
    weights_file(tmp_path / "run").write_bytes(b"half")
    assert "no checkpoint there is whole" in sentence(crossling("evaluate", tmp_path / "run", *options), 2)


def test_lines_that_cannot_be_aligned(crossling: Run, run_folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "pairs.txt", "a house\n")
    ended = crossling("align", tmp_path / "pairs.txt", "--model", run_folder)
    assert "line 1 is not `source ||| target`" in sentence(ended, 2)
    assert "no such file" in sentence(crossling("align", tmp_path / "absent.txt", "--model", run_folder), 2)


def test_nothing_to_report(crossling: Run, tmp_path: Path) -> None:
    assert "no scores.jsonl and no run" in sentence(crossling("report", tmp_path, "-o", tmp_path / "r.html"), 2)


def test_a_file_where_a_folder_should_be(crossling: Run, corpora_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("keep me")
    for verb, options in (("vocab", ["--size", "300"]), ("babel", [])):
        source = [corpora_folder] if verb == "vocab" else []
        sentence(crossling(verb, *source, *options, "-o", tmp_path / "taken"), 2)
        sentence(crossling(verb, *source, *options, "-o", tmp_path / "taken" / "below"), 2)
    assert (tmp_path / "taken").read_text() == "keep me"


# ---- the machine gives up -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "out/x"),
            "out/x: No space left on device; what was finished",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "the output folder: No space left on device"),
        (OSError("100000 requested and 12784 written"), "no space left (100000 requested and 12784 written)"),
        (PermissionError(errno.EACCES, "Permission denied", "out"), "out: Permission denied"),
    ],
)
def test_a_full_or_closed_disk_is_one_sentence(
    error: OSError, expected: str, crossling: Run, corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossling.vocabulary import vocab

    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(vocab, "vocab", full)
    ended = crossling("vocab", corpora_folder, "--size", "300", "-o", tmp_path / "vocab")
    assert expected in sentence(ended, 1)


def test_a_full_disk_while_training(
    crossling: Run, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossling.train import stored

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stored, "write", full)
    ended = crossling("pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL)
    assert ended.status == 1
    assert "checkpoints/0000002: No space left on device" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err


def test_an_error_of_ours_is_not_hidden(
    crossling: Run, corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossling.vocabulary import vocab

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(vocab, "vocab", broken)
    with pytest.raises(OSError, match="Input/output"):
        crossling("vocab", corpora_folder, "--size", "300", "-o", tmp_path / "vocab")


def test_a_diverged_run_is_one_sentence(crossling: Run, shards: Shards, tmp_path: Path) -> None:
    extreme = [*SMALL, "--set", "lr=1e30", "--set", "optimizer.warmup=0", "--set", "steps=8"]
    ended = crossling("pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *extreme)
    said = sentence(ended, 1)
    assert "5 steps in a row had to be left out by step 8: " in said
    assert "; no state was saved before; try a lower lr, " in said


def test_ctrl_c_outside_of_training(
    crossling: Run, corpora_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossling.vocabulary import vocab

    def slow(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(vocab, "vocab", slow)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    ended = crossling("vocab", corpora_folder, "--size", "300", "-o", tmp_path / "vocab")
    signal.signal(signal.SIGINT, before)
    assert sentence(ended, 130) == "crossling: interrupted; the same command does the rest\n"
