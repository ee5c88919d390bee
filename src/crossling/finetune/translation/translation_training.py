"""Train translators: from a model and parallel text to an MT folder.

    MT/ config.json  model.safetensors  tokenizer.json  translator.json    the seed with the best score on dev
        seed-N/                                              translator, metrics and translations of each seed
        scores.jsonl                                         scores of all seeds
        training/                                            unfinished runs, and shards of raw training text

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

from crossling.core.distributed import (
    all_reduce_sum,
    is_main_process,
    lock_run_output,
    main_process_first,
    process_group,
)
from crossling.core.errors import BadInput
from crossling.core.resumable import fingerprint
from crossling.data.shards import Shards
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
    TRAIN,
    Direction,
    ParallelText,
    is_corpora_folder,
    language_tag,
    parse_directions,
    read_parallel_text,
    target_languages,
)
from crossling.finetune.translation.translation_batches import TranslationBatches, TranslationObjective
from crossling.finetune.translation.translation_init import TranslatorInit, initialize_translator
from crossling.finetune.translation.translation_pairs import (
    TranslationPairs,
    open_pair_shards,
    open_training_shards,
    tokenize_training_text,
)
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
    shards: str | os.PathLike[str] | None = None,
) -> list[ScoreRow]:
    """Train one translator per seed and score it in every direction. See `crossling.finetune`."""
    if directions is None:
        raise BadInput("task translation: it needs directions, for instance en-de,de-en.")
    parsed = parse_directions(directions)
    check_sacrebleu(target_languages(parsed))
    settings = translation_settings(preset, format_overrides(overrides))
    with process_group(), lock_run_output(out):
        if shards is not None and is_corpora_folder(data):
            raise BadInput(f"{data}: its rows may be in the shards. Use a folder with dev.LL and test.LL.")
        text = read_parallel_text(data, parsed, [*([TRAIN] if shards is None else []), DEV, "test"])
        if settings.patience is not None and not text.dev:
            raise BadInput(f"{data}: patience={settings.patience} needs a dev set. Add dev.LL, or omit patience.")
        init = initialize_translator(model, parsed, from_scratch)
        find_test_sets(data, parsed, text)  # refuses data without a test set before training
        opened = None if shards is None else open_pair_shards(Path(shards), parsed, init.tokenizer)
        return train_seeds(
            out,
            init.resolve(settings),
            seeds,
            training=partial(TranslationRun, init=init, directions=parsed, text=text, shards=opened),
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
    shards: Shards | None = None  # training pairs, instead of those of the text

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
            training_pairs={},
            data=self._data,
        )

    @cached_property
    def _data(self) -> str:
        """Fingerprint of training and dev text."""
        if self.shards is None:
            return self.text.fingerprint
        return fingerprint([self.shards.fingerprint, self.text.dev_fingerprint])

    def build(self, device: torch.device) -> None:
        self.device = device
        self.translator = self._load()
        self.dev = [(direction, pairs[: self.settings.dev_rows]) for direction, pairs in self.text.dev.items()]

    def fit(self, work: Path) -> int:
        settings, info, batches = self.settings, self.info, self._batches(work)
        self.training_pairs = {str(direction): number for direction, number in batches.pairs.counts.items()}
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
            training_pairs=self.training_pairs,
            averaged_steps=[int(state.name) for state in states],
            dev={name.removeprefix(f"{DEV}/"): value for name, value in dev.items() if name != DEV},
            curve=_dev_curve(work / "metrics.jsonl"),
        )
        with write_model_folder(out, work) as new:
            if new is not None:
                best.save(new)
                TRANSLATOR_INFO.write(new, info)
        return info

    def _batches(self, work: Path) -> TranslationBatches:
        """Plan the batches. The main process tokenizes raw training text first, for all seeds."""
        settings, translator = self.settings, self.translator
        shards, folder = self.shards, work.parent / f"pairs-{self._data}"
        if shards is None:
            with main_process_first():
                if is_main_process():
                    tokenize_training_text(self.text.train, translator.tokenizer, folder)
            shards = open_training_shards(folder)
        length = min(settings.length, translator.max_length)
        batches = TranslationBatches(
            TranslationPairs.from_shards(shards, self.directions, translator.tokenizer),
            tokens=settings.tokens,
            pair_alpha=settings.pair_alpha,
            seed=settings.seed,
            micro_tokens=settings.micro_tokens,
            start_token=int(translator.model.config.decoder_start_token_id),
            pad_token=int(translator.model.config.pad_token_id),
            length=length,
            max_length=translator.max_length,
        )
        if batches.fitting < 1 and is_main_process():
            percent = 100 * (1 - batches.fitting)
            warnings.warn(f"skips {percent:.2g}% of the sentence pairs: longer than {length} tokens", stacklevel=4)
        return batches

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
