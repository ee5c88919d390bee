"""Denoising against a slow loop written from its equation, and the statistics of its noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from crossling.data.batches import TokenizedExamples
from crossling.data.keyed_random import KeyedRandom
from crossling.data.packing import Batch, Sequences
from crossling.objectives import Denoising, Network, PairDenoising, PretrainingObjective
from crossling.objectives.denoising import infill_spans, permute_sentences, shift_targets
from crossling.vocabulary.special_tokens import SpecialTokens

from . import slow
from .conftest import SPECIAL, corrupted, network, packed, pair_batch, pairs_of, split, text_batch, text_of, unpacked

BOTH = pytest.mark.parametrize(
    ("objective", "make"), [(Denoising(), text_batch), (PairDenoising(), pair_batch)], ids=["text", "pairs"]
)

MASK_7 = SpecialTokens.standard(8)  # other tokens are above 9


# ---- loss ---------------------------------------------------------------------------------------------------


def slow_loss(net: Network, batch: Batch) -> Tensor:
    """- sum of log P(x_t | x_1 ... x_{t-1}; g(x)), one example at a time."""
    loss = torch.zeros((), dtype=torch.double)
    for source, target in zip(unpacked(batch), unpacked(batch, "decoder"), strict=True):
        encoded = slow.states(net.encoder, source["ids"])[-1]
        decoded = slow.states(net.parts["decoder"], target["decoder_ids"], encoded, is_causal=True)[-1]
        p = slow.language_model(net.parts["lm_head"], decoded, slow.table(net.encoder))
        loss = loss - sum(torch.log(p[t, token]) for t, token in enumerate(target["targets"].tolist()))
    return loss


@BOTH
@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"relative": False, "gate": False}], ids=str)
def test_the_loss_equals_the_equation_in_value_and_gradient(
    objective: Denoising, make: Callable[[PretrainingObjective], Batch], changes: dict[str, object]
) -> None:
    net, batch = network(objective, **changes), make(objective)
    assert batch["ids"].shape[0] < len(unpacked(batch))  # packed: several examples in a row
    slow.agree(net, objective.loss(net, batch)[objective.term], slow_loss(net, batch))


@pytest.mark.parametrize("objective", [Denoising(), PairDenoising()], ids=["text", "pairs"])
def test_the_loss_is_a_sum_over_micro_batches(objective: Denoising) -> None:
    net = network(objective)
    step = corrupted(objective, text_of(5) if objective.stream == "text" else pairs_of(5))
    with torch.no_grad():
        whole, parts = objective.loss(net, packed(step)), [objective.loss(net, part) for part in split(step, 2)]
    for name, value in whole.items():
        assert_close(sum(part[name] for part in parts), value)


@BOTH
def test_counts_are_all_tokens_of_the_targets(
    objective: Denoising, make: Callable[[PretrainingObjective], Batch]
) -> None:
    net, batch = network(objective), make(objective)
    examples = text_of(5) if objective.stream == "text" else pairs_of(6)
    targets = examples.ids if objective.stream == "text" else examples.translation_ids
    with torch.no_grad():
        sums = objective.loss(net, batch)
    assert objective.counts(batch) == dict.fromkeys(sums, sum(map(len, targets)))
    assert 0 <= sums[f"{objective.term}_accuracy"] <= sum(map(len, targets))


def test_encoder_and_decoder_share_their_embeddings_and_nothing_else() -> None:
    net = network(Denoising())
    decoder = net.parts["decoder"]
    assert decoder.embeddings is net.encoder.embeddings
    assert decoder.relative is net.encoder.relative
    own = {id(weight) for block in decoder.blocks for weight in block.parameters()}
    assert not own & {id(weight) for weight in net.encoder.parameters()}
    assert not any(block.has_cross_attention for block in net.encoder.blocks)
    gradients = slow.gradients(net, Denoising().loss(net, text_batch(Denoising()))["denoising"])
    assert all(values.any() for name, values in gradients.items() if "bias" not in name)


def test_tokens_of_a_step_are_those_of_the_text_or_of_both_sides() -> None:
    text, pairs = text_of(5), pairs_of(6)
    assert corrupted(Denoising(), text).tokens == sum(1 + len(ids) for ids in text.ids)  # with <s>
    both = [*pairs.ids, *pairs.translation_ids]
    assert corrupted(PairDenoising(), pairs).tokens == sum(1 + len(ids) for ids in both)


# ---- noise --------------------------------------------------------------------------------------------------


def blocks(number: int, length: int, sentence: int) -> Sequences:
    """Sequences of distinct tokens, with a </s> after every `sentence` of them."""
    ids = [np.arange(10, 10 + length) for _ in range(number)]
    for block in ids:
        block[sentence - 1 :: sentence] = 2
    return TokenizedExamples(ids).sequences()


def each(sequences: Sequences) -> list[list[int]]:
    ends = np.cumsum(sequences.lengths_N)
    return [part.tolist() for part in np.split(sequences.tokens["ids"], ends[:-1])]


def test_sentences_are_permuted_evenly_and_nothing_is_lost() -> None:
    original = blocks(600, 9, 3)
    permuted = each(permute_sentences(original, KeyedRandom([0], 0, 600), SPECIAL))
    assert all(sorted(one) == sorted(other) for one, other in zip(permuted, each(original), strict=True))
    assert {ids[0] for ids in permuted} == {0}
    orders = Counter(tuple(ids[1::3]) for ids in permuted)
    assert len(orders) == 6
    assert max(orders.values()) < 150


def test_a_part_of_a_sentence_at_the_end_of_a_block_is_one_sentence() -> None:
    original = blocks(50, 8, 3)  # the third sentence has no </s>
    orders = {tuple(ids) for ids in each(permute_sentences(original, KeyedRandom([0], 0, 50), SPECIAL))}
    assert (0, 16, 17, 10, 11, 2, 13, 14, 2) in orders


@pytest.mark.parametrize(("rate", "span"), [(0.35, 3.5), (0.15, 2.0), (0.5, 5.0)])
def test_the_rate_of_the_tokens_is_replaced_by_masks_of_the_mean_span(rate: float, span: float) -> None:
    original = blocks(300, 100, 50)
    found = each(infill_spans(original, KeyedRandom([0], 0, 300), MASK_7, rate=rate, span=span))
    text = 300 * 98
    kept = sum(token > 9 for ids in found for token in ids)
    masks = sum(token == 7 for ids in found for token in ids)
    assert 1 - kept / text == pytest.approx(rate, abs=0.001)
    # Ends of sentences and of the count truncate some spans.
    assert (text - kept) / masks == pytest.approx(span, rel=0.12)


def test_span_lengths_are_poisson_distributed_and_some_only_insert() -> None:
    original = blocks(80, 2000, 2000)
    found = each(infill_spans(original, KeyedRandom([1], 0, 80), MASK_7, rate=0.1, span=3.5))
    gaps: Counter[int] = Counter()
    for ids in found:
        for before, token, after in zip(ids, ids[1:], ids[2:], strict=False):
            if token == 7 and before > 9 and after > 9:
                gaps[after - before - 1] += 1
    total = sum(gaps.values())
    for length, expected in {0: 0.030, 1: 0.106, 2: 0.185, 3: 0.216, 4: 0.189, 6: 0.077}.items():
        assert gaps[length] / total == pytest.approx(expected, abs=0.02)


def test_every_position_is_replaced_equally_often() -> None:
    original = blocks(3000, 30, 30)
    found = each(infill_spans(original, KeyedRandom([2], 0, 3000), MASK_7, rate=0.35, span=3.5))
    kept = Counter(token for ids in found for token in ids)
    replaced = np.asarray([1 - kept[token] / 3000 for token in range(10, 39)])
    assert replaced[3:-3].min() > 0.31
    assert replaced.max() < 0.42


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=6), st.integers(0, 5))
def test_the_noise_keeps_order_and_special_tokens_and_never_lengthens(sizes: list[list[int]], step: int) -> None:
    ids = [np.concatenate([[*range(10, 9 + size), 2] for size in block]).astype(np.int64) for block in sizes]
    original = TokenizedExamples(ids).sequences()
    noise = KeyedRandom([0], step, len(ids))
    for before, after in zip(
        each(original), each(infill_spans(original, noise, MASK_7, rate=0.35, span=3.5)), strict=True
    ):
        assert len(after) <= len(before)
        assert after[0] == 0
        assert after.count(2) == before.count(2)
        remaining = iter(before)
        assert all(token in remaining for token in after if token != 7)  # in the same order


def test_noise_of_an_example_does_not_depend_on_the_others() -> None:
    objective, text = Denoising(), text_of(6)
    noise = KeyedRandom([1], 0, 6)
    whole = each(objective.corrupt(text, noise, SPECIAL).inputs["ids"])
    chosen = np.asarray([4, 1])
    some = objective.corrupt(TokenizedExamples([text.ids[4], text.ids[1]]), noise.select(chosen), SPECIAL)
    assert each(some.inputs["ids"]) == [whole[4], whole[1]]


def test_settings_turn_the_noise_off() -> None:
    quiet = replace(Denoising(), rate=0.0, permute=False)
    found = corrupted(quiet, text_of(5)).inputs["ids"]
    assert each(found) == each(text_of(5).sequences())


def test_the_decoder_reads_what_comes_before_each_target() -> None:
    shifted = shift_targets(Sequences(np.asarray([4, 3]), {"ids": np.asarray([0, 5, 6, 2, 0, 7, 2])}))
    assert shifted.lengths_N.tolist() == [3, 2]
    assert shifted.tokens["decoder_ids"].tolist() == [0, 5, 6, 0, 7]
    assert shifted.tokens["targets"].tolist() == [5, 6, 2, 7, 2]
    assert shifted.tokens["predicted"].all()
