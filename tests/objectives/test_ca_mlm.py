"""CA-MLM against a slow loop written from VECO's equations 1 to 13, and how its pairs are made."""

from __future__ import annotations

import math
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
from crossling.data.packing import Batch
from crossling.objectives import CAMLM, CATLM, Network, PretrainingObjective
from crossling.objectives.ca_mlm import split_blocks

from . import slow
from .conftest import (
    MASK,
    VOCABULARY,
    WIDTH,
    corrupted,
    network,
    packed,
    pair_batch,
    pairs_of,
    split,
    text_batch,
    text_of,
    unpacked,
)

BOTH = pytest.mark.parametrize(
    ("objective", "make"),
    [(CAMLM(rate=0.4, keep=0.2, random=0.2), text_batch), (CATLM(rate=0.4), pair_batch)],
    ids=["adjacent segments", "translations"],
)
TERMS = ("x", "y", "x_cross", "y_cross")
DIFFERENT = (1.0, 2.0, -3.0, 5.0)  # so that no term can stand for another


def pairs_in(batch: Batch) -> list[tuple[Batch, Batch]]:
    """Both sides of each pair of a batch."""
    sequences = unpacked(batch)
    return list(zip(sequences[::2], sequences[1::2], strict=True))


def slow_terms(net: Network, batch: Batch, stop_gradient: bool) -> list[Tensor]:
    """- log P(x | x^), - log P(y | y^), - log P(x | y^, x^), - log P(y | x^, y^), one pair at a time."""
    terms = [torch.zeros((), dtype=torch.double) for _ in TERMS]

    def missing(hidden: Tensor, sequence: Batch, side: str) -> Tensor:
        p = slow.language_model(net.parts["lm_head"], hidden, slow.table(net.encoder))
        chosen = [i for i in range(len(p)) if sequence[f"{side}_masked"][i]]
        return sum((-torch.log(p[i, sequence["targets"][i]]) for i in chosen), torch.zeros(()))

    for x, y in pairs_in(batch):
        h_x, h_y = slow.states(net.encoder, x["ids"])[-1], slow.states(net.encoder, y["ids"])[-1]
        constant_x, constant_y = (h_x.detach(), h_y.detach()) if stop_gradient else (h_x, h_y)
        s_x = slow.states(net.encoder, x["ids"], paired_TD=constant_y)[-1]
        s_y = slow.states(net.encoder, y["ids"], paired_TD=constant_x)[-1]
        for k, (hidden, sequence, side) in enumerate([(h_x, x, "x"), (h_y, y, "y"), (s_x, x, "x"), (s_y, y, "y")]):
            terms[k] = terms[k] + missing(hidden, sequence, side)
    return terms


def total(terms: list[Tensor]) -> Tensor:
    return sum((weight * term for weight, term in zip(DIFFERENT, terms, strict=True)), torch.zeros(()))


def fast_terms(objective: CAMLM, net: Network, batch: Batch) -> list[Tensor]:
    sums = objective.loss(net, batch)
    return [sums[f"{objective.term}_{term}"] for term in TERMS]


@BOTH
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("stop_gradient", [True, False], ids=["constant", "with gradient"])
def test_the_four_terms_equal_the_equation_in_value_and_gradient(
    objective: CAMLM, make: Callable[[PretrainingObjective], Batch], norm: str, stop_gradient: bool
) -> None:
    objective = replace(objective, stop_gradient=stop_gradient)
    net = network(objective, cross_attention=True, norm=norm)
    batch = make(objective)
    assert batch["ids"].shape[0] < len(pairs_in(batch))  # packed: several pairs in a row
    found, expected = fast_terms(objective, net, batch), slow_terms(net, batch, stop_gradient)
    for one, other in zip(found, expected, strict=True):
        assert_close(one.double(), other, rtol=1e-5, atol=1e-4)
    slow.agree(net, total(found), total(expected))


@BOTH
def test_stop_gradient_changes_the_gradient(objective: CAMLM, make: Callable[[PretrainingObjective], Batch]) -> None:
    """Without it the stream S teaches H as well; the default stops it."""
    net, batch = network(objective, cross_attention=True), make(objective)
    assert objective.stop_gradient
    stopped, flowing = (
        slow.gradients(net, total(fast_terms(replace(objective, stop_gradient=stop), net, batch)))
        for stop in (True, False)
    )
    assert slow.differ(stopped, flowing)


def test_only_the_cross_terms_train_cross_attention() -> None:
    objective = CATLM(rate=0.4)
    net, batch = network(objective, cross_attention=True), pair_batch(objective)
    cross = {name for name, _ in net.named_parameters() if ".cross" in name}
    assert len(cross) == 3 * 8  # of each layer: query, keys and values, output, norm
    for term, learns in {"x": False, "y": False, "x_cross": True, "y_cross": True}.items():
        found = slow.gradients(net, objective.loss(net, batch)[f"ca_tlm_{term}"])
        assert {bool(found[name].any()) for name in cross} == {learns}


@BOTH
def test_logged_metrics(objective: CAMLM, make: Callable[[PretrainingObjective], Batch]) -> None:
    net, batch = network(objective, cross_attention=True), make(objective)
    with torch.no_grad():
        sums, expected = objective.loss(net, batch), slow_terms(net, batch, True)
    counts = objective.counts(batch)
    assert counts.keys() == sums.keys()
    for name, loss in zip(TERMS, expected, strict=True):
        number = int(batch[f"{name[0]}_masked"].sum())
        assert number > 0
        assert {counts[f"{objective.term}_{name}{what}"] for what in ("", "_accuracy", "_bound")} == {number}
        bound = number * math.log(VOCABULARY) - loss
        assert_close(sums[f"{objective.term}_{name}_bound"].double(), bound, rtol=1e-5, atol=1e-4)
        assert 0 <= sums[f"{objective.term}_{name}_accuracy"] <= number


