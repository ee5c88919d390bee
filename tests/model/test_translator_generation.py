"""How the encoder-decoder writes: with a cache as without, and by beam search as a slow one does."""

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

from crossling.model.translator import CrosslingForConditionalGeneration

from .translators import ABSOLUTE, PRESENT, RELATIVE, SOURCE, made

FORMS = {
    "absolute": ({}, ABSOLUTE),
    "relative, gated": ({"layers": 2}, RELATIVE),
    "relative, gated by the state": ({"layers": 2, "tied": False}, RELATIVE | {"gate_input": "hidden"}),
    "both, pre-norm": ({"layers": 2, "take": "first"}, {"norm": "pre"}),
}
PADDED = {"input_ids": SOURCE, "attention_mask": PRESENT}


def model(form: str) -> CrosslingForConditionalGeneration:
    how, changes = FORMS[form]
    found = made(how, **changes)
    with torch.no_grad():  # that it ends, now and then
        found.lm_head.bias_V[2] += 1.0
    return found


one = cache(model)  # for all examples


@pytest.mark.parametrize("form", FORMS)
@given(lengths=st.lists(st.integers(1, 4), min_size=2, max_size=5), before=st.integers(0, 2))
@torch.no_grad()
def test_a_cache_changes_no_logit_however_the_target_is_cut(form: str, lengths: list[int], before: int) -> None:
    """One token at a time or several, with padding before the second target too."""
    translator = one(form)
    total = sum(lengths)
    target = torch.randint(4, 39, (2, total), generator=torch.Generator().manual_seed(total))
    seen = torch.ones_like(target)
    seen[1, :before] = 0
    seen = seen if before else None
    expected = translator(**PADDED, decoder_input_ids=target, decoder_attention_mask=seen).logits
    read = translator.encoder(**PADDED)
    remembered, end, found = EncoderDecoderCache(DynamicCache(), DynamicCache()), 0, []
    for length in lengths:
        end += length
        part = translator(
            attention_mask=PRESENT,
            encoder_outputs=read,
            decoder_input_ids=target[:, end - length : end],
            decoder_attention_mask=None if seen is None else seen[:, :end],
            past_key_values=remembered,
        )
        assert part.past_key_values is remembered
        found.append(part.logits)
    counted = torch.ones(2, total, dtype=torch.bool) if seen is None else seen.bool()  # what padding says is nothing
    assert_close(torch.cat(found, 1)[counted], expected[counted], atol=1e-5, rtol=1e-4)


def test_padding_before_a_target_moves_nothing_where_only_distances_count() -> None:
    translator = model("relative, gated")
    target = torch.tensor([[0, 11, 12], [0, 13, 14]])
    expected = translator(**PADDED, decoder_input_ids=target).logits
    shifted = torch.nn.functional.pad(target, (2, 0), value=1)
    found = translator(**PADDED, decoder_input_ids=shifted, decoder_attention_mask=(shifted != 1).long()).logits
    assert_close(found[:, 2:], expected, atol=1e-5, rtol=1e-4)


def test_a_cache_is_made_for_those_who_ask_and_the_source_is_read_once() -> None:
    translator = model("absolute")
    assert translator(**PADDED, decoder_input_ids=SOURCE[:, :2]).past_key_values is None
    cache = translator(**PADDED, decoder_input_ids=SOURCE[:, :2], use_cache=True).past_key_values
    assert cache.get_seq_length() == 2
    kept = [layer.keys for layer in cache.cross_attention_cache.layers]
    assert len(kept) == 3
    nothing = torch.zeros(2, 6, 16)  # not looked at any more
    translator(
        attention_mask=PRESENT, encoder_outputs=(nothing,), decoder_input_ids=SOURCE[:, 2:3], past_key_values=cache
    )
    assert all(layer.keys is keys for layer, keys in zip(cache.cross_attention_cache.layers, kept, strict=True))
    assert cache.get_seq_length() == 3


