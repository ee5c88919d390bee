"""Models that a run cannot be initialized from: a message for each, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

from crossling.core.errors import BadInput
from crossling.data.shards import Shards
from crossling.model.config import CrosslingConfig
from crossling.model.heads import CrosslingForMaskedLM
from crossling.recipes.initial_model import InitialModel
from crossling.recipes.pretrain import pretrain
from crossling.vocabulary.reuse_vocabulary import extend
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .toy_models import NAMES, build_model, save_model, small_recipe


def refusal(*models: Path) -> str:
    with pytest.raises(BadInput) as caught:
        InitialModel.load(*models)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("family", NAMES)
def test_folder_without_tokenizer(family: str, tmp_path: Path) -> None:
    """`transformers` would create an empty tokenizer, and all embeddings would be random."""
    save_model(build_model(family, "ForMaskedLM", 60), None, tmp_path)
    assert refusal(tmp_path) == (f"{tmp_path}: no tokenizer (expected tokenizer.json). Give a folder that has one.")


@pytest.mark.parametrize("family", ["xlm-roberta", "bert"])
def test_damaged_tokenizer(family: str, vocabulary: Vocabulary, tmp_path: Path) -> None:
    save_model(build_model(family, "ForMaskedLM", vocabulary.size), vocabulary.tokenizer(), tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    assert refusal(tmp_path).startswith(f"{tmp_path}: transformers cannot load the tokenizer (")


def test_tokenizer_with_ids_beyond_the_table(vocabulary: Vocabulary, tmp_path: Path) -> None:
    save_model(build_model("xlm-roberta", "ForMaskedLM", 390), vocabulary.tokenizer(), tmp_path / "ours")
    assert refusal(tmp_path / "ours") == (
        f"{tmp_path / 'ours'}: its tokenizer has the id {vocabulary.size - 1}, but its embedding table only 390 rows."
        " Fix the folder."
    )
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    words = transformers.BertTokenizer(vocab={token: number for number, token in enumerate(tokens)})
    save_model(build_model("bert", "ForMaskedLM", 12, pad_token_id=0), words, tmp_path / "bert")
    assert "its tokenizer has the id 12, but its embedding table only 12 rows" in refusal(tmp_path / "bert")


def test_unsupported_family(vocabulary: Vocabulary, tmp_path: Path) -> None:
    network = transformers.GPT2Model(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2))
    assert "model type gpt2 is not supported. Give one of" in refusal(
        save_model(network, vocabulary.tokenizer(), tmp_path)
    )


def test_missing_folder(folder: Folder, tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "absent")
    assert str(tmp_path / "absent") in refusal(folder("xlm-roberta"), tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    assert "no config.json. Give" in refusal(tmp_path / "empty")


def test_run_without_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text("{}")
    assert refusal(tmp_path) == (f"{tmp_path}: this run has no checkpoint yet. Run crossling pretrain first.")


def test_objective_longer_than_the_model(folder: Folder, shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"mlm\.length is 72 \(padded to 72\), more than model\.max_length = 64"):
        pretrain(
            small_recipe("xlm_r", "mlm.length=72"),
            shards,
            tmp_path / "run",
            init=InitialModel.load(folder("xlm-roberta")),
        )
    assert not (tmp_path / "run").exists()


def test_relative_bias_that_no_recipe_supports(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Its weights would have the right shape and another meaning."""
    shape = CrosslingConfig(vocabulary.size, 16, 2, 2, 32, 64)
    for setting, value in {"relative_buckets": 16, "relative_max_distance": 64}.items():
        place = save_model(
            CrosslingForMaskedLM(shape.replace(**{setting: value})), vocabulary.tokenizer(), tmp_path / setting
        )
        assert f"{place}: its {setting} is {value}, but recipes support" in refusal(place)
    plain = shape.replace(relative_positions=False, gate_input="hidden")
    InitialModel.load(save_model(CrosslingForMaskedLM(plain), vocabulary.tokenizer(), tmp_path / "plain"))


# ---- generators ----------------------------------------------------------------------------------------------


def test_generator_with_another_vocabulary(folder: Folder, vocabulary: Vocabulary, tmp_path: Path) -> None:
    other = extend(vocabulary, ["kunjani ngiyabonga kakhulu enkulunkulu"] * 30, vocabulary.size + 5)
    place = save_model(build_model("xlm-roberta", "ForMaskedLM", other.size), other.tokenizer(), tmp_path)
    assert refusal(folder("xlm-roberta"), place) == (
        f"{place}: its vocabulary is not that of {folder('xlm-roberta')}. Give a generator with the same vocabulary."
    )


@pytest.mark.parametrize(
    ("change", "found", "expected"),
    [
        ({"num_attention_heads": 4}, "num_attention_heads is 4", 2),
        ({"hidden_size": 8}, "hidden_size is 8", 16),
        ({"intermediate_size": 64}, "intermediate_size is 64", 32),
        ({"max_position_embeddings": 130}, "max_position_embeddings is 128", 64),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05", 0.0001),
    ],
)
def test_generator_with_another_architecture(change: dict[str, Any], found: str, expected: Any, folder: Folder) -> None:
    """Weights for another number of heads would even have the right shape."""
    place, other = folder("xlm-roberta"), folder("xlm-roberta", **change)
    assert refusal(place, other) == (
        f"{other}: its {found}, expected {expected} as of {place}. Give another generator."
    )
