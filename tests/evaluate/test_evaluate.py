from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.errors import BadInput
from crossling.evaluate import predictions, scores
from crossling.evaluate.encode import Encoder
from crossling.evaluate.evaluate import evaluate


def test_all_tasks(tmp_path: Path, write: Callable[[Path, str], Path], encoder: Encoder) -> None:
    write(tmp_path / "tatoeba/v1/tatoeba.qaa-qab.qaa", "a b\nc\n")
    write(tmp_path / "tatoeba/v1/tatoeba.qaa-qab.qab", "d\ne f\n")
    write(tmp_path / "word-alignment/qaa-qab/qaa-qab.src-tgt", "a b ||| c d\n")
    write(tmp_path / "word-alignment/qaa-qab/qaa-qab.gold", "1-2 2-1\n")
    write(tmp_path / "bucc2018/qaa-qab.dev.qaa", "1\ta b\n2\tc\n")
    write(tmp_path / "bucc2018/qaa-qab.dev.qab", "1\tb a\n2\te f\n")
    write(tmp_path / "bucc2018/qaa-qab.dev.gold", "1\t1\n")
    out = tmp_path / "out"
    rows = evaluate(encoder, ["tatoeba", "word-alignment"], tmp_path, out)
    files = [str(path.relative_to(out)) for path in predictions.paths(out)]
    assert files == [
        "predictions/tatoeba/test-qaa-qab.qaa-qab.jsonl",
        "predictions/tatoeba/test-qaa-qab.qab-qaa.jsonl",
        "predictions/word-alignment/test-qaa-qab.ot.jsonl",
    ]
    assert [row.id for row in predictions.read(out / files[0])] == ["1", "2"]
    assert [row["task"] for row in rows] == ["tatoeba"] * 8 + ["word-alignment"] * 4
    assert scores.read(tmp_path / "out/scores.jsonl") == rows
    assert evaluate(encoder, ["word-alignment"], tmp_path) == rows[8:]
    with pytest.warns(UserWarning, match="only dev is here"):
        mined = evaluate(encoder, ["bucc2018"], tmp_path, out, layers=[0, 3])
    assert {(row["protocol"], row["layer"]) for row in mined} == {("margin", 0), ("margin", 3), ("xtreme", 2)}
    assert scores.read(out / "scores.jsonl") == rows + mined


def test_predictions_are_of_one_model(tmp_path: Path, write: Callable[[Path, str], Path], encoder: Encoder) -> None:
    """They do not say whose they are."""
    write(tmp_path / "tatoeba/v1/tatoeba.qaa-qab.qaa", "a b\nc\n")
    write(tmp_path / "tatoeba/v1/tatoeba.qaa-qab.qab", "d\ne f\n")
    evaluate(encoder, ["tatoeba"], tmp_path, tmp_path / "out")
    before = [path.read_bytes() for path in predictions.paths(tmp_path)]
    encoder.name = "another"
    with pytest.warns(UserWarning, match="has scores of runs/tiny too, so no predictions of another are kept"):
        evaluate(encoder, ["tatoeba"], tmp_path, tmp_path / "out", pooling="cls")
    assert [path.read_bytes() for path in predictions.paths(tmp_path)] == before
    assert len(before) == 2
    assert {row["model"] for row in scores.read(tmp_path / "out/scores.jsonl")} == {"runs/tiny", "another"}


def test_bad_input(tmp_path: Path, encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="did you mean 'tatoeba'"):
        evaluate(encoder, ["tatoba"], tmp_path)
    with pytest.raises(BadInput, match="no such folder"):
        evaluate(encoder, ["tatoeba"], tmp_path / "nowhere")
    with pytest.raises(BadInput, match="pooling 'men'"):
        evaluate(encoder, ["tatoeba"], tmp_path, pooling="men")
    with pytest.raises(BadInput, match="did you mean 'itermax'"):
        evaluate(encoder, ["tatoeba"], tmp_path, methods=["itermx"])
    with pytest.raises(BadInput, match="layer 4 does not exist"):
        evaluate(encoder, ["bucc2018"], tmp_path, layers=[2, 4])


def test_the_place_for_scores_is_looked_at_before_anything_is_measured(encoder: Encoder, tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "scores.jsonl").write_text("not a score\n", encoding="utf-8")
    with pytest.raises(BadInput, match="line 1 is not JSON"):
        evaluate(encoder, ["tatoeba"], tmp_path, place)  # there is no data either, and it is not asked for
    with pytest.raises(BadInput, match="this is a file"):
        evaluate(encoder, ["tatoeba"], tmp_path, place / "scores.jsonl")
