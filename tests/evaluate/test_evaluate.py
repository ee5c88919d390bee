from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.errors import BadInput
from crossling.evaluate import scores
from crossling.evaluate.encode import Encoder
from crossling.evaluate.evaluate import evaluate


def test_all_tasks(tmp_path: Path, write: Callable[[Path, str], Path], encoder: Encoder) -> None:
    write(tmp_path / "tatoeba/v1/tatoeba.qaa-qab.qaa", "a b\nc\n")
    write(tmp_path / "tatoeba/v1/tatoeba.qaa-qab.qab", "d\ne f\n")
    write(tmp_path / "word-alignment/qaa-qab/qaa-qab.src-tgt", "a b ||| c d\n")
    write(tmp_path / "word-alignment/qaa-qab/qaa-qab.gold", "1-2 2-1\n")
    rows = evaluate(encoder, ["tatoeba", "word-alignment"], tmp_path, tmp_path / "out")
    assert [row["task"] for row in rows] == ["tatoeba"] * 8 + ["word-alignment"] * 4
    assert scores.read(tmp_path / "out/scores.jsonl") == rows
    assert evaluate(encoder, ["word-alignment"], tmp_path) == rows[8:]


def test_bad_input(tmp_path: Path, encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="did you mean 'tatoeba'"):
        evaluate(encoder, ["tatoba"], tmp_path)
    with pytest.raises(BadInput, match="no such folder"):
        evaluate(encoder, ["tatoeba"], tmp_path / "nowhere")


def test_the_place_for_scores_is_looked_at_before_anything_is_measured(encoder: Encoder, tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "scores.jsonl").write_text("not a score\n", encoding="utf-8")
    with pytest.raises(BadInput, match="line 1 is not JSON"):
        evaluate(encoder, ["tatoeba"], tmp_path, place)  # there is no data either, and it is not asked for
    with pytest.raises(BadInput, match="this is a file"):
        evaluate(encoder, ["tatoeba"], tmp_path, place / "scores.jsonl")
