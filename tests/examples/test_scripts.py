"""The short scripts in examples/ run on synthetic languages."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from crossling.data.shards import Shards

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["tlm.tokens=256", "mlm.tokens=256", "xlco.pairs=8", "xlco.queue=16", "mlm.length=32", "tlm.length=32"]


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run(shards: Shards, small_model: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of xlm_r with a few steps."""
    from crossling.recipes import get_recipe
    from crossling.recipes.pretrain import pretrain

    out = tmp_path_factory.mktemp("examples") / "run"
    settings = [*small_model, "steps=2", "optimizer.warmup=0", "mlm.tokens=256", "mlm.length=32"]
    pretrain(get_recipe("xlm_r", "tiny").set(settings), shards, out)
    return out


def test_adapt_encoder(run: Path, synth_folder: Path, tmp_path: Path) -> None:
    script = load_script("adapt_encoder")
    settings = (*SMALL, "xlco.length=32", "log_every=1")
    adapted = script.adapt(
        str(run), synth_folder / "corpora", "qac", tmp_path, steps=2, new_entries=20, settings=settings
    )
    assert 0 <= script.retrieval(adapted, synth_folder / "data", "qac") <= 100
    assert json.loads((tmp_path / "vocab" / "vocab.json").read_text())["size"] > 400


def test_evaluate_encoder_prints_a_line_per_task(
    run: Path, synth_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["evaluate", str(run), "--data", str(synth_folder / "data")])
    load_script("evaluate_encoder").main()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["tatoeba", "word-alignment"]


def test_evaluate_encoder(run: Path, synth_folder: Path) -> None:
    script = load_script("evaluate_encoder")
    for task in script.METRICS:
        means = script.layer_means(str(run), task, synth_folder / "data")
        assert [*means] == [0, 1, 2]
        assert all(0 <= mean <= 100 for mean in means.values())


def test_mine_bitext(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "mined.tsv"
    for sentences in (["a b", "c\td"], ["e f g", "h i"]):  # the second call mines the new files
        for name in ("one", "two"):
            (tmp_path / name).write_text("\n".join(sentences) + "\n", encoding="utf-8")
        files = [str(tmp_path / name) for name in ("one", "two")]
        monkeypatch.setattr("sys.argv", ["mine", *files, "-o", str(out), "--model", str(run), "--threshold", "0"])
        load_script("mine_bitext").main()
        pairs = {tuple(line.split("\t")[1:]) for line in out.read_text(encoding="utf-8").splitlines()}
        assert pairs == {(sentence.replace("\t", " "),) * 2 for sentence in sentences}


def test_translate(run: Path, synth_folder: Path, tmp_path: Path) -> None:
    settings = {"steps": 2, "beam": 1, "dev_rows": 4, "tokens": 256}
    lines = load_script("translate").translate(
        str(run), synth_folder / "data", "qaa-qab", tmp_path / "mt", ["a b", "c"], to="qab", **settings
    )
    assert len(lines) == 2
