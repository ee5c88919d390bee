"""Settings of a translator reach the trainer, the loss, the decoder and the scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from crossling.core.errors import BadInput, Failed
from crossling.finetune import supervised_training
from crossling.finetune.finetune_settings import TranslationSettings
from crossling.finetune.translation import translation_training
from crossling.finetune.translation.parallel_text import parse_directions, read_parallel_text
from crossling.finetune.translation.translation_init import initialize_translator
from crossling.finetune.translation.translation_training import TranslationRun

from .tiny_parallel import train_short

SETTINGS = TranslationSettings(
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
BOTH = parse_directions("en-de,de-en")


@pytest.fixture
def run(encoder: Path, data: Path) -> TranslationRun:
    init = initialize_translator(encoder, BOTH, False)
    found = TranslationRun(init.resolve(SETTINGS), init, BOTH, read_parallel_text(data, BOTH))
    found.build(torch.device("cpu"))
    return found


def test_hyperparameters_exclude_the_seed_and_the_beam_search() -> None:
    assert not {*SETTINGS.hyperparameters} & {"seed", "beam", "length_penalty", "log_every", "micro_tokens"}
    assert {"lr", "checkpoint_every", "average", "dev_beam"} <= {*SETTINGS.hyperparameters}


# ---- training -----------------------------------------------------------------------------------------------


def test_the_trainer_gets_the_settings(run: TranslationRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class RecordingTrainer:
        step = 50

        def __init__(self, net: Any, **options: Any) -> None:
            given.update(net=net, **options)

        def fit(self) -> None:
            pass

    monkeypatch.setattr(supervised_training, "Trainer", RecordingTrainer)
    assert run.fit(tmp_path / "work") == 50
    assert given["net"].encoder is run.translator.model
    assert {name: each.label_smoothing for name, each in given["objectives"].items()} == {"translation": 0.15}
    optimizer, schedule, batches = given["optimizer"], given["schedule"], given["batches"]
    assert (optimizer.warmup, optimizer.decay, optimizer.clip, optimizer.beta2) == (7, 0.03, 0.7, 0.98)
    assert (schedule.steps, schedule.lr) == (50, 3e-4)
    assert (schedule.log_every, schedule.checkpoint_every, schedule.probe_every) == (11, 5, 5)
    assert (given["retention"].last, given["patience"], given["selection_metrics"]) == (4, 6, ["probe/dev"])
    assert (batches.seed, batches.micro_tokens) == (9, SETTINGS.micro_tokens)
    monkeypatch.setattr(run, "_score_dev", lambda translator: translator)
    assert given["probe"](None) is run.translator


@pytest.mark.parametrize("from_scratch", [False, True])
def test_dropout_is_that_of_the_settings_or_of_the_model(encoder: Path, from_scratch: bool) -> None:
    init = initialize_translator(encoder, BOTH, from_scratch)
    default, other = (init.build(init.resolve(replace(SETTINGS, dropout=dropout))) for dropout in (None, 0.25))
    for model, expected in ((default, default.config.dropout), (other, 0.25)):
        assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {expected}
        assert model.config.dropout == expected
    assert default.config.dropout != 0.25


def test_dropout_of_a_continued_translator_is_that_of_the_settings(mt: Path) -> None:
    init = initialize_translator(mt, BOTH, False)
    model = init.build(init.resolve(SETTINGS))
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.25}


# ---- dev scores ---------------------------------------------------------------------------------------------


def test_dev_is_scored_with_the_settings(run: TranslationRun) -> None:
    calls: list[Any] = []

    def translate(sentences: Any, to: Any, *, beam: int, length_penalty: float) -> list[str]:
        calls.append((list(sentences), list(to), beam, length_penalty))
        return ["dog"] * len(sentences)

    run._score_dev(SimpleNamespace(translate=translate))  # type: ignore[arg-type]
    [(sentences, to, beam, length_penalty)] = calls
    text = run.text.dev
    assert sentences == [source for direction in BOTH for source, _ in text[direction][:3]]
    assert to == ["de"] * 3 + ["en"] * 3
    assert (beam, length_penalty) == (2, 0.6)


def test_dev_scores_of_the_main_process_count_in_all_processes(
    run: TranslationRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate two processes with different translations."""
    text, translations = run.text.dev, {True: [], False: []}
    for direction in BOTH:
        translations[True] += [target for _, target in text[direction][:3]]
        translations[False] += [f"{target} dog" for _, target in text[direction][:3]]
    sent: list[torch.Tensor] = []

    def score(is_main: bool) -> dict[str, float]:
        monkeypatch.setattr(translation_training, "is_main_process", lambda: is_main)
        translator: Any = SimpleNamespace(translate=lambda *_, **__: translations[is_main])
        return run._score_dev(translator)

    def all_reduce_sum(values: torch.Tensor) -> torch.Tensor:
        sent.append(values)
        return sum(sent, torch.zeros_like(values))

    monkeypatch.setattr(translation_training, "all_reduce_sum", all_reduce_sum)
    scores = score(True)
    assert scores == pytest.approx({"dev": 100, "dev/en-de": 100, "dev/de-en": 100})
    assert score(False) == scores


# ---- scoring ------------------------------------------------------------------------------------------------


def test_test_sets_are_scored_with_the_settings(
    encoder: Path, data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: dict[str, Any] = {}

    def score_translator_seed(folder: Path, data: Path, text: Any, **options: Any) -> list[Any]:
        given.update(options, folder=folder, data=data, text=text)
        return []

    monkeypatch.setattr(translation_training, "score_translator_seed", score_translator_seed)
    train_short(encoder, data, tmp_path, seed=4, steps=1, beam=3, length_penalty=0.6)
    assert given["folder"] == given["out"] == tmp_path / "seed-4"
    assert (given["beam"], given["length_penalty"], given["data"]) == (3, 0.6, data)
    assert given["text"] == read_parallel_text(data, BOTH)
    assert given["reuse"]


def test_missing_test_sets_are_refused_before_training(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text((data / f"train.{language}").read_text())
    monkeypatch.setattr(translation_training, "TranslationRun", None)
    with pytest.raises(BadInput, match="no test or dev set for en-de"):
        translation_training.train_translators(
            encoder, tmp_path, tmp_path / "mt", directions="en-de", seeds=1, from_scratch=False, overrides={}
        )


def test_out_of_memory_names_the_setting_to_change(tmp_path: Path) -> None:
    class FailingRun(TranslationRun):
        def build(self, device: torch.device) -> None:
            pass

        def fit(self, work: Path) -> int:  # noqa: ARG002
            raise torch.OutOfMemoryError

    run: Any = FailingRun(replace(SETTINGS, micro_tokens=77), init=None, directions=BOTH, text=None)  # type: ignore[arg-type]
    with pytest.raises(Failed, match=r"out of memory with micro_tokens=77. Set a smaller value"):
        supervised_training.train_model(run, tmp_path / "out", tmp_path / "work")
