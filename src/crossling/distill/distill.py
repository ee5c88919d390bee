"""Distil a sentence encoder into a small student for the languages of the user (Reimers and Gurevych 2020).

    OUT/ config.json  model.safetensors  tokenizer.json     the student, for transformers
         modules.json  1_Pooling/  2_Dense/                 for Sentence Transformers
         distill.json  scores.jsonl  README.md  report.html  teacher and student beside each other
         training/                                          data, vectors and run of an unfinished call

A finished student is returned without work. An interrupted call resumes.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn

from crossling import bundled
from crossling.core.distributed import lock_run_output
from crossling.core.errors import BadInput, suggestion
from crossling.core.files import read_json, write_json
from crossling.core.hub import find_local_folder
from crossling.core.progress import format_duration, print_status
from crossling.core.resumable import check_output_folder, file_fingerprint, fingerprint, working_folder
from crossling.data.teacher_vectors import FOLDER as TEACHER_FOLDER
from crossling.data.teacher_vectors import write_teacher_vectors
from crossling.data.tokenize import tokenize
from crossling.distill.student_data import StudentData, gather_sentences
from crossling.distill.student_model import (
    NEW,
    TRIM,
    VOCABULARY_SIZES,
    cut_teacher,
    estimate_seconds,
    model_bytes,
    parse_layers,
    student_bytes,
    student_recipe,
    write_vocabulary,
)
from crossling.export.export_folder import write_export
from crossling.export.model_card import summarize_run
from crossling.finetune.sentence_vectors.sentence_pairs import SentencePair, SentencePairs
from crossling.finetune.sentence_vectors.vector_scores import FORWARD, score_pairs
from crossling.finetune.supervised_training import link_files
from crossling.inference.encode_file import encode_file
from crossling.inference.load import load
from crossling.inference.sentence_encoder import Encoder
from crossling.inference.sentence_head import DenseLayer, SentenceHead
from crossling.inference.write_sentence_head import write_sentence_head
from crossling.model.model_shape import SIZES
from crossling.objectives.distillation import PROJECTION
from crossling.recipes.network import load_run
from crossling.recipes.pretrain import pretrain
from crossling.recipes.recipe import Recipe
from crossling.report.report import report
from crossling.tasks.own_pairs import RETRIEVAL
from crossling.tasks.scores import Score, ScoreRow, add_scores
from crossling.vocabulary.open_vocabulary import open_vocabulary

WORK, RESULT, SCORES_FILE = "training", "distill.json", "scores.jsonl"
RESULT_FORMAT = 1
TIMED_SENTENCES, TIMED_ROUNDS = 256, 3


@dataclass(frozen=True, kw_only=True)
class DistillRequest:
    """Options of one call."""

    teacher: str
    files: tuple[Path, ...]
    size: str
    layers: tuple[int, ...]
    vocabulary: str
    vocabulary_size: int | None
    source: str
    settings: tuple[str, ...]

    def describe(self, teacher: Encoder) -> dict[str, Any]:
        """Return JSON values that determine the student. Files and teacher may be moved."""
        digests = [
            [file.relative_to(each.parent if each.is_file() else each).as_posix(), file_fingerprint(file)]
            for each in self.files
            for file in ([each] if each.is_file() else sorted(each.rglob("*.*")))
            if file.is_file()
        ]
        own = {name: getattr(self, name) for name in ("size", "vocabulary", "vocabulary_size", "source")}
        identity = {"teacher": _teacher_fingerprint(teacher), "files": digests}
        return {**own, **identity, "layers": [*self.layers], "settings": [*self.settings]}


def _teacher_fingerprint(teacher: Encoder) -> str:
    """Return a hash of the weights, the pooling and the tokenizer of a teacher."""
    backend = getattr(teacher.tokenizer, "backend_tokenizer", None)
    entries = sorted(teacher.tokenizer.get_vocab().items()) if backend is None else backend.to_str()
    return fingerprint([teacher.fingerprint(), entries])


def distill(
    teacher: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    text: Sequence[str | os.PathLike[str]] = (),
    pairs: Sequence[str | os.PathLike[str]] = (),
    size: str = "small",
    layers: str | Sequence[int] | None = None,
    vocabulary: str | None = None,
    vocabulary_size: int | None = None,
    source: str = "en",
    set: Sequence[str] = (),
    dry_run: bool = False,
) -> dict[str, Any]:
    """Train a small student on the sentence vectors of a teacher, and compare the two. Resumes where it was stopped.

    Some pairs are set aside before training. Teacher and student are scored on them: retrieval, size and speed.

    Args:
        teacher: Run, exported folder, any Hugging Face or Sentence Transformers encoder, or `bundled`.
        out: Folder to write the student to.
        text: Files of text that `ingest` reads, such as `de.txt`, or folders of corpora.
        pairs: Files of translations, such as `de-en.tsv`, or folders of corpora.
        size: Size of the student: tiny, small, base or large.
        layers: Layers of the teacher that the student starts from, such as `1,3,5`. [default: random weights]
        vocabulary: `new` trains one on the sentences, `trim` keeps the entries of the teacher that they use.
            [default: `trim` with layers, else `new`]
        vocabulary_size: Number of entries. [default: up to 16,000; with `trim` all that are used]
        source: Language whose side of a pair gives the vector of both sides.
        set: `key=value` settings of the recipe, such as `steps=2000` or `distillation.distance=mse`.
        dry_run: Return the plan with the estimated time, and write nothing.

    Returns:
        The plan, or the scores, sizes and speeds that `distill.json` has.

    Raises:
        BadInput: If an option, a file or the output folder cannot be used.

    Example:
        >>> result = xl.distill("LaBSE", "student", text=["de.txt", "en.txt"], pairs=["de-en.tsv"])
        >>> result["models"][1]["megabytes"]
        51.2
    """
    request = _check(teacher, text, pairs, size, layers, vocabulary, vocabulary_size, source, set)
    out = Path(out)
    if dry_run:
        return _plan(request)
    check_output_folder(out, holds=[WORK, RESULT], command="crossling distill")
    with lock_run_output(out):
        encoder = load(request.teacher)
        described = request.describe(encoder)
        for file in (out / RESULT, out / WORK / "request.json"):
            if file.is_file() and read_json(file).get("request") != described:
                raise BadInput(
                    f"{out}: a student of other files or options, or of another teacher. Give the same again, or"
                    " another folder."
                )
        if (out / RESULT).is_file():
            return dict(read_json(out / RESULT))
        work = out / WORK
        with working_folder(work):
            write_json(work / "request.json", {"request": described})
            result = _distill(request, encoder, out, work) | {"request": described}
        write_json(out / RESULT, result)
        shutil.rmtree(work)
    return result


def _check(
    teacher: str | os.PathLike[str],
    text: Sequence[str | os.PathLike[str]],
    pairs: Sequence[str | os.PathLike[str]],
    size: str,
    layers: str | Sequence[int] | None,
    vocabulary: str | None,
    vocabulary_size: int | None,
    source: str,
    settings: Sequence[str],
) -> DistillRequest:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("distill: cannot run under torchrun. Start one plain process.")
    if size not in SIZES:
        raise BadInput(f"size={size}: there is no such size{suggestion(size, SIZES)}")
    chosen = parse_layers(layers)
    kind = vocabulary or (TRIM if chosen else NEW)
    if kind not in (NEW, TRIM):
        raise BadInput(f"vocabulary={kind}: expected new or trim.")
    if chosen and kind == NEW:
        raise BadInput("vocabulary=new: layers of the teacher read its own entries. Omit vocabulary, or layers.")
    files = tuple(Path(each) for each in (*text, *pairs))
    if not pairs:
        raise BadInput("pairs: none are given. Give translations, to train on and to score with.")
    if missing := [file for file in files if not file.exists()]:
        raise BadInput(f"{missing[0]}: no such file. Check the name.")
    return DistillRequest(
        teacher=os.fspath(teacher),
        files=files,
        size=size,
        layers=chosen,
        vocabulary=kind,
        vocabulary_size=vocabulary_size,
        source=source,
        settings=tuple(settings),
    )


def _plan(request: DistillRequest) -> dict[str, Any]:
    """Return what a call would do."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        data = gather_sentences(request.files, Path(folder), request.source)
        encoder = load(request.teacher)
        recipe = student_recipe(data, encoder, request.size, request.layers, request.settings)
        if request.layers:
            recipe = cut_teacher(request.teacher, request.layers).adapt(recipe)
        entries = request.vocabulary_size or (
            len(encoder.tokenizer) if request.vocabulary == TRIM else VOCABULARY_SIZES[0]
        )
        seconds = estimate_seconds(encoder, recipe, data, entries)
    return {
        "sentences": data.sentences,
        "pairs": data.pairs,
        "held out": data.held_out,
        "layers": recipe.model.layers,
        "width": recipe.model.width,
        "vocabulary": f"{request.vocabulary}, at most {entries:,} entries",
        "megabytes": round(student_bytes(recipe.model, entries) / 1e6, 1),
        "steps": recipe.steps,
        "teacher seconds": round(seconds[0]),
        "training seconds": round(seconds[1]),
    }


