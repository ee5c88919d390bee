"""Every epoch has each feature once, for any world size and micro-batch size. A step depends on its number alone."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.finetune.classification import ClassificationTaskType
from crossling.finetune.features import SequenceBuilder
from crossling.finetune.finetune_training import FeatureBatches
from crossling.finetune.task_type import TaskConfig
from crossling.tasks.examples import ClassificationExample

from .tiny_tasks import make_tokenizer

LABELS = tuple(str(number) for number in range(40))
TASK = ClassificationTaskType(
    TaskConfig(head_type="classification", labels=LABELS, length=32),
    SequenceBuilder(make_tokenizer(), has_token_types=False),
)


def make_batches(
    size: int, batch: int, seed: int = 0, micro_tokens: int = 64, rank: int = 0, world_size: int = 1
) -> FeatureBatches:
    """Return batches of examples whose labels are their numbers."""
    examples = [ClassificationExample(str(row), ("red " * (1 + row % 7),), str(row)) for row in range(size)]
    features = TASK.build_features(examples, with_targets=True)
    return FeatureBatches(
        TASK, features, batch=batch, seed=seed, micro_tokens=micro_tokens, rank=rank, world_size=world_size
    )


def example_numbers(batches: FeatureBatches, step: int) -> list[int]:
    return [number for _, batch in batches[step].micro_batches for number in batch["targets"].tolist()]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 3))
def test_an_epoch_has_every_feature_once(size: int, batch: int, seed: int) -> None:
    found = make_batches(size, batch, seed)
    epochs = 3
    steps = -(-epochs * size // batch)
    # A step is sorted by length, so the end of an epoch inside a step is not visible here.
    counts = Counter(chain.from_iterable(example_numbers(found, step) for step in range(steps)))
    assert set(counts) == set(range(size))
    assert all(epochs <= count <= epochs + -(-batch // size) for count in counts.values())
    assert sum(counts.values()) == steps * batch


@given(st.integers(4, 40), st.integers(4, 12), st.sampled_from([2, 3, 4]), st.sampled_from([8, 64, 10_000]))
def test_world_size_and_micro_batches_change_nothing(size: int, batch: int, world_size: int, micro: int) -> None:
    whole = make_batches(size, batch, micro_tokens=10_000)
    ranks = [make_batches(size, batch, 0, micro, rank, world_size) for rank in range(world_size)]
    for step in (0, 5):
        works = [each[step] for each in ranks]
        assert all(work.micro_batches for work in works)
        assert sorted(chain.from_iterable(example_numbers(each, step) for each in ranks)) == sorted(
            example_numbers(whole, step)
        )
        assert sum(work.counts["classification"] for work in works) == batch
        assert sum(work.tokens for work in works) == whole[step].tokens
        seeds = [seed for work in works for seed in work.seeds]
        assert len(set(seeds)) == len(seeds) == sum(len(work.micro_batches) for work in works)


def test_a_step_does_not_depend_on_the_steps_before() -> None:
    one, other = make_batches(17, 4), make_batches(17, 4)
    for step in range(20):
        one[step]
    assert example_numbers(one, 20) == example_numbers(other, 20)
    assert one[20].seeds == other[20].seeds
    assert example_numbers(make_batches(17, 4, seed=1), 20) != example_numbers(other, 20)


def test_epochs_and_seeds_have_different_orders() -> None:
    orders = [
        [example_numbers(make_batches(17, 1, seed), step)[0] for step in range(start, start + 17)]
        for seed, start in ((0, 0), (0, 17), (1, 0))
    ]
    assert all(sorted(order) == list(range(17)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_features_of_a_micro_batch_have_similar_lengths() -> None:
    work = make_batches(40, 40, micro_tokens=64)[0]
    lengths = [batch["attention_mask"].sum(1).tolist() for _, batch in work.micro_batches]
    assert len(lengths) > 2
    assert list(chain.from_iterable(lengths)) == sorted(chain.from_iterable(lengths), reverse=True)
    assert work.micro_batches[-1][1]["input_ids"].shape[1] <= 8


def test_a_batch_smaller_than_the_world_size_is_refused() -> None:
    with pytest.raises(BadInput, match="a batch of 2 is too small for 3 processes"):
        make_batches(10, 2, world_size=3)
