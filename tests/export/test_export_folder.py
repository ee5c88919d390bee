"""Exported folders give the same network as the run, in transformers, Sentence Transformers and crossling."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoTokenizer,
    ElectraForPreTraining,
    XLMRobertaForMaskedLM,
    pipeline,
)

from crossling import cli
from crossling.core.errors import BadInput
from crossling.export import export
from crossling.inference.load import load
from crossling.model.convert import from_huggingface
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import CrosslingForMaskedLM, CrosslingForPreTraining
from crossling.objectives import Network
from crossling.recipes import RECIPES
from crossling.recipes.network import load_run
from crossling.vocabulary.reuse_vocabulary import load_vocabulary
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Train

TABLES = ["shared", "gdes", "untied"]
RTD = ["xlm_e", "xy_lent"]
MLM = ["xlm_r", "xlm", "infoxlm", "veco", "rosetta"]


def make_batch(folder: Path, lines: list[str]) -> dict[str, Tensor]:
    """Return a padded batch of several lengths."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return dict(tokenizer(lines, return_tensors="pt", padding=True))


def load_model(folder: Path, auto_class: Any) -> Any:
    return auto_class.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


@torch.no_grad()
def rtd_logits(net: Network, inputs: dict[str, Tensor]) -> Tensor:
    return net.parts["rtd_head"](net.eval().encoder(**inputs).last_hidden_state)


@torch.no_grad()
def mlm_logits(net: Network, inputs: dict[str, Tensor]) -> Tensor:
    """Return the logits of the generator, or of an encoder with a language model head."""
    parts = dict(net.parts.items())
    encoder, head = parts.get("generator", net.encoder), parts.get("generator_head", parts.get("lm_head"))
    return head(encoder.eval()(**inputs).last_hidden_state, encoder.embeddings.tokens.weight)


def assert_equal_except_padding(found: Tensor, expected: Tensor, inputs: dict[str, Tensor]) -> None:
    """Compare all tokens. Other families may compute something else at padding."""
    is_token = inputs["attention_mask"].bool()
    torch.testing.assert_close(found[is_token], expected[is_token], atol=1e-5, rtol=0)