def _distill(request: DistillRequest, encoder: Encoder, out: Path, work: Path) -> dict[str, Any]:
    """Make the student in `work`, write it to `out`, and return the comparison."""
    data = gather_sentences(request.files, work, request.source)
    recipe = student_recipe(data, encoder, request.size, request.layers, request.settings)
    counts = ", ".join(f"{language} {count:,}" for language, count in data.sentences.items())
    print_status(f"Sentences: {counts}. Held-out pairs: {sum(data.held_out.values()):,}. Steps: {recipe.steps:,}.")
    write_vocabulary(data, work / "vocab", request.vocabulary, request.vocabulary_size, request.teacher)
    shards = tokenize(data.corpora, work / "vocab", work / "shards")
    if not (shards.path / TEACHER_FOLDER).is_dir():
        vectors = work / "teacher.npy"
        if not vectors.is_file():
            encode_file(encoder, data.teacher_texts, vectors, half=True)
        sentences = {language: data.targets_of(language) for language in data.sentences}
        tokenizer = open_vocabulary(shards.vocabulary_path)
        write_teacher_vectors(shards, tokenizer, sentences, vectors, teacher=request.teacher)
    initial = cut_teacher(request.teacher, request.layers) if request.layers else None
    pretrain(recipe, shards, work / "run", init=initial)
    _write_student(work, recipe, encoder.max_length)
    student = load(work / "export", precision="float32")
    encoder.precision = "float32"  # both are timed so
    result = _compare(request, data, encoder, student, out, work / "export")
    rows = result.pop("scores")
    _add_to_card(work / "export" / "README.md", request, result)
    link_files(work / "export", out)
    add_scores(out / SCORES_FILE, rows)
    report([out], out / "report.html")
    return {**result, "format": RESULT_FORMAT}


