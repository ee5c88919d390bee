"""Retrieval with cross-attention plugged in: what a vector is, which files are read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transfer.toys import make_model, make_tokenizer, model_folder
from typer.testing import CliRunner

from crossling.cli.app import app
from crossling.errors import BadInput, Interrupted
from crossling.evaluate import evaluate as measuring
from crossling.evaluate import predictions
from crossling.evaluate.encode import Encoder
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.retrieval import tatoeba

GERMAN = ["red dog", "the blue bird sings", "red dog", "green"]
ENGLISH = ["old cat", "the bird sleeps the cat", "old cat", "what"]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(make_model("veco"), make_tokenizer(), "veco")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The third line is the first once more, translated otherwise."""
    put(tmp_path, "v1/tatoeba.deu-eng.deu", GERMAN)
    put(tmp_path, "v1/tatoeba.deu-eng.eng", ENGLISH)
    put(tmp_path, "translated/eng/tatoeba.deu-eng.deu", ["the cat", *ENGLISH[1:3], "where"])
    put(tmp_path, "translated/deu/tatoeba.deu-eng.eng", GERMAN)
    return tmp_path


def put(data: Path, name: str, lines: list[str]) -> Path:
    file = data / "tatoeba" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


@torch.no_grad()
def slow(encoder: Encoder, sentence: str, translation: str, layer: int, pooling: str) -> np.ndarray:
    """[H : S], one sentence at a time."""
    x, y = (torch.tensor([encoder.tokenizer(text)["input_ids"]]) for text in (sentence, translation))
    other = encoder.model(y).last_hidden_state
    alone = encoder.model(x, output_hidden_states=True).hidden_states[layer]
    both = encoder.model(x, encoder_hidden_states=other, output_hidden_states=True).hidden_states[layer]
    states_LD = torch.cat([alone, both], -1)[0]
    return (states_LD.mean(0) if pooling == "mean" else states_LD[0]).numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_vector_is_of_a_sentence_by_itself_and_with_its_translation(encoder: Encoder, pooling: str) -> None:
    found_KND = encoder.pooled(GERMAN, pooling, translations=ENGLISH)
    assert found_KND.shape == (encoder.layers + 1, len(GERMAN), 2 * encoder.width)
    for layer in range(encoder.layers + 1):
        for row, pair in enumerate(zip(GERMAN, ENGLISH, strict=True)):
            np.testing.assert_allclose(
                found_KND[layer, row], slow(encoder, *pair, layer, pooling), rtol=1e-4, atol=1e-5
            )
    np.testing.assert_allclose(found_KND[..., : encoder.width], encoder.pooled(GERMAN, pooling), rtol=1e-4, atol=1e-5)
    others_KND = encoder.pooled(GERMAN, pooling, translations=ENGLISH[::-1])
    assert np.abs(others_KND - found_KND)[1:, 3].max() > 0.01


def test_rows_are_the_nearest_by_these_vectors_and_say_so(encoder: Encoder, data: Path, tmp_path: Path) -> None:
    rows = evaluate(encoder, ["tatoeba"], data, tmp_path / "out", plug_in=True)
    assert {(row["setting"], row["protocol"]) for row in rows} == {("plug-in", "plug-in")}
    assert {(row["language"], row["direction"]) for row in rows} == {("de", "en-xx"), ("de", "xx-en")}
    # Equal sentences are one candidate, with the translation of the first.
    german = [("red dog", "the cat"), ("the blue bird sings", ENGLISH[1]), ("green", "where")]
    english = [("old cat", "red dog"), (ENGLISH[1], GERMAN[1]), ("what", "green")]
    for layer in range(encoder.layers + 1):
        first, second = (np.stack([slow(encoder, *pair, layer, "mean") for pair in side]) for side in (german, english))
        first, second = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second))
        right = (first @ second.T).argmax(1) == np.arange(3)
        value = 100 * (2 * right[0] + right[1] + right[2]) / 4
        [row] = [row for row in rows if row["layer"] == layer and row["direction"] == "xx-en"]
        assert row["value"] == pytest.approx(value)
    assert (tmp_path / "out" / predictions.FOLDER / "tatoeba" / "test-de.xx-en.plug-in.jsonl").is_file()
    plain = evaluate(encoder, ["tatoeba"], data, tmp_path / "out")
    assert {row["setting"] for row in plain} == {"training-free"}
    stored = [json.loads(line) for line in (tmp_path / "out" / "scores.jsonl").read_text().splitlines()]
    assert len(stored) == len(rows) + len(plain)


def test_by_the_command(data: Path, tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model", "veco")
    arguments = ["evaluate", str(model), "--task", "tatoeba", "--data", str(data), "--plug-in"]
    found = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    rows = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    assert {row["setting"] for row in rows} == {"plug-in"}
    assert "accuracy (plug-in)" in CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


def test_what_is_refused(encoder: Encoder, data: Path) -> None:
    without = Encoder(make_model("crossling"), make_tokenizer(), "plain")
    with pytest.raises(BadInput, match="plain: it has no cross-attention to plug in; give a model of the recipe veco"):
        list(tatoeba(without, data, plug_in=True))
    with pytest.raises(BadInput, match="--plug-in: expected --task tatoeba alone; only tatoeba has translations"):
        evaluate(encoder, ["tatoeba", "bucc2018"], data, plug_in=True)
    file = put(data, "translated/deu/tatoeba.deu-eng.eng", GERMAN[:3])
    with pytest.raises(BadInput, match=rf"^{file}: 3 lines, but .*deu-eng.eng has 4.*; line 4 of one has no partner"):
        list(tatoeba(encoder, data, plug_in=True))
    file.unlink()
    with pytest.raises(BadInput, match=rf"^{file}: no such file.*put the lines of tatoeba.deu-eng.eng there, transl"):
        list(tatoeba(encoder, data, plug_in=True))
    put(data, "v1/tatoeba.fra-eng.fra", GERMAN)
    put(data, "v1/tatoeba.fra-eng.eng", ENGLISH)
    put(data, "translated/deu/tatoeba.deu-eng.eng", GERMAN)
    assert list(tatoeba(encoder, data, ["de"], plug_in=True))  # of the others nothing is asked


@pytest.mark.parametrize("changed", [False, True])
def test_what_was_stopped_is_measured_again_if_a_translation_has_changed(
    encoder: Encoder, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    for name, sentences in (("fra", GERMAN), ("eng", ENGLISH)):
        put(data, f"v1/tatoeba.fra-eng.{name}", sentences)
    put(data, "translated/eng/tatoeba.fra-eng.fra", ENGLISH)
    put(data, "translated/fra/tatoeba.fra-eng.eng", GERMAN)
    asked: list[Any] = []

    def stopped(*ways: Any) -> Any:
        measured = tatoeba(*ways)
        yield from (next(measured), next(measured))  # both directions of the first pair
        raise KeyboardInterrupt

    def watched(*ways: Any) -> Any:
        asked.extend(ways[2])
        return tatoeba(*ways)

    monkeypatch.setattr(measuring, "tatoeba", stopped)
    with pytest.raises(Interrupted):
        evaluate(encoder, ["tatoeba"], data, tmp_path / "out", plug_in=True)
    if changed:
        put(data, "translated/deu/tatoeba.deu-eng.eng", [*GERMAN[1:], "another"])
    monkeypatch.setattr(measuring, "tatoeba", watched)
    evaluate(encoder, ["tatoeba"], data, tmp_path / "out", plug_in=True)
    assert asked == (["de-en", "fr-en"] if changed else ["fr-en"])
