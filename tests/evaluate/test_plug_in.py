"""Retrieval with cross-attention plugged in (VECO)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from crossling.cli.app import app
from crossling.core.errors import BadInput, Interrupted
from crossling.evaluate import evaluate as evaluate_module
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.retrieval import evaluate_tatoeba
from crossling.inference.attention_map import attention_map
from crossling.inference.sentence_encoder import Encoder
from crossling.report.report import report
from crossling.report.showcase import read_showcase
from crossling.tasks import predictions
from tests.finetune.tiny_tasks import make_model, make_tokenizer, model_folder

GERMAN = ["red dog", "the blue bird sings", "red dog", "green"]
ENGLISH = ["old cat", "the bird sleeps the cat", "old cat", "what"]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(make_model("veco"), make_tokenizer(), "veco")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Bitext whose third line equals the first, with another translation."""
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
    """Compute [H : S] of one sentence."""
    x, y = (torch.tensor([encoder.tokenizer(text)["input_ids"]]) for text in (sentence, translation))
    other = encoder.model(y).last_hidden_state
    alone = encoder.model(x, output_hidden_states=True).hidden_states[layer]
    both = encoder.model(x, encoder_hidden_states=other, output_hidden_states=True).hidden_states[layer]
    states_LD = torch.cat([alone, both], -1)[0]
    return (states_LD.mean(0) if pooling == "mean" else states_LD[0]).numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_concatenate_states_without_and_with_cross_attention(encoder: Encoder, pooling: str) -> None:
    vectors_KND = encoder.encode_layers(GERMAN, pooling, translations=ENGLISH)
    assert vectors_KND.shape == (encoder.num_layers + 1, len(GERMAN), 2 * encoder.hidden_size)
    for layer in range(encoder.num_layers + 1):
        for row, pair in enumerate(zip(GERMAN, ENGLISH, strict=True)):
            np.testing.assert_allclose(
                vectors_KND[layer, row], slow(encoder, *pair, layer, pooling), rtol=1e-4, atol=1e-5
            )
    np.testing.assert_allclose(
        vectors_KND[..., : encoder.hidden_size], encoder.encode_layers(GERMAN, pooling), rtol=1e-4, atol=1e-5
    )
    others_KND = encoder.encode_layers(GERMAN, pooling, translations=ENGLISH[::-1])
    assert np.abs(others_KND - vectors_KND)[1:, 3].max() > 0.01


def test_rows_equal_those_of_a_slow_loop(encoder: Encoder, data: Path, tmp_path: Path) -> None:
    rows = evaluate(encoder, ["tatoeba"], data, tmp_path / "out", plug_in=True)
    assert {(row["setting"], row["protocol"]) for row in rows} == {("plug-in", "plug-in")}
    assert {(row["language"], row["direction"]) for row in rows} == {("de", "en-xx"), ("de", "xx-en")}
    # Equal sentences are one candidate, with the translation of the first.
    german = [("red dog", "the cat"), ("the blue bird sings", ENGLISH[1]), ("green", "where")]
    english = [("old cat", "red dog"), (ENGLISH[1], GERMAN[1]), ("what", "green")]
    for layer in range(encoder.num_layers + 1):
        first, second = (np.stack([slow(encoder, *pair, layer, "mean") for pair in side]) for side in (german, english))
        first, second = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second))
        correct = (first @ second.T).argmax(1) == np.arange(3)
        value = 100 * (2 * correct[0] + correct[1] + correct[2]) / 4
        [row] = [row for row in rows if row["layer"] == layer and row["direction"] == "xx-en"]
        assert row["value"] == pytest.approx(value)
    assert (tmp_path / "out" / predictions.PREDICTIONS_FOLDER / "tatoeba" / "test-de.xx-en.plug-in.jsonl").is_file()
    plain = evaluate(encoder, ["tatoeba"], data, tmp_path / "out")
    assert {row["setting"] for row in plain} == {"training-free"}
    stored = [json.loads(line) for line in (tmp_path / "out" / "scores.jsonl").read_text().splitlines()]
    assert len(stored) == len(rows) + len(plain)


