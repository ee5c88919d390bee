from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crossling.errors import BadInput, Interrupted
from crossling.evaluate import evaluate as evaluating
from crossling.evaluate import predictions, scores
from crossling.evaluate.encode import Encoder
from crossling.evaluate.evaluate import evaluate
from crossling.evaluate.measured import Measured
from crossling.evaluate.significance import Model, compare
from crossling.evaluate.underway import UnderWay


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


# ---- languages that not every task has -----------------------------------------------------------------------


@pytest.fixture
def two_tasks(tmp_path: Path, write: Callable[[Path, str], Path]) -> Path:
    """Tatoeba in three languages, gold alignments in one other."""
    for code in ("deu", "swh", "tha"):
        write(tmp_path / f"data/tatoeba/v1/tatoeba.{code}-eng.{code}", "a b\nc\n")
        write(tmp_path / f"data/tatoeba/v1/tatoeba.{code}-eng.eng", "d\ne f\n")
    write(tmp_path / "data/word-alignment/deen/deen.src-tgt", "a b ||| c d\n")
    write(tmp_path / "data/word-alignment/deen/deen.gold", "1-2 2-1\n")
    return tmp_path / "data"


def test_a_language_need_not_be_in_every_task(two_tasks: Path, encoder: Encoder) -> None:
    with pytest.warns(UserWarning, match=r"^word-alignment: nothing to score in swh; left out there$"):
        rows = evaluate(encoder, ["tatoeba", "word-alignment"], two_tasks, languages=["swh", "de"])
    assert {(row["task"], row["language"]) for row in rows} == {
        *(("tatoeba", "sw"), ("tatoeba", "de"), ("word-alignment", "de-en"))
    }
    with pytest.warns(UserWarning, match="^word-alignment: nothing to score in th"):
        rows = evaluate(encoder, ["tatoeba", "word-alignment"], two_tasks, languages=["th"])
    assert {(row["task"], row["language"]) for row in rows} == {("tatoeba", "th")}
    with pytest.raises(BadInput, match="nothing to score in 'fr' for tatoeba, word-alignment"):
        evaluate(encoder, ["tatoeba", "word-alignment"], two_tasks, languages=["de", "fr"])


def test_what_is_broken_in_other_languages_does_no_harm(two_tasks: Path, encoder: Encoder) -> None:
    (two_tasks / "tatoeba/v1/tatoeba.tha-eng.tha").write_bytes(b"\xff\n")
    (two_tasks / "tatoeba/v1/tatoeba.x-y-z.x").write_text("", encoding="utf-8")
    assert {row["language"] for row in evaluate(encoder, ["tatoeba"], two_tasks, languages=["de"])} == {"de"}
    with pytest.raises(BadInput, match=r"tha: line 1 is not UTF-8"):
        evaluate(encoder, ["tatoeba"], two_tasks, languages=["de", "th"])


# ---- stopped, and gone on with -------------------------------------------------------------------------------


class Stopped:
    """`read` languages are measured, then the user stops it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, read: int) -> None:
        self.measured: list[str] = []
        self.left = read
        whole = evaluating.tatoeba

        def stopping(*arguments: Any, **named: Any) -> Iterator[Measured]:
            for found in whole(*arguments, **named):
                if found.set not in self.measured:
                    if len(self.measured) == self.left:
                        raise KeyboardInterrupt
                    self.measured.append(found.set)
                yield found

        monkeypatch.setattr(evaluating, "tatoeba", stopping)


def test_what_was_stopped_goes_on(
    two_tasks: Path, tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate(encoder, ["tatoeba"], two_tasks)
    out = tmp_path / "out"
    stopped = Stopped(monkeypatch, read=2)
    with pytest.raises(Interrupted, match=f"what was scored by then is kept in {out}, and the same command goes on"):
        evaluate(encoder, ["tatoeba"], two_tasks, out)
    # Nobody sees a part of it.
    assert predictions.paths(out) == []
    assert not (out / "scores.jsonl").exists()
    assert compare([Model(name, [out], {}) for name in "ab"]) == []
    stopped.left = 9
    stopped.measured.clear()
    assert evaluate(encoder, ["tatoeba"], two_tasks, out) == whole
    assert stopped.measured == ["th-en"]
    assert scores.read(out / "scores.jsonl") == whole
    assert len(predictions.paths(out)) == 6
    assert sorted(path.name for path in out.iterdir()) == ["predictions", "scores.jsonl"]


def test_other_weights_options_or_files_begin_anew(
    two_tasks: Path, tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Stopped(monkeypatch, read=2)
    for change in ("nothing", "pooling", "file", "weights"):
        stopped.left, out = 2, tmp_path / change
        stopped.measured.clear()
        with pytest.raises(Interrupted):
            evaluate(encoder, ["tatoeba"], two_tasks, out)
        stopped.left = 9
        stopped.measured.clear()
        if change == "file":
            (two_tasks / "tatoeba/v1/tatoeba.deu-eng.deu").write_text("a b e\nc\n", encoding="utf-8")
        if change == "weights":
            next(encoder.model.parameters()).data += 1
        evaluate(encoder, ["tatoeba"], two_tasks, out, pooling="cls" if change == "pooling" else "mean")
        left = {"nothing": ["th-en"], "file": ["de-en", "th-en"]}
        assert stopped.measured == left.get(change, ["de-en", "sw-en", "th-en"])


def test_a_line_that_was_being_written_is_measured_again(tmp_path: Path) -> None:
    work = UnderWay(tmp_path, "tatoeba", {"model": "a"})
    work.add("de-en", "1", [{"value": 1}])
    with (work.place / "rows.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"name": "sw-en", "of": "1", "ro')
    again = UnderWay(tmp_path, "tatoeba", {"model": "a"})
    assert again.rows("de-en", "1") == [{"value": 1}]
    assert again.rows("de-en", "2") is None
    assert again.rows("sw-en", "1") is None
    again.add("sw-en", "1", [])
    assert UnderWay(tmp_path, "tatoeba", {"model": "a"}).rows("sw-en", "1") == []


def test_without_a_folder_nothing_is_kept(two_tasks: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    Stopped(monkeypatch, read=1)
    with pytest.raises(Interrupted, match="nothing is kept without -o"):
        evaluate(encoder, ["tatoeba"], two_tasks)
