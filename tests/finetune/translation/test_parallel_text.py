"""Parallel text of a folder of files, and held out of corpora."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.core.errors import BadInput
from crossling.finetune.translation.parallel_text import (
    Direction,
    language_tag,
    parse_directions,
    read_parallel_text,
    resolve_target,
)

from .tiny_parallel import training_rows, write_parallel

DATA = os.environ.get("CROSSLING_DATA")
BOTH = parse_directions("en-de,de-en")
EN_DE, DE_EN = BOTH


# ---- directions ---------------------------------------------------------------------------------------------


def test_directions_are_distinct_and_normalized() -> None:
    assert parse_directions("en-de, de-en,eng-deu") == (Direction("en", "de"), Direction("de", "en"))
    assert str(parse_directions(["swh-en"])[0]) == "sw-en"
    assert language_tag("de") == "<2de>"


@pytest.mark.parametrize("directions", ["", ",", "en", "en-en", "en-qqqq"])
def test_invalid_directions_are_refused(directions: str) -> None:
    with pytest.raises(BadInput):
        parse_directions(directions)


def test_the_target_may_be_omitted_if_there_is_only_one() -> None:
    assert resolve_target(BOTH[:1], None, "mt") == "de"
    assert resolve_target(BOTH, "deu", "mt") == "de"
    with pytest.raises(BadInput, match="it translates into de, en"):
        resolve_target(BOTH, None, "mt")
    with pytest.raises(BadInput, match="does not translate into 'dde'; did you mean 'de'"):
        resolve_target(BOTH, "dde", "mt")


# ---- FLORES --------------------------------------------------------------------------------------------------


def test_flores_has_dev_and_a_test_set_without_training_text(tmp_path: Path) -> None:
    for split in ("dev", "devtest"):
        for code in ("eng_Latn", "deu_Latn", "zho_Hant"):
            file = tmp_path / "flores200_dataset" / split / f"{code}.{split}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{split} {code} 1\n{split} {code} 2\n", encoding="utf-8")
    directions = parse_directions("en-de,zh_Hant-de,en-fr")
    text = read_parallel_text(tmp_path, directions, ("dev", "test"))
    assert [*text.tests] == ["devtest"]
    assert [*text.tests["devtest"]] == [Direction("en", "de"), Direction("zh-Hant", "de")]
    assert text.tests["devtest"][EN_DE][1] == ("devtest eng_Latn 2", "devtest deu_Latn 2")
    assert text.dev[EN_DE][0] == ("dev eng_Latn 1", "dev deu_Latn 1")
    with pytest.raises(BadInput, match="flores200_dataset: no training text for en-de"):
        read_parallel_text(tmp_path, directions)


# ---- a folder of text files ---------------------------------------------------------------------------------


def test_both_directions_have_the_same_rows_reversed(tmp_path: Path) -> None:
    text = read_parallel_text(write_parallel(tmp_path, {"train": 20, "dev": 5, "test": 6}), BOTH)
    train = {direction: training_rows(text, direction) for direction in BOTH}
    for part, size in ((train, 20), (text.dev, 5), (text.tests["test"], 6)):
        assert [(b, a) for a, b in part[EN_DE]] == part[DE_EN]
        assert len(part[EN_DE]) == size


def test_names_of_splits_compression_and_subfolders(tmp_path: Path) -> None:
    folder = write_parallel(tmp_path / "data" / "multi30k", {"train": 9, "val": 4, "test_2016_flickr": 3, "tst2013": 2})
    for file in folder.glob("train.*"):
        with gzip.open(f"{file}.gz", "wb") as packed:
            packed.write(file.read_bytes())
        file.unlink()
    (tmp_path / "data" / "xcopa").mkdir()
    (tmp_path / "data" / "xcopa" / "val.it.jsonl").write_text("{}\n")
    text = read_parallel_text(tmp_path / "data", BOTH)
    assert (len(training_rows(text, EN_DE)), len(text.dev[DE_EN])) == (9, 4)
    assert {name: len(part[EN_DE]) for name, part in text.tests.items()} == {"test_2016_flickr": 3, "tst2013": 2}
    assert text.fingerprint == read_parallel_text(folder, BOTH).fingerprint


def test_rows_with_an_empty_side_are_skipped_without_shifting_the_rest(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("one\n\nthree\u2028still three\nfour\n")
    (tmp_path / "train.de").write_text("eins\nzwei\ndrei\n\n")
    text = read_parallel_text(tmp_path, (EN_DE,))
    assert training_rows(text, EN_DE) == [("one", "eins"), ("three still three", "drei")]


def test_missing_and_mismatched_files_are_refused(tmp_path: Path) -> None:
    write_parallel(tmp_path, {"train": 20, "dev": 5})
    for split, lines in (("train", 20), ("dev", 5)):
        with (tmp_path / f"{split}.de").open("a") as file:
            file.write("noch eins\n")
        with pytest.raises(BadInput, match=rf"{split}\.en has {lines}"):
            training_rows(read_parallel_text(tmp_path, BOTH), EN_DE)
    with pytest.raises(BadInput, match="no training text for en-fr"):
        read_parallel_text(tmp_path, parse_directions("en-fr"))
    with pytest.raises(BadInput, match="no such folder"):
        read_parallel_text(tmp_path / "nowhere", BOTH)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no parallel text of de, en, here or one folder below"):
        read_parallel_text(tmp_path / "empty", BOTH)
    for name in ("one", "two"):
        write_parallel(tmp_path / "several" / name, {"train": 3})
    with pytest.raises(BadInput, match="the folders one, two all have parallel text"):
        read_parallel_text(tmp_path / "several", BOTH)


def test_an_unreadable_line_is_named(tmp_path: Path) -> None:
    write_parallel(tmp_path, {"train": 3, "dev": 3})
    (tmp_path / "dev.de").write_bytes(b"eins\n\xff\xfe\ndrei\n")
    with pytest.raises(BadInput, match="line 2 cannot be read"):
        read_parallel_text(tmp_path, BOTH)


# ---- corpora ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*held out by their hash")
def test_held_out_sentences_are_in_no_training_row(tmp_path: Path) -> None:
    rows = [(f"english {n % 90}", f"deutsch {n}") for n in range(200)]  # repeated sources
    _pairs(tmp_path, "en-de", rows)
    (tmp_path / "multi" / "some").mkdir(parents=True)
    for language in ("en", "de", "fr"):
        (tmp_path / "multi" / "some" / f"{language}.txt").write_text(
            "".join(f"{language} {n}\n" if n % 5 else "\n" for n in range(100))
        )
    text = read_parallel_text(tmp_path, parse_directions("en-de,de-en,de-fr"))
    held = [row for part in (text.dev, text.tests["test"]) for rows in part.values() for row in rows]
    sentences = {side for row in held for side in row}
    assert len(text.dev[EN_DE]) == len(text.tests["test"][EN_DE]) == 280 // 20
    assert len(text.dev[Direction("de", "fr")]) == 80 // 20
    train = {direction: training_rows(text, direction) for direction in parse_directions("en-de,de-en,de-fr")}
    assert len(train[EN_DE]) > 200
    for part in train.values():
        assert part
        assert not sentences & {side for row in part for side in row}
    for part in (train, text.dev, text.tests["test"]):
        assert [(b, a) for a, b in part[EN_DE]] == part[DE_EN]


@pytest.mark.filterwarnings("ignore:.*held out by their hash")
@given(st.permutations(range(45)))
def test_held_out_rows_do_not_depend_on_the_order_of_the_corpus(order: list[int]) -> None:
    def dev(numbers: Sequence[int]) -> list[tuple[str, str]]:
        with TemporaryDirectory() as folder:
            _pairs(Path(folder), "de-en", [(f"deutsch {n}", f"english {n}") for n in numbers])
            return sorted(read_parallel_text(Path(folder), BOTH).dev[EN_DE])

    assert len(dev(order)) == 2
    assert dev(order) == dev(range(45))


@pytest.mark.filterwarnings("ignore:.*held out by their hash")
@given(st.integers(20, 120), st.integers(1, 4))
def test_train_dev_and_test_have_no_sentence_in_common(rows: int, times: int) -> None:
    """In text of three languages, the rows of different language pairs contain the same sentences."""
    directions = parse_directions("en-de,de-en,de-fr,fr-en")
    with TemporaryDirectory() as folder:
        place = Path(folder) / "multi" / "some"
        place.mkdir(parents=True)
        for language, each in (("en", 1), ("de", 1), ("fr", times)):  # some sentences are repeated
            (place / f"{language}.txt").write_text("".join(f"{language} {n // each}\n" for n in range(rows)))
        text = read_parallel_text(Path(folder), directions)
        train = {side for direction in directions for row in training_rows(text, direction) for side in row}
    dev, test = (
        {side for found in part.values() for row in found for side in row} for part in (text.dev, text.tests["test"])
    )
    assert dev
    assert not train & dev
    assert not train & test
    assert not dev & test


@pytest.mark.filterwarnings("ignore:.*held out by their hash")
def test_only_the_requested_splits_are_read(tmp_path: Path) -> None:
    _pairs(tmp_path, "en-de", [(f"english {n}", f"deutsch {n}") for n in range(100)])
    whole, some = read_parallel_text(tmp_path, BOTH), read_parallel_text(tmp_path, BOTH, ("dev", "test"))
    assert some.train == ()
    assert (some.dev, some.tests) == (whole.dev, whole.tests)
    assert read_parallel_text(tmp_path, BOTH, ("train",)) == type(whole)(whole.train, {}, {})


def test_the_numbers_of_held_out_rows_are_reported(tmp_path: Path) -> None:
    _pairs(tmp_path, "en-de", [(f"english {n}", f"deutsch {n}") for n in range(100)])
    with pytest.warns(UserWarning, match=r"de-en 5 dev, 5 test"):
        read_parallel_text(tmp_path, BOTH)


def _pairs(folder: Path, name: str, rows: list[tuple[str, str]]) -> None:
    (folder / "pairs").mkdir(parents=True, exist_ok=True)
    (folder / "pairs" / f"toy.{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))


# ---- published data -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not DATA, reason="CROSSLING_DATA is not set to a folder of real text")
def test_multi30k_as_published() -> None:
    place = next((path for path in Path(str(DATA)).rglob("multi30k") if path.is_dir()), None)
    if place is None:
        pytest.skip("no multi30k there")
    text = read_parallel_text(place, parse_directions("de-en,cs-en"))
    directions = parse_directions("de-en,cs-en")
    assert {len(training_rows(text, direction)) for direction in directions} == {29000}
    assert {len(rows) for rows in text.dev.values()} == {1014}
    assert {name: sorted(map(str, part)) for name, part in text.tests.items()} == {
        "test_2016_flickr": ["cs-en", "de-en"],
        "test_2017_flickr": ["de-en"],
        "test_2017_mscoco": ["de-en"],
    }


def test_the_fingerprint_depends_on_the_rows_and_not_on_the_folder(tmp_path: Path) -> None:
    one = write_parallel(tmp_path / "one", {"train": 9, "dev": 3})
    shutil.copytree(one, tmp_path / "two")
    assert read_parallel_text(one, BOTH).fingerprint == read_parallel_text(tmp_path / "two", BOTH).fingerprint
    seen = {read_parallel_text(one, BOTH).fingerprint}
    for split in ("dev", "train"):
        lines = (one / f"{split}.de").read_text().splitlines()
        (one / f"{split}.de").write_text("\n".join([*lines[:-1], "dog"]) + "\n")
        seen.add(read_parallel_text(one, BOTH).fingerprint)
    assert len(seen) == 3