# ---- generate ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beams", [1, 4])
def test_what_is_written_is_the_same_without_a_cache(form: str, beams: int) -> None:
    translator = model(form)
    found = [
        translator.generate(
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
def chances(translator: CrosslingForConditionalGeneration, row: int, written: tuple[int, ...]) -> Tensor:
    """log p of the next piece, of one sentence alone, all of it computed anew."""
    source = SOURCE[row][PRESENT[row] == 1][None]
    return translator(source, decoder_input_ids=torch.tensor([[0, *written]])).logits[0, -1].double().log_softmax(-1)


@pytest.mark.parametrize("form", FORMS)
def test_greedy_takes_the_likeliest_piece(form: str) -> None:
    translator = model(form)
    found = translator.generate(**PADDED, max_length=12)
    for row in range(2):
        written: tuple[int, ...] = ()
        while len(written) < 11 and 2 not in written:
            written += (int(chances(translator, row, written).argmax()),)
        assert found[row].tolist() == [0, *written] + [1] * (found.shape[1] - 1 - len(written))


def slow_beam(
    translator: CrosslingForConditionalGeneration, row: int, beams: int, longest: int, penalty: float
) -> tuple[float, tuple[int, ...]]:
    """The best score and what has it: sums of log p divided by length ** penalty, until `beams` have ended."""
    running: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, longest + 1):
        grown = [
            (score + chance, (*written, piece))
            for score, written in running
            for piece, chance in enumerate(chances(translator, row, written).tolist())
        ]
        grown = sorted(grown, reverse=True)[: 2 * beams]
        over = [each for each in grown if each[1][-1] == 2 or length == longest]
        ended += [(score / length**penalty, written) for score, written in grown[:beams] if (score, written) in over]
        running = [each for each in grown if each not in over][:beams]
        if len(ended) >= beams:
            break
    return max(ended)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("form", ["absolute", "relative, gated"])
def test_beam_search_scores_equal_a_slow_one(form: str, penalty: float) -> None:
    translator = model(form)
    found = translator.generate(
        **PADDED,
        num_beams=3,
        max_length=9,
        length_penalty=penalty,
        early_stopping=True,
        return_dict_in_generate=True,
        output_scores=True,
    )
    for row in range(2):
        score, written = slow_beam(translator, row, beams=3, longest=8, penalty=penalty)
        assert found.sequences_scores[row].item() == pytest.approx(score, abs=1e-4)
        assert [piece for piece in found.sequences[row].tolist()[1:] if piece != 1] == [*written]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_that_holds_everything_finds_the_best_of_all(penalty: float) -> None:
    translator = made({}, vocab_size=5, **ABSOLUTE)
    pieces, longest = range(5), 3
    source = torch.tensor([[0, 3, 4, 4, 2]])

    @torch.no_grad()
    def score(written: tuple[int, ...]) -> float:
        logits = translator(source, decoder_input_ids=torch.tensor([[0, *written[:-1]]])).logits[0]
        return float(logits.double().log_softmax(-1)[range(len(written)), written].sum()) / len(written) ** penalty

    every = [
        (*before, last)
        for length in range(1, longest + 1)
        for before in product(*[[piece for piece in pieces if piece != 2]] * (length - 1))
        for last in (pieces if length == longest else [2])
    ]
    assert len(every) == 1 + 4 + 16 * 5
    best = max(map(score, every))
    found = translator.generate(
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


def test_sampling_follows_the_seed_and_the_chances() -> None:
    translator = model("absolute")
    greedy = translator.generate(**PADDED, max_length=10)
    assert torch.equal(translator.generate(**PADDED, max_length=10, do_sample=True, top_k=1), greedy)

    def drawn(seed: int) -> Any:
        torch.manual_seed(seed)
        return translator.generate(**PADDED, max_length=10, do_sample=True, top_k=0, num_return_sequences=3)

    assert torch.equal(drawn(0), drawn(0))
    assert drawn(0).tolist() != drawn(1).tolist()
    many = SOURCE[:1].expand(3000, -1)
    torch.manual_seed(0)
    first = translator.generate(many, max_length=2, do_sample=True, top_k=0)[:, 1]
    share_V = first.bincount(minlength=40).double() / 3000
    assert_close(share_V, chances(translator, 0, ()).exp(), atol=0.03, rtol=0)


def test_it_ends_where_its_positions_do() -> None:
    translator = model("absolute")
    assert translator.generate(**PADDED, eos_token_id=None).shape == (2, 24)
    with pytest.raises(ValueError, match="25 tokens, and the model has 24 positions"):
        translator(**PADDED, decoder_input_ids=torch.zeros(2, 25, dtype=torch.long))
    cache = translator(**PADDED, decoder_input_ids=SOURCE.repeat(1, 4), use_cache=True).past_key_values
    with pytest.raises(ValueError, match="25 tokens"):
        translator(**PADDED, decoder_input_ids=SOURCE[:, :1], past_key_values=cache)


def test_parts_compiled_for_training_are_not_compiled_for_every_length() -> None:
    translator = model("absolute")
    programs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        programs.append(graph)
        return graph

    for block in translator.encoder.blocks:
        block.compile(backend=backend)
    translator.generate(**PADDED, num_beams=2, max_length=6)
    assert not programs
    translator(**PADDED, decoder_input_ids=SOURCE)
    assert programs


@pytest.mark.parametrize("positions", [ABSOLUTE, RELATIVE], ids=["absolute", "relative"])
def test_parts_compiled_for_training_serve_every_length(positions: dict[str, Any]) -> None:
    """One program for what was seen first, one for all that is different in size."""
    torch._dynamo.reset()  # so many programs of a part are made, and other tests have made some
    translator = made(**positions)
    programs: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        programs[-1] += 1
        return graph

    for block in translator.encoder.blocks:
        block.compile(backend=backend)
    for rows, source, target in ((2, 6, 5), (3, 8, 11), (4, 9, 7), (5, 12, 13)):
        programs.append(0)
        ids = torch.full((rows, source), 5)
        translator(ids, attention_mask=torch.ones_like(ids), labels=torch.full((rows, target), 6))
    assert programs[0] > 0
    assert programs[2:] == [0, 0]
