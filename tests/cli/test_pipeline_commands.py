"""Commands as a user types them, from text to report."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from crossling.data.batches import Batches, StepWork
from crossling.data.shards import Shards

from .conftest import SMALL, Command, error_line, weights_file


def test_from_text_to_a_report(crossling: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = crossling("synth", "-o", "synth", "--languages", "2", "--sentences", "80", "--lemmas", "300")
    assert made.code == 0
    assert made.out.endswith("Text and bitext are in synth/corpora, benchmarks in synth/data\n")
    # A short benchmark is enough here.
    for file in (tmp_path / "synth" / "data" / "tatoeba" / "v1").iterdir():
        file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:20]), encoding="utf-8")

    report = json.loads(crossling("vocab", "synth/corpora", "--size", "300", "-o", "vocab", "--json").out)
    assert report["size"] == 300
    assert sorted(report["languages"]) == ["qaa", "qab"]
    assert "300 entries" in crossling("vocab", "synth/corpora", "--size", "300", "-o", "vocab").out

    encoded = crossling("tokenize", "synth/corpora", "--vocab", "vocab", "-o", "shards")
    assert encoded.out.startswith("shards: text in 2 languages (")
    manifest = json.loads(crossling("tokenize", "synth/corpora", "--vocab", "vocab", "-o", "shards", "--json").out)
    assert manifest == Shards.open("shards").manifest

    trained = crossling("pretrain", "xlm_e", "--shards", "shards", "-o", "run", *SMALL)
    assert (trained.code, trained.out) == (0, "run\n")
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 2
    repeated = crossling("pretrain", "run/recipe.json", "--shards", "shards", "-o", "again")
    assert repeated.code == 0
    same = [weights_file(tmp_path / run) for run in ("run", "again")]
    assert same[0].read_bytes() == same[1].read_bytes()

    task = ["--task", "tatoeba,word-alignment", "--data", "synth/data"]
    scored = crossling("evaluate", "run", *task, "-o", "run", "--json")
    rows = [json.loads(line) for line in scored.out.splitlines()]
    assert {row["task"] for row in rows} == {"tatoeba", "word-alignment"}
    assert {row["layer"] for row in rows} == {0, 1}
    assert all(row["model"] == "run" and 0 <= row["value"] <= 100 for row in rows)
    assert [json.loads(line) for line in (tmp_path / "run" / "scores.jsonl").read_text().splitlines()] == rows
    printed = crossling("evaluate", "run", *task)
    assert "tatoeba: accuracy, %, model run, best layer" in printed.out
    assert "word-alignment: alignment error rate (lower is better), %, model run, best layer" in printed.out

    gold = tmp_path / "synth" / "data" / "word-alignment" / "qaa-qab" / "qaa-qab.src-tgt"
    Path("pairs.txt").write_text("".join(gold.read_text(encoding="utf-8").splitlines(keepends=True)[:3]), "utf-8")
    links = crossling("align", "pairs.txt", "--model", "run").out.splitlines()
    assert len(links) == 3
    assert all(len(link.split("-")) == 2 for line in links for link in line.split())

    assert crossling("report", "run", "-o", "report.html").out == "report.html\n"
    page = Path("report.html").read_text(encoding="utf-8")
    assert "MRTD: replaced tokens" in page  # the curves of the run
    assert "Retrieval accuracy" in page  # and its scores


def test_pretrain_shows_retrieval_before_and_after(
    crossling: Command, shards: Shards, synth_folder: Path, tmp_path: Path
) -> None:
    command = ["pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL]
    command += ["--probe", synth_folder / "data"]
    completed = crossling(*command, "--probe-every", "1")
    assert completed.code == 0, completed
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "probe/retrieval/qaa-qac" in row] == [0, 1, 2]
    first, last = rows[0]["probe/retrieval/qaa-qac"], rows[-1]["probe/retrieval/qaa-qac"]
    assert completed.out.endswith(f"\n{tmp_path / 'run'}\n")
    [line] = [line for line in completed.out.splitlines() if " qaa-qac " in line]
    assert f"{first:.1f} → {last:.1f} ({last - first:+.1f})" in line
    assert crossling(*command).out == completed.out  # a run that is finished still shows it


def test_a_tenth_of_the_steps_lies_between_two_probes(
    crossling: Command, shards: Shards, synth_folder: Path, tmp_path: Path
) -> None:
    completed = crossling(
        *("pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL),
        *("--set", "steps=21", "--probe", synth_folder / "data"),
    )
    assert completed.code == 0, completed
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "probe/retrieval" in row] == [*range(0, 21, 2), 21]


def test_pretrain_measures_losses_on_other_shards(crossling: Command, shards: Shards, tmp_path: Path) -> None:
    (tmp_path / "held" / "text").mkdir(parents=True)
    (tmp_path / "held" / "text" / "qaa.txt").write_text("ngimuro cha lutnir\n" * 50, encoding="utf-8")
    held = tmp_path / "held-shards"
    crossling("tokenize", tmp_path / "held", "--vocab", shards.vocabulary_path, "-o", held)
    command = ["pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL]
    completed = crossling(*command, "--validate", held, "--probe-every", "1")
    assert completed.code == 0, completed
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    probed = [row for row in rows if "probe/loss/qaa/mlm" in row]
    assert [row["step"] for row in probed] == [0, 1, 2]
    assert not any("probe/loss/qac" in name for name in probed[0])
    manifest = json.loads((held / "manifest.json").read_text())
    manifest["vocabulary"]["fingerprint"] = "another"
    (held / "manifest.json").write_text(json.dumps(manifest))
    assert "have another vocabulary than" in error_line(crossling(*command, "--validate", held), 2)


def test_probes_that_cannot_be_had_leave_no_run(crossling: Command, shards: Shards, tmp_path: Path) -> None:
    command = ["pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL]
    assert "Give probe or validate too" in error_line(crossling(*command, "--probe-every", "5"), 2)
    assert "tatoeba" in error_line(crossling(*command, "--probe", tmp_path), 2)
    assert not (tmp_path / "run").exists()


def test_the_same_command_resumes_an_interrupted_run(crossling: Command, shards: Shards, tmp_path: Path) -> None:
    command = ["pretrain", "xlm_e", "--shards", shards.path, "-o", tmp_path / "run", *SMALL]
    original = Batches.__getitem__

    def interrupted(self: Batches, step: int) -> StepWork:
        signal.raise_signal(signal.SIGINT)
        return original(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "__getitem__", interrupted)
        assert "stopped at step 1 of 2. The checkpoint is saved" in error_line(crossling(*command), 130)
    assert crossling(*command).code == 0
    assert "(different: steps)" in error_line(crossling(*command, "--set", "steps=3"), 2)
