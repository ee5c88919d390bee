"""Every feature once in each epoch, whatever the processes and the micro-batches; a step by its number alone."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transfer.toys import make_tokenizer

from crossling.benchmarks.examples import Classified
from crossling.errors import BadInput
from crossling.finetune.feed import FeatureFeed
from crossling.transfer.classification import Classification
from crossling.transfer.family import Form
from crossling.transfer.frame import Frame

LABELS = tuple(str(number) for number in range(40))
FAMILY = Classification(Form("classification", LABELS, 32), Frame(make_tokenizer(), typed=False))


def feed(size: int, batch: int, seed: int = 0, micro: int = 64, rank: int = 0, processes: int = 1) -> FeatureFeed:
    """The label of each example is its number."""
    examples = [Classified(str(row), ("red " * (1 + row % 7),), str(row)) for row in range(size)]
    return FeatureFeed(FAMILY, FAMILY.features(examples, targets=True), batch, seed, micro, rank, processes)


def seen(feed: FeatureFeed, step: int) -> list[int]:
    return [number for _, batch in feed[step].micro for number in batch["targets"].tolist()]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 3))
def test_an_epoch_holds_every_feature_once(size: int, batch: int, seed: int) -> None:
    found = feed(size, batch, seed)
    epochs = 3
    steps = -(-epochs * size // batch)
    # Within a step the order is by length, so that where an epoch ends inside one is not seen from here.
    counts = Counter(chain.from_iterable(seen(found, step) for step in range(steps)))
    assert set(counts) == set(range(size))
    assert all(epochs <= count <= epochs + -(-batch // size) for count in counts.values())
    assert sum(counts.values()) == steps * batch


@given(st.integers(4, 40), st.integers(4, 12), st.sampled_from([2, 3, 4]), st.sampled_from([8, 64, 10_000]))
def test_processes_and_micro_batches_change_nothing(size: int, batch: int, processes: int, micro: int) -> None:
    whole = feed(size, batch, micro=10_000)
    ranks = [feed(size, batch, 0, micro, rank, processes) for rank in range(processes)]
    for step in (0, 5):
        works = [each[step] for each in ranks]
        assert all(work.micro for work in works)
        assert sorted(chain.from_iterable(seen(each, step) for each in ranks)) == sorted(seen(whole, step))
        assert sum(work.counts["classification"] for work in works) == batch
        assert sum(work.tokens for work in works) == whole[step].tokens
        seeds = [seed for work in works for seed in work.seeds]
        assert len(set(seeds)) == len(seeds) == sum(len(work.micro) for work in works)


def test_a_step_does_not_depend_on_those_before() -> None:
    one, other = feed(17, 4), feed(17, 4)
    for step in range(20):
        one[step]
    assert seen(one, 20) == seen(other, 20)
    assert one[20].seeds == other[20].seeds
    assert seen(feed(17, 4, seed=1), 20) != seen(other, 20)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [
        [seen(feed(17, 1, seed), step)[0] for step in range(start, start + 17)]
        for seed, start in ((0, 0), (0, 17), (1, 0))
    ]
    assert all(sorted(order) == list(range(17)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_features_of_a_micro_batch_are_of_like_length() -> None:
    work = feed(40, 40, micro=64)[0]
    lengths = [batch["attention_mask"].sum(1).tolist() for _, batch in work.micro]
    assert len(lengths) > 2
    assert list(chain.from_iterable(lengths)) == sorted(chain.from_iterable(lengths), reverse=True)
    assert work.micro[-1][1]["input_ids"].shape[1] <= 8


def test_a_batch_smaller_than_the_processes_is_refused() -> None:
    with pytest.raises(BadInput, match="a batch of 2 is too small for 3 processes"):
        feed(10, 2, processes=3)
