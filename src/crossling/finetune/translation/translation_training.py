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
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from crossling.core.distributed import all_reduce_sum, is_main_process, process_group, rank, world_size
from crossling.core.errors import BadInput
from crossling.core.files import atomic_folder
from crossling.finetune.finetune_settings import TRANSLATION_ALIASES, TranslationSettings, format_overrides, override
from crossling.finetune.supervised_training import (
    PROBE,
    SCORES_FILE,
    check_same_training,
    fit_model,
    publish_best_seed,
    seed_paths,
    train_model,
)
from crossling.finetune.translation.parallel_text import (
    DEV,
    Direction,
    ParallelText,
    parse_directions,
    read_parallel_text,
    target_languages,
)
from crossling.finetune.translation.translation_batches import TranslationBatches, TranslationObjective
from crossling.finetune.translation.translation_init import TranslatorInit, initialize_translator
from crossling.finetune.translation.translation_scoring import find_test_sets, score_translator_seed
from crossling.finetune.translation.translator import TRANSLATOR_INFO, Translator, TranslatorInfo, language_tags
from crossling.model.encoder_decoder import CrosslingForConditionalGeneration
from crossling.objectives.objective import Network
from crossling.tasks import scores
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
) -> list[ScoreRow]:
    """Train one translator per seed and score it in every direction. See `crossling.finetune`."""
    if directions is None:
        raise BadInput("task translation: it needs directions, for instance en-de,de-en.")
    parsed = parse_directions(directions)
    check_sacrebleu(target_languages(parsed))
    assignments = format_overrides(overrides)
    settings = override(TranslationSettings(), assignments, "translation settings", TRANSLATION_ALIASES)
    with process_group():
        text = read_parallel_text(data, parsed)
        if settings.patience is not None and not text.dev:
            raise BadInput(f"{data}: patience={settings.patience} needs a dev set. Add dev.LL, or omit patience.")
        init = initialize_translator(model, parsed, from_scratch)
        find_test_sets(data, parsed, text)  # refuses data without a test set before training
        settings, job = init.resolve(settings), TranslationJob(init, parsed, text)
        seeded = (replace(settings, seed=settings.seed + number) for number in range(seeds))
        models = [train_translator_seed(job, each, *seed_paths(out, each.seed)) for each in seeded]
        best = max(models, key=lambda info: fmean(info.dev.values()) if info.dev else 0.0)  # the first of equals
        rows = [row for info in models for row in _score_seed(out, info.seed, settings, text, data)]
        publish_best_seed(out, best.seed, rows)
        return rows


def _score_seed(out: Path, seed: int, settings: TranslationSettings, text: ParallelText, data: Path) -> list[ScoreRow]:
    """Score one seed. Stored translations of the same text with the same beam search are used again."""
    folder, _ = seed_paths(out, seed)
    rows = score_translator_seed(
        folder, data, out=folder, beam=settings.beam, length_penalty=settings.length_penalty, reuse=True, text=text
    )
    if is_main_process():
        scores.add_scores(out / SCORES_FILE, rows)
    return rows


@dataclass(frozen=True)
class TranslationJob:
    """Initial weights, directions and text of all translators of one MT folder."""

    init: TranslatorInit
    directions: tuple[Direction, ...]
    text: ParallelText

    def check_finished(self, folder: Path, settings: TranslationSettings) -> None:
        """Refuse a finished translator that was trained with other settings or data."""
        info = TRANSLATOR_INFO.read(folder)
        stored = {"model": info.model, "init": info.init, "directions": info.directions, **info.hyperparameters}
        requested = {"model": self.init.name, "init": self.init.kind, "directions": [*map(str, self.directions)]}
        same_data = info.data == self.text.fingerprint
        check_same_training(folder, stored, requested | settings.hyperparameters, same_data=same_data)


def train_translator_seed(job: TranslationJob, settings: TranslationSettings, out: Path, work: Path) -> TranslatorInfo:
    """Train the translator of `settings.seed` into the folder `out`, with its run in `work`. Skip a finished one."""
    if TRANSLATOR_INFO.exists(out):
        job.check_finished(out, settings)
        return TRANSLATOR_INFO.read(out)
    return train_model(lambda device: _TranslationRun(job, settings, device), settings.micro_tokens, out, work)


