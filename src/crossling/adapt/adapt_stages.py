"""The stages of an adaptation. Each stores its result in the working folder, and a repeated call reads it there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from crossling.adapt.adapt_request import AdaptRequest
from crossling.adapt.adapt_settings import AdaptSettings, split_assignments
from crossling.adapt.adapted_folder import declare_cls_pooling, publish_folder, write_card, write_report, write_result
from crossling.adapt.choose_settings import choose_settings, limit_steps
from crossling.adapt.held_out_scores import (
    KEPT,
    LOSS,
    NEW,
    Change,
    accuracy_by_pair,
    retrieval_changes,
    retrieval_rows,
    vocabulary_changes,
)
from crossling.adapt.model_facts import ModelFacts, load_model_facts
from crossling.adapt.prepare_text import PreparedText, prepare_text
from crossling.adapt.replay_sample import HELD_OUT, PIVOT, TRAIN, read_sample
from crossling.adapt.training_corpora import write_held_out_text, write_training_corpora
from crossling.adapt.training_recipe import build_recipe, seconds_per_step
from crossling.cleaning.held_out import HeldOutIndex
from crossling.core.files import read_json, write_json
from crossling.core.progress import format_duration, print_status
from crossling.corpora.languages import parse_pair
from crossling.data.shards import Shards
from crossling.data.teacher_vectors import FOLDER, write_teacher_vectors
from crossling.data.tokenize import tokenize
from crossling.evaluate.probes import make_loss_probe, read_probe_changes
from crossling.evaluate.significance import pair_name
from crossling.export.export_folder import export
from crossling.inference.load import load
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.tasks.scores import ScoreRow
from crossling.vocabulary.build_vocabulary import vocab
from crossling.vocabulary.open_vocabulary import open_vocabulary

PARTS = ("new", "replay", "corpora", "vocab", "shards", "held-out", "held-out-shards", "exported")  # of the work
KNOWN = 40.0  # retrieval in percent from which a language of the sample counts as known by the model


class Stages:
    """One adaptation.

    Args:
        request: What the user gave.
        out: Output folder.
        work: Folder of the working state.
    """

    def __init__(self, request: AdaptRequest, out: Path, work: Path) -> None:
        self.request, self.out, self.work = request, out, work
        self.given, self.recipe_assignments = split_assignments(request.assignments)

    def load_model(self) -> ModelFacts:
        """Load the model, which also checks it."""
        return self.facts

    @cached_property
    def facts(self) -> ModelFacts:
        """The model to adapt."""
        return load_model_facts(self.request.model, self.given.get("architecture"))

    # ---- text ------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Prepare the text of the new languages and of those to keep."""
        _ = self._prepared

    @cached_property
    def _prepared(self) -> tuple[PreparedText, PreparedText | None]:
        return prepare_text(self.request, self.work)

    @property
    def new(self) -> PreparedText:
        """Text of the new languages."""
        return self._prepared[0]

    @property
    def replay(self) -> PreparedText | None:
        """Text of the languages to keep, if the user names any."""
        return self._prepared[1]

    @cached_property
    def kept_pairs(self) -> dict[str, list[tuple[str, str]]]:
        """Held-out pairs of the languages to keep."""
        if self.replay is not None:
            return self.replay.held_out_pairs
        pairs: dict[str, list[tuple[str, str]]] = {}
        for row in read_sample():
            if row.part == HELD_OUT and row.language not in self.new.languages:
                pairs.setdefault(f"{PIVOT}-{row.language}", []).append((row.english, row.translation))
        return pairs

    # ---- before ----------------------------------------------------------------------------------------------

    def score_before(self) -> list[ScoreRow]:
        """Return the retrieval scores of the original model on held-out pairs."""
        return list(self._before["rows"])

    @cached_property
    def _before(self) -> dict[str, Any]:
        file = self.work / "before.json"
        if not file.is_file():
            encoder = load(self.request.model)
            pairs = self.new.held_out_pairs | self.kept_pairs
            rows = retrieval_rows(encoder, pairs, self.request.model)
            accuracy = accuracy_by_pair(encoder, rows, pairs)
            write_json(file, {"rows": rows, "accuracy": accuracy})
        values: dict[str, Any] = read_json(file)
        return values

    @cached_property
    def known_pairs(self) -> dict[str, list[tuple[str, str]]]:
        """Held-out pairs of languages that the original model knows: all, if they are few or it knows none."""
        accuracy: Mapping[str, float] = self._before["accuracy"]
        known = {pair: rows for pair, rows in self.kept_pairs.items() if accuracy.get(pair, 0.0) >= KNOWN}
        return known or self.kept_pairs

    # ---- settings --------------------------------------------------------------------------------------------

    def settings(self) -> tuple[AdaptSettings, dict[str, str]]:
        """Return the settings and their reasons: those stored, or those chosen now."""
        file = self.work / "settings.json"
        if file.is_file():
            stored = read_json(file)
            return AdaptSettings(**stored["settings"]), stored["reasons"]
        choices, streams = choose_settings(self.request, self.given, self.facts, self.new, self.replay)
        settings, reasons = choices.finish(), choices.reasons
        build_recipe(settings, self.facts, self.recipe_assignments)  # refuses wrong settings before the long work
        if self.request.minutes is not None and "steps" not in self.given:
            seconds = self.seconds_per_step(settings)
            steps = limit_steps(settings, seconds, self.request.minutes)
            if steps < settings.steps:
                epochs = round(settings.epochs * steps / settings.steps, 2)
                settings = replace(settings, steps=steps, epochs=epochs)
                reasons["steps"] = f"{self.request.minutes:g} minutes at {seconds:.2f} s a step"
                reasons["epochs"] = "from the steps"
        reasons["steps"] += f"; {streams.describe(settings)}"
        write_json(file, {"settings": asdict(settings), "reasons": reasons})
        return settings, reasons

    def seconds_per_step(self, settings: AdaptSettings) -> float:
        """Return the measured time of a training step."""
        return seconds_per_step(self.recipe(settings), self.facts, self.shards(settings))

    def recipe(self, settings: AdaptSettings) -> Recipe:
        """Return the recipe to train."""
        return build_recipe(settings, self.facts, self.recipe_assignments, seed=self.request.seed)

    # ---- vocabulary and shards -------------------------------------------------------------------------------

    def vocabulary(self, settings: AdaptSettings) -> Path:
        """Return the vocabulary folder: that of the model, or one with new entries."""
        folder = self.work / "vocab"
        if not folder.is_dir():
            if settings.entries:
                focus = settings.focus.split(",")
                size = self.facts.vocabulary.size + settings.entries
                source = self.request.model
                vocab(self.new.train, folder, from_=source, extend=True, size=size, focus=focus)
            else:
                self.facts.vocabulary.save(folder)
        return folder

    def shards(self, settings: AdaptSettings) -> Shards:
        """Return the tokenized training text."""
        vocabulary, folder = self.vocabulary(settings), self.work / "shards"
        corpora = self.work / "corpora"
        if not corpora.is_dir():
            write_training_corpora(corpora, self.new, self.replay)
        shards = tokenize(corpora, vocabulary, folder)
        if settings.has("distillation") and not (folder / FOLDER).is_dir():
            self._write_teacher_vectors(shards)
        return shards

    def _write_teacher_vectors(self, shards: Shards) -> None:
        """Write the vectors that the original model gives to the shipped sample, without held-out sentences."""
        known = self.known_pairs if (self.work / "before.json").is_file() else self.kept_pairs
        held_out = HeldOutIndex([side for rows in self.new.held_out_pairs.values() for row in rows for side in row])
        sentences: dict[str, list[str]] = {}
        for row in read_sample():
            if row.part == TRAIN and f"{PIVOT}-{row.language}" in known and row.english not in held_out:
                sentences.setdefault(row.language, []).append(row.translation)
                sentences.setdefault(PIVOT, []).append(row.english)
        texts = [text for each in sentences.values() for text in each]
        file, number = self.work / "teacher.npy", count()
        vectors = load(self.request.model).encode(texts, pooling=self.facts.pooling)
        np.save(file, vectors, allow_pickle=False)
        numbered = {language: [(text, next(number)) for text in each] for language, each in sentences.items()}
        tokenizer = open_vocabulary(shards.vocabulary_path)
        write_teacher_vectors(shards, tokenizer, numbered, file, teacher=self.request.model)
        file.unlink()

    # ---- training --------------------------------------------------------------------------------------------

    @property
    def run(self) -> Path:
        """Run folder. It has the name of the output, so that a report joins its curves with the scores."""
        name = self.out.resolve().name
        return self.work / (f"{name}-run" if name in PARTS else name)

    def train(self, settings: AdaptSettings) -> None:
        """Train, or resume the training."""
        recipe, shards = self.recipe(settings), self.shards(settings)
        probe = None
        if recipe.mlm is not None:
            validation = self.work / "held-out"
            if not validation.is_dir():
                write_held_out_text(validation, self._validation_sentences())
            probe = make_loss_probe(
                tokenize(validation, self.vocabulary(settings), self.work / "held-out-shards"), recipe
            )
        pretrain(recipe, shards, self.run, init=self.facts.initial, probe=probe)

    def _validation_sentences(self) -> dict[str, list[str]]:
        """Return the held-out sentences on which the MLM loss is measured, by language."""
        sentences = {code: self.new.held_out_sentences(code) for code in self.new.languages}
        return {code: each for code, each in (self._kept_sentences() | sentences).items() if each}

    def _kept_sentences(self) -> dict[str, list[str]]:
        if self.replay is not None:
            return {code: self.replay.held_out_sentences(code) for code in self.replay.languages}
        sentences: dict[str, list[str]] = {}
        for pair, rows in self.known_pairs.items():
            first, second = parse_pair(pair)
            sentences.setdefault(second, []).extend(row[1] for row in rows)
            sentences.setdefault(first, [row[0] for row in rows])
        return sentences

    # ---- after -----------------------------------------------------------------------------------------------

    def publish(
        self, settings: AdaptSettings, reasons: Mapping[str, str], before: Sequence[ScoreRow], started: float
    ) -> list[Change]:
        """Export, score, and write the output folder."""
        exported = self.work / "exported"
        export(self.run, exported)
        if self.facts.pooling == "cls":
            declare_cls_pooling(exported)
        encoder = load(exported)
        pairs = self.new.held_out_pairs | self.known_pairs
        rows = retrieval_rows(encoder, pairs, str(self.out))
        counts = {pair: len(each) for pair, each in pairs.items() if each}
        roles = {pair: NEW if pair in self.new.held_out_pairs else KEPT for pair in counts}
        after = accuracy_by_pair(encoder, rows, pairs)
        changes = retrieval_changes(self._before["accuracy"], after, counts, roles) + self._loss_changes(settings)
        sentences = {code: self.new.held_out_sentences(code) for code in settings.focus.split(",")}
        sentences = {code: each for code, each in sentences.items() if each}
        changes += vocabulary_changes(self.facts.vocabulary, open_vocabulary(exported), sentences)
        publish_folder(exported, self.out)
        write_card(self.out, self.request.model, settings, changes)
        names = {pair_name(*parse_pair(pair)) for pair in counts}
        rows_before = [row for row in before if row["language"] in names]
        seconds = time.perf_counter() - started
        write_report(self.out, self.request.model, [*rows_before, *rows], changes, seconds)
        values = {
            "request": self.request.description(),
            "model": self.request.model,
            "settings": asdict(settings),
            "reasons": dict(reasons),
            "text": {key: getattr(self.new, key) for key in ("pairs", "lines", "removed", "dropped")},
            "training": read_json(self.run / "cost.json"),
        }
        changed = [change.to_json() for change in changes]
        write_result(self.out, {**values, "changes": changed, "seconds": round(seconds, 1)})
        print_status(f"adapted in {format_duration(seconds)}")
        return changes

    def _loss_changes(self, settings: AdaptSettings) -> list[Change]:
        focus = settings.focus.split(",")
        sentences = self._validation_sentences()
        return [
            Change(
                language=each.language,
                role=NEW if each.language in focus else KEPT,
                measure=LOSS,
                before=each.before,
                after=each.after,
                examples=len(sentences[each.language]),
            )
            for each in read_probe_changes(self.run / "metrics.jsonl")
            if each.kind == "loss" and each.term == "mlm"
        ]


def settings_lines(settings: AdaptSettings, reasons: Mapping[str, str]) -> list[str]:
    """Return one line for each setting, with its reason."""
    values = {name: value for name, value in asdict(settings).items() if name in reasons}
    width = max(map(len, values))
    texts = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in values.items()}
    column = max(map(len, texts.values()))
    return [f"  {name:{width}}  {texts[name]:{column}}  {reasons[name]}" for name in values]