def _write_student(work: Path, recipe: Recipe, max_length: int) -> None:
    """Export the run. If the widths differ, the projection becomes a dense layer of Sentence Transformers."""
    net, vocabulary = load_run(work / "run"), open_vocabulary(work / "run" / "vocab")
    projection = dict(net.parts.items()).get(PROJECTION)
    write_export(work / "export", net, vocabulary, summarize_run(work / "run"))
    if projection is None:
        return
    dense = DenseLayer(projection.in_features, projection.out_features)
    dense.activation = nn.Identity()
    dense.load_state_dict(projection.state_dict())
    head = SentenceHead(
        poolings=("mean",), layers=nn.Sequential(dense), width=dense.out_features, layer=recipe.model.universal_layer
    )
    write_sentence_head(work / "export", head, net.encoder.config, min(max_length, recipe.model.max_length))


# ---- comparison --------------------------------------------------------------------------------------------------


def _compare(
    request: DistillRequest, data: StudentData, teacher: Encoder, student: Encoder, out: Path, folder: Path
) -> dict[str, Any]:
    """Return the scores, sizes and speeds of teacher and student."""
    held_out = {pair: data.held_out_pairs(pair) for pair in data.held_out}
    sentences = [text for rows in held_out.values() for row in rows for text in row][:TIMED_SENTENCES]
    speeds = _speeds([teacher, student], sentences)
    found = find_local_folder(bundled.resolve_model(request.teacher))
    sizes = [model_bytes(found) or None if found else None, model_bytes(folder)]
    rows: list[ScoreRow] = []
    models = []
    for encoder, name, size, speed in zip((teacher, student), (request.teacher, str(out)), sizes, speeds, strict=True):
        own = [row for pair, each in held_out.items() for row in _score(encoder, name, pair, each)]
        rows += own
        models.append(
            {
                "model": name,
                "accuracy": round(fmean(row["value"] for row in own if row["metric"] == "accuracy"), 1),
                "megabytes": None if size is None else round(size / 1e6, 1),
                "sentences per second": round(speed, 1),
                "parameters": sum(parameter.numel() for parameter in encoder.model.parameters()),
                "layers": encoder.num_layers,
                "width": encoder.vector_width(encoder.resolve_pooling("auto")[0]),
            }
        )
    return {"models": models, "scores": rows, "sentences": data.sentences, "held out": data.held_out}


