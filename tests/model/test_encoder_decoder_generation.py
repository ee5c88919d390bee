"""Generation with the encoder-decoder: with and without a cache, and beam search against a slow reference."""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from transformers import DynamicCache, EncoderDecoderCache

from crossling.model.encoder_decoder import CrosslingForConditionalGeneration

from .small_encoder_decoder import ABSOLUTE, MASK, RELATIVE, SOURCE, make_encoder_decoder

FORMS = {
    "absolute": ({}, ABSOLUTE),
    "relative, gated": ({"layers": 2}, RELATIVE),
    "relative, gated by the state": ({"layers": 2, "tied": False}, RELATIVE | {"gate_input": "hidden"}),
    "both, pre-norm": ({"layers": 2, "take": "first"}, {"norm": "pre"}),
}
PADDED = {"input_ids": SOURCE, "attention_mask": MASK}


def make_model(form: str) -> CrosslingForConditionalGeneration:
    options, changes = FORMS[form]
    model = make_encoder_decoder(options, **changes)
    with torch.no_grad():
        model.lm_head.bias_V[2] += 1.0  # sequences end now and then
    return model


cached_model = cache(make_model)


@pytest.mark.parametrize("form", FORMS)
@given(lengths=st.lists(st.integers(1, 4), min_size=2, max_size=5), padding=st.integers(0, 2))
@torch.no_grad()
def test_cache_gives_the_same_logits_for_any_split_of_the_target(form: str, lengths: list[int], padding: int) -> None:
    """One token or several at a time, also with padding before the second target."""
    model = cached_model(form)
    total = sum(lengths)
    target = torch.randint(4, 39, (2, total), generator=torch.Generator().manual_seed(total))
    mask = torch.ones_like(target)
    mask[1, :padding] = 0
    mask = mask if padding else None
    expected = model(**PADDED, decoder_input_ids=target, decoder_attention_mask=mask).logits
    encoded = model.encoder(**PADDED)
    cache, end, found = EncoderDecoderCache(DynamicCache(), DynamicCache()), 0, []
    for length in lengths:
        end += length
        part = model(
            attention_mask=MASK,
            encoder_outputs=encoded,
            decoder_input_ids=target[:, end - length : end],
            decoder_attention_mask=None if mask is None else mask[:, :end],
            past_key_values=cache,
        )
        assert part.past_key_values is cache
        found.append(part.logits)
    is_token = torch.ones(2, total, dtype=torch.bool) if mask is None else mask.bool()
    assert_close(torch.cat(found, 1)[is_token], expected[is_token], atol=1e-5, rtol=1e-4)


def test_left_padding_does_not_change_logits_with_relative_positions() -> None:
    model = make_model("relative, gated")
    target = torch.tensor([[0, 11, 12], [0, 13, 14]])
    expected = model(**PADDED, decoder_input_ids=target).logits
    shifted = torch.nn.functional.pad(target, (2, 0), value=1)
    found = model(**PADDED, decoder_input_ids=shifted, decoder_attention_mask=(shifted != 1).long()).logits
    assert_close(found[:, 2:], expected, atol=1e-5, rtol=1e-4)


def test_use_cache_returns_a_cache_and_encodes_the_source_once() -> None:
    model = make_model("absolute")
    assert model(**PADDED, decoder_input_ids=SOURCE[:, :2]).past_key_values is None
    cache = model(**PADDED, decoder_input_ids=SOURCE[:, :2], use_cache=True).past_key_values
    assert cache.get_seq_length() == 2
    keys = [layer.keys for layer in cache.cross_attention_cache.layers]
    assert len(keys) == 3
    unused = torch.zeros(2, 6, 16)
    model(attention_mask=MASK, encoder_outputs=(unused,), decoder_input_ids=SOURCE[:, 2:3], past_key_values=cache)
    assert all(layer.keys is old for layer, old in zip(cache.cross_attention_cache.layers, keys, strict=True))
    assert cache.get_seq_length() == 3


# ---- generate ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beams", [1, 4])
def test_generated_text_is_the_same_without_a_cache(form: str, beams: int) -> None:
    model = make_model(form)
    found = [
        model.generate(
            **PADDED,
            num_beams=beams,
            max_length=12,
            use_cache=cached,
            return_dict_in_generate=True,
            output_logits=True,
            output_scores=True,
        )
        for cached in (True, False)
    ]
    assert torch.equal(found[0].sequences, found[1].sequences)
    assert_close(found[0].logits, found[1].logits, atol=1e-5, rtol=1e-4)
    assert (found[0].past_key_values is None, found[1].past_key_values is None) == (False, True)


@torch.no_grad()
def next_log_probabilities(model: CrosslingForConditionalGeneration, row: int, written: tuple[int, ...]) -> Tensor:
    """Return log p of the next token of one sentence, without a cache."""
    source = SOURCE[row][MASK[row] == 1][None]
    return model(source, decoder_input_ids=torch.tensor([[0, *written]])).logits[0, -1].double().log_softmax(-1)


@pytest.mark.parametrize("form", FORMS)
def test_greedy_search_takes_the_most_likely_token(form: str) -> None:
    model = make_model(form)
    found = model.generate(**PADDED, max_length=12)
    for row in range(2):
        written: tuple[int, ...] = ()
        while len(written) < 11 and 2 not in written:
            written += (int(next_log_probabilities(model, row, written).argmax()),)
        assert found[row].tolist() == [0, *written] + [1] * (found.shape[1] - 1 - len(written))


