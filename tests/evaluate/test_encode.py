from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    T5Config,
    T5Model,
    XLMRobertaForQuestionAnswering,
    XLMRobertaForSequenceClassification,
    XLMRobertaForTokenClassification,
)

from crossling.errors import BadInput
from crossling.evaluate import encode
from crossling.evaluate.encode import Encoder, load

from .tiny import SENTENCES, make_model, make_tokenizer


def slow_states(encoder: Encoder, sentence: str) -> tuple[torch.Tensor, ...]:
    ids = torch.tensor([encoder.tokenizer(sentence)["input_ids"]])
    with torch.no_grad():
        return encoder.model(input_ids=ids, output_hidden_states=True).hidden_states


@pytest.mark.parametrize("kind", ["bert", "xlmr"])
@pytest.mark.parametrize("budget", [1, 40, 4096])
def test_pooled_is_the_mean_one_sentence_at_a_time(kind: str, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(make_model(kind), make_tokenizer(), "tiny")
    monkeypatch.setattr(encode, "TOKENS_PER_BATCH", budget)
    pooled, first = encoder.pooled(SENTENCES), encoder.pooled(SENTENCES, "cls")
    assert pooled.shape == (4, len(SENTENCES), 16)
    assert pooled.dtype == np.float32
    for row, sentence in enumerate(SENTENCES):
        for layer, hidden in enumerate(slow_states(encoder, sentence)):
            np.testing.assert_allclose(pooled[layer, row], hidden[0].mean(dim=0).numpy(), atol=1e-5)
            np.testing.assert_allclose(first[layer, row], hidden[0, 0].numpy(), atol=1e-5)


def test_order_and_company_do_not_matter(encoder: Encoder) -> None:
    pooled = encoder.pooled(SENTENCES)
    np.testing.assert_allclose(encoder.pooled(SENTENCES[::-1])[:, ::-1], pooled, atol=1e-5)
    np.testing.assert_allclose(encoder.pooled(SENTENCES[2:3])[:, 0], pooled[:, 2], atol=1e-5)


def test_embed_is_one_layer_of_pooled(encoder: Encoder) -> None:
    pooled = encoder.pooled(SENTENCES)
    assert encoder.layers == 3
    assert encoder.universal_layer == 2
    assert repr(encoder) == f"<{encoder.name}: {encoder.layers} layers of {encoder.width}, sentences at layer 2>"
    np.testing.assert_array_equal(encoder.embed(SENTENCES), pooled[2])
    np.testing.assert_array_equal(encoder.embed(SENTENCES, layer=0), pooled[0])
    np.testing.assert_array_equal(encoder.pooled(SENTENCES, layers=[3, 1]), pooled[[3, 1]])
    chosen = Encoder(encoder.model, encoder.tokenizer, "tiny", universal_layer=1)
    np.testing.assert_array_equal(chosen.embed(SENTENCES), pooled[1])
    assert encoder.embed([]).shape == (0, 16)
    assert encoder.pooled([]).shape == (4, 0, 16)


def test_the_model_is_left_as_it_was(encoder: Encoder) -> None:
    encoder.model.train()
    encoder.model.embeddings.eval()
    before = encoder.pooled(SENTENCES)
    assert encoder.model.training
    assert not encoder.model.embeddings.training
    assert torch.is_grad_enabled()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        np.testing.assert_array_equal(encoder.pooled(SENTENCES), before)
    with pytest.raises(BadInput, match="mean"):
        encoder.pooled(SENTENCES, "men")
    assert encoder.model.training
    assert torch.is_grad_enabled()


def test_long_sentences_are_cut_and_counted(encoder: Encoder) -> None:
    assert encoder.longest == 64  # RoBERTa leaves the positions up to padding unused: 66 - 2
    with pytest.warns(UserWarning, match="1 of 2 sentences are longer than the 64 tokens"):
        pooled = encoder.pooled(["a " * 100, "a b"])
    np.testing.assert_allclose(pooled[:, 0], encoder.pooled(["a " * 62])[:, 0], atol=1e-5)
    assert Encoder(make_model("bert"), make_tokenizer(), "tiny").longest == 66


def test_unknown_layer(encoder: Encoder) -> None:
    for layer in (-1, 4):
        with pytest.raises(BadInput, match="from 0 \\(embeddings\\) to 3"):
            encoder.embed(["a"], layer=layer)
    with pytest.raises(BadInput, match="layer 9"):
        Encoder(encoder.model, encoder.tokenizer, "tiny", universal_layer=9)


def test_align_links_every_word_of_equal_sentences_at_the_embeddings() -> None:
    encoder = Encoder(make_model("bert"), make_tokenizer(), "tiny")
    with torch.no_grad():  # without positions equal words have equal states
        encoder.model.embeddings.position_embeddings.weight.zero_()
    for method in ("ot", "argmax"):
        assert encoder.align("the house zq", "zq the house", layer=0, method=method) == [(0, 1), (1, 2), (2, 0)]


def test_align_all_reads_as_xlm_align(encoder: Encoder) -> None:
    """`<s> source </s> target </s>` with words split one by one; a word pair is linked if any of its pieces are."""
    source, target = ["the", "white", "house"], ["house", "blanche"]
    pieces = [
        [encoder.tokenizer(word, add_special_tokens=False)["input_ids"] for word in side] for side in (source, target)
    ]
    flat = [[piece for word in side for piece in word] for side in pieces]
    words = [[row for row, word in enumerate(side) for _ in word] for side in pieces]
    ids = [0, *flat[0], 2, *flat[1], 2]
    with torch.no_grad():
        hidden = encoder.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    others = [(["a"], ["b", "c"]), (source, target), (["x"] * 30, ["y"] * 10)]
    found = encoder.align_all(others, range(4), ["ot", "argmax"])[1]
    assert found is not None
    links = found["argmax"]
    for layer in range(4):
        states = torch.nn.functional.normalize(hidden[layer][0], dim=-1)
        start = 2 + len(flat[0])
        cosine = states[1 : 1 + len(flat[0])] @ states[start : start + len(flat[1])].T
        expected = {
            (words[0][i], words[1][j])
            for i in range(cosine.shape[0])
            for j in range(cosine.shape[1])
            if cosine[i].argmax() == j and cosine[:, j].argmax() == i
        }
        assert links[layer] == sorted(expected)
        grid = encoder.similarity(" ".join(source), " ".join(target), layer)
        assert grid.shape == (3, 2)
        for i in range(3):
            for j in range(2):
                block = [
                    [cosine[a, b] for b, w in enumerate(words[1]) if w == j] for a, w in enumerate(words[0]) if w == i
                ]
                assert grid[i, j] == pytest.approx(float(np.max(block)), abs=1e-5)


def test_align_too_long_and_empty(encoder: Encoder) -> None:
    assert encoder.align_all([(["a"] * 40, ["b"] * 40), (["a"], ["b"])], [0])[0] is None
    assert encoder.align("", "a b") == []
    for call in (encoder.align, encoder.similarity):
        with pytest.raises(BadInput, match="64 tokens"):
            call("a " * 40, "b " * 40)
    with pytest.raises(BadInput, match="argmax"):
        encoder.align("a", "b", method="argmx")


def test_refuses_what_is_no_encoder() -> None:
    tokenizer, without_padding = make_tokenizer(), make_tokenizer()
    without_padding.pad_token = None
    gpt = GPT2Model(GPT2Config(vocab_size=60, n_embd=16, n_layer=2, n_head=2))
    for of_gpt in (tokenizer, without_padding):
        with pytest.raises(BadInput, match="a decoder"):
            Encoder(gpt, of_gpt, "gpt")
    with pytest.raises(BadInput, match="no tokenizer with a padding token"):
        Encoder(make_model(), without_padding, "tiny")
    decoder = BertModel(
        BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, is_decoder=True)
    )
    with pytest.raises(BadInput, match="a decoder"):
        Encoder(decoder, tokenizer, "bert")
    t5 = T5Model(T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2))
    with pytest.raises(BadInput, match="encoder-decoder"):
        Encoder(t5, tokenizer, "t5")
    with pytest.raises(BadInput, match="no tokenizer"):
        Encoder(make_model(), None, "tiny")  # type: ignore[arg-type]
    small = BertModel(BertConfig(vocab_size=10, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    with pytest.raises(BadInput, match="more pieces than the model"):
        Encoder(small, tokenizer, "small")


def test_load(tmp_path: Path, encoder: Encoder) -> None:
    encoder.model.config.universal_layer = 1
    encoder.model.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="no tokenizer"):
        load(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert loaded.name == str(tmp_path)
    assert loaded.universal_layer == 1
    np.testing.assert_array_equal(loaded.pooled(SENTENCES), encoder.pooled(SENTENCES))


def test_load_leaves_out_the_head_of_a_fine_tuned_model(tmp_path: Path) -> None:
    config = make_model().config
    config.num_labels = 3
    for kind in (XLMRobertaForSequenceClassification, XLMRobertaForTokenClassification, XLMRobertaForQuestionAnswering):
        tuned = kind(config).eval()
        tuned.save_pretrained(tmp_path)
        make_tokenizer().save_pretrained(tmp_path)
        expected = Encoder(tuned.roberta, make_tokenizer(), "tiny").pooled(SENTENCES)
        np.testing.assert_array_equal(load(tmp_path).pooled(SENTENCES), expected)


def test_fingerprint_tells_weights_apart(encoder: Encoder) -> None:
    before = encoder.fingerprint()
    assert Encoder(make_model(), make_tokenizer(), "another name").fingerprint() == before
    with torch.no_grad():
        encoder.model.encoder.layer[1].output.dense.bias[3] += 1e-4
    assert encoder.fingerprint() != before


def test_load_refuses(tmp_path: Path, encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"no config\.json"):
        load(tmp_path)
    encoder.model.save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"no \.safetensors"):
        load(tmp_path)
    make_model(layers=2).save_pretrained(tmp_path)
    config = (tmp_path / "config.json").read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3')
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(BadInput, match="weights are missing"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(BadInput, match="transformers cannot load it"):
        load(tmp_path)


def test_one_sentence_is_not_taken_for_its_characters(encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="a list of sentences"):
        encoder.embed("one sentence")


def test_lists_are_no_sentences(encoder: Encoder) -> None:
    for given in ((["a b"], ["c"]), ("a b", ["c"]), (["a b"], "c")):
        with pytest.raises(BadInput, match="align takes two sentences, each as text; for many"):
            encoder.align(*given)  # type: ignore[arg-type]
