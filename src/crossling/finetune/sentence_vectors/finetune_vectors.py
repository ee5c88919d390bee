"""Fine-tune sentence vectors on pairs of the user: `crossling finetune MODEL --type embedding`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossling.cleaning.plain_text import plain_form
from crossling.core.distributed import is_main_process, lock_run_output, process_group
from crossling.core.errors import BadInput
from crossling.core.progress import print_status
from crossling.corpora.languages import canonical_code
from crossling.corpora.text_files import COMPRESSION_SUFFIX
from crossling.finetune.finetune_settings import embedding_settings, format_overrides
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePairs, read_sentence_pairs
from crossling.finetune.sentence_vectors.vector_model import as_sentence_encoder, build_sentence_model
from crossling.finetune.sentence_vectors.vector_scores import DirectionScores, score_pairs
from crossling.finetune.sentence_vectors.vector_training import VectorInfo, VectorRun
from crossling.finetune.supervised_training import train_seeds
from crossling.inference.load import load
from crossling.ingest.language_hints import read_name
from crossling.tasks.scores import Score, ScoreRow

if TYPE_CHECKING:
    from crossling.finetune.own_labels import OwnLabels

EMBEDDING = "embedding"  # value of --type
TASK = f"own-{EMBEDDING}"  # of the score rows
OWN_SETTING = "own-labels"
HELD_OUT, MAX_HELD_OUT = 10, 2_000  # the pairs of every tenth anchor are the dev set, or of fewer if there are many


def finetune_vectors(
    model: str | os.PathLike[str], own: OwnLabels, out: Path, *, seeds: int, overrides: Mapping[str, Any]
) -> list[ScoreRow]:
    """Fine-tune the sentence vectors of a model on own pairs, and score them on the dev set. See `finetune`."""
    settings = embedding_settings(format_overrides(overrides))
    train, dev = read_training_pairs(own)
    for name in ("cosent", "cosine"):
        if settings.loss == name and not train.is_scored:
            raise BadInput(
                f"{own.train}: the loss {name} needs scores of similarity. Add a column score, or omit loss."
            )
    if train.is_scored and settings.loss != "ranking" and len({row.score for row in train.rows}) == 1:
        raise BadInput(f"{own.train}: all scores are {train.rows[0].score:g}. Give scores that differ, or omit them.")
    if settings.loss == "cosine":
        train = _scale(train)
    language = canonical_code(own.language) if own.language else _language_by_name(own.train)
    with process_group(), lock_run_output(out):
        encoder = load(model)
        prompts = settings.query_prompt, settings.document_prompt
        untrained = build_sentence_model(encoder, settings.pooling, prompts)
        before = score_pairs(as_sentence_encoder(untrained, encoder, encoder.name), dev)
        if is_main_process():
            print_status(
                f"{len(train.rows):,} pairs to train on, {len(dev.rows):,} of the dev set. Before: {_listed(before)}"
            )
        training = partial(
            VectorRun, encoder=encoder, train=train, dev=dev, trained_on=own.train.name, language=language
        )
        return train_seeds(
            out,
            settings,
            seeds,
            training=training,
            dev_score=lambda info: info.dev_score,
            score=partial(_score, dev, _rows(before, encoder.name, language)),
        )


def read_training_pairs(own: OwnLabels) -> tuple[SentencePairs, SentencePairs]:
    """Return the training and dev pairs. Without a dev file, those of every tenth anchor are held out.

    Other pairs with a text of the dev set are not trained on.
    """
    train = read_sentence_pairs(own.train, own.columns)
    if own.dev is not None:
        dev = read_sentence_pairs(own.dev, own.columns)
        if dev.is_scored != train.is_scored:
            raise BadInput(f"{own.dev}: scores in one of the two files only. Give both the same columns.")
    else:
        anchors = {anchor: number for number, anchor in enumerate(dict.fromkeys(row.anchor for row in train.rows))}
        every = max(HELD_OUT, -(-len(anchors) // MAX_HELD_OUT))
        held_out = [anchors[row.anchor] % every == every - 1 for row in train.rows]
        dev = SentencePairs([row for row, is_dev in zip(train.rows, held_out, strict=True) if is_dev])
        texts = {_plain(text) for row in dev.rows for text in (row.anchor, row.positive)}
        rest = [row for row, is_dev in zip(train.rows, held_out, strict=True) if not is_dev]
        rows = [row for row in rest if texts.isdisjoint((_plain(row.anchor), _plain(row.positive)))]
        if len(rows) < len(rest) and is_main_process():
            print_status(f"{own.train}: {len(rest) - len(rows):,} pairs with a text of the dev set are not trained on")
        train = replace(train, rows=rows)
    if len(train.rows) < 2 or not dev.rows:
        raise BadInput(f"{own.train}: too few pairs to hold out every tenth as dev set. Give more, or a dev file.")
    if train.skipped and is_main_process():
        print_status(f"{own.train}: {train.skipped:,} rows without a text were skipped")
    return train, dev


def _plain(text: str) -> str:
    return plain_form(text) or text


def _language_by_name(file: Path) -> str:
    stem = COMPRESSION_SUFFIX.sub("", file.name).rpartition(".")[0]
    return "-".join(read_name(stem).languages) or "und"


def _scale(pairs: SentencePairs) -> SentencePairs:
    """Return the scores between 0 and 1, if they are not cosines."""
    scores = [row.score or 0.0 for row in pairs.rows]
    low, high = min(scores), max(scores)
    if low >= -1 and high <= 1:
        return pairs
    rows = [replace(row, score=(score - low) / (high - low)) for row, score in zip(pairs.rows, scores, strict=True)]
    return replace(pairs, rows=rows)


def _score(dev: SentencePairs, before: list[ScoreRow], info: VectorInfo, folder: Path) -> list[ScoreRow]:
    """Return the scores of a finished model on the dev set, after those of the model it was trained from."""
    scores = score_pairs(load(folder), dev)
    tuned = f"{info.loss}, lr {info.hyperparameters['lr']:g}, {info.steps} steps, {info.data[:6]}"
    options = {"setting": OWN_SETTING, "seed": info.seed, "selected_on_test": True, "tuned": tuned}
    return [
        *before,
        *_rows(scores, info.model, info.language, trained_on=info.trained_on, **options, **info.pretraining),
    ]


def _rows(scores: list[DirectionScores], model: str, language: str, **options: Any) -> list[ScoreRow]:
    return [
        Score(
            model=model,
            task=TASK,
            protocol="pairs",
            metric=metric,
            language=language,
            direction=each.direction,
            examples=each.examples,
            value=value,
            split="dev",
            **options,
        ).row()
        for each in scores
        for metric, value in each.values.items()
    ]


def _listed(scores: list[DirectionScores]) -> str:
    return ", ".join(f"{each.direction} {name} {value:.1f}" for each in scores for name, value in each.values.items())
