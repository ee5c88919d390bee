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
