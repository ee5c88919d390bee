"""Vectors of a teacher beside the shards: written in bounded memory, read by row, sampled by language."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from crossling.core.errors import BadInput
from crossling.data import teacher_vectors
from crossling.data.batches import Batches
from crossling.data.shards import Shards
from crossling.data.teacher_vectors import TeacherVectors, write_teacher_vectors
from crossling.objectives import MLM, TLM, Distillation
from crossling.recipes import get_recipe
from crossling.recipes.sampling_preview import preview_loads
from crossling.sampling import Sampling
from crossling.vocabulary.vocabulary import Vocabulary

LINES = {"qaa": ["to ba", "\u200b", "ku", "to to ku"], "qab": ["mi", "ba mi"]}


@pytest.fixture
def taught(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shards:
    """Shards with vectors of a teacher, in which the first of four components is the row."""
    shutil.copytree(shards.path, tmp_path / "shards")
    vectors = np.zeros((4, 4), dtype=np.float16)
    vectors[:, 0] = range(4)
    np.save(tmp_path / "vectors.npy", vectors)
    monkeypatch.setattr(teacher_vectors, "SENTENCES_PER_BLOCK", 3)
    copy = Shards.open(tmp_path / "shards")
    sentences = {language: [(line, row) for row, line in enumerate(lines)] for language, lines in LINES.items()}
    write_teacher_vectors(copy, _vocabulary(copy), sentences, tmp_path / "vectors.npy", teacher="tiny")
    return copy


def _vocabulary(shards: Shards) -> Vocabulary:
    return Vocabulary.load(shards.vocabulary_path)


def test_sentences_are_tokenized_and_keep_the_row_of_their_vector(taught: Shards) -> None:
    teacher, vocabulary = TeacherVectors.open(taught), _vocabulary(taught)
    assert (teacher.counts, teacher.width, teacher.info["teacher"]) == ({"qaa": 3, "qab": 2}, 4, "tiny")
    own = teacher.languages["qaa"]
    assert own.rows.tolist() == [0, 2, 3]  # that without tokens is dropped
    [expected] = vocabulary.encode(["to to ku"])
    assert own.sentences[2].tolist() == [*expected, vocabulary.special.eos]
    again = pickle.loads(pickle.dumps(own))
    assert again.vectors[3, 0] == 3


def test_batches_have_the_vectors_of_their_sentences(taught: Shards) -> None:
    objective = Distillation(sentences=40, length=16)
    work = Batches(taught, {"distillation": objective}, Sampling(text_alpha=0.0), seed=0, micro_tokens=120)[0]
    rows: list[int] = []
    for _, batch in work.micro_batches:
        starts = batch["ids_starts"]
        for start, vector in zip(starts.tolist(), batch["teacher"], strict=True):
            segments = batch["ids_segments"].flatten()
            ids = batch["ids"].flatten()[segments == segments[start]].tolist()
            language, row = _find(taught, ids[1:])
            assert vector[0] == row
            rows.append(row if language == "qaa" else 10 + row)
    assert len(work.micro_batches) > 1
    assert work.counts["distillation"] == len(rows) == 40
    assert sum(row >= 10 for row in rows) == pytest.approx(20, abs=1)  # uniform over languages
    assert {*rows} == {0, 2, 3, 10, 11}


def _find(taught: Shards, ids: list[int]) -> tuple[str, int]:
    for language, own in TeacherVectors.open(taught).languages.items():
        for number, row in enumerate(own.rows.tolist()):
            if own.sentences[number].tolist() == ids:
                return language, row
    raise AssertionError(ids)


def test_sentences_are_read_at_every_step_beside_alternating_text_and_pairs(taught: Shards) -> None:
    objectives = {
        "mlm": MLM(tokens=64, length=16),
        "tlm": TLM(tokens=64, length=16),
        "distillation": Distillation(sentences=2, length=8),
    }
    batches = Batches(taught, objectives, Sampling(), seed=0, micro_tokens=999, alternate=True)
    names = [{name for name, _ in batches[step].micro_batches} for step in range(2)]
    assert names == [{"mlm", "distillation"}, {"tlm", "distillation"}]


def test_load_is_estimated_without_reading_tokens(taught: Shards) -> None:
    recipe = get_recipe("xlm_r", "tiny").set(["mlm=off", "distillation.sentences=6", "distillation.length=8"])
    load = preview_loads(recipe, taught, None, None)["distillation"]
    batches = Batches(taught, recipe.objectives, recipe.sampling, seed=0, micro_tokens=999)
    assert load.examples == 6
    assert load.length == pytest.approx(batches.mean_lengths["distillation"])


def test_what_cannot_be_used_is_refused(shards: Shards, taught: Shards) -> None:
    with pytest.raises(BadInput, match="no vectors of a teacher in these shards"):
        Batches(shards, {"distillation": Distillation()}, Sampling(), seed=0, micro_tokens=999)
    vectors = taught.path / "teacher" / "vectors.npy"
    with pytest.raises(BadInput, match="no sentences of qab"):
        write_teacher_vectors(taught, _vocabulary(taught), {"qab": [("\u200b", 0)]}, vectors, teacher="tiny")
    assert TeacherVectors.open(taught).counts == {"qaa": 3, "qab": 2}  # a failure leaves the old ones
    other = Vocabulary.load(taught.vocabulary_path)
    file = taught.path / "teacher" / "teacher.json"
    file.write_text(file.read_text().replace(other.fingerprint, "another"))
    with pytest.raises(BadInput, match="have another vocabulary"):
        TeacherVectors.open(taught)
