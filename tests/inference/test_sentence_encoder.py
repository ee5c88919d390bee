from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from crossling.core.errors import BadInput
from crossling.inference import hidden_states
from crossling.inference.align_file import word_similarity
from crossling.inference.sentence_encoder import Encoder
from tests.tiny_encoder import SENTENCES, make_model, make_tokenizer


def slow_states(encoder: Encoder, sentence: str) -> tuple[torch.Tensor, ...]:
    ids = torch.tensor([encoder.tokenizer(sentence)["input_ids"]])
    with torch.no_grad():
        return encoder.model(input_ids=ids, output_hidden_states=True).hidden_states


@pytest.mark.parametrize("kind", ["bert", "xlmr"])
@pytest.mark.parametrize("tokens_per_batch", [1, 40, 4096])
def test_vectors_equal_those_of_single_sentences(
    kind: str, tokens_per_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder(make_model(kind), make_tokenizer(), "tiny")
    monkeypatch.setattr(hidden_states, "TOKENS_PER_BATCH", tokens_per_batch)
    mean, first = encoder.encode_layers(SENTENCES), encoder.encode_layers(SENTENCES, "cls")
    assert mean.shape == (4, len(SENTENCES), 16)
    assert mean.dtype == np.float32
    for row, sentence in enumerate(SENTENCES):
        for layer, hidden in enumerate(slow_states(encoder, sentence)):
            np.testing.assert_allclose(mean[layer, row], hidden[0].mean(dim=0).numpy(), atol=1e-5)
            np.testing.assert_allclose(first[layer, row], hidden[0, 0].numpy(), atol=1e-5)


def test_vectors_do_not_depend_on_the_other_sentences(encoder: Encoder) -> None:
    vectors = encoder.encode_layers(SENTENCES)
    np.testing.assert_allclose(encoder.encode_layers(SENTENCES[::-1])[:, ::-1], vectors, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_layers(SENTENCES[2:3])[:, 0], vectors[:, 2], atol=1e-5)


def test_encode_returns_one_layer(encoder: Encoder) -> None:
    vectors = encoder.encode_layers(SENTENCES)
    assert encoder.num_layers == 3
    assert encoder.universal_layer == 2
    assert repr(encoder) == "Encoder('runs/tiny', num_layers=3, hidden_size=16, universal_layer=2, precision='float32')"
    np.testing.assert_array_equal(encoder.encode(SENTENCES), vectors[2])
    np.testing.assert_array_equal(encoder.encode(SENTENCES, layer=0), vectors[0])
    np.testing.assert_array_equal(encoder.encode_layers(SENTENCES, layers=[3, 1]), vectors[[3, 1]])
    other = Encoder(encoder.model, encoder.tokenizer, "tiny", universal_layer=1)
    np.testing.assert_array_equal(other.encode(SENTENCES), vectors[1])
    assert encoder.encode([]).shape == (0, 16)
    assert encoder.encode_layers([]).shape == (4, 0, 16)


def test_encode_accepts_a_string_and_any_iterable_of_strings(encoder: Encoder) -> None:
    expected = encoder.encode(SENTENCES)
    single = encoder.encode(SENTENCES[0])
    assert single.shape == (16,)
    np.testing.assert_allclose(single, expected[0], atol=1e-5)
    iterables = (tuple(SENTENCES), np.array(SENTENCES), pd.Series(SENTENCES), (text for text in SENTENCES))
    for sentences in iterables:
        np.testing.assert_array_equal(encoder.encode(sentences), expected)
    with pytest.raises(BadInput, match="sentence 2: expected a string, found int"):
        encoder.encode(["a", 1])  # type: ignore[list-item]
    with pytest.raises(BadInput, match="Give a list of sentences"):
        encoder.encode_layers("one sentence")


@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_encode_gives_the_same_vectors_for_every_batch_size(
    encoder: Encoder, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, sizes = encoder.encode(SENTENCES), []
    forward = encoder.model.forward

    def count(*args: object, **inputs: torch.Tensor) -> object:
        sizes.append(len(inputs["input_ids"]))
        return forward(*args, **inputs)

    monkeypatch.setattr(encoder.model, "forward", count)
    np.testing.assert_allclose(encoder.encode(SENTENCES, batch_size=batch_size), expected, atol=1e-5)
    assert sum(sizes) == len(SENTENCES)
    assert max(sizes) <= batch_size
    with pytest.raises(BadInput, match="batch_size=0: expected at least 1"):
        encoder.encode(SENTENCES, batch_size=0)


def test_encode_converts_and_normalizes_as_sentence_transformers(
    encoder: Encoder, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors = encoder.encode(SENTENCES)
    unit = encoder.encode(SENTENCES, normalize_embeddings=True)
    np.testing.assert_allclose(unit, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=1e-6)
    tensor = encoder.encode(SENTENCES, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), vectors)
    single = encoder.encode(SENTENCES[0], convert_to_tensor=True, device="cpu")
    assert single.shape == (16,)
    parts = encoder.encode(SENTENCES, convert_to_numpy=False)
    assert isinstance(parts, list)
    np.testing.assert_array_equal(torch.stack(parts).numpy(), vectors)
    assert capsys.readouterr().err == ""
    encoder.encode(SENTENCES, show_progress_bar=True)
    assert f"encode {len(SENTENCES)}/{len(SENTENCES)}" in capsys.readouterr().err


def test_encode_truncates_as_sentence_transformers(encoder: Encoder, tmp_path: Path) -> None:
    models = pytest.importorskip("sentence_transformers")
    encoder.model.save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    other = models.SentenceTransformer(str(tmp_path), device="cpu", truncate_dim=5)
    options = {"layer": encoder.num_layers, "normalize_embeddings": True}
    found = encoder.encode(SENTENCES, truncate_dim=5, **options)
    np.testing.assert_allclose(found, other.encode(SENTENCES, normalize_embeddings=True), atol=1e-5)
    for dimension in (0, 17):
        with pytest.raises(
            BadInput, match=rf"truncate_dim={dimension}: the vectors have 16 dimensions\. Give a number"
        ):
            encoder.encode(SENTENCES, truncate_dim=dimension)


def test_similarity_equals_that_of_sentence_transformers(encoder: Encoder) -> None:
    util = pytest.importorskip("sentence_transformers.util")
    first, second = encoder.encode(SENTENCES[:3]), encoder.encode(SENTENCES[3:6])
    for one, other in ((first, second), (torch.tensor(first), torch.tensor(second)), ([*first], [*second])):
        found = encoder.similarity(one, other)
        assert isinstance(found, torch.Tensor)
        assert found.shape == (3, 3)
        torch.testing.assert_close(found, util.cos_sim(first, second))
        torch.testing.assert_close(encoder.similarity_pairwise(one, other), util.pairwise_cos_sim(first, second))
    tensors = encoder.encode(SENTENCES[:3], convert_to_numpy=False)
    assert isinstance(tensors, list)
    torch.testing.assert_close(encoder.similarity(tensors, second), util.cos_sim(first, second))
    assert encoder.similarity(first[0], second).shape == (1, 3)


def test_mine_pairs_lists_of_sentences(encoder: Encoder) -> None:
    first = ["the white house", "zebra quilt", "a b c", "zebra quilt"]
    pairs = encoder.mine(first, (text for text in ["a b c", "zebra quilt"]), layer=1, k=2, margin="absolute")
    assert {(pair.source, pair.target) for pair in pairs} == {("zebra quilt", "zebra quilt"), ("a b c", "a b c")}
    assert pairs[0].score == pytest.approx(1, abs=1e-5)
    assert encoder.mine(first, first, margin="absolute", threshold=1.1) == []
    assert encoder.mine([], first) == []
    with pytest.raises(BadInput, match="did you mean 'ratio'"):
        encoder.mine(first, first, margin="ration")


def test_encoding_does_not_change_the_model(encoder: Encoder) -> None:
    encoder.model.train()
    encoder.model.embeddings.eval()
    before = encoder.encode_layers(SENTENCES)
    assert encoder.model.training
    assert not encoder.model.embeddings.training
    assert torch.is_grad_enabled()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        np.testing.assert_array_equal(encoder.encode_layers(SENTENCES), before)
    with pytest.raises(BadInput, match="mean"):
        encoder.encode_layers(SENTENCES, "men")
    assert encoder.model.training
    assert torch.is_grad_enabled()


def test_long_sentences_are_truncated_with_a_warning(encoder: Encoder) -> None:
    assert encoder.max_length == 64  # RoBERTa leaves the positions up to padding unused: 66 - 2
    with pytest.warns(UserWarning, match="1 of 2 sentences are longer than the 64 tokens"):
        vectors = encoder.encode_layers(["a " * 100, "a b"])
    np.testing.assert_allclose(vectors[:, 0], encoder.encode_layers(["a " * 62])[:, 0], atol=1e-5)
    assert Encoder(make_model("bert"), make_tokenizer(), "tiny").max_length == 66


def test_layers_that_do_not_exist_are_refused(encoder: Encoder) -> None:
    for layer in (-1, 4):
        with pytest.raises(BadInput, match=r"from 0 \(embeddings\) to 3"):
            encoder.encode(["a"], layer=layer)
    with pytest.raises(BadInput, match="layer 9"):
        Encoder(encoder.model, encoder.tokenizer, "tiny", universal_layer=9)


def test_align_links_every_word_of_equal_sentences_at_the_embeddings() -> None:
    encoder = Encoder(make_model("bert"), make_tokenizer(), "tiny")
    with torch.no_grad():  # without positions equal words have equal states
        encoder.model.embeddings.position_embeddings.weight.zero_()
    for method in ("ot", "argmax"):
        assert encoder.align("the house zq", "zq the house", layer=0, method=method) == [(0, 1), (1, 2), (2, 0)]


def test_align_pairs_joins_the_sentences_as_xlm_align(encoder: Encoder) -> None:
    """`<s> source </s> target </s>` with words tokenized one by one. Words are linked if any of their tokens are."""
    source, target = ["the", "white", "house"], ["house", "blanche"]
    tokens = [
        [encoder.tokenizer(word, add_special_tokens=False)["input_ids"] for word in side] for side in (source, target)
    ]
    flat = [[token for word in side for token in word] for side in tokens]
    words = [[row for row, word in enumerate(side) for _ in word] for side in tokens]
    ids = [0, *flat[0], 2, *flat[1], 2]
    with torch.no_grad():
        hidden = encoder.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    pairs = [(["a"], ["b", "c"]), (source, target), (["x"] * 30, ["y"] * 10)]
    by_method = encoder.align_pairs(pairs, range(4), ["ot", "argmax"])[1]
    assert by_method is not None
    for layer, links in enumerate(by_method["argmax"]):
        states = torch.nn.functional.normalize(hidden[layer][0], dim=-1)
        start = 2 + len(flat[0])
        cosine = states[1 : 1 + len(flat[0])] @ states[start : start + len(flat[1])].T
        expected = {
            (words[0][i], words[1][j])
            for i in range(cosine.shape[0])
            for j in range(cosine.shape[1])
            if cosine[i].argmax() == j and cosine[:, j].argmax() == i
        }
        assert links == sorted(expected)
        grid = word_similarity(encoder, " ".join(source), " ".join(target), layer=layer)
        assert grid.shape == (3, 2)
        for i in range(3):
            for j in range(2):
                block = [
                    [cosine[a, b] for b, w in enumerate(words[1]) if w == j] for a, w in enumerate(words[0]) if w == i
                ]
                assert grid[i, j] == pytest.approx(float(np.max(block)), abs=1e-5)


def test_align_handles_long_and_empty_sentences(encoder: Encoder) -> None:
    assert encoder.align_pairs([(["a"] * 40, ["b"] * 40), (["a"], ["b"])], [0])[0] is None
    assert encoder.align("", "a b") == []
    with pytest.raises(BadInput, match="64 tokens"):
        encoder.align("a " * 40, "b " * 40)
    with pytest.raises(BadInput, match="64 tokens"):
        word_similarity(encoder, "a " * 40, "b " * 40)
    with pytest.raises(BadInput, match="argmax"):
        encoder.align("a", "b", method="argmx")
    for sentences in ((["a b"], ["c"]), ("a b", ["c"]), (["a b"], "c")):
        with pytest.raises(BadInput, match="align: expected two strings"):
            encoder.align(*sentences)  # type: ignore[arg-type]


def test_fingerprint_depends_on_the_weights_alone(encoder: Encoder) -> None:
    before = encoder.fingerprint()
    assert Encoder(make_model(), make_tokenizer(), "another name").fingerprint() == before
    with torch.no_grad():
        encoder.model.encoder.layer[1].output.dense.bias[3] += 1e-4
    assert encoder.fingerprint() != before