class _TranslationRun:
    """Training of one translator, in every process of the run."""

    def __init__(self, job: TranslationJob, settings: TranslationSettings, device: torch.device) -> None:
        self.job, self.settings, self.device = job, settings, device
        self.model = job.init.build(settings)
        self.translator = self._wrap(self.model)
        self.dev = [(direction, pairs[: settings.dev_rows]) for direction, pairs in job.text.dev.items()]

    def fit(self, work: Path) -> int:
        """Train to the end, or resume, and return the number of steps."""
        settings = self.settings
        batches = self._batches()
        return fit_model(
            self.model,
            objective=TranslationObjective(settings.label_smoothing),
            batches=batches,
            optimizer=OptimizerSettings(
                warmup=settings.warmup, beta2=0.98, epsilon=1e-8, decay=settings.weight_decay, clip=settings.clip
            ),
            settings=settings,
            steps=settings.steps or max(1, round(settings.epochs * batches.steps_per_epoch)),
            recipe=self._recipe(),
            work=work,
            device=self.device,
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
            translator = self._wrap(self._average(states))
            results.append((states, translator, self._score_dev(translator)))
        states, best, dev = max(results, key=lambda result: result[2][DEV])  # the first of equals
        job, settings = self.job, self.settings
        info = TranslatorInfo(
            directions=[*map(str, job.directions)],
            tags=language_tags(job.directions) if job.init.has_tags else {},
            model=job.init.name,
            init=job.init.kind,
            seed=settings.seed,
            hyperparameters=settings.hyperparameters,
            steps=steps,
            averaged_steps=[int(state.name) for state in states],
            training_pairs={str(direction): len(pairs) for direction, pairs in job.text.train.items()},
            data=job.text.fingerprint,
            dev={name.removeprefix(f"{DEV}/"): value for name, value in dev.items() if name != DEV},
            curve=_dev_curve(work / "metrics.jsonl"),
        )
        with atomic_folder(out) if is_main_process() else nullcontext() as new:  # all processes score, one writes
            if new is not None:
                best.save(new)
                TRANSLATOR_INFO.write(new, info)
                for name in ("metrics.jsonl", "cost.json"):
                    shutil.copy(work / name, new / name)
        return info

    def _batches(self) -> TranslationBatches:
        """Tokenize the training text, without pairs that are too long."""
        settings, config = self.settings, self.model.config
        max_length = min(settings.length, self.translator.max_length)
        rows = [(*pair, direction.target) for direction, own in self.job.text.train.items() for pair in own]
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
            rank=rank(),
            world_size=world_size(),
        )

    def _wrap(self, model: CrosslingForConditionalGeneration) -> Translator:
        init = self.job.init
        model.to(self.device)  # type: ignore[arg-type]
        return Translator(model, init.tokenizer, directions=self.job.directions, has_tags=init.has_tags, name=init.name)

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

    def _average(self, states: Sequence[Path]) -> CrosslingForConditionalGeneration:
        """Return the whole model whose weights are the mean of some checkpoints."""
        model = self.job.init.build(self.settings)
        total: dict[str, Tensor] = {}
        for state in states:
            checkpoint.load_weights(state, Network(model, {}))  # type: ignore[arg-type]
            for name, values in model.named_parameters():
                total[name] = total[name] + values.detach().double() if name in total else values.detach().double()
        with torch.no_grad():
            for name, values in model.named_parameters():
                values.copy_(total[name] / len(states))
        return model

    def _recipe(self) -> dict[str, object]:
        job = self.job
        source = {"name": "translation", "model": job.init.name, "init": job.init.kind}
        text = {"directions": [*map(str, job.directions)], "data": job.text.fingerprint}
        return {**source, **text, **asdict(self.settings)}


def _dev_curve(metrics: Path) -> list[dict[str, float]]:
    """Return the dev score of each evaluation, with the seconds of training before it."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    name = f"{PROBE}{DEV}"
    return [{"step": row["step"], "seconds": row.get("seconds", 0.0), "bleu": row[name]} for row in rows if name in row]
