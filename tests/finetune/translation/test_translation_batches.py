"""Batches depend on seed and step alone, every epoch has each pair once, and the loss equals that of a slow loop."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.data.shards import TokenizedBitext, TokenizedSentences, count_sentences
from crossling.finetune.supervised_training import metric_names
from crossling.finetune.translation import translation_batches
from crossling.finetune.translation.parallel_text import parse_directions
from crossling.finetune.translation.translation_batches import LOSS_NAME, TranslationBatches, TranslationObjective
from crossling.finetune.translation.translation_pairs import DirectedBitext, TranslationPairs
from crossling.model.encoder_decoder import CrosslingForConditionalGeneration, encoder_decoder_from_encoder

from ..tiny_tasks import make_model

METRIC_NAMES = metric_names(LOSS_NAME)
START, END, PAD = 0, 2, 1


def store(sentences: list[list[int]]) -> TokenizedSentences:
    """Return sentences as shards have them: each ends in </s>."""
    with_end = [[*ids, 2] if ids else [] for ids in sentences]
    offsets = np.cumsum([0, *map(len, with_end)])
    return TokenizedSentences(np.asarray([token for ids in with_end for token in ids], dtype=np.uint16), offsets)


def make_group(
    sources: list[list[int]],
    targets: list[list[int]],
    direction: str = "en-de",
    before: tuple[int, ...] = (),
    after: tuple[int, ...] = (),
) -> DirectedBitext:
    sides = store(sources), store(targets)
    pairs = count_sentences(*sides)
    bitext = TokenizedBitext(corpus="toy", languages=("en", "de"), sides=sides, pairs=pairs, corpus_id=0)
    [parsed] = parse_directions(direction)
    specials = [np.asarray(ids, dtype=np.int64) for ids in (before, after)]
    return DirectedBitext(direction=parsed, bitext=bitext, before=specials[0], after=specials[1], end=END)


def make_batches(
    lengths: list[tuple[int, int]], tokens: int, world_size: int = 1, rank: int = 0, **changes: Any
) -> TranslationBatches:
    """Return batches in which sentence n consists of the token 100 + n in the source, 500 + n in the target."""
    group = make_group(
        [[100 + n] * length for n, (length, _) in enumerate(lengths)],
        [[500 + n] * length for n, (_, length) in enumerate(lengths)],
    )
    options = {"seed": 3, "micro_tokens": 64, "length": 64, "max_length": 64, "groups": [group]} | changes
    return TranslationBatches(
        TranslationPairs(options.pop("groups")),
        tokens=tokens,
        start_token=START,
        pad_token=PAD,
        rank=rank,
        world_size=world_size,
        **options,
    )


LENGTHS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=40)


@given(LENGTHS, st.integers(1, 100), st.integers(0, 3))
def test_an_epoch_has_every_pair_once_and_no_step_is_empty(
    lengths: list[tuple[int, int]], tokens: int, epoch: int
) -> None:
    tokens = max(tokens, max(max(pair) for pair in lengths) + 1)
    batches = make_batches(lengths, tokens)
    seen: Counter[int] = Counter()
    for step in range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch):
        work = batches[step]
        assert work.micro_batches
        for _, batch in work.micro_batches:
            seen.update((batch["input_ids"][:, 0] - 100).tolist())
            assert torch.equal(batch["input_ids"][:, 0] + 400, batch["decoder_input_ids"][:, 1])
    assert seen == Counter(range(len(lengths)))


@given(LENGTHS, st.integers(21, 100))
def test_targets_are_at_the_positions_that_predict_them(lengths: list[tuple[int, int]], tokens: int) -> None:
    batches = make_batches(lengths, tokens)
    for _, batch in batches[0].micro_batches:
        read = batch["decoder_input_ids"]
        expected = torch.full_like(read, PAD).flatten()
        expected[batch["targets_at"]] = batch["targets"]
        for row_read, row_expected in zip(read.tolist(), expected.view_as(read).tolist(), strict=True):
            length = row_expected.index(END) + 1
            assert row_read[:length] == [START, *row_expected[: length - 1]]
            assert row_read[length:] == [PAD] * (len(row_read) - length)
            assert row_expected[length:] == [PAD] * (len(row_read) - length)


def test_counts_are_target_tokens_and_tokens_are_both_sides() -> None:
    work = make_batches([(3, 4), (5, 2)], 100)[0]
    assert work.counts == dict.fromkeys(METRIC_NAMES, 5 + 3)
    assert work.tokens == 3 + 5 + 5 + 3


def test_a_step_is_the_same_for_any_world_size() -> None:
    lengths = [(n % 7 + 1, n % 5 + 1) for n in range(60)]
    single = make_batches(lengths, 90, micro_tokens=1000)
    two = [make_batches(lengths, 90, 2, rank, micro_tokens=1000) for rank in range(2)]
    for step in range(8):
        rows = [row for _, batch in single[step].micro_batches for row in batch["input_ids"][:, 0].tolist()]
        parts = [[batch["input_ids"][:, 0].tolist() for _, batch in batches[step].micro_batches] for batches in two]
        assert all(parts)
        assert sorted(row for part in parts for micro in part for row in micro) == sorted(rows)


def test_steps_depend_on_step_and_seed_alone() -> None:
    lengths = [(n % 7 + 1, n % 5 + 1) for n in range(60)]
    one, same, other = make_batches(lengths, 60), make_batches(lengths, 60), make_batches(lengths, 60, seed=4)
    for step in (5, 0, 17):
        for (_, first), (_, second) in zip(one[step].micro_batches, same[step].micro_batches, strict=True):
            assert all(torch.equal(first[name], second[name]) for name in first)
        assert one[step].seeds == same[step].seeds
    assert any(
        not torch.equal(one[step].micro_batches[0][1]["input_ids"], other[step].micro_batches[0][1]["input_ids"])
        for step in range(3)
    )


def test_steps_have_about_equally_many_tokens_and_little_padding() -> None:
    rng = np.random.default_rng(0)
    lengths = [(int(a), int(a)) for a in rng.integers(2, 60, 2000)]
    batches = make_batches(lengths, 2000, micro_tokens=10**9)
    padding = filled = 0
    for step in range(batches.steps_per_epoch):
        [(_, batch)] = batches[step].micro_batches
        longer = batches[step].counts[METRIC_NAMES[0]]
        assert 0.85 * 2000 < longer < 1.15 * 2000
        padding += int((batch["input_ids"] == PAD).sum())
        filled += int((batch["input_ids"] != PAD).sum())
    assert padding < 0.2 * filled


def test_micro_batches_have_at_most_micro_tokens() -> None:
    batches = make_batches([(8, 7)] * 64, 256, micro_tokens=64)
    work = batches[0]
    assert len(work.micro_batches) == len(work.seeds) > 1
    assert all(
        batch["input_ids"].numel() + batch["decoder_input_ids"].numel() <= 64 + 16 for _, batch in work.micro_batches
    )


def test_rows_are_at_most_as_wide_as_the_model_reads() -> None:
    [(_, batch)] = make_batches([(11, 9)], 100, max_length=11, micro_tokens=1000)[0].micro_batches
    assert batch["input_ids"].shape == (1, 11)


def test_fewer_pairs_than_processes_per_step_are_refused() -> None:
    with pytest.raises(BadInput, match="Set more tokens, or start fewer processes"):
        make_batches([(5, 5)], 100, world_size=2)


def test_every_micro_batch_has_its_own_dropout_seed() -> None:
    batches = make_batches([(8, 7)] * 64, 256, micro_tokens=64)
    seeds = [seed for step in range(3) for seed in batches[step].seeds]
    assert len(batches[0].seeds) > 1
    assert len({*seeds}) == len(seeds)


# ---- megabatches and directions ---------------------------------------------------------------------------------


@pytest.fixture
def small_megabatches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_batches, "MEGABATCH_PAIRS", 60)


def sources_of(batches: TranslationBatches, steps: range) -> list[int]:
    """Return the first token of each source in some steps."""
    work = [each for step in steps for each in batches[step].micro_batches]
    return [int(token) for _, batch in work for token in batch["input_ids"][:, 0]]


@pytest.mark.usefixtures("small_megabatches")
def test_megabatches_read_every_pair_once_before_any_is_repeated() -> None:
    lengths = [(n % 9 + 1, n % 7 + 1) for n in range(300)]
    batches = make_batches(lengths, 60)
    assert 1 < batches.megabatch_steps < batches.steps_per_epoch / 4
    megabatches = batches.steps_per_epoch // batches.megabatch_steps
    read = Counter(sources_of(batches, range(megabatches * batches.megabatch_steps)))
    assert len(read) > 200
    assert max(read.values()) == 1
    read = Counter(sources_of(batches, range(2 * batches.steps_per_epoch)))
    assert len(read) == 300
    assert max(read.values()) <= 3
    tokens = [batches[step].counts[METRIC_NAMES[0]] for step in range(batches.steps_per_epoch)]
    assert max(tokens) < 1.6 * 60


@pytest.mark.usefixtures("small_megabatches")
def test_processes_read_disjoint_pairs_of_any_step_in_any_order() -> None:
    lengths = [(n % 9 + 1, n % 7 + 1) for n in range(300)]
    single = make_batches(lengths, 60)
    for step in (31, 2, 17):
        parts = [
            sources_of(make_batches(lengths, 60, 3, rank, micro_tokens=30), range(step, step + 1)) for rank in range(3)
        ]
        assert all(parts)
        assert max(Counter(source for part in parts for source in part).values()) == 1
        assert sources_of(single, range(step, step + 1)) == sources_of(make_batches(lengths, 60), range(step, step + 1))


@pytest.mark.parametrize(("alpha", "expected"), [(1.0, 0.9), (0.5, 0.75), (0.0, 0.5)])
def test_directions_are_sampled_by_temperature(alpha: float, expected: float) -> None:
    """Two corpora of en-de have 900 pairs together, and de-en has 100."""
    groups = [
        make_group([[100]] * 600, [[101]] * 600),
        make_group([[100]] * 300, [[101]] * 300),
        make_group([[100]] * 100, [[101]] * 100, "de-en"),
    ]
    batches = make_batches([], 40, groups=groups, pair_alpha=alpha)
    read = sources_of(batches, range(batches.steps_per_epoch))
    assert read.count(100) / len(read) == pytest.approx(expected, abs=0.01)


def test_a_direction_swaps_the_sides_and_has_its_own_special_tokens() -> None:
    forward, backward = (
        make_group([[5, 6]], [[7]], before=(0, 30), after=(2,)),
        make_group([[5, 6]], [[7]], "de-en", (0,)),
    )
    assert [ids.tolist() for ids in forward.pair(0)] == [[0, 30, 5, 6, 2], [7, END]]
    assert [ids.tolist() for ids in backward.pair(0)] == [[0, 7], [5, 6, END]]
    assert [n.tolist() for n in forward.lengths(np.asarray([0]))] == [[5], [2]]
    assert [n.tolist() for n in backward.lengths(np.asarray([0]))] == [[2], [3]]


def test_rows_without_a_side_are_never_read() -> None:
    group = make_group([[100 + n] if n % 3 else [] for n in range(60)], [[500] if n % 5 else [] for n in range(60)])
    batches = make_batches([], 8, groups=[group])
    read = sources_of(batches, range(batches.steps_per_epoch))
    assert sorted(read) == [100 + n for n in range(60) if n % 3 and n % 5]


def test_pairs_that_are_too_long_are_skipped() -> None:
    batches = make_batches([(n, 3) for n in range(1, 41)], 30, length=20)
    assert batches.fitting == 0.5
    read = sources_of(batches, range(batches.steps_per_epoch))
    assert sorted(read) == [100 + n for n in range(20)]
    with pytest.raises(BadInput, match="length 8: all sentence pairs are longer"):
        make_batches([(9, 3)], 30, length=8)


# ---- loss ---------------------------------------------------------------------------------------------------

PAIRS = [([0, 5, 6, 2], [7, 2]), ([0, 9, 2], [4, 5, 6, 7, 8, 2]), ([0, 9, 10, 11, 12, 13, 2], [20, 2])]


@pytest.fixture(scope="module")
def model() -> CrosslingForConditionalGeneration:
    model = encoder_decoder_from_encoder(make_model(), None).eval()  # type: ignore[arg-type]
    torch.manual_seed(1)
    torch.nn.init.normal_(model.lm_head.bias_V)
    return model


def batch_of_pairs() -> dict[str, torch.Tensor]:
    sources, targets = ([ids[1:-1] for ids, _ in PAIRS], [ids[:-1] for _, ids in PAIRS])
    group = make_group(sources, targets, before=(0,), after=(2,))
    batches = make_batches([], 100, groups=[group], micro_tokens=1000)
    [(_, batch)] = batches[0].micro_batches
    return batch


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_loss_equals_that_of_a_slow_loop(model: CrosslingForConditionalGeneration, smoothing: float) -> None:
    with torch.no_grad():
        sums = TranslationObjective(smoothing).loss(SimpleNamespace(encoder=model), batch_of_pairs())
    loss, correct = loss_by_loop(model, smoothing)
    assert float(sums[METRIC_NAMES[0]]) == pytest.approx(loss, rel=1e-5)
    assert int(sums[METRIC_NAMES[1]]) == correct


def loss_by_loop(model: CrosslingForConditionalGeneration, smoothing: float) -> tuple[float, int]:
    """Compute loss and correct predictions one pair, one token and one logit at a time."""
    loss, correct = 0.0, 0
    for source, target in PAIRS:
        for position, token in enumerate(target):
            with torch.no_grad():
                output = model(torch.tensor([source]), decoder_input_ids=torch.tensor([[START, *target[:position]]]))
            logits = output.logits[0, -1].double()
            logs = [float(value) for value in logits - torch.logsumexp(logits, 0)]
            loss += (1 - smoothing) * -logs[token] + smoothing * sum(-value for value in logs) / len(logs)
            correct += logs.index(max(logs)) == token
    return loss, correct


def test_gradients_reach_every_part(model: CrosslingForConditionalGeneration) -> None:
    model.zero_grad()
    sums = TranslationObjective(0.1).loss(SimpleNamespace(encoder=model), batch_of_pairs())
    sums[METRIC_NAMES[0]].backward()
    without = [name for name, values in model.named_parameters() if values.grad is None or not values.grad.any()]
    assert not [name for name in without if "cross" in name or "tokens" in name or "lm_head" in name]
