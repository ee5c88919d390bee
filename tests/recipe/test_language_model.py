"""What a translator is made of, by the name of a model: a run, its export, or an encoder of another family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, BertTokenizer

from crossling.data.shards import Shards
from crossling.errors import BadInput
from crossling.export import export
from crossling.load import language_model
from crossling.model.translator import translator
from crossling.recipe import load_run, pretrain
from crossling.vocabulary.vocabulary import Vocabulary

from .conftest import Folder
from .made import far, model, rows_of, same_weights, saved, small


def test_a_run_and_its_export_are_the_same(shards: Shards, lines: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shape = ["model.layers=3", "model.width=16", "model.heads=2", "model.feed_forward=32", "model.max_length=64"]
    pretrain(small("veco", *shape), shards, run)
    net = load_run(run)
    for place in (run, export(run, tmp_path / "model")):
        encoder, head, tokenizer, name = language_model(place)
        same_weights(encoder, net.encoder)
        assert head is not None
        same_weights(head, net.parts["lm_head"])
        assert name == str(place)
        assert tokenizer(lines).input_ids == Vocabulary.load(run / "vocab").tokenizer()(lines).input_ids
        made = translator(encoder, head)
        assert torch.equal(made.decoder_blocks[1].cross.query.weight, net.encoder.blocks[1].cross.query.weight)


@torch.no_grad()
def test_another_family_fills_in_as_it_does_in_transformers(
    folder: Folder, vocabulary: Vocabulary, lines: list[str]
) -> None:
    path = folder("xlm-roberta")
    encoder, head, tokenizer, _ = language_model(path)
    ids_BL, seen_BL = rows_of(vocabulary, lines)
    expected = AutoModelForMaskedLM.from_pretrained(path).eval()(ids_BL, attention_mask=seen_BL.long()).logits
    assert head is not None
    found = head(encoder(ids_BL, seen_BL).last_hidden_state, encoder.embeddings.tokens.weight)
    assert far(found[seen_BL], expected[seen_BL]) < 1e-5
    assert len(tokenizer) == encoder.config.vocab_size
    written = translator(encoder, head, layers=1).eval().generate(ids_BL, attention_mask=seen_BL.long(), max_length=6)
    assert written[:, 0].eq(0).all()


def test_discriminators_and_bare_encoders_come_without_a_head(folder: Folder) -> None:
    for family, kind in (("electra", "ForPreTraining"), ("xlm-roberta", "Model")):
        assert language_model(folder(family, kind))[1] is None


def test_marks_that_only_the_tokenizer_knows_are_found(tmp_path: Path) -> None:
    """BERT's configuration has none."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    ids = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
    encoder, head, _, _ = language_model(saved(model("bert", "ForMaskedLM", 13, **ids), tokenizer, tmp_path / "bert"))
    made = translator(encoder, head).eval()
    config = made.generation_config
    assert (config.decoder_start_token_id, config.eos_token_id, config.pad_token_id) == (2, 3, 0)
    assert made.generate(torch.tensor([[2, 5, 6, 3]]), max_length=5)[0, 0] == 2


def test_a_translator_is_no_encoder(folder: Folder, tmp_path: Path) -> None:
    encoder, head, tokenizer, _ = language_model(folder("xlm-roberta"))
    path = saved(translator(encoder, head), tokenizer, tmp_path / "mt")
    with pytest.raises(BadInput, match="a translator, and no encoder"):
        language_model(path)
