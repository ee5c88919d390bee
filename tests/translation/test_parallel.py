"""Parallel text in files side by side, and held out of corpora."""

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

from crossling.errors import BadInput
from crossling.translation.directions import Direction, directions, tag, target
from crossling.translation.parallel import read
from translation.toys import write_parallel

DATA = os.environ.get("CROSSLING_DATA")
BOTH = directions("en-de,de-en")
EN_DE, DE_EN = BOTH


# ---- directions ---------------------------------------------------------------------------------------------


def test_directions_are_read_once_each_in_the_codes_of_the_papers() -> None:
    assert directions("en-de, de-en,eng-deu") == (Direction("en", "de"), Direction("de", "en"))
    assert str(directions(["swh-en"])[0]) == "sw-en"
    assert tag("de") == "<2de>"


@pytest.mark.parametrize("pairs", ["", ",", "en", "en-en", "en-qqqq"])
def test_what_is_no_direction_is_refused(pairs: str) -> None:
    with pytest.raises(BadInput):
        directions(pairs)


def test_a_target_must_be_known_and_may_be_left_out_where_there_is_one() -> None:
    assert target(BOTH[:1], None, "mt") == "de"
    assert target(BOTH, "deu", "mt") == "de"
    with pytest.raises(BadInput, match="translates into de, en: say which"):
        target(BOTH, None, "mt")
    with pytest.raises(BadInput, match="does not translate into 'dde'; did you mean 'de'"):
        target(BOTH, "dde", "mt")


# ---- files side by side -------------------------------------------------------------------------------------


def test_both_directions_have_the_same_rows_turned_round(tmp_path: Path) -> None:
    text = read(write_parallel(tmp_path, {"train": 20, "dev": 5, "test": 6}), BOTH)
    for part, size in ((text.train, 20), (text.dev, 5), (text.tests["test"], 6)):
        assert [(b, a) for a, b in part[EN_DE]] == part[DE_EN]
        assert len(part[EN_DE]) == size


def test_names_of_splits_packing_and_a_folder_in_the_folder(tmp_path: Path) -> None:
    folder = write_parallel(tmp_path / "data" / "multi30k", {"train": 9, "val": 4, "test_2016_flickr": 3, "tst2013": 2})
    for file in folder.glob("train.*"):
        with gzip.open(f"{file}.gz", "wb") as packed:
            packed.write(file.read_bytes())
        file.unlink()
    (tmp_path / "data" / "xcopa").mkdir()
    (tmp_path / "data" / "xcopa" / "val.it.jsonl").write_text("{}\n")
    text = read(tmp_path / "data", BOTH)
    assert (len(text.train[EN_DE]), len(text.dev[DE_EN])) == (9, 4)
    assert {name: len(part[EN_DE]) for name, part in text.tests.items()} == {"test_2016_flickr": 3, "tst2013": 2}
    assert text.fingerprint == read(folder, BOTH).fingerprint


def test_rows_with_an_empty_side_are_left_out_without_shifting_the_rest(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("one\n\nthree\u2028still three\nfour\n")
    (tmp_path / "train.de").write_text("eins\nzwei\ndrei\n\n")
    assert read(tmp_path, (EN_DE,)).train[EN_DE] == [("one", "eins"), ("three still three", "drei")]


def test_files_that_do_not_fit_are_told_of(tmp_path: Path) -> None:
    write_parallel(tmp_path, {"train": 20, "dev": 5})
    with (tmp_path / "train.de").open("a") as file:
        file.write("noch eins\n")
    with pytest.raises(BadInput, match=r"train\.en has 20 lines and .*train\.de has 21"):
        read(tmp_path, BOTH)
    with pytest.raises(BadInput, match="no training text for en-fr"):
        read(tmp_path, directions("en-fr"))
    with pytest.raises(BadInput, match="is no folder"):
        read(tmp_path / "nowhere", BOTH)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"parallel text of de, en is expected; looked here"):
        read(tmp_path / "empty", BOTH)
    for name in ("one", "two"):
        write_parallel(tmp_path / "several" / name, {"train": 3})
    with pytest.raises(BadInput, match="one, two all have it"):
        read(tmp_path / "several", BOTH)


def test_a_line_that_is_no_text_is_named(tmp_path: Path) -> None:
    write_parallel(tmp_path, {"train": 3})
    (tmp_path / "train.de").write_bytes(b"eins\n\xff\xfe\ndrei\n")
    with pytest.raises(BadInput, match="line 2 cannot be read"):
        read(tmp_path, BOTH)


