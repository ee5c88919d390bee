"""Batches in phases: a phase changes masking and sampling from its first step on, and nothing before it."""

from __future__ import annotations

from collections import Counter

import pytest

from crossling.core.errors import BadInput
from crossling.data.batches import Batches, DataObjective
from crossling.data.phased_batches import PhasedBatches
from crossling.sampling import Sampling

from .batch_helpers import Reader, bitext, is_same, scalars, sequences, shards_of

TEXT = {"de": [5] * 60, "en": [5] * 200, "sw": [5] * 40}
OBJECTIVES: dict[str, DataObjective] = {"text": Reader(length=6, number=20)}
EARLY, LATE = Sampling(languages="de,en", text_alpha=1.0), Sampling(text_alpha=0.0)
UNIFORM = dict.fromkeys(TEXT, 1 / 3)


def in_two_phases(start: int = 4, rank: int = 0, world_size: int = 1) -> PhasedBatches:
    first = Batches(
        *(shards_of(TEXT), OBJECTIVES, EARLY),
        seed=7,
        micro_tokens=30,
        rank=rank,
        world_size=world_size,
        later=[LATE],
    )
    return PhasedBatches([(0, first), (start, first.next_phase(OBJECTIVES, {"text": UNIFORM}, start))])


def languages(batches: PhasedBatches, steps: range) -> Counter[str]:
    groups = [batches._phase(step).samplers["text"][step][0].tolist() for step in steps]
    return Counter(batches.phases[0].groups["text"][group].name for step in groups for group in step)


def test_a_late_language_is_sampled_from_its_phase_on() -> None:
    batches = in_two_phases()
    assert {*languages(batches, range(4))} == {"de", "en"}
    late = languages(batches, range(4, 34))
    assert {name: count / 600 for name, count in late.items()} == pytest.approx(UNIFORM, abs=0.01)


def test_a_late_phase_changes_no_earlier_step() -> None:
    plain = Batches(shards_of(TEXT), OBJECTIVES, EARLY, seed=7, micro_tokens=30)
    batches = in_two_phases()
    assert all(is_same(batches[step], plain[step]) for step in range(4))
    assert not is_same(batches[4], plain[4])


def test_steps_may_be_read_in_any_order() -> None:
    one, other = in_two_phases(), in_two_phases()
    backward = {step: other[step] for step in reversed(range(8))}
    assert all(is_same(one[step], backward[step]) for step in range(8))


def test_no_example_is_repeated_before_all_of_its_language_are_read() -> None:
    batches = in_two_phases()
    german = [
        ids for step in range(9) for ids in sequences(batches[step]) if ids[1] < 1_000_000  # ids of German
    ]  # fmt: skip
    assert 35 < len(german) < 60
    assert len({*german}) == len(german)


def test_processes_read_the_parts_of_the_same_steps() -> None:
    one = in_two_phases()
    two = [in_two_phases(rank=rank, world_size=2) for rank in range(2)]
    for step in (3, 4, 5):
        together = sorted(ids for batches in two for ids in sequences(batches[step]))
        assert together == sorted(sequences(one[step]))


def test_alternating_phases_start_at_the_next_step_of_each_stream() -> None:
    objectives: dict[str, DataObjective] = {
        "text": Reader(length=6, number=20),
        "pairs": Reader("pairs", 24, number=10),
    }
    shards = shards_of(
        {"en": [5] * 90}, [bitext(n, pair, [4] * 40, [5] * 40) for n, pair in enumerate(("de-en", "en-sw"))]
    )
    sampling = Sampling(languages="de,en")
    first = Batches(shards, objectives, sampling, seed=7, micro_tokens=10**9, alternate=True, later=[Sampling()])
    new = {"text": {"en": 1.0}, "pairs": {"corpus0 de-en": 0.0, "corpus1 en-sw": 1.0}}
    batches = PhasedBatches([(0, first), (4, first.next_phase(objectives, new, 4))])  # type: ignore[arg-type]
    corpora = [{row >> 40 for row in scalars(batches[step], "row")} for step in (1, 3, 5, 7)]
    assert corpora == [{0}, {0}, {1}, {1}]
    text = [ids for step in range(0, 8, 2) for ids in sequences(batches[step])]
    assert len({*text}) == len(text) == 80


def test_a_phase_without_data_is_refused() -> None:
    with pytest.raises(BadInput, match="no text in de in these shards"):
        Batches(
            shards_of({"en": [5] * 9}, [bitext(0, "de-en", [4], [4])]),
            OBJECTIVES,
            Sampling(),
            seed=0,
            micro_tokens=99,
            later=[Sampling(languages="de")],
        )