def test_every_term_has_the_weight() -> None:
    assert CAMLM(weight=0.5).loss_weights == {f"ca_mlm_{term}": 0.5 for term in TERMS}
    assert CATLM().loss_weights == {f"ca_tlm_{term}": 1.0 for term in TERMS}


@pytest.mark.parametrize("stop_gradient", [True, False])
def test_micro_batches_change_nothing(stop_gradient: bool) -> None:
    objective = CATLM(rate=0.4, stop_gradient=stop_gradient)
    net, step = network(objective, cross_attention=True), corrupted(objective, pairs_of(7))
    assert not objective.has_in_batch_negatives
    in_parts = [total(fast_terms(objective, net, batch)) for batch in split(step, 2, 3)]
    slow.agree(net, sum(in_parts, torch.zeros(())), total(fast_terms(objective, net, packed(step))))


def read(batch: Batch, side: str) -> list[list[int]]:
    return [pair["xy".index(side)]["targets"].tolist() for pair in pairs_in(batch)]


def test_translations_are_the_two_streams() -> None:
    pairs = pairs_of(6)
    batch = packed(corrupted(CATLM(), pairs))
    assert read(batch, "x") == [[0, *ids.tolist()] for ids in pairs.ids]
    assert read(batch, "y") == [[0, *ids.tolist()] for ids in pairs.translation_ids]


def test_two_segments_of_a_block_are_the_two_streams() -> None:
    blocks = text_of(6)
    batch = packed(corrupted(CAMLM(), blocks))
    for block, x, y in zip(blocks.ids, read(batch, "x"), read(batch, "y"), strict=True):
        assert x[0] == y[0] == 0
        assert [*x[1:], *y[1:]] == block.tolist()


def test_both_sides_of_a_pair_are_in_one_row() -> None:
    batch = pair_batch(CATLM(), pairs=20)
    rows = [{*row[row > 0].tolist()} for row in batch["ids_segments"]]
    assert len(rows) > 3
    for numbers in rows:
        assert numbers == {each + side for each in numbers if each % 2 for side in (0, 1)}


def test_full_blocks_fill_rows() -> None:
    """The second <s> takes the position of the last token, or no two blocks would fill rows of their length."""
    block = np.append(np.full(WIDTH - 2, 7), 2)
    batch = packed(corrupted(CAMLM(length=WIDTH), TokenizedExamples([block] * 4)))
    assert batch["ids"].shape == (4, WIDTH)
    assert (batch["ids_segments"] > 0).all()
    assert [[*x, *y] for x, y in zip(read(batch, "x"), read(batch, "y"), strict=True)] == [
        [0, *[7] * (WIDTH // 2 - 1), 0, *[7] * (WIDTH // 2 - 1)]
    ] * 4


def test_the_two_streams_are_masked_independently() -> None:
    """Also where both are the same text: no position is masked in one because it is in the other."""
    same = [np.append(np.full(14, 7), 2)] * 400
    batch = packed(corrupted(CATLM(rate=0.25), TokenizedExamples(same, same)))
    pairs = pairs_in(batch)
    x, y = (torch.cat([pair[side][f"{name}_masked"] for pair in pairs]) for side, name in enumerate("xy"))
    assert x.shape == y.shape
    assert int(x.sum()) / 5600 == pytest.approx(0.25, abs=0.01)
    assert int(y.sum()) / 5600 == pytest.approx(0.25, abs=0.01)
    assert int((x & y).sum()) / 5600 == pytest.approx(0.25**2, abs=0.015)


def test_chosen_tokens_are_masked_kept_or_random() -> None:
    batch = packed(corrupted(CATLM(rate=0.5, keep=0.3, random=0.2), pairs_of(200)))
    for side in "xy":
        chosen = batch[f"{side}_masked"]
        shown, original = batch["ids"][chosen], batch["targets"][chosen]
        assert (shown == MASK).float().mean().item() == pytest.approx(0.5, abs=0.06)
        assert (shown == original).float().mean().item() == pytest.approx(0.3, abs=0.06)
    unchanged = ~(batch["x_masked"] | batch["y_masked"])
    assert torch.equal(batch["ids"][unchanged], batch["targets"][unchanged])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.booleans())
def test_a_block_is_split_at_the_sentence_end_nearest_to_its_middle(lengths: list[int], ended: bool) -> None:
    block = [i for words in lengths for i in [*[7] * words, 2]]
    block = block if ended else block[:-1]  # a long sentence may continue in the next block
    halves = split_blocks(TokenizedExamples([np.array(block)]), len(block), eos=2)
    [first], [second] = halves.ids, halves.translation_ids
    assert [*first, *second] == block
    ends = [i + 1 for i, token in enumerate(block[:-1]) if token == 2]
    if ends:
        assert len(first) in ends
        assert abs(len(first) - len(block) / 2) == min(abs(end - len(block) / 2) for end in ends)
    else:
        assert len(first) == len(block) // 2


def test_a_block_is_not_split_at_its_end() -> None:
    """Both parts hold something, even if the last sentence end is the nearest to the middle."""
    halves = split_blocks(
        TokenizedExamples([np.array([5, 6, 7, 8, 2]), np.array([5, 2, 6, 6, 6, 6, 6, 6, 2])]), 9, eos=2
    )
    assert [part.tolist() for part in halves.ids] == [[5, 6], [5, 2]]
    assert [part.tolist() for part in halves.translation_ids] == [[7, 8, 2], [6, 6, 6, 6, 6, 6, 2]]


def test_the_paper_masks_pairs_more_than_text() -> None:
    assert (CAMLM().rate, CATLM().rate) == (0.15, 0.25)
