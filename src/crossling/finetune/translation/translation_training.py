"""Train translators: from a model and parallel text to an MT folder.

    MT/ config.json  model.safetensors  tokenizer.json  translator.json    the seed with the best score on dev
        seed-N/                                              translator, metrics and translations of each seed
        scores.jsonl                                         scores of all seeds
        training/                                            unfinished runs

Finished translators are kept, and interrupted runs resume.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from crossling.core.distributed import all_reduce_sum, is_main_process, lock_run_output, process_group
from crossling.core.errors import BadInput
from crossling.finetune.finetune_settings import TranslationSettings, format_overrides, translation_settings
from crossling.finetune.supervised_training import (
    PROBE,
    ModelTraining,
    fit_model,
    load_mean_weights,
    train_seeds,
    write_model_folder,
)
from crossling.finetune.translation.parallel_text import (
    DEV,
    Direction,
    ParallelText,
    language_tag,
    parse_directions,
    read_parallel_text,
    target_languages,
)
from crossling.finetune.translation.translation_batches import TranslationBatches, TranslationObjective
from crossling.finetune.translation.translation_init import TranslatorInit, initialize_translator
from crossling.finetune.translation.translation_scoring import find_test_sets, score_translator_seed
from crossling.finetune.translation.translator import TRANSLATOR_INFO, Translator, TranslatorInfo
from crossling.tasks.scores import ScoreRow
from crossling.tasks.translation_metrics import SACREBLEU, check_sacrebleu
from crossling.train import checkpoint
from crossling.train.optimizer import OptimizerSettings


def train_translators(
    model: str | os.PathLike[str],
    data: Path,
    out: Path,
    *,
    directions: str | Sequence[str] | None,
    seeds: int,
    from_scratch: bool,
    overrides: Mapping[str, Any],
    preset: str | None = None,
) -> list[ScoreRow]:
    """Train one translator per seed and score it in every direction. See `crossling.finetune`."""
    if directions is None:
        raise BadInput("task translation: it needs directions, for instance en-de,de-en.")
    parsed = parse_directions(directions)
    check_sacrebleu(target_languages(parsed))
    settings = translation_settings(preset, format_overrides(overrides))
    with process_group(), lock_run_output(out):
        text = read_parallel_text(data, parsed)
        if settings.patience is not None and not text.dev:
            raise BadInput(f"{data}: patience={settings.patience} needs a dev set. Add dev.LL, or omit patience.")
        init = initialize_translator(model, parsed, from_scratch)
        find_test_sets(data, parsed, text)  # refuses data without a test set before training
        return train_seeds(
            out,
            init.resolve(settings),
            seeds,
            training=partial(TranslationRun, init=init, directions=parsed, text=text),
            dev_score=lambda info: fmean(info.dev.values()) if info.dev else 0.0,
            score=lambda _, folder: score_translator_seed(
                folder, data, text, out=folder, beam=settings.beam, length_penalty=settings.length_penalty, reuse=True
            ),
        )


@dataclass
class TranslationRun(ModelTraining[TranslatorInfo, TranslationSettings]):
    """Training of a translator on parallel text."""

    init: TranslatorInit
    directions: tuple[Direction, ...]
    text: ParallelText

    info_file = TRANSLATOR_INFO

    @cached_property
    def info(self) -> TranslatorInfo:
        languages = target_languages(self.directions) if self.init.has_tags else []
        return TranslatorInfo(
            directions=[*map(str, self.directions)],
            tags={language: language_tag(language) for language in languages},
            model=self.init.name,
            init=self.init.kind,
            seed=self.settings.seed,
            hyperparameters=self.settings.hyperparameters,
            steps=0,
            averaged_steps=[],
            training_pairs={str(direction): len(pairs) for direction, pairs in self.text.train.items()},
            data=self.text.fingerprint,
        )

    def build(self, device: torch.device) -> None:
        self.device = device
        self.translator = self._load()
        self.dev = [(direction, pairs[: self.settings.dev_rows]) for direction, pairs in self.text.dev.items()]

    def fit(self, work: Path) -> int:
        settings, info, batches = self.settings, self.info, self._batches()
        source = {"name": "translation", "model": info.model, "init": info.init}
        return fit_model(
            self.translator.model,
            settings,
            work,
            objective=TranslationObjective(settings.label_smoothing),
            batches=batches,
            optimizer=OptimizerSettings(
                warmup=settings.warmup, beta2=0.98, epsilon=1e-8, decay=settings.weight_decay, clip=settings.clip
            ),
            steps=settings.steps or max(1, round(settings.epochs * batches.steps_per_epoch)),
            recipe={**source, "directions": info.directions, "data": info.data},
            probe=(lambda: self._score_dev(self.translator)) if self.dev else None,
            selection_metrics=[DEV],
            keep=max(settings.average, 2),
            patience=settings.patience,
        )

    def save_model(self, out: Path, work: Path, steps: int) -> TranslatorInfo:
        """Write the mean of the last checkpoints, or the best checkpoint if it is better on dev."""
        saved = checkpoint.list_checkpoints(work / "checkpoints")
        choices = [checkpoint.scheduled_checkpoints(saved)[-self.settings.average :]]
        if self.dev:
            choices.append([checkpoint.best_checkpoints(saved)[f"{PROBE}{DEV}"]])
        results = []
        for states in choices:
            translator = self._load(states)
            results.append((states, translator, self._score_dev(translator)))
        states, best, dev = max(results, key=lambda result: result[2][DEV])  # the first of equals
        info = replace(
            self.info,
            steps=steps,
            averaged_steps=[int(state.name) for state in states],
            dev={name.removeprefix(f"{DEV}/"): value for name, value in dev.items() if name != DEV},
            curve=_dev_curve(work / "metrics.jsonl"),
        )
        with write_model_folder(out, work) as new:
            if new is not None:
                best.save(new)
                TRANSLATOR_INFO.write(new, info)
        return info

    def _batches(self) -> TranslationBatches:
        """Tokenize the training text, without pairs that are too long."""
        settings, config = self.settings, self.translator.model.config
        max_length = min(settings.length, self.translator.max_length)
        rows = [(*pair, direction.target) for direction, own in self.text.train.items() for pair in own]
        source_texts, target_texts, languages = zip(*rows, strict=True)
        sources, targets = self.translator.tokenizer.encode_pairs(source_texts, languages, target_texts)
        fitting = [n for n in range(len(rows)) if len(sources[n]) <= max_length and len(targets[n]) <= max_length]
        if not fitting:
            raise BadInput(f"length {settings.length}: all sentence pairs are longer. Set a larger length.")
        if len(fitting) < len(rows) and is_main_process():
            excluded = len(rows) - len(fitting)
            warnings.warn(
                f"excluded {excluded:,} of {len(rows):,} sentence pairs that are longer than {max_length} tokens",
                stacklevel=4,
            )
        return TranslationBatches(
            [sources[n] for n in fitting],
            [targets[n] for n in fitting],
            tokens=settings.tokens,
            seed=settings.seed,
            micro_tokens=settings.micro_tokens,
            start_token=int(config.decoder_start_token_id),
            pad_token=int(config.pad_token_id),
            max_length=self.translator.max_length,
        )

    def _load(self, states: Sequence[Path] = ()) -> Translator:
        """Return the initial translator, or the mean of some checkpoints."""
        init = self.init
        model = init.build(self.settings)
        if states:
            load_mean_weights(model, states)
        model.to(self.device)  # type: ignore[arg-type]
        return Translator(model, init.tokenizer, directions=self.directions, has_tags=init.has_tags, name=init.name)

    def _score_dev(self, translator: Translator) -> dict[str, float]:
        """Return sacreBLEU of every direction and their mean. All directions are decoded together.

        Every process decodes all sentences, since the weights may be sharded, and the scores of the main process count.
        Devices may differ in the last bit, and all processes must stop at the same step.
        """
        if not self.dev:
            return {DEV: float("-inf")}
        translations = iter(
            translator.translate(
                [source for _, pairs in self.dev for source, _ in pairs],
                [direction.target for direction, pairs in self.dev for _ in pairs],
                beam=self.settings.dev_beam,
                length_penalty=self.settings.length_penalty,
            )
        )
        own = [
            SACREBLEU.score([target for _, target in pairs], [next(translations) for _ in pairs], direction.target)
            for direction, pairs in self.dev
        ]
        values = all_reduce_sum(
            torch.tensor(own if is_main_process() else [0.0] * len(own), dtype=torch.float64)
        ).tolist()
        by_direction = {f"{DEV}/{direction}": value for (direction, _), value in zip(self.dev, values, strict=True)}
        return {DEV: fmean(values), **by_direction}


def _dev_curve(metrics: Path) -> list[dict[str, float]]:
    """Return the dev score of each evaluation, with the seconds of training before it."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    name = f"{PROBE}{DEV}"
    return [{"step": row["step"], "seconds": row.get("seconds", 0.0), "bleu": row[name]} for row in rows if name in row]
