"""Encoder, head and tokenizer for translation, from a run, its export, or an encoder of another family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, BertTokenizer

from crossling.core.errors import BadInput
from crossling.data.shards import Shards
from crossling.export import export
from crossling.inference.load import load_language_model
from crossling.model.encoder_decoder import encoder_decoder_from_encoder
from crossling.recipes.network import load_run
from crossling.recipes.pretrain import pretrain
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .toy_models import assert_same_weights, build_model, max_difference, padded_ids, save_model, small_recipe


def test_run_and_its_export_are_the_same(shards: Shards, lines: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shape = ["model.layers=3", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.max_length=64"]
    pretrain(small_recipe("veco", *shape), shards, run)
    net = load_run(run)
    for place in (run, export(run, tmp_path / "model")):
        encoder, head, tokenizer, name, _ = load_language_model(place)
        assert_same_weights(encoder, net.encoder)
        assert head is not None
        assert_same_weights(head, net.parts["lm_head"])
        assert name == str(place)
        assert tokenizer(lines).input_ids == Vocabulary.load(run / "vocab").tokenizer()(lines).input_ids
        made = encoder_decoder_from_encoder(encoder, head)
        assert torch.equal(made.decoder_blocks[1].cross.query.weight, net.encoder.blocks[1].cross.query.weight)


@torch.no_grad()
def test_other_family_predicts_as_in_transformers(folder: Folder, vocabulary: Vocabulary, lines: list[str]) -> None:
    path = folder("xlm-roberta")
    encoder, head, tokenizer, *_ = load_language_model(path)
    ids_BL, mask_BL = padded_ids(vocabulary, lines)
    expected = AutoModelForMaskedLM.from_pretrained(path).eval()(ids_BL, attention_mask=mask_BL.long()).logits
    assert head is not None
    found = head(encoder(ids_BL, mask_BL).last_hidden_state, encoder.embeddings.tokens.weight)
    assert max_difference(found[mask_BL], expected[mask_BL]) < 1e-5
    assert len(tokenizer) == encoder.config.vocab_size
    written = (
        encoder_decoder_from_encoder(encoder, head, layers=1)
        .eval()
        .generate(ids_BL, attention_mask=mask_BL.long(), max_length=6)
    )
    assert written[:, 0].eq(0).all()


def test_discriminators_and_bare_encoders_have_no_head(folder: Folder) -> None:
    for family, kind in (("electra", "ForPreTraining"), ("xlm-roberta", "Model")):
        assert load_language_model(folder(family, kind))[1] is None


def test_start_and_end_tokens_come_from_the_tokenizer(tmp_path: Path) -> None:
    """BERT's configuration has no start and end tokens."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    tokenizer = BertTokenizer(vocab={token: number for number, token in enumerate(tokens)})
    ids = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
    encoder, head, *_ = load_language_model(
        save_model(build_model("bert", "ForMaskedLM", 13, **ids), tokenizer, tmp_path / "bert")
    )
    made = encoder_decoder_from_encoder(encoder, head).eval()
    config = made.generation_config
    assert (config.decoder_start_token_id, config.eos_token_id, config.pad_token_id) == (2, 3, 0)
    assert made.generate(torch.tensor([[2, 5, 6, 3]]), max_length=5)[0, 0] == 2


def test_translator_is_refused_as_encoder(folder: Folder, tmp_path: Path) -> None:
    encoder, head, tokenizer, *_ = load_language_model(folder("xlm-roberta"))
    path = save_model(encoder_decoder_from_encoder(encoder, head), tokenizer, tmp_path / "mt")
    with pytest.raises(BadInput, match=r"a translator\. Give the encoder"):
        load_language_model(path)