# ---- corpora ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*held out by their hash")
def test_what_is_held_out_of_corpora_is_in_no_training_row(tmp_path: Path) -> None:
    rows = [(f"english {n % 90}", f"deutsch {n}") for n in range(200)]  # sources that come again
    _pairs(tmp_path, "en-de", rows)
    (tmp_path / "multi" / "some").mkdir(parents=True)
    for language in ("en", "de", "fr"):
        (tmp_path / "multi" / "some" / f"{language}.txt").write_text(
            "".join(f"{language} {n}\n" if n % 5 else "\n" for n in range(100))
        )
    text = read(tmp_path, directions("en-de,de-en,de-fr"))
    held = [row for part in (text.dev, text.tests["test"]) for rows in part.values() for row in rows]
    said = {side for row in held for side in row}
    assert len(text.dev[EN_DE]) == len(text.tests["test"][EN_DE]) == 280 // 20
    assert len(text.dev[Direction("de", "fr")]) == 80 // 20
    for part in text.train.values():
        assert part
        assert not said & {side for row in part for side in row}
    for part in (text.train, text.dev, text.tests["test"]):
        assert [(b, a) for a, b in part[EN_DE]] == part[DE_EN]


@pytest.mark.filterwarnings("ignore:.*held out by their hash")
@given(st.permutations(range(45)))
def test_which_rows_are_held_out_does_not_depend_on_their_order(order: list[int]) -> None:
    def dev(numbers: Sequence[int]) -> list[tuple[str, str]]:
        with TemporaryDirectory() as folder:
            _pairs(Path(folder), "de-en", [(f"deutsch {n}", f"english {n}") for n in numbers])
            return sorted(read(Path(folder), BOTH).dev[EN_DE])

    assert len(dev(order)) == 2
    assert dev(order) == dev(range(45))


@pytest.mark.filterwarnings("ignore:.*held out by their hash")
@given(st.integers(20, 120), st.integers(1, 4))
def test_train_dev_and_test_share_no_sentence_in_any_direction(rows: int, times: int) -> None:
    """Of text in three languages each pair has rows of its own, of the same sentences."""
    known = directions("en-de,de-en,de-fr,fr-en")
    with TemporaryDirectory() as folder:
        place = Path(folder) / "multi" / "some"
        place.mkdir(parents=True)
        for language, each in (("en", 1), ("de", 1), ("fr", times)):  # some sentences come again
            (place / f"{language}.txt").write_text("".join(f"{language} {n // each}\n" for n in range(rows)))
        text = read(Path(folder), known)
    train, dev, test = (
        {side for found in part.values() for row in found for side in row}
        for part in (text.train, text.dev, text.tests["test"])
    )
    assert dev
    assert not train & dev
    assert not train & test
    assert not dev & test


@pytest.mark.filterwarnings("ignore:.*held out by their hash")
def test_only_the_parts_asked_for_are_given(tmp_path: Path) -> None:
    _pairs(tmp_path, "en-de", [(f"english {n}", f"deutsch {n}") for n in range(100)])
    whole, some = read(tmp_path, BOTH), read(tmp_path, BOTH, ("dev", "test"))
    assert some.train == {}
    assert (some.dev, some.tests) == (whole.dev, whole.tests)
    assert read(tmp_path, BOTH, ("train",)) == type(whole)(whole.train, {}, {})


def test_counts_are_said(tmp_path: Path) -> None:
    _pairs(tmp_path, "en-de", [(f"english {n}", f"deutsch {n}") for n in range(100)])
    with pytest.warns(UserWarning, match=r"de-en 90 to train on, 5 dev, 5 test"):
        read(tmp_path, BOTH)


def _pairs(folder: Path, name: str, rows: list[tuple[str, str]]) -> None:
    (folder / "pairs").mkdir(parents=True, exist_ok=True)
    (folder / "pairs" / f"toy.{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))


# ---- what is published --------------------------------------------------------------------------------------


@pytest.mark.skipif(not DATA, reason="CROSSLING_DATA names no folder of real text")
def test_multi30k_as_it_is_published() -> None:
    place = next((path for path in Path(str(DATA)).rglob("multi30k") if path.is_dir()), None)
    if place is None:
        pytest.skip("no multi30k there")
    text = read(place, directions("de-en,cs-en"))
    assert {str(direction): len(rows) for direction, rows in text.train.items()} == {"de-en": 29000, "cs-en": 29000}
    assert {len(rows) for rows in text.dev.values()} == {1014}
    assert {name: sorted(map(str, part)) for name, part in text.tests.items()} == {
        "test_2016_flickr": ["cs-en", "de-en"],
        "test_2017_flickr": ["de-en"],
        "test_2017_mscoco": ["de-en"],
    }


def test_a_moved_folder_has_the_same_fingerprint_and_another_row_another(tmp_path: Path) -> None:
    one = write_parallel(tmp_path / "one", {"train": 9, "dev": 3})
    shutil.copytree(one, tmp_path / "two")
    assert read(one, BOTH).fingerprint == read(tmp_path / "two", BOTH).fingerprint
    lines = (one / "dev.de").read_text().splitlines()
    (one / "dev.de").write_text("\n".join([*lines[:-1], "dog"]) + "\n")
    assert read(one, BOTH).fingerprint != read(tmp_path / "two", BOTH).fingerprint