def test_the_command_has_an_option(data: Path, tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model", "veco")
    arguments = ["evaluate", str(model), "--task", "tatoeba", "--data", str(data), "--plug-in"]
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    assert {row["setting"] for row in rows} == {"plug-in"}
    assert "accuracy, %, plug-in" in CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


def test_invalid_requests_are_refused(encoder: Encoder, data: Path) -> None:
    without = Encoder(make_model("crossling"), make_tokenizer(), "plain")
    with pytest.raises(BadInput, match=r"plain: no cross-attention to plug in\. Give a model of the recipe veco"):
        list(evaluate_tatoeba(without, data, plug_in=True))
    with pytest.raises(BadInput, match="plug_in=true: applies to tatoeba only"):
        evaluate(encoder, ["tatoeba", "bucc2018"], data, plug_in=True)
    file = put(data, "translated/deu/tatoeba.deu-eng.eng", GERMAN[:3])
    with pytest.raises(
        BadInput, match=rf"^{file}: 3 lines, but .*deu-eng.eng has 4. Expected line i to translate line i"
    ):
        list(evaluate_tatoeba(encoder, data, plug_in=True))
    file.unlink()
    with pytest.raises(
        BadInput, match=rf"^{file}: no such file.*Put the lines of tatoeba.deu-eng.eng, translated into de"
    ):
        list(evaluate_tatoeba(encoder, data, plug_in=True))
    put(data, "v1/tatoeba.fra-eng.fra", GERMAN)
    put(data, "v1/tatoeba.fra-eng.eng", ENGLISH)
    put(data, "translated/deu/tatoeba.deu-eng.eng", GERMAN)
    assert list(evaluate_tatoeba(encoder, data, ["de"], plug_in=True))  # other pairs need no translations


@pytest.mark.parametrize("changed", [False, True])
def test_a_changed_translation_is_evaluated_again(
    encoder: Encoder, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    for name, sentences in (("fra", GERMAN), ("eng", ENGLISH)):
        put(data, f"v1/tatoeba.fra-eng.{name}", sentences)
    put(data, "translated/eng/tatoeba.fra-eng.fra", ENGLISH)
    put(data, "translated/fra/tatoeba.fra-eng.eng", GERMAN)
    evaluated: list[Any] = []

    def interrupt(*arguments: Any) -> Any:
        results = evaluate_tatoeba(*arguments)
        yield from (next(results), next(results))  # both directions of the first pair
        raise KeyboardInterrupt

    def record(*arguments: Any) -> Any:
        evaluated.extend(arguments[2])
        return evaluate_tatoeba(*arguments)

    monkeypatch.setattr(evaluate_module, "evaluate_tatoeba", interrupt)
    with pytest.raises(Interrupted):
        evaluate(encoder, ["tatoeba"], data, tmp_path / "out", plug_in=True)
    if changed:
        put(data, "translated/deu/tatoeba.deu-eng.eng", [*GERMAN[1:], "another"])
    monkeypatch.setattr(evaluate_module, "evaluate_tatoeba", record)
    evaluate(encoder, ["tatoeba"], data, tmp_path / "out", plug_in=True)
    assert evaluated == (["de-en", "fr-en"] if changed else ["fr-en"])


def test_the_report_shows_the_cross_attention_of_a_scored_model(tmp_path: Path, encoder: Encoder) -> None:
    put(tmp_path / "data", "../word-alignment/de-en/de-en.src-tgt", ["red dog ||| old cat", "green ||| what"])
    put(tmp_path / "data", "../word-alignment/de-en/de-en.gold", ["1-1 2-2", "1-1"])
    out = tmp_path / "out"
    out.mkdir()
    (out / "showcase.json").write_text('{"title": "ours"}', encoding="utf-8")
    evaluate(encoder, "word-alignment", tmp_path / "data", out)
    stored = read_showcase(out / "showcase.json")
    assert stored["title"] == "ours"
    attention = stored["attention"]
    expected = attention_map(encoder, "red dog", "old cat")
    assert (attention["queries"], attention["keys"], attention["layer"]) == (expected.queries, expected.keys, 1)
    np.testing.assert_allclose(attention["weights"], expected.weights_LT, atol=1e-3)
    page = report([out], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "tokens of the first attend to those of the second, in layer 1 of veco" in page
    assert "source tokens" in page
    attention["weights"].pop()
    (out / "showcase.json").write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(BadInput, match=r"attention.weights: expected \d+ rows of \d+ numbers"):
        report([out], tmp_path / "report.html")
