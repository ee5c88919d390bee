"""The work of a step is a function of seed and step alone; every epoch has each pair once; little is padding."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.errors import BadInput
from crossling.finetune.translation.feed import SUMS, BitextFeed

START, END, PAD = 0, 2, 1


def make_feed(
    lengths: list[tuple[int, int]], tokens: int, processes: int = 1, rank: int = 0, **changes: int
) -> BitextFeed:
    """Sentence n has tokens that tell its number: 100 + n in the source, 500 + n in the target."""
    sources = [np.full(length, 100 + n, dtype=np.int32) for n, (length, _) in enumerate(lengths)]
    targets = [np.append(np.full(length, 500 + n), END).astype(np.int32) for n, (_, length) in enumerate(lengths)]
    options = {"seed": 3, "micro_tokens": 64, "longest": 64} | changes
    return BitextFeed(sources, targets, tokens, start=START, pad=PAD, rank=rank, processes=processes, **options)


LENGTHS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=40)


@given(LENGTHS, st.integers(1, 100), st.integers(0, 3))
def test_an_epoch_has_every_pair_once_and_no_step_is_empty(
    lengths: list[tuple[int, int]], tokens: int, epoch: int
) -> None:
    tokens = max(tokens, max(max(pair) for pair in lengths) + 1)
    feed = make_feed(lengths, tokens)
    seen: Counter[int] = Counter()
    for step in range(epoch * feed.steps_of_epoch, (epoch + 1) * feed.steps_of_epoch):
        work = feed[step]
        assert work.micro
        for _, batch in work.micro:
            seen.update((batch["input_ids"][:, 0] - 100).tolist())
            assert torch.equal(batch["input_ids"][:, 0] + 400, batch["decoder_input_ids"][:, 1])
    assert seen == Counter(range(len(lengths)))


@given(LENGTHS, st.integers(21, 100))
def test_targets_stand_where_they_are_to_be_said(lengths: list[tuple[int, int]], tokens: int) -> None:
    feed = make_feed(lengths, tokens)
    for _, batch in feed[0].micro:
        read = batch["decoder_input_ids"]
        said = torch.full_like(read, PAD).flatten()
        said[batch["targets_at"]] = batch["targets"]
        for row_read, row_said in zip(read.tolist(), said.view_as(read).tolist(), strict=True):
            length = row_said.index(END) + 1
            assert row_read[:length] == [START, *row_said[: length - 1]]
            assert row_read[length:] == [PAD] * (len(row_read) - length)
            assert row_said[length:] == [PAD] * (len(row_read) - length)


def test_counts_are_target_tokens_and_tokens_are_both_sides() -> None:
    work = make_feed([(3, 4), (5, 2)], 100)[0]
    assert work.counts == dict.fromkeys(SUMS, 5 + 3)
    assert work.tokens == 3 + 5 + 5 + 3


def test_processes_share_a_step_that_is_the_same_for_any_number_of_them() -> None:
    lengths = [(n % 7 + 1, n % 5 + 1) for n in range(60)]
    alone = make_feed(lengths, 90, micro_tokens=1000)
    two = [make_feed(lengths, 90, 2, rank, micro_tokens=1000) for rank in range(2)]
    for step in range(8):
        rows = [row for _, batch in alone[step].micro for row in batch["input_ids"][:, 0].tolist()]
        parts = [[batch["input_ids"][:, 0].tolist() for _, batch in feed[step].micro] for feed in two]
        assert all(parts)
        assert sorted(row for part in parts for micro in part for row in micro) == sorted(rows)


def test_the_same_step_is_the_same_work_and_another_seed_is_another() -> None:
    lengths = [(n % 7 + 1, n % 5 + 1) for n in range(60)]
    one, same, other = make_feed(lengths, 60), make_feed(lengths, 60), make_feed(lengths, 60, seed=4)
    for step in (5, 0, 17):
        for (_, mine), (_, its) in zip(one[step].micro, same[step].micro, strict=True):
            assert all(torch.equal(mine[name], its[name]) for name in mine)
        assert one[step].seeds == same[step].seeds
    assert any(
        not torch.equal(one[step].micro[0][1]["input_ids"], other[step].micro[0][1]["input_ids"]) for step in range(3)
    )


def test_steps_hold_about_as_many_tokens_and_sentences_of_one_length() -> None:
    rng = np.random.default_rng(0)
    lengths = [(int(a), int(a)) for a in rng.integers(2, 60, 2000)]
    feed = make_feed(lengths, 2000, micro_tokens=10**9)
    padding = filled = 0
    for step in range(feed.steps_of_epoch):
        [(_, batch)] = feed[step].micro
        longer = feed[step].counts[SUMS[0]]
        assert 0.85 * 2000 < longer < 1.15 * 2000
        padding += int((batch["input_ids"] == PAD).sum())
        filled += int((batch["input_ids"] != PAD).sum())
    assert padding < 0.2 * filled


def test_micro_batches_hold_no_more_than_they_may() -> None:
    feed = make_feed([(8, 7)] * 64, 256, micro_tokens=64)
    work = feed[0]
    assert len(work.micro) == len(work.seeds) > 1
    assert all(batch["input_ids"].numel() + batch["decoder_input_ids"].numel() <= 64 + 16 for _, batch in work.micro)


def test_rows_are_no_wider_than_the_model_reads() -> None:
    [(_, batch)] = make_feed([(11, 9)], 100, longest=11, micro_tokens=1000)[0].micro
    assert batch["input_ids"].shape == (1, 11)


def test_fewer_pairs_than_processes_are_refused() -> None:
    with pytest.raises(BadInput, match="more tokens, or start fewer processes"):
        make_feed([(5, 5)], 100, processes=2)