def slow_beam(
    model: CrosslingForConditionalGeneration, row: int, beams: int, longest: int, penalty: float
) -> tuple[float, tuple[int, ...]]:
    """Return the best score and its sequence: sums of log p divided by length ** penalty, until `beams` have ended."""
    running: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, longest + 1):
        grown = [
            (score + log_p, (*written, token))
            for score, written in running
            for token, log_p in enumerate(next_log_probabilities(model, row, written).tolist())
        ]
        grown = sorted(grown, reverse=True)[: 2 * beams]
        final = [beam for beam in grown if beam[1][-1] == 2 or length == longest]
        ended += [(score / length**penalty, written) for score, written in grown[:beams] if (score, written) in final]
        running = [beam for beam in grown if beam not in final][:beams]
        if len(ended) >= beams:
            break
    return max(ended)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("form", ["absolute", "relative, gated"])
def test_beam_search_scores_equal_a_slow_beam_search(form: str, penalty: float) -> None:
    model = make_model(form)
    found = model.generate(
        **PADDED,
        num_beams=3,
        max_length=9,
        length_penalty=penalty,
        early_stopping=True,
        return_dict_in_generate=True,
        output_scores=True,
    )
    for row in range(2):
        score, written = slow_beam(model, row, beams=3, longest=8, penalty=penalty)
        assert found.sequences_scores[row].item() == pytest.approx(score, abs=1e-4)
        assert [token for token in found.sequences[row].tolist()[1:] if token != 1] == [*written]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_beam_search_with_all_sequences_finds_the_best_one(penalty: float) -> None:
    model = make_encoder_decoder({}, vocab_size=5, **ABSOLUTE)
    tokens, longest = range(5), 3
    source = torch.tensor([[0, 3, 4, 4, 2]])

    @torch.no_grad()
    def score(written: tuple[int, ...]) -> float:
        logits = model(source, decoder_input_ids=torch.tensor([[0, *written[:-1]]])).logits[0]
        return float(logits.double().log_softmax(-1)[range(len(written)), written].sum()) / len(written) ** penalty

    sequences = [
        (*before, last)
        for length in range(1, longest + 1)
        for before in product(*[[token for token in tokens if token != 2]] * (length - 1))
        for last in (tokens if length == longest else [2])
    ]
    assert len(sequences) == 1 + 4 + 16 * 5
    best = max(map(score, sequences))
    found = model.generate(
        source,
        num_beams=64,
        max_length=longest + 1,
        length_penalty=penalty,
        early_stopping="never",
        return_dict_in_generate=True,
        output_scores=True,
    )
    assert found.sequences_scores[0].item() == pytest.approx(best, abs=1e-5)
    assert math.isfinite(best)


def test_sampling_follows_the_seed_and_the_probabilities() -> None:
    model = make_model("absolute")
    greedy = model.generate(**PADDED, max_length=10)
    assert torch.equal(model.generate(**PADDED, max_length=10, do_sample=True, top_k=1), greedy)

    def sample(seed: int) -> Any:
        torch.manual_seed(seed)
        return model.generate(**PADDED, max_length=10, do_sample=True, top_k=0, num_return_sequences=3)

    assert torch.equal(sample(0), sample(0))
    assert sample(0).tolist() != sample(1).tolist()
    many = SOURCE[:1].expand(3000, -1)
    torch.manual_seed(0)
    first = model.generate(many, max_length=2, do_sample=True, top_k=0)[:, 1]
    frequency_V = first.bincount(minlength=40).double() / 3000
    assert_close(frequency_V, next_log_probabilities(model, 0, ()).exp(), atol=0.03, rtol=0)


def test_generation_ends_at_the_last_position() -> None:
    model = make_model("absolute")
    assert model.generate(**PADDED, eos_token_id=None).shape == (2, 24)
    with pytest.raises(ValueError, match="sequence of 25 tokens: the model has 24 positions"):
        model(**PADDED, decoder_input_ids=torch.zeros(2, 25, dtype=torch.long))
    cache = model(**PADDED, decoder_input_ids=SOURCE.repeat(1, 4), use_cache=True).past_key_values
    with pytest.raises(ValueError, match="25 tokens"):
        model(**PADDED, decoder_input_ids=SOURCE[:, :1], past_key_values=cache)


def test_generate_does_not_compile_modules() -> None:
    model = make_model("absolute")
    programs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        programs.append(graph)
        return graph

    for block in model.encoder.blocks:
        block.compile(backend=backend)
    model.generate(**PADDED, num_beams=2, max_length=6)
    assert not programs
    model(**PADDED, decoder_input_ids=SOURCE)
    assert programs


@pytest.mark.parametrize("positions", [ABSOLUTE, RELATIVE], ids=["absolute", "relative"])
def test_compiled_modules_support_every_length(positions: dict[str, Any]) -> None:
    """One program is compiled for the first shape and one for all other shapes."""
    torch._dynamo.reset()  # other tests count towards the recompile limit
    model = make_encoder_decoder(**positions)
    programs: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        programs[-1] += 1
        return graph

    for block in model.encoder.blocks:
        block.compile(backend=backend)
    for rows, source, target in ((2, 6, 5), (3, 8, 11), (4, 9, 7), (5, 12, 13)):
        programs.append(0)
        ids = torch.full((rows, source), 5)
        model(ids, attention_mask=torch.ones_like(ids), labels=torch.full((rows, target), 6))
    assert programs[0] > 0
    assert programs[2:] == [0, 0]
