"""Fine-tuning of sentence vectors from a file to a folder of Sentence Transformers, which predicts and resumes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from typer.testing import CliRunner

import crossling as xl
from crossling.cli.app import app
from crossling.core.errors import BadInput
from crossling.finetune.own_labels import OwnLabels
from crossling.finetune.sentence_vectors import vector_training
from crossling.finetune.sentence_vectors.finetune_vectors import read_training_pairs
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePair
from crossling.finetune.sentence_vectors.vector_batches import PairBatches
from crossling.finetune.sentence_vectors.vector_losses import SentenceObjective
from crossling.finetune.sentence_vectors.vector_model import build_sentence_model, find_prompts, save_sentence_model
from crossling.finetune.sentence_vectors.vector_texts import VectorTexts, tokenize_texts
from crossling.inference.sentence_encoder import Encoder
from tests.finetune.tiny_tasks import make_model, make_tokenizer, model_folder
from tests.objectives.slow import gradients, same_gradients
from tests.train.worlds import in_processes

QUICK: dict[str, Any] = {"batch": 8, "lr": 3e-3, "steps": 50, "checkpoint_every": 25, "temperature": 0.1}
WORDS = ["red", "blue", "green", "dog", "cat", "bird", "runs", "sleeps", "sings", "where", "what", "the", "old"]


def write_pairs(file: Path, number: int = 120) -> Path:
    """Write sentences with their translations: each word has another one."""
    rng, other = random.Random(0), dict(zip(WORDS, WORDS[6:] + WORDS[:6], strict=True))
    rows = [rng.sample(WORDS, 3) for _ in range(number)]
    lines = [f"{' '.join(row)}\t{' '.join(other[word] for word in row)}" for row in rows]
    file.write_text("\n".join(["query\tanswer", *lines]) + "\n")
    return file


@pytest.mark.parametrize("kind", ["crossling", "xlmr"])
def test_train_predict_and_repeat(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, file = model_folder(tmp_path / "model", kind), write_pairs(tmp_path / "train.en.tsv")

    def train(**changes: Any) -> list[dict[str, Any]]:
        return xl.finetune(model, type="embedding", train=file, out=tmp_path / "out", **QUICK | changes)

    rows = train()
    assert {(row["setting"], row["language"], row["direction"], row["metric"]) for row in rows} == {
        (setting, "en", direction, metric)
        for setting in ("training-free", "own-labels")
        for direction in ("anchor-positive", "positive-anchor")
        for metric in ("mrr@10", "accuracy")
    }
    mrr = {row["setting"]: row["value"] for row in rows if row["metric"] == "mrr@10"}
    assert mrr["own-labels"] > mrr["training-free"]
    stored = [json.loads(line) for line in (tmp_path / "out" / "scores.jsonl").read_text().splitlines()]
    assert stored == rows
    monkeypatch.setattr(vector_training, "fit_model", None)  # nothing is trained again
    assert train() == rows
    with pytest.raises(BadInput, match=r"trained with lr 0.003, not 0.001"):
        train(lr=1e-3)

    texts = tmp_path / "texts.txt"
    texts.write_text("red dog runs\nthe old cat\n")
    vectors = [row["vector"] for row in xl.predict(tmp_path / "out", texts)]  # type: ignore[union-attr,index]
    loaded = xl.load(tmp_path / "out").encode(["red dog runs", "the old cat"])
    np.testing.assert_allclose(vectors, loaded, atol=1e-6)
    assert np.load(xl.predict(tmp_path / "out", texts, out=tmp_path / "x.npy")).shape == (2, 32)  # type: ignore[arg-type]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("query\tanswer\nred dog\tdog red\n")
    [row] = xl.predict(tmp_path / "out", pairs)  # type: ignore[misc]
    assert row["texts"] == ["red dog", "dog red"]
    with pytest.raises(BadInput, match="whose similarity is one number"):
        xl.predict(tmp_path / "out", pairs, out=tmp_path / "y.npy")
    run = CliRunner().invoke(app, ["predict", str(tmp_path / "out"), str(pairs)], catch_exceptions=False)
    assert run.stdout == f"{row['score']:.6f}\tred dog\tdog red\n"
    if kind == "xlmr":
        library = pytest.importorskip("sentence_transformers")
        other = library.SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(["red dog runs", "the old cat"])
        np.testing.assert_allclose(other, loaded, atol=2e-6)


def test_declared_vectors_and_prompts_are_trained_and_kept(tmp_path: Path, declared_encoder: Encoder) -> None:
    library = pytest.importorskip("sentence_transformers")
    head = declared_encoder.head
    assert head is not None
    model = build_sentence_model(declared_encoder, "mean", ("find ", None))
    assert find_prompts(model.head) == ("find ", "the ")
    assert any(parameter.requires_grad for parameter in model.layers.parameters())
    save_sentence_model(model, declared_encoder, tmp_path / "out")
    loaded = xl.load(tmp_path / "out")
    np.testing.assert_allclose(loaded.encode(["dog"]), declared_encoder.encode(["dog"]), atol=1e-6)
    other = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(other.encode(["dog"]), loaded.encode(["dog"]), atol=2e-6)
    found = loaded.encode(["dog"], prompt_name="query")
    np.testing.assert_allclose(other.encode(["dog"], prompt_name="query"), found, atol=2e-6)


def test_chunks_have_the_gradient_of_the_whole_batch(declared_encoder: Encoder) -> None:
    texts = VectorTexts.of([SentencePair("the dog", "a white dog"), SentencePair("zebra", "quilt and zebra")])
    model = build_sentence_model(declared_encoder, "mean", (None, None)).eval()
    ids = tokenize_texts(declared_encoder, texts.strings, "", 32)
    objective = SentenceObjective("ranking", 0.1)
    found = []
    for micro_tokens in (1000, 12):
        batches = PairBatches(
            loss="ranking",
            texts=texts,
            ids=(ids, ids),
            prompt_lengths=(0, 0),
            pad=1,
            batch=2,
            seed=0,
            micro_tokens=micro_tokens,
        )
        [(_, batch)] = batches[0].micro_batches
        loss, _ = objective.loss_and_correct(model, batch)
        found.append((loss.detach(), sum(name.startswith("ids_") for name in batch), gradients(model, loss)))
    (whole, one, expected), (parts, several, chunked) = found
    assert one == 1 < several
    assert_close(parts, whole)
    same_gradients(chunked, expected)


def test_vectors_in_training_are_those_of_the_encoder(declared_encoder: Encoder) -> None:
    texts = VectorTexts.of([SentencePair("the dog", "zebra")])
    model = build_sentence_model(declared_encoder, "mean", (None, None)).eval()
    ids = tokenize_texts(declared_encoder, texts.strings, "the ", 32)
    sizes = {"prompt_lengths": (0, 0), "pad": 1, "batch": 2, "seed": 0, "micro_tokens": 99}
    batches = PairBatches(loss="ranking", texts=texts, ids=(ids, ids), **sizes)  # type: ignore[arg-type]
    [(_, batch)] = batches[0].micro_batches
    with torch.no_grad():
        found = model(batch)
    np.testing.assert_allclose(found.numpy(), declared_encoder.encode(texts.strings), atol=1e-6)


def train_mining_again(model: Path, file: Path, out: Path) -> None:
    options = QUICK | {"steps": 4, "checkpoint_every": 4, "hard_negatives": 1, "remine": True}
    xl.finetune(model, type="embedding", train=file, out=out, **options)


def test_two_processes_train_the_same_as_one(tmp_path: Path) -> None:
    model = make_model("xlmr")
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.0
    model.save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    file = write_pairs(tmp_path / "train.en.tsv", 22)  # the third step has pairs of two epochs
    train_mining_again(tmp_path / "model", file, tmp_path / "one")
    in_processes(2, train_mining_again, tmp_path / "model", file, tmp_path / "two")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, weights in one.items():
        assert_close(two[name], weights, atol=1e-3, rtol=0)  # AdamW steps of 3e-3 by the sign of noise


def test_scored_pairs_and_mining_again(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model", "xlmr")
    file = tmp_path / "sts.tsv"
    file.write_text(
        "".join(
            f"{a} {b}\t{b} {c}\t{(i % 6)}\n"
            for i, (a, b, c) in enumerate(zip(WORDS, WORDS[1:], WORDS[2:], strict=False))
        )
    )
    rows = xl.finetune(model, type="embedding", train=file, dev=file, out=tmp_path / "a", batch=4, steps=2)
    assert {row["metric"] for row in rows} == {"spearman"}
    pairs = write_pairs(tmp_path / "pairs.tsv", 12)
    xl.finetune(model, type="embedding", train=pairs, out=tmp_path / "b", batch=4, steps=6, remine=True, symmetric=True)
    xl.finetune(model, type="embedding", train=file, out=tmp_path / "c", batch=4, steps=2, loss="cosine")


def test_pairs_with_a_text_of_the_dev_set_are_not_trained_on(tmp_path: Path) -> None:
    file = tmp_path / "train.tsv"
    rows = [(f"a{i}", f"b{i}") for i in range(10)]  # the tenth is held out
    file.write_text("".join(f"{a}\t{b}\n" for a, b in [*rows, ("c", "B9!"), ("d", "A9."), ("b9", "e"), ("f", "g")]))
    train, dev = read_training_pairs(OwnLabels(kind="embedding", train=file))
    assert [row.anchor for row in dev.rows] == ["a9"]
    assert [row.anchor for row in train.rows] == [*(a for a, _ in rows[:9]), "f"]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a\tb\n", {}, "too few pairs to hold out"),
        ("a\tb\n" * 20, {}, "too few pairs to hold out"),
        ("".join(f"a{i}\tb\n" for i in range(20)), {}, "too few pairs to hold out"),
        ("".join(f"a{i}\tb{i}\n" for i in range(20)), {"loss": "cosent"}, "the loss cosent needs scores"),
        ("".join(f"a{i}\tb{i}\t5\n" for i in range(20)), {"loss": "cosine"}, "all scores are 5. Give scores that diff"),
        ("", {"los": "cosent"}, "there is no 'los'; did you mean 'loss'"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    tmp_path: Path, write: Callable[[Path, str], Path], text: str, options: dict[str, str], expected: str
) -> None:
    file = write(tmp_path / "train.tsv", text)
    with pytest.raises(BadInput, match=expected):
        xl.finetune("bundled", type="embedding", train=file, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
