"""Shape, vocabulary, recipe and initial weights of a student."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from crossling import bundled
from crossling.core.errors import BadInput
from crossling.distill.student_data import StudentData
from crossling.inference.sentence_encoder import Encoder
from crossling.model.convert import ConvertedModel
from crossling.model.encoder_model import CrosslingModel
from crossling.model.model_shape import ModelShape
from crossling.objectives import Distillation
from crossling.recipes import Recipe, get_recipe
from crossling.recipes.initial_model import InitialModel
from crossling.vocabulary.build_vocabulary import vocab

EPOCHS = 10  # passes over the sentences by default
STEPS = (200, 20_000)  # fewest and most by default
VOCABULARY_SIZES = (16_000, 8_000, 4_000, 2_000, 1_000, 500, 250, 120, 60)  # the largest that the text allows
NEW, TRIM = "new", "trim"
CUT_LR = 5e-4  # peak learning rate of a student that has layers of the teacher
TOKENS_PER_WORD = 1.5  # of a new vocabulary, for estimates
TIMED_SENTENCES = 64


def student_recipe(
    data: StudentData, teacher: Encoder, size: str, layers: Sequence[int], assignments: Sequence[str]
) -> Recipe:
    """Return the recipe of a student.

    Args:
        data: Sentences to train on.
        teacher: The teacher.
        size: Size of a student with random weights.
        layers: Layers of the teacher that the student starts from, counted from 1. Empty: random weights.
        assignments: `key=value` settings.

    Raises:
        BadInput: If a layer does not exist, or a setting is not valid.
    """
    base = get_recipe("rosetta", size)
    sentences = 256
    number = sum(data.sentences.values())
    steps = min(max(round(EPOCHS * number / sentences), STEPS[0]), STEPS[1])
    depth = len(layers) or base.model.layers
    model = replace(base.model, universal_layer=depth, dropout=0.0)
    lr = base.lr
    if layers:
        model, lr = replace(model, layers=depth), CUT_LR
    pooling, _ = teacher.resolve_pooling("auto")
    width, own = teacher.vector_width(pooling), teacher.hidden_size if layers else model.width
    recipe = base.replace(
        name="distill",
        model=model,
        mlm=None,
        tlm=None,
        xlco=None,
        distillation=Distillation(sentences=sentences, distance="cosine", width=None if width == own else width),
        steps=steps,
        lr=lr,
        checkpoint_every=max(1, steps // 10),
        log_every=max(1, steps // 100),
    )
    return recipe.replace(optimizer=replace(recipe.optimizer, warmup=0.1)).set(assignments)


def cut_teacher(teacher: str, layers: Sequence[int]) -> InitialModel:
    """Return the teacher with some of its layers only.

    Raises:
        BadInput: If crossling cannot convert the teacher, or a layer does not exist.
    """
    initial = InitialModel.load(teacher)
    whole = initial.encoder
    depth = whole.config.num_hidden_layers
    if wrong := [layer for layer in layers if not 1 <= layer <= depth]:
        raise BadInput(f"layers: {teacher} has no layer {wrong[0]}. Give numbers from 1 to {depth}.")
    config = whole.config.replace(num_hidden_layers=len(layers), universal_layer=len(layers), cross_attention=False)
    model = CrosslingModel(config)
    model.embeddings, model.relative = whole.encoder.embeddings, whole.encoder.relative
    for block, layer in zip(model.blocks, layers, strict=True):
        block.load_state_dict(whole.encoder.blocks[layer - 1].state_dict(), strict=False)
    if model.final_norm is not None and whole.encoder.final_norm is not None:
        model.final_norm.load_state_dict(whole.encoder.final_norm.state_dict())
    return replace(initial, encoder=ConvertedModel(config, model), generator=None, decoder=None)


def write_vocabulary(data: StudentData, out: Path, kind: str, size: int | None, teacher: str) -> None:
    """Write the vocabulary of a student, unless it is there.

    Args:
        data: Sentences to train on.
        out: Folder to write.
        kind: `new` trains one on the sentences, `trim` keeps the entries of the teacher that they use.
        size: Number of entries. [default: the largest of some that the text allows]
        teacher: Name of the teacher.
    """
    if (out / "tokenizer.json").is_file():
        return
    if kind == TRIM:
        vocab(data.corpora, out, from_=bundled.resolve_model(teacher), trim=True, size=size)
        return
    sizes = VOCABULARY_SIZES if size is None else (size,)
    for number in sizes:
        try:
            vocab(data.corpora, out, size=number)
            return
        except BadInput:
            if number == sizes[-1]:
                raise


def student_bytes(shape: ModelShape, entries: int) -> int:
    """Return the bytes of the weights of a student in 32 bits."""
    with torch.device("meta"):
        model = CrosslingModel(shape.to_config(entries))
    return 4 * sum(parameter.numel() for parameter in model.parameters())


def estimate_seconds(teacher: Encoder, recipe: Recipe, data: StudentData, entries: int) -> tuple[float, float]:
    """Return the seconds of the teacher on all texts, and of the training, as measured on a few sentences."""
    with data.teacher_texts.open(encoding="utf-8") as file:
        sentences = [line.strip() for line, _ in zip(file, range(TIMED_SENTENCES), strict=False)]
    started = time.perf_counter()
    teacher.encode(sentences)
    encoding = (time.perf_counter() - started) / len(sentences) * data.targets
    model = CrosslingModel(recipe.model.to_config(entries)).to(teacher.model.device)  # type: ignore[arg-type]
    length = min(recipe.model.max_length, max(8, round(data.words * TOKENS_PER_WORD)))
    ids = torch.randint(4, entries - 1, (32, length), device=teacher.model.device)
    for _ in range(2):  # the second is measured
        started = time.perf_counter()
        model(input_ids=ids).last_hidden_state.square().mean().backward()
        seconds = time.perf_counter() - started
    assert recipe.distillation is not None
    return encoding, seconds / 32 * recipe.distillation.sentences * recipe.steps


def parse_layers(text: str | Sequence[int] | None) -> tuple[int, ...]:
    """Return the layers of `1,3,5`.

    Raises:
        BadInput: If they are no different numbers in ascending order.
    """
    if text is None:
        return ()
    parts = text.split(",") if isinstance(text, str) else [str(each) for each in text]
    if not parts or not all(part.strip().isdecimal() for part in parts):
        raise BadInput(f"layers={text}: expected numbers separated by commas, such as 1,3,5.")
    layers = tuple(int(part) for part in parts)
    if sorted({*layers}) != [*layers]:
        raise BadInput(f"layers={text}: expected different numbers in ascending order, such as 1,3,5.")
    return layers


def model_bytes(folder: str | os.PathLike[str]) -> int:
    """Return the bytes of the weights and the tokenizer in a folder."""
    patterns = ("*.safetensors", "[0-9]_*/*.safetensors", "tokenizer.json")
    return sum(file.stat().st_size for pattern in patterns for file in Path(folder).glob(pattern))
