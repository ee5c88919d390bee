from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from crossling.core.errors import BadInput
from crossling.finetune.finetune_settings import (
    FinetuneSettings,
    TranslationSettings,
    finetune_grid,
    translation_settings,
)
from crossling.tasks.hyperparameters import HyperparameterGrid
from crossling.tasks.registry import DATASETS

XNLI = DATASETS["xnli"]


def make_settings(*assignments: str) -> FinetuneSettings:
    return finetune_grid(XNLI, None, assignments)["default"]


def test_defaults_of_the_dataset_with_overrides() -> None:
    settings = make_settings("lr=1e-4", "steps=7", "seed=3", "checkpoint_every=2")
    assert (settings.lr, settings.steps, settings.seed, settings.checkpoint_every) == (1e-4, 7, 3, 2)
    assert (settings.batch, settings.length) == (XNLI.hyperparameters.batch, XNLI.hyperparameters.length)
    assert settings.total_steps(1000) == 7
    assert replace(settings, steps=None, epochs=2.5, batch=10).total_steps(1000) == 250


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("learning_rate=1", "learning_rate is called lr here. Set lr=1"),
        ("batch_size=8", "batch_size is called batch here"),
        ("num_train_epochs=8", "num_train_epochs is called epochs here"),
        ("fp16=True", "fp16=True: GPUs train in bfloat16"),
        ("gradient_accumulation_steps=2", "Set micro_tokens=N"),
        ("stepz=1", "did you mean 'steps'"),
        ("lr=fast", "lr=fast: expected a number"),
        ("lr=0", "fine-tuning settings: lr must be more than 0, found 0.0"),
        ("batch=0", "fine-tuning settings: batch must be at least 1, found 0"),
        ("length=7", "length must be at least 8, found 7"),
        ("seed=-1", "seed must be at least 0"),
    ],
)
def test_unknown_and_invalid_settings_are_refused(assignment: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_settings(assignment)


def test_points_of_a_grid_are_named_by_the_settings_that_differ() -> None:
    grid = HyperparameterGrid("a paper", lr=(1e-5, 2e-5), epochs=(3,), batch=(16, 32))
    dataset = replace(XNLI, grids={"mine": grid})
    points = finetune_grid(dataset, "mine", ["steps=5"])
    assert list(points) == ["lr-1e-05_batch-16", "lr-1e-05_batch-32", "lr-2e-05_batch-16", "lr-2e-05_batch-32"]
    assert {settings.steps for settings in points.values()} == {5}
    assert len(finetune_grid(dataset, "mine", ["lr=1e-3", "batch=8"])) == 1


def test_without_a_grid_there_is_one_point() -> None:
    expected = {"default": FinetuneSettings(**asdict(XNLI.hyperparameters))}
    assert finetune_grid(XNLI, None, []) == finetune_grid(XNLI, "default", []) == expected
    assert finetune_grid(XNLI, "xlm_e", []) == finetune_grid(XNLI, "XLM-E", []) == finetune_grid(XNLI, "xlm-e", [])
    with pytest.raises(BadInput, match="grid=xlme: xnli has no such grid; did you mean 'xlm-e'"):
        finetune_grid(XNLI, "xlme", [])


def test_hyperparameters_exclude_the_seed_and_intervals() -> None:
    names = {*make_settings().hyperparameters}
    assert {"lr", "epochs", "batch", "steps"} <= names
    assert not names & {"seed", "checkpoint_every", "log_every", "micro_tokens"}


def test_presets_of_a_translator_are_those_of_veco() -> None:
    """VECO, section 6.1: 64k and 256k tokens, 1e-4 and 2e-4, 16k warm-up, 100k updates, mean of 10, beam of 5."""
    for name, tokens, lr in (("veco-wmt14-en-de", 64 * 1024, 1e-4), ("veco-wmt14-en-fr", 256 * 1024, 2e-4)):
        settings = translation_settings(name, [])
        assert (settings.tokens, settings.lr, settings.warmup, settings.steps) == (tokens, lr, 16_000, 100_000)
        assert (settings.average, settings.beam) == (10, 5)
        assert (settings.label_smoothing, settings.dropout, settings.clip) == (0.2, 0.3, 0.1)
    assert translation_settings("veco-wmt14-en-de", ["steps=5"]).steps == 5
    assert translation_settings(None, []) == TranslationSettings()
    with pytest.raises(BadInput, match=r"no such preset; did you mean 'veco-wmt14-en-de'"):
        translation_settings("veco-wmt14-ende", [])
