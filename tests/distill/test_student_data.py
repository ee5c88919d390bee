"""Sentences of a student: targets, held-out pairs that training does not read, and files of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.core.errors import BadInput
from crossling.distill.student_data import gather_sentences

NUMBERS = [str((10_000_019 * i) % 1_000_000_007) for i in range(7, 47)]  # that are not nearly equal


def write_files(folder: Path, pairs: int = 40) -> list[Path]:
    """Write text of two languages and pairs, some of which are in the text too."""
    folder.mkdir(exist_ok=True)
    rows = [(f"Satz {NUMBERS[i]}.", f"Sentence {NUMBERS[i]}.") for i in range(pairs)]
    (folder / "de-en.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in [*rows, rows[0]]))
    texts = [f"Nur Text {i}!" for i in range(5)]
    (folder / "de.txt").write_text("\n".join([*texts, *(a.upper() for a, _ in rows)]) + "\n")
    return [folder / "de.txt", folder / "de-en.tsv"]


def test_held_out_pairs_are_not_trained_on(tmp_path: Path) -> None:
    data = gather_sentences(write_files(tmp_path / "in"), tmp_path / "work", "en")
    assert (data.pairs, data.held_out) == ({"de-en": 36}, {"de-en": 4})
    # The text has each German sentence in upper case, too.
    assert data.sentences == {"de": 36 + 36 + 5, "en": 36}
    held_out = {text.casefold() for row in data.held_out_pairs("de-en") for text in row}
    targets = {language: dict(data.targets_of(language)) for language in ("de", "en")}
    assert held_out.isdisjoint(text.casefold() for own in targets.values() for text in own)
    teacher = data.teacher_texts.read_text().splitlines()
    assert len(teacher) == len({*teacher}) == data.targets == 36 + 36 + 5
    for sentence, row in targets["de"].items():
        number = sentence.rstrip(".").rpartition(" ")[2]
        expected = f"Sentence {number}." if sentence.startswith("Satz") else sentence
        assert teacher[row] == expected
    assert gather_sentences([], tmp_path / "work", "en") == data  # finished work is kept


def test_sentences_nearly_equal_to_held_out_ones_are_not_trained_on(tmp_path: Path) -> None:
    files = write_files(tmp_path / "in")
    other = gather_sentences(files, tmp_path / "before", "en")
    [(german, english), *_] = other.held_out_pairs("de-en")
    near = f"{german.rstrip(chr(46))}a."
    with files[0].open("a") as file:
        file.write(f"{near}\n{english}\n")
    data = gather_sentences(files, tmp_path / "work", "en")
    assert data.sentences == other.sentences
    assert near not in dict(data.targets_of("de"))


def test_corpora_and_the_source_of_the_targets(tmp_path: Path) -> None:
    text, pairs = write_files(tmp_path / "in")
    for name, file in (("text", text), ("pairs", pairs)):
        (tmp_path / "corpora" / name).mkdir(parents=True)
        file.rename(tmp_path / "corpora" / name / file.name)
    data = gather_sentences([tmp_path / "corpora"], tmp_path / "work", "de")
    teacher = data.teacher_texts.read_text().splitlines()
    assert not any("Sentence" in line for line in teacher)
    assert data.sentences["en"] == 36


def test_too_few_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="fewer than 20 translation pairs"):
        gather_sentences(write_files(tmp_path / "in", 12), tmp_path / "work", "en")
    assert not (tmp_path / "work" / "data").exists()
