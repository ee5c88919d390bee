"""What a plan says reaches what it is said to: the engine, the loss, the decoder, the scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from crossling.errors import BadInput, Failed
from crossling.finetune import unit
from crossling.finetune.translation import training, tuning
from crossling.finetune.translation.plan import Plan
from crossling.finetune.translation.start import begin
from crossling.finetune.translation.training import Job
from crossling.translation.directions import directions
from crossling.translation.parallel import read
from translation.test_feed import make_feed

PLAN = Plan(
    lr=3e-4,
    steps=50,
    tokens=128,
    warmup=7,
    weight_decay=0.03,
    clip=0.7,
    label_smoothing=0.15,
    dropout=0.25,
    average=4,
    patience=6,
    dev_rows=3,
    dev_beam=2,
    length_penalty=0.6,
    seed=9,
    checkpoint_every=5,
    log_every=11,
)
BOTH = directions("en-de,de-en")


@pytest.fixture(scope="module")
def job(encoder: Path, data: Path) -> Job:
    return Job(begin(encoder, BOTH, False), BOTH, read(data, BOTH))


@pytest.fixture
def made(job: Job) -> training._Training:
    return training._Training(job, job.start.settled(PLAN), torch.device("cpu"))


# ---- of training --------------------------------------------------------------------------------------------


def test_the_engine_is_told_what_the_plan_says(
    made: training._Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}

    class Engine:
        step = 50

        def __init__(
            self, net: Any, objectives: Any, feed: Any, adam: Any, schedule: Any, *_: Any, **more: Any
        ) -> None:
            told.update(net=net, objectives=objectives, feed=feed, adam=adam, schedule=schedule, **more)

        def fit(self) -> None:
            pass

    monkeypatch.setattr(training, "Trainer", Engine)
    assert made.fit(tmp_path / "work") == 50
    assert told["net"].encoder is made.model
    assert {name: each.smoothing for name, each in told["objectives"].items()} == {"translation": 0.15}
    adam, schedule, feed = told["adam"], told["schedule"], told["feed"]
    assert (adam.warmup, adam.decay, adam.clip, adam.beta2) == (7, 0.03, 0.7, 0.98)
    assert (schedule.steps, schedule.lr, schedule.seed) == (50, 3e-4, 9)
    assert (schedule.log_every, schedule.checkpoint_every, schedule.probe_every) == (11, 5, 5)
    assert (told["keep"], told["patience"], told["scores"]) == (4, 6, ["probe/dev"])
    assert (feed.seed, feed.micro_tokens) == (9, PLAN.micro_tokens)
    monkeypatch.setattr(made, "_measured", lambda translator: translator)
    assert told["probe"](None) is made.translator


@pytest.mark.parametrize("random", [False, True])
def test_dropout_is_that_of_the_plan_or_of_the_model(encoder: Path, random: bool) -> None:
    start = begin(encoder, BOTH, random)
    usual, other = (start.make(start.settled(replace(PLAN, dropout=dropout))) for dropout in (None, 0.25))
    for model, expected in ((usual, usual.config.dropout), (other, 0.25)):
        found = {module.p for module in model.modules() if isinstance(module, nn.Dropout)}
        assert found == {expected}
        assert model.config.dropout == expected
    assert usual.config.dropout != 0.25


def test_dropout_of_a_translator_that_goes_on_is_that_of_the_plan(mt: Path) -> None:
    start = begin(mt, BOTH, False)
    model = start.make(start.settled(PLAN))
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.25}


def test_every_part_of_a_step_has_random_numbers_of_its_own() -> None:
    feed = make_feed([(8, 7)] * 64, 256, micro_tokens=64)
    seeds = [seed for step in range(3) for seed in feed[step].seeds]
    assert len(feed[0].seeds) > 1
    assert len({*seeds}) == len(seeds)


# ---- of looking at dev --------------------------------------------------------------------------------------


def test_dev_is_looked_at_as_the_plan_says(made: training._Training) -> None:
    asked: list[Any] = []

    def translate(lines: Any, to: Any, beam: int, length_penalty: float) -> list[str]:
        asked.append((list(lines), list(to), beam, length_penalty))
        return ["dog"] * len(lines)

    made._measured(SimpleNamespace(translate=translate))  # type: ignore[arg-type]
    [(lines, to, beam, length_penalty)] = asked
    text = made.job.text.dev
    assert lines == [source for direction in BOTH for source, _ in text[direction][:3]]
    assert to == ["de"] * 3 + ["en"] * 3
    assert (beam, length_penalty) == (2, 0.6)


def test_what_the_first_process_finds_on_dev_counts_in_all(
    made: training._Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand-ins for two processes that translate in other ways."""
    text, said = made.job.text.dev, {True: [], False: []}
    for direction in BOTH:
        said[True] += [target for _, target in text[direction][:3]]
        said[False] += [f"{target} dog" for _, target in text[direction][:3]]
    sent: list[torch.Tensor] = []

    def measured(first: bool) -> dict[str, float]:
        monkeypatch.setattr(training, "speaks", lambda: first)
        return made._measured(SimpleNamespace(translate=lambda *_: said[first]))  # type: ignore[arg-type]

    def summed(values: torch.Tensor) -> torch.Tensor:
        sent.append(values)
        return sum(sent, torch.zeros_like(values))

    monkeypatch.setattr(training, "summed", summed)
    first = measured(True)
    assert first == pytest.approx({"dev": 100, "dev/en-de": 100, "dev/de-en": 100})
    assert measured(False) == first


# ---- of scoring ---------------------------------------------------------------------------------------------


def test_test_sets_are_scored_as_the_plan_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(tuning, "score_seed", lambda folder, data, **more: told.update(more, at=(folder, data)) or [])
    known, text = SimpleNamespace(seed=4), SimpleNamespace()
    plan = replace(PLAN, beam=3)
    tuning._scored(tmp_path, known, plan, text, tmp_path / "data")  # type: ignore[arg-type]
    assert told["at"] == (tmp_path / "seed-4", tmp_path / "data")
    assert (told["beam"], told["length_penalty"], told["keep"]) == (3, 0.6, tmp_path / "seed-4")
    assert told["text"] is text
    assert told["reuse"]


def test_nothing_to_score_is_told_before_the_long_part(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text((data / f"train.{language}").read_text())
    monkeypatch.setattr(tuning, "train", None)
    with pytest.raises(BadInput, match="no test or dev part for en-de"):
        tuning.translators(encoder, tmp_path, tmp_path / "mt", "en-de", 1, False, {})


def test_too_little_memory_says_what_to_set(tmp_path: Path) -> None:
    def begun(_: torch.device) -> Any:
        def fit(_: Path) -> int:
            raise torch.OutOfMemoryError

        return SimpleNamespace(fit=fit)

    with pytest.raises(Failed, match=r"smaller --set micro_tokens \(now 77\)"):
        unit.made(begun, 77, tmp_path / "out", tmp_path / "work")
