"""The text of the new languages and that to keep: both are filtered by what either holds out, multi-way or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.adapt import prepare_text
from crossling.adapt.adapt_request import AdaptRequest
from crossling.adapt.replay_sample import read_icelandic
from crossling.cleaning.rules import Rules
from crossling.corpora.corpus import Corpora

ROWS = read_icelandic()[:120]
EN, IS = ([row[side] for row in ROWS] for side in (0, 1))
DE, FR = ([row[1][::-1] for row in read_icelandic()[start : start + 120]] for start in (200, 400))  # not real


@pytest.fixture(autouse=True)
def few_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clean with one rule, and do not identify languages."""
    monkeypatch.setattr(prepare_text, "_available_rules", lambda: Rules(duplicates=True))
    monkeypatch.setattr(prepare_text, "_check_languages", lambda _: None)


def write_pairs(file: Path, *columns: list[str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join("\t".join(row) + "\n" for row in zip(*columns, strict=True)), encoding="utf-8")
    return file


def write_multi(folder: Path, **columns: list[str]) -> Path:
    (folder / "multi" / "many").mkdir(parents=True)
    for code, lines in columns.items():
        (folder / "multi" / "many" / f"{code}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def cells(folder: Path) -> set[str]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {cell for file in files for line in file.read_text("utf-8").split("\n") for cell in line.split("\t")}


def test_replay_has_no_held_out_sentence_of_the_new_languages(tmp_path: Path) -> None:
    new = write_pairs(tmp_path / "a.en-is.tsv", EN, IS)
    replay = write_multi(tmp_path / "kept", **{"is": IS, "en": EN, "de": DE})
    write_pairs(replay / "pairs" / "again.is-en.tsv", IS, EN)
    write_pairs(replay / "pairs" / "kept.de-en.tsv", DE, EN)
    request = AdaptRequest(model="m", pairs=(str(new),), replay=(str(replay),))
    parts = prepare_text.prepare_text(request, tmp_path / "work")
    first, second = parts
    assert second is not None
    held_out = {
        side for rows in (first.held_out_pairs | second.held_out_pairs).values() for row in rows for side in row
    }
    assert len(held_out) > 30
    for part in (first, second):
        assert cells(part.train).isdisjoint(held_out)
    assert set(second.pairs) == {"de-en"}
    assert not [path for path in second.train.rglob("*") if "is" in path.stem.split(".")[-1].split("-")]
    assert prepare_text.prepare_text(request, tmp_path / "work") == parts


def test_both_directions_hold_out_the_same_rows(tmp_path: Path) -> None:
    found = []
    for name, columns in (("en-is", (EN, IS)), ("is-en", (IS, EN))):
        file = write_pairs(tmp_path / f"a.{name}.tsv", *columns)
        new, _ = prepare_text.prepare_text(AdaptRequest(model="m", pairs=(str(file),)), tmp_path / name)
        found.append(new.held_out_pairs)
    assert found[0] == found[1]
    assert len(found[0]["en-is"]) == 12


def test_a_multi_way_corpus_of_two_languages_stays_one(tmp_path: Path) -> None:
    new = write_pairs(tmp_path / "a.en-is.tsv", EN, IS)
    gaps = [line if number % 3 else "" for number, line in enumerate(DE)]
    replay = write_multi(tmp_path / "kept", de=gaps, fr=FR)
    _, kept = prepare_text.prepare_text(
        AdaptRequest(model="m", pairs=(str(new),), replay=(str(replay),)), tmp_path / "w"
    )
    assert kept is not None
    [multi] = Corpora(kept.train).multi
    rows = list(zip(multi.lines("de"), multi.lines("fr"), strict=True))
    assert kept.pairs == {"de-fr": len(rows)}
    assert len(rows) > 50
    assert {*rows} <= {*zip(DE, FR, strict=True)}
