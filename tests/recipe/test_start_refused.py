"""Models that cannot be started from: one sentence each, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.model.config import CrosslingConfig
from crossling.model.heads import CrosslingForMaskedLM
from crossling.recipe import Start, pretrain
from crossling.vocabulary.reuse import extend
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .made import NAMES, model, saved, small


def refused(*models: Path) -> str:
    with pytest.raises(BadInput) as caught:
        Start.load(*models)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("family", NAMES)
def test_a_folder_without_tokenizer(family: str, tmp_path: Path) -> None:
    """`transformers` would make one up, and every piece would begin at random."""
    saved(model(family, "ForMaskedLM", 60), None, tmp_path)
    assert refused(tmp_path) == (f"{tmp_path}: no tokenizer here (expected tokenizer.json); give a folder that has one")


@pytest.mark.parametrize("family", ["xlm-roberta", "bert"])
def test_a_damaged_tokenizer(family: str, vocabulary: Vocabulary, tmp_path: Path) -> None:
    saved(model(family, "ForMaskedLM", vocabulary.size), vocabulary.tokenizer(), tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    assert refused(tmp_path).startswith(f"{tmp_path}: transformers finds no tokenizer here (")


def test_a_tokenizer_with_ids_beyond_the_table(vocabulary: Vocabulary, tmp_path: Path) -> None:
    saved(model("xlm-roberta", "ForMaskedLM", 390), vocabulary.tokenizer(), tmp_path / "ours")
    assert refused(tmp_path / "ours") == (
        f"{tmp_path / 'ours'}: its tokenizer has the id {vocabulary.size - 1}, its table only 390 rows; mend the folder"
    )
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    words = transformers.BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    saved(model("bert", "ForMaskedLM", 12, pad_token_id=0), words, tmp_path / "bert")
    assert "its tokenizer has the id 12, its table only 12 rows" in refused(tmp_path / "bert")


def test_a_family_that_is_none_of_ours(vocabulary: Vocabulary, tmp_path: Path) -> None:
    network = transformers.GPT2Model(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2))
    assert "a model of the family gpt2; give one of xlm-roberta" in refused(
        saved(network, vocabulary.tokenizer(), tmp_path)
    )


def test_no_such_folder(folder: Folder, tmp_path: Path) -> None:
    assert "no such folder" in refused(tmp_path / "absent")
    assert str(tmp_path / "absent") in refused(folder("xlm-roberta"), tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    assert "no config.json here" in refused(tmp_path / "empty")


def test_a_run_without_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text("{}")
    assert refused(tmp_path) == f"{tmp_path}: this run has no checkpoint yet"


def test_a_model_shorter_than_an_objective(folder: Folder, shards: Shards, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"mlm\.length is 72 \(padded 72\), more than model\.max_length = 64"):
        pretrain(small("xlm_r", "mlm.length=72"), shards, tmp_path / "run", init=Start.load(folder("xlm-roberta")))
    assert not (tmp_path / "run").exists()


def test_a_bias_of_a_kind_that_no_recipe_has(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Its weights would fit and mean something else."""
    shape = CrosslingConfig(vocabulary.size, 16, 2, 2, 32, 64)
    for setting, value in {"relative_buckets": 16, "relative_max_distance": 64}.items():
        place = saved(CrosslingForMaskedLM(shape.but(**{setting: value})), vocabulary.tokenizer(), tmp_path / setting)
        assert f"{place}: its {setting} is {value}, and a recipe can have" in refused(place)
    plain = shape.but(relative_positions=False, gate_input="hidden")
    Start.load(saved(CrosslingForMaskedLM(plain), vocabulary.tokenizer(), tmp_path / "plain"))


# ---- generators ----------------------------------------------------------------------------------------------


def test_a_generator_of_another_vocabulary(folder: Folder, vocabulary: Vocabulary, tmp_path: Path) -> None:
    other = extend(vocabulary, ["kunjani ngiyabonga kakhulu enkulunkulu"] * 30, vocabulary.size + 5)
    place = saved(model("xlm-roberta", "ForMaskedLM", other.size), other.tokenizer(), tmp_path)
    assert refused(folder("xlm-roberta"), place) == (
        f"{place}: its vocabulary is not that of {folder('xlm-roberta')}; give a generator that was trained with it"
    )


@pytest.mark.parametrize(
    ("change", "here", "there"),
    [
        ({"num_attention_heads": 4}, "num_attention_heads is 4", 2),
        ({"hidden_size": 8}, "hidden_size is 8", 16),
        ({"intermediate_size": 64}, "intermediate_size is 64", 32),
        ({"max_position_embeddings": 130}, "max_position_embeddings is 128", 64),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05", 0.0001),
    ],
)
def test_a_generator_of_another_shape(change: dict[str, Any], here: str, there: Any, folder: Folder) -> None:
    """The weights of another number of heads would even fit."""
    place, other = folder("xlm-roberta"), folder("xlm-roberta", **change)
    assert refused(place, other) == f"{other}: its {here}, that of {place} {there}, and the two must be alike"