def _score(encoder: Encoder, name: str, pair: str, rows: Sequence[tuple[str, str]]) -> list[ScoreRow]:
    scores = score_pairs(encoder, SentencePairs([SentencePair(*row) for row in rows]))
    return [
        Score(
            model=name,
            task=RETRIEVAL,
            protocol="pairs",
            metric=metric,
            language=pair,
            direction=pair if each.direction == FORWARD else "-".join(reversed(pair.split("-"))),
            examples=each.examples,
            value=value,
            split="held-out",
        ).row()
        for each in scores
        for metric, value in each.values.items()
    ]


def _speeds(encoders: Sequence[Encoder], sentences: Sequence[str]) -> list[float]:
    """Return the sentences per second of each encoder: the best of some rounds, in turns."""
    best = [0.0] * len(encoders)
    for _ in range(TIMED_ROUNDS):
        for number, encoder in enumerate(encoders):
            started = time.perf_counter()
            encoder.encode(sentences)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            best[number] = max(best[number], len(sentences) / (time.perf_counter() - started))
    return best


def _add_to_card(card: Path, request: DistillRequest, result: dict[str, Any]) -> None:
    lines = [
        "",
        "## Distillation",
        "",
        f"Distilled from `{Path(request.teacher).name}` on {sum(result['sentences'].values()):,} sentences.",
        f"Both models are scored on {sum(result['held out'].values()):,} translation pairs that training did not read.",
        "",
        *comparison_table(result),
    ]
    card.write_text(card.read_text(encoding="utf-8").rstrip() + "\n" + "\n".join(lines) + "\n", encoding="utf-8")


def comparison_table(result: dict[str, Any]) -> list[str]:
    """Return the lines of a Markdown table of teacher and student."""
    rows = [["model", "accuracy@1, %", "MB", "sentences/s", "layers", "width", "parameters"]]
    for model in result["models"]:
        size = "" if model["megabytes"] is None else f"{model['megabytes']:.1f}"
        shape = [str(model["layers"]), str(model["width"]), f"{model['parameters']:,}"]
        speed = f"{model['sentences per second']:.0f}"
        rows.append([Path(model["model"]).name, f"{model['accuracy']:.1f}", size, speed, *shape])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """Return a plan as lines of text."""

    def counted(name: str) -> str:
        return ", ".join(f"{key} {value:,}" for key, value in plan[name].items())

    return [
        f"sentences: {counted('sentences')}",
        f"pairs: {counted('pairs')}; held out: {counted('held out')}",
        f"student: {plan['layers']} layers of {plan['width']}, vocabulary {plan['vocabulary']}, {plan['megabytes']} MB",
        f"teacher vectors: about {format_duration(plan['teacher seconds'])}",
        f"training: {plan['steps']:,} steps, about {format_duration(plan['training seconds'])}",
    ]