@torch.no_grad()
def logits(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    return model(**inputs).logits


# ---- the same network ---------------------------------------------------------------------------------------


def test_all_recipes_are_covered() -> None:
    assert {*RTD, *MLM, "mbart"} == {*RECIPES}


def test_the_encoder_of_an_encoder_decoder_is_exported_alone(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("mbart")
    with pytest.raises(BadInput, match=r"exported as a translator\. Train one with .* or give layers=3"):
        export(run, tmp_path / "whole")
    folder = export(run, tmp_path / "exported", layers=3)
    inputs, encoder = make_batch(folder, lines), load_run(run).encoder.eval()
    with torch.no_grad():
        found, expected = (model(**inputs).last_hidden_state for model in (load_model(folder, AutoModel), encoder))
    assert_equal_except_padding(found, expected, inputs)


@pytest.mark.parametrize("name", RTD)
@pytest.mark.parametrize("table", TABLES)
def test_discriminator_and_generator_have_the_logits_of_the_run(
    name: str, table: str, train: Train, lines: list[str], tmp_path: Path
) -> None:
    run = train(name, f"model.token_table={table}")
    folder = export(run, tmp_path / "exported")
    net, inputs = load_run(run), make_batch(folder, lines)
    root, generator = (
        load_model(folder, AutoModelForPreTraining),
        load_model(folder / "generator", AutoModelForMaskedLM),
    )
    assert isinstance(root, CrosslingForPreTraining)
    assert isinstance(generator, CrosslingForMaskedLM)
    assert torch.equal(logits(root, inputs), rtd_logits(net, inputs))
    assert torch.equal(logits(generator, inputs), mlm_logits(net, inputs))
    stored = load_file(folder / "model.safetensors")
    assert stored["encoder.embeddings.tokens.weight"].shape == (400, 16)  # of a disentangled table, the sum
    assert not any("delta" in key or "base" in key for key in stored)


@pytest.mark.parametrize("name", MLM)
def test_mlm_models_have_the_logits_of_the_run(name: str, train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train(name)
    folder = export(run, tmp_path / "exported")
    net, inputs = load_run(run), make_batch(folder, lines)
    root = load_model(folder, AutoModelForMaskedLM)
    assert isinstance(root, CrosslingForMaskedLM)
    assert torch.equal(logits(root, inputs), mlm_logits(net, inputs))
    assert not (folder / "generator").exists()
    # Only the encoder and its head: no momentum encoder, no queue.
    assert {key.split(".")[0] for key in load_file(folder / "model.safetensors")} == {"encoder", "lm_head"}


def test_cross_attention_is_exported(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("veco")
    folder = export(run, tmp_path / "exported")
    net, model = load_run(run).eval(), load_model(folder, AutoModel)
    one, other = make_batch(folder, lines[:1]), make_batch(folder, lines[1:2])
    with torch.no_grad():
        states = [
            encoder(**one, encoder_hidden_states=encoder(**other).last_hidden_state).last_hidden_state
            for encoder in (net.encoder, model)
        ]
        assert torch.equal(*states)
        assert not torch.allclose(states[0], net.encoder(**one).last_hidden_state)


def test_root_without_a_head_is_the_encoder(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("infoxlm", "mlm=off", "tlm=off")
    folder = export(run, tmp_path / "exported")
    inputs = make_batch(folder, lines)
    with torch.no_grad():
        expected = load_run(run).encoder.eval()(**inputs).last_hidden_state
        assert torch.equal(load_model(folder, AutoModel)(**inputs).last_hidden_state, expected)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["CrosslingModel"]


def test_latest_checkpoint_is_exported(train: Train, tmp_path: Path) -> None:
    run = train("xlm_r", "checkpoint_every=1")
    assert len(list((run / "checkpoints").iterdir())) == 2
    folder = export(run, tmp_path / "exported")
    assert json.loads((folder / "export.json").read_text())["step"] == 2
    networks = load_run(run), load_model(folder, AutoModelForMaskedLM)
    assert torch.equal(*(network.encoder.embeddings.tokens.weight for network in networks))


# ---- other libraries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("layer", [0, 1, 3])
def test_sentence_vectors_come_from_the_universal_layer(
    norm: str, layer: int, train: Train, lines: list[str], tmp_path: Path
) -> None:
    sentences = pytest.importorskip("sentence_transformers")
    run = train("xlm_e", f"model.norm={norm}", f"model.universal_layer={layer}")
    folder = export(run, tmp_path / "exported")
    ours, long = load(folder), " ".join(lines)  # longer than the model's positions
    assert ours.universal_layer == layer
    with pytest.warns(UserWarning, match="longer than the 64 tokens"):
        expected = ours.encode([*lines, long])
    np.testing.assert_array_equal(load(run).encode(lines), ours.encode(lines))
    found = sentences.SentenceTransformer(str(folder), device="cpu").encode([*lines, long])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_fill_mask(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("xlm_e")
    folder = export(run, tmp_path / "exported")
    first, _, *rest = lines[0].split()
    text = " ".join([first, "<mask>", *rest])
    [best, *_] = pipeline("fill-mask", model=str(folder / "generator"))(text)
    inputs = make_batch(folder, [text])
    [position] = (inputs["input_ids"][0] == 399).nonzero().flatten().tolist()
    probabilities = mlm_logits(load_run(run), inputs)[0, position].softmax(-1)
    assert (best["token"], best["score"]) == (int(probabilities.argmax()), pytest.approx(float(probabilities.max())))


def test_vocabulary_equals_that_of_the_run(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("xlm_e")
    folder = export(run, tmp_path / "exported")
    vocabulary = Vocabulary.load(run / "vocab")
    assert load_vocabulary(folder) == load_vocabulary(folder / "generator") == vocabulary
    for path in (folder, folder / "generator"):
        tokenizer = AutoTokenizer.from_pretrained(path)
        assert tokenizer(lines, add_special_tokens=False)["input_ids"] == vocabulary.encode(lines)
        assert tokenizer.model_max_length == 64
        assert (tokenizer.mask_token_id, tokenizer.pad_token_id) == (399, 1)


# ---- as XLM-R -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["xlm_r", "infoxlm"])
def test_export_as_xlm_r(name: str, train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train(name)
    folder = export(run, tmp_path / "exported", as_="xlm-roberta")
    root, inputs = load_model(folder, AutoModelForMaskedLM), make_batch(folder, lines)
    assert isinstance(root, XLMRobertaForMaskedLM)
    assert_equal_except_padding(logits(root, inputs), mlm_logits(load_run(run), inputs), inputs)
    np.testing.assert_allclose(load(folder).encode(lines), load(run).encode(lines), atol=1e-5)
    sentences = pytest.importorskip("sentence_transformers")
    model = sentences.SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(model.encode(lines), load(run).encode(lines), atol=1e-5)


def test_export_of_a_discriminator_as_electra(train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("xlm_e", "model.relative=false", "model.token_table=gdes")
    folder = export(run, tmp_path / "exported", as_="xlm-roberta")
    net, inputs = load_run(run), make_batch(folder, lines)
    root, generator = (
        load_model(folder, AutoModelForPreTraining),
        load_model(folder / "generator", AutoModelForMaskedLM),
    )
    assert isinstance(root, ElectraForPreTraining)
    assert_equal_except_padding(logits(root, inputs), rtd_logits(net, inputs), inputs)
    assert_equal_except_padding(logits(generator, inputs), mlm_logits(net, inputs), inputs)
    np.testing.assert_allclose(load(folder).encode(lines), load(run).encode(lines), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"as_": "xlm-roberta"}, "cannot export a model with relative_positions=True as XLM-R"),
        ({"as_": "xlm-roberta", "standalone": True}, "transformers has the code of xlm-roberta"),
        ({"as_": "xlm-robert"}, "did you mean 'xlm-roberta'?"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], expected: str, train: Train, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        export(train("xlm_e"), tmp_path / "exported", **options)
    assert expected in str(caught.value)
    assert not list(tmp_path.iterdir())


# ---- output folder ------------------------------------------------------------------------------------------


def test_earlier_export_is_replaced_unless_it_has_other_files(train: Train, tmp_path: Path) -> None:
    folder = export(train("xlm_e"), tmp_path / "exported", standalone=True)
    assert (folder / "generator" / "heads.py").is_file()
    export(train("xlm_r"), folder)
    assert not (folder / "generator").exists()
    assert not list(folder.rglob("*.py"))
    (folder / "notes.txt").write_text("keep me")
    with pytest.raises(BadInput, match=r"notes\.txt is no output of crossling export"):
        export(train("xlm_e"), folder)
    assert isinstance(load_model(folder, AutoModelForMaskedLM), CrosslingForMaskedLM)


def test_other_folders_are_refused(train: Train, tmp_path: Path) -> None:
    model = load_model(export(train("xlm_r"), tmp_path / "exported"), AutoModel)
    assert isinstance(model, CrosslingModel)
    model.save_pretrained(tmp_path / "mine")
    with pytest.raises(BadInput, match=r"mine: not empty, and config\.json is no output of crossling export"):
        export(train("xlm_r"), tmp_path / "mine")
    with pytest.raises(BadInput, match="is no output of crossling export"):
        export(train("xlm_r"), train("xlm_r"))
    (tmp_path / "file").write_text("keep me")
    with pytest.raises(BadInput, match="expected a folder, found a file"):
        export(train("xlm_r"), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "keep me"


def test_failure_leaves_no_partial_folder(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crossling.export import export_folder

    def fail(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(export_folder, "render_model_card", fail)
    with pytest.raises(KeyboardInterrupt):
        export(train("xlm_r"), tmp_path / "exported")
    assert not list(tmp_path.iterdir())


def test_only_runs_are_exported(train: Train, tmp_path: Path) -> None:
    exported = export(train("xlm_r"), tmp_path / "exported")
    for path in (exported, tmp_path / "absent", "FacebookAI/xlm-roberta-base"):
        with pytest.raises(BadInput, match=r"no recipe\.json, so not a run folder"):
            export(path, tmp_path / "again")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_bytes((train("xlm_r") / "recipe.json").read_bytes())
    with pytest.raises(BadInput, match="no checkpoint yet"):
        export(tmp_path / "run", tmp_path / "again")
    assert not (tmp_path / "again").exists()


# ---- no code is run -----------------------------------------------------------------------------------------


class Trap:
    """Object that creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("standalone", [False, True])
def test_loading_runs_no_code_and_reads_no_pickle(
    standalone: bool, train: Train, lines: list[str], tmp_path: Path
) -> None:
    folder = export(train("xlm_e"), tmp_path / "exported", standalone=standalone)
    assert bool(list(folder.rglob("*.py"))) == standalone
    mark = tmp_path / "mark"
    for path in (folder, folder / "generator"):
        for name in ("pytorch_model.bin", "training_args.bin", "tokenizer.pkl"):
            (path / name).write_bytes(pickle.dumps(Trap(mark)))
        for name in ("heads.py", "config.py", "encoder.py", "modeling_crossling.py", "handler.py"):
            (path / name).write_text(f"open({str(mark)!r}, 'w')\n")
    load(folder).encode(lines)
    load_model(folder, AutoModel)
    load_model(folder, AutoModelForPreTraining)
    load_model(folder / "generator", AutoModelForMaskedLM)
    AutoTokenizer.from_pretrained(folder)
    pipeline("fill-mask", model=str(folder / "generator"))
    assert not mark.exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes())  # the trap works
    assert mark.exists()


def test_without_safetensors_nothing_is_load_model(train: Train, tmp_path: Path) -> None:
    folder = export(train("xlm_r"), tmp_path / "exported")
    mark = tmp_path / "mark"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(BadInput, match=r"no \.safetensors weights"):
        load(folder)
    assert not mark.exists()


# ---- import -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standalone", [False, True])
def test_export_can_be_imported_for_training(standalone: bool, train: Train, lines: list[str], tmp_path: Path) -> None:
    run = train("xlm_e", "model.token_table=gdes")
    folder = export(run, tmp_path / "exported", standalone=standalone)
    net, inputs = load_run(run), make_batch(folder, lines)
    root, generator = from_huggingface(folder), from_huggingface(folder / "generator")
    assert root.rtd_head is not None
    assert generator.lm_head is not None
    with torch.no_grad():
        found = root.rtd_head(root.encoder(**inputs).last_hidden_state)
        hidden = generator.encoder(**inputs).last_hidden_state
        assert torch.equal(found, rtd_logits(net, inputs))
        assert torch.equal(
            generator.lm_head(hidden, generator.encoder.embeddings.tokens.weight), mlm_logits(net, inputs)
        )


def test_command_line(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def crossling(*arguments: str | Path) -> int:
        monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    run = train("xlm_r")
    capfd.readouterr()
    assert crossling("export", run, "-o", tmp_path / "exported", "--standalone") == 0
    out, err = capfd.readouterr()
    assert out == f"{tmp_path / 'exported'}\n"
    assert err.startswith(
        f"Wrote a Hugging Face folder with a model card to {tmp_path / 'exported'}.\nNext: python -c "
    )
    assert (tmp_path / "exported" / "heads.py").is_file()
    assert crossling("export", run, "-o", tmp_path / "other", "--as", "xlm-roberta") == 0
    assert json.loads((tmp_path / "other" / "config.json").read_text())["model_type"] == "xlm-roberta"
    capfd.readouterr()
    assert crossling("export", tmp_path / "other", "-o", tmp_path / "again") == 2
    assert "no recipe.json, so not a run folder" in capfd.readouterr().err
