"""Fine-tuned models: the encoder under the head, predictions, and the info file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from crossling.core.errors import BadInput
from crossling.finetune import tuned_model
from crossling.finetune.task_type import HeadType, TaskConfig
from crossling.finetune.tuned_model import AUTO_MODELS, TUNED_INFO, TunedInfo, TunedModel, add_head
from crossling.model.embedding import DisentangledEmbedding
from crossling.tasks.examples import ClassificationExample

from .tiny_tasks import make_model, make_tokenizer

LABELS = ("no", "yes", "maybe")
CONFIG = TaskConfig(head_type="classification", labels=LABELS, length=16)
IDS = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 9, 10, 2]])
PAIRS = [("red", "the dog runs"), ("the old cat sleeps", "blue"), ("what", "the red bird sings"), ("dog", "cat")]


# ---- heads --------------------------------------------------------------------------------------------------


def random_encoder(kind: str) -> PreTrainedModel:
    """Return an encoder in which every weight differs from its initial value, norms too."""
    model = make_model(kind)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(generator=torch.Generator().manual_seed(weight.numel()), std=0.2)
    return model


def copy_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}


@pytest.mark.parametrize("kind", ["crossling", "xlmr", "bert"])
@pytest.mark.parametrize("head_type", AUTO_MODELS)
def test_the_head_is_added_to_a_copy_of_the_encoder(head_type: HeadType, kind: str) -> None:
    encoder = random_encoder(kind)
    before = copy_weights(encoder)
    config = TaskConfig(head_type=head_type, labels=() if head_type in ("regression", "qa") else LABELS, length=16)
    model = add_head(encoder, config, name="tiny", seed=1)
    body = model.base_model.state_dict()
    assert {name for name in before if "pooler" not in name} <= body.keys() <= before.keys()
    assert all(torch.equal(weight, before[name]) for name, weight in body.items())
    with torch.no_grad():  # as training would
        for weight in model.parameters():
            weight.add_(1.0)
    after = encoder.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


def test_a_disentangled_embedding_becomes_one_table_in_the_copy_only() -> None:
    encoder = random_encoder("crossling")
    table = DisentangledEmbedding(encoder.get_input_embeddings())  # type: ignore[arg-type]
    with torch.no_grad():
        table.delta_VD.normal_(generator=torch.Generator().manual_seed(0))
    encoder.set_input_embeddings(table)
    before = copy_weights(encoder)
    model = add_head(encoder, CONFIG, name="tiny", seed=1).eval()
    assert encoder.get_input_embeddings() is table
    after = encoder.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert type(model.get_input_embeddings()) is nn.Embedding
    with torch.no_grad():
        torch.testing.assert_close(model.base_model(IDS).last_hidden_state, encoder(IDS).last_hidden_state)


def test_the_seed_determines_the_head() -> None:
    encoder = make_model("crossling")
    one, same, other = (
        add_head(encoder, CONFIG, name="tiny", seed=seed).state_dict()["classifier.out.weight"] for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


# ---- predictions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "has_token_types"), [("bert", True), ("xlmr", False), ("crossling", False)])
@pytest.mark.parametrize("budget", [1, 20, 16_384])
def test_models_with_token_types_get_them(
    kind: str, has_token_types: bool, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = make_tokenizer()
    model = add_head(make_model(kind), CONFIG, name="tiny", seed=1)
    inputs: list[dict[str, Any]] = []
    model.register_forward_pre_hook(lambda _, __, given: inputs.append(given), with_kwargs=True)  # type: ignore[arg-type]
    monkeypatch.setattr(tuned_model, "TOKENS_PER_BATCH", budget)
    labels = TunedModel(model, tokenizer, CONFIG).predict(
        [ClassificationExample(str(row), pair, None) for row, pair in enumerate(PAIRS)]
    )
    assert all(("token_type_ids" in given) == has_token_types for given in inputs)
    rows = [row for given in inputs for row in _unpadded_rows(given)]
    single = [tokenizer(*pair, return_token_type_ids=True) for pair in PAIRS]
    expected = [(each["input_ids"], each["token_type_ids"] if has_token_types else None) for each in single]
    assert sorted(rows) == sorted(expected)
    assert all(types is None or 1 in types for _, types in rows)
    for pair, label in zip(PAIRS, labels, strict=True):
        given = tokenizer(*pair, return_tensors="pt", return_token_type_ids=has_token_types)
        with torch.no_grad():
            assert label == LABELS[int(model(**given).logits.argmax())]


def _unpadded_rows(given: dict[str, Any]) -> list[tuple[list[int], list[int] | None]]:
    """Return ids and types of each row, without padding."""
    mask = given["attention_mask"] == 1
    ids, types = given["input_ids"], given.get("token_type_ids")
    return [
        (ids[row][mask[row]].tolist(), None if types is None else types[row][mask[row]].tolist())
        for row in range(len(ids))
    ]


# ---- tuned.json ---------------------------------------------------------------------------------------------


def make_info(seed: int = 0) -> TunedInfo:
    return TunedInfo(
        task="xnli",
        model="encoder",
        setting="zero-shot",
        trained_on="xnli",
        selection="last",
        seed=seed,
        config=CONFIG,
        hyperparameters={"lr": 1e-3},
        steps=3,
        step=3,
        examples=9,
    )


def test_info_is_read_as_it_was_written(tmp_path: Path) -> None:
    for seed in (10, 9):
        folder = tmp_path / f"seed-{seed}"
        folder.mkdir()
        TUNED_INFO.write(folder, make_info(seed))
    assert TUNED_INFO.read(tmp_path / "seed-9") == make_info(9)
    assert [folder.name for folder in TUNED_INFO.seed_folders(tmp_path)] == ["seed-9", "seed-10"]
    assert TUNED_INFO.seed_folders(tmp_path / "seed-9") == [tmp_path / "seed-9"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"task": "xnli", "form": {}}', "format version 1, expected 2. Train the model again with crossling finetune"),
        ('{"version": 2}', "tuned.json: not valid .*crossling finetune"),
        ("{", "tuned.json: not valid"),
        ("[]", "tuned.json: not valid"),
        (None, "no tuned.json here. Train the model with crossling finetune"),
    ],
)
def test_old_damaged_and_missing_info_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "tuned.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        TUNED_INFO.read(tmp_path)


def test_info_has_a_version(tmp_path: Path) -> None:
    TUNED_INFO.write(tmp_path, make_info())
    assert json.loads((tmp_path / "tuned.json").read_text())["version"] == 2
